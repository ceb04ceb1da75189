/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests and completion queues: how a caller learns that something has ended.
 */
#include "engine/arena/attach.h"
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/cq.h"
#include "engine/options.h"

#include <stdlib.h>

void rf_request_end(rf_request *request, int status)
{
	if (request->ended)
		return;
	request->ended = true;
	request->status = status;
	if (request->then) {
		request->then(request);
		return;
	}
	if (request->cq)
		rf_cq_add(request->cq, request);
	rf_request_stir(request);
}

void rf_request_stir(rf_request *request)
{
	rf_context *context = request->context;

	if (request->watcher)
		*request->watcher = true;
	if (context->waiting_callers)
		pthread_cond_broadcast(&context->seat_free);
	if (context->caller_sleeps && !context->simulated)
		context->net->ops->wake(context->net);
}

/* Frees an ended request and hands out what it made. */
int rf_request_finish(rf_request *request)
{
	int status = request->status;

	rf_timer_clear(&request->context->timers, &request->deadline);
	request->context->open_requests--;
	if (request->kind == RF_REQUEST_CREATE) {
		if (status == RF_OK)
			*request->result = request->comm;
		else if (request->comm)
			rf_comm_free(request->comm);
		free(request);
	} else {
		rf_call_free(RF_CONTAINER(request, struct rf_call, request));
	}
	return status;
}

uint64_t rf_until(rf_context *context, int64_t timeout_ms)
{
	uint64_t now;

	if (timeout_ms < 0)
		return UINT64_MAX;
	now = rf_now(context);
	if ((uint64_t)timeout_ms > (UINT64_MAX - now) / 1000000)
		return UINT64_MAX;
	return now + (uint64_t)timeout_ms * 1000000;
}

/* The store's callbacks run on this thread, without the lock, until that part is done. */
static int step_store(rf_request *request, uint64_t until)
{
	rf_context *context = request->context;
	int status = RF_OK;

	while (!request->ended && request->kind == RF_REQUEST_CREATE &&
	       rf_join_needs_store(request->comm)) {
		rf_comm *comm = request->comm;
		uint64_t now = rf_now(context);
		int64_t left = until == UINT64_MAX ? 1000 : (int64_t)((until - now) / 1000000);

		if (now > until)
			left = 0;
		rf_leave(context);
		status = rf_join_store_step(comm, left < 1000 ? left : 1000);
		if (rf_enter(context) != RF_OK)
			return RF_ERR_FORKED;
		if (status == RF_ERR_AGAIN && rf_now(context) >= until)
			return RF_ERR_AGAIN;
		/* Its deadline is a timer, and nobody else may be driving. */
		rf_drive_until(context, &request->ended, 0);
	}
	return RF_OK;
}

/* The store may be needed again later, and this thread is the only one that may call it. */
static int wait_for_creation(rf_request *request, uint64_t until)
{
	int status = step_store(request, until);

	while (status == RF_OK && !request->ended) {
		bool stirred = false;

		request->watcher = &stirred;
		status = rf_drive_until(request->context, &stirred, until);
		request->watcher = NULL;
		if (status == RF_OK)
			status = step_store(request, until);
	}
	return status;
}

static int wait_for(rf_request *request, uint64_t until)
{
	if (request->kind == RF_REQUEST_CREATE)
		return wait_for_creation(request, until);
	return rf_drive_until(request->context, &request->ended, until);
}

static bool is_own(const rf_request *request)
{
	return request->cq == NULL; /* those of a queue are handed out by it alone */
}

int rf_wait(rf_request **request, int64_t timeout_ms)
{
	rf_context *context;
	int status;

	if (!request || !rf_timeout_fits(timeout_ms))
		return RF_ERR_INVALID;
	if (!*request)
		return RF_OK;
	if (!is_own(*request))
		return RF_ERR_INVALID;
	context = (*request)->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	status = wait_for(*request, rf_until(context, timeout_ms));
	if (status == RF_OK) {
		status = rf_request_finish(*request);
		*request = NULL;
	}
	rf_leave(context);
	rf_context_shared_release(context);
	return status;
}

int rf_test(rf_request **request)
{
	return rf_wait(request, 0);
}

/* Frees nothing, so that no error is lost when the time is over before all have ended. */
static int await_all(rf_request **requests, size_t count, int64_t timeout_ms)
{
	uint64_t until = 0;
	bool begun = false;

	for (size_t i = 0; i < count; i++) {
		rf_context *context = requests[i] ? requests[i]->context : NULL;
		int status;

		if (!context)
			continue;
		status = rf_enter(context);
		if (status != RF_OK)
			return status;
		if (!begun)
			until = rf_until(context, timeout_ms);
		begun = true;
		status = wait_for(requests[i], until);
		rf_leave(context);
		if (status != RF_OK)
			return status;
	}
	return RF_OK;
}

int rf_wait_all(rf_request **requests, size_t count, int64_t timeout_ms)
{
	int status, first = RF_OK;

	if ((count && !requests) || !rf_timeout_fits(timeout_ms))
		return RF_ERR_INVALID;
	for (size_t i = 0; i < count; i++) {
		if (requests[i] && !is_own(requests[i]))
			return RF_ERR_INVALID;
	}
	status = await_all(requests, count, timeout_ms);
	if (status != RF_OK)
		return status;
	for (size_t i = 0; i < count; i++) {
		status = rf_wait(&requests[i], 0);
		if (first == RF_OK)
			first = status;
	}
	return first;
}

/* The first request that is there, or NULL. All must be of its context. */
static rf_request *first_of(rf_request **requests, size_t count)
{
	rf_request *first = NULL;

	for (size_t i = 0; i < count; i++) {
		if (requests[i] && !first)
			first = requests[i];
	}
	return first;
}

static bool are_waitable(rf_request **requests, size_t count, const rf_context *context)
{
	for (size_t i = 0; i < count; i++) {
		if (requests[i] && (requests[i]->context != context || !is_own(requests[i])))
			return false;
	}
	return true;
}

static size_t ended_one(rf_request **requests, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (requests[i] && requests[i]->ended)
			return i;
	}
	return count;
}

static void set_watcher(rf_request **requests, size_t count, bool *watcher)
{
	for (size_t i = 0; i < count; i++) {
		if (requests[i])
			requests[i]->watcher = watcher;
	}
}

/* With some of a store among them, each step lets one of those have a turn. */
static int wait_any_locked(rf_request **requests, size_t count, rf_context *context, uint64_t until)
{
	int status = RF_OK;

	while (status == RF_OK && ended_one(requests, count) == count) {
		bool any = false;

		set_watcher(requests, count, &any);
		for (size_t i = 0; i < count && status == RF_OK && !any; i++) {
			if (requests[i] && requests[i]->kind == RF_REQUEST_CREATE)
				status = step_store(requests[i], until);
		}
		if (status == RF_OK && !any)
			status = rf_drive_until(context, &any, until);
		set_watcher(requests, count, NULL);
	}
	return status;
}

int rf_wait_any(rf_request **requests, size_t count, int64_t timeout_ms, size_t *index)
{
	rf_request *first;
	rf_context *context;
	int status;

	if (!index || (count && !requests) || !rf_timeout_fits(timeout_ms))
		return RF_ERR_INVALID;
	first = first_of(requests, count);
	if (!first) {
		*index = count;
		return RF_OK;
	}
	context = first->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (!are_waitable(requests, count, context)) {
		rf_leave(context);
		return RF_ERR_INVALID;
	}
	status = wait_any_locked(requests, count, context, rf_until(context, timeout_ms));
	if (status == RF_OK) {
		*index = ended_one(requests, count);
		status = rf_request_finish(requests[*index]);
		requests[*index] = NULL;
	}
	rf_leave(context);
	rf_context_shared_release(context);
	return status;
}

int rf_cancel(rf_request *request)
{
	rf_context *context;
	int status;

	if (!request)
		return RF_ERR_INVALID;
	context = request->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (!request->ended && request->kind == RF_REQUEST_CALL) {
		rf_comm_fail(request->comm, RF_SEGMENT_ABORT, RF_ERR_ABORTED, &request->comm->rank,
			     1, "a call was cancelled by its user");
		rf_calls_advance(context);
	} else if (!request->ended && request->parent) {
		rf_comm_fail(request->parent, RF_SEGMENT_ABORT, RF_ERR_ABORTED,
			     &request->parent->rank, 1, "a split was cancelled by its user");
		rf_calls_advance(context);
	} else if (!request->ended && rf_attach_is_running(request->comm)) {
		rf_attach_cancel(request->comm);
		rf_calls_advance(context);
	} else if (!request->ended) {
		rf_join_cancel(request->comm);
		rf_request_end(request, RF_ERR_ABORTED);
	}
	rf_leave(context);
	return RF_OK;
}
