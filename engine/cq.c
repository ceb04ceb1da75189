/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues. The eventfd is written when the queue becomes non-empty and read when it
 * becomes empty, so that a busy queue costs no system call a completion.
 */
#include "engine/cq.h"
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/options.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct rf_cq {
	rf_context *context;
	struct rf_list node;  /* in context->cqs */
	struct rf_list ended; /* struct rf_request, by cq_node */
	size_t in_flight;     /* started and not polled */
	int fd;
	bool any; /* !rf_list_empty(&ended) */
};

int rf_cq_create(rf_context *context, rf_cq **out)
{
	rf_cq *cq;
	int status;

	if (!context || !out)
		return RF_ERR_INVALID;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		rf_leave(context);
		return RF_ERR_NOMEM;
	}
	cq->context = context;
	cq->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cq->fd < 0) {
		rf_log(&context->logger, RF_LOG_ERROR,
		       "no descriptor for a completion queue: %m (see ulimit -n)");
		free(cq);
		rf_leave(context);
		return RF_ERR_SYSTEM;
	}
	rf_list_init(&cq->ended);
	rf_list_append(&context->cqs, &cq->node);
	*out = cq;
	rf_leave(context);
	return RF_OK;
}

int rf_cq_destroy(rf_cq **cq)
{
	rf_context *context;
	int status;

	if (!cq || !*cq)
		return RF_ERR_INVALID;
	context = (*cq)->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if ((*cq)->in_flight) {
		rf_leave(context);
		return RF_ERR_BUSY;
	}
	rf_list_remove(&(*cq)->node);
	close((*cq)->fd);
	free(*cq);
	*cq = NULL;
	rf_leave(context);
	rf_context_shared_release(context);
	return RF_OK;
}

int rf_cq_fd(const rf_cq *cq)
{
	if (!cq)
		return RF_ERR_INVALID;
	return atomic_load_explicit(&cq->context->forked, memory_order_acquire) ? RF_ERR_FORKED
										: cq->fd;
}

rf_context *rf_cq_context(const rf_cq *cq)
{
	return cq->context;
}

void rf_cq_expect(rf_cq *cq)
{
	cq->in_flight++;
}

void rf_cq_add(rf_cq *cq, rf_request *request)
{
	uint64_t one = 1;

	rf_list_append(&cq->ended, &request->cq_node);
	if (cq->any)
		return;
	cq->any = true;
	if (write(cq->fd, &one, sizeof(one)) != sizeof(one))
		rf_log(&cq->context->logger, RF_LOG_ERROR,
		       "a completion queue's eventfd failed: %m");
}

static int take(rf_cq *cq, rf_completion *completions, int capacity)
{
	uint64_t value;
	int count = 0;

	while (count < capacity && !rf_list_empty(&cq->ended)) {
		rf_request *request = RF_CONTAINER(cq->ended.next, rf_request, cq_node);

		rf_list_remove(&request->cq_node);
		completions[count].user = request->user;
		completions[count].status = rf_request_finish(request);
		count++;
		cq->in_flight--;
	}
	if (cq->any && rf_list_empty(&cq->ended)) {
		cq->any = false;
		if (read(cq->fd, &value, sizeof(value)) != sizeof(value))
			rf_log(&cq->context->logger, RF_LOG_ERROR,
			       "a completion queue's eventfd failed: %m");
	}
	return count;
}

int rf_cq_poll(rf_cq *cq, rf_completion *completions, int capacity, int64_t timeout_ms)
{
	rf_context *context;
	int status;

	if (!cq || !completions || capacity < 1 || !rf_timeout_fits(timeout_ms))
		return RF_ERR_INVALID;
	context = cq->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (!cq->any) {
		status = rf_drive_until(context, &cq->any, rf_until(context, timeout_ms));
		if (status != RF_OK) {
			rf_leave(context);
			return status == RF_ERR_AGAIN ? 0 : status;
		}
	}
	status = take(cq, completions, capacity);
	rf_leave(context);
	rf_context_shared_release(context);
	return status;
}

void rf_cq_abandon_all(rf_context *context)
{
	RF_LIST_EACH(node, &context->cqs)
	{
		close(RF_CONTAINER(node, rf_cq, node)->fd);
	}
}
