/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective calls: arguments are checked, made into a task, and started. The blocking forms
 * start and wait.
 */
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/cq.h"
#include "engine/options.h"

#include <stdint.h>

/* What is being asked for, before it is checked. */
struct asked {
	struct rf_task task;
	bool counts_per_rank; /* task.counts must be there */
	bool by_rank;         /* task.count is that of one block, the same for all ranks */
	bool has_root;
	bool writes_here; /* recv is written on this rank */
	bool reads_here;  /* send is read on this rank */
};

static bool total_count(const rf_comm *comm, struct asked *asked)
{
	struct rf_task *task = &asked->task;
	size_t element = rf_dtype_size(task->dtype);
	size_t total = 0;

	if (asked->counts_per_rank) {
		for (int i = 0; i < comm->size; i++) {
			if (__builtin_add_overflow(total, task->counts[i], &total))
				return false;
		}
		task->count = total;
	} else if (asked->by_rank &&
		   __builtin_mul_overflow(task->count, (size_t)comm->size, &task->count)) {
		return false;
	}
	return !__builtin_mul_overflow(task->count, element, &total) && total <= PTRDIFF_MAX;
}

static int refuse(const rf_comm *comm, const struct asked *asked, const char *why)
{
	rf_log(&comm->context->logger, RF_LOG_ERROR, "%s: %s",
	       rf_collective_name(asked->task.collective), why);
	return RF_ERR_INVALID;
}

static int check(const rf_comm *comm, struct asked *asked, const rf_call_options *options)
{
	struct rf_task *task = &asked->task;

	if (options && !RF_OPTIONS_FIT(options))
		return refuse(comm, asked,
			      "options.size is not set, or options hold what this version does not "
			      "know: begin with RF_CALL_OPTIONS_INIT");
	if (options && !rf_timeout_fits(options->deadline_ms))
		return refuse(comm, asked, "options.deadline_ms is negative and not RF_NO_TIMEOUT");
	if (options && (unsigned)options->order > RF_ORDER_TREE)
		return refuse(comm, asked, "no such order");
	if (options && (unsigned)options->wire > RF_WIRE_FLOAT32)
		return refuse(comm, asked, "no such wire type");
	if (!rf_dtype_name(task->dtype))
		return refuse(comm, asked, "no such dtype");
	if (!rf_op_name(task->op))
		return refuse(comm, asked, "no such op");
	if (task->dtype == RF_BOOL && task->op == RF_AVG)
		return refuse(comm, asked, "avg is not defined for bool");
	if (asked->has_root && (task->root < 0 || task->root >= comm->size))
		return refuse(comm, asked, "root is not a rank of the communicator");
	if (asked->counts_per_rank && !task->counts)
		return refuse(comm, asked, "counts is NULL");
	if (!total_count(comm, asked))
		return refuse(comm, asked, "more bytes than the address space has");
	if (task->count && asked->writes_here && !task->recv)
		return refuse(comm, asked, "the receive buffer is NULL");
	if (task->count && task->recv == RF_IN_PLACE)
		return refuse(comm, asked, "RF_IN_PLACE is for the send buffer only");
	if (task->count && asked->reads_here && !task->send)
		return refuse(comm, asked, "the send buffer is NULL");
	return RF_OK;
}

/* Where this rank's block begins in a buffer of all blocks, in elements. */
static size_t my_offset(const rf_comm *comm, const struct rf_task *task)
{
	size_t offset = 0;

	if (!task->counts)
		return comm->size ? task->count / (size_t)comm->size * (size_t)comm->rank : 0;
	for (int i = 0; i < comm->rank; i++)
		offset += task->counts[i];
	return offset;
}

static size_t my_count(const rf_comm *comm, const struct rf_task *task)
{
	return task->counts ? task->counts[comm->rank] : task->count / (size_t)comm->size;
}

/* RF_IN_PLACE becomes the address of the input. */
static void place_input(const rf_comm *comm, struct rf_task *task)
{
	char *recv = task->recv;

	if (task->collective == RF_ALLGATHER && recv) {
		char *mine = recv + my_offset(comm, task) * rf_dtype_size(task->dtype);

		if (task->send == RF_IN_PLACE || task->send == mine) {
			task->send = mine;
			task->in_place = true;
		}
	} else if (task->send == RF_IN_PLACE || task->send == recv) {
		task->send = recv;
		task->in_place = true;
	}
}

/* waits: the caller will do nothing else; *request is NULL then if there is nothing to wait for. */
static int start(rf_comm *comm, struct asked *asked, const rf_call_options *options, bool waits,
		 rf_request **request)
{
	struct rf_call_setup setup = {.options = options,
				      .wire = options ? options->wire : RF_WIRE_SAME};
	struct rf_call *call;
	int status;

	if (!comm || (!request && !(options && options->cq)))
		return RF_ERR_INVALID;
	status = rf_enter(comm->context);
	if (status != RF_OK)
		return status;
	if (options && options->cq && rf_cq_context(options->cq) != comm->context)
		status = refuse(comm, asked, "the completion queue is of another context");
	if (status == RF_OK)
		status = check(comm, asked, options);
	if (status == RF_OK && asked->task.collective == RF_REDUCE_SCATTER && !asked->task.recv &&
	    (my_count(comm, &asked->task) ||
	     (asked->task.send == RF_IN_PLACE && asked->task.count)))
		status = refuse(comm, asked, "the receive buffer is NULL");
	if (status == RF_OK && asked->task.collective == RF_ALLGATHER && !asked->task.send &&
	    my_count(comm, &asked->task))
		status = refuse(comm, asked, "the send buffer is NULL");
	if (status == RF_OK) {
		asked->task.order = options ? options->order : RF_ORDER_ANY;
		if (asked->task.op == RF_AVG && comm->size > 1)
			asked->task.divisor = (uint64_t)comm->size;
		place_input(comm, &asked->task);
		setup.task = asked->task;
		status = waits ? rf_call_run(comm, &setup, &call)
			       : rf_call_start(comm, &setup, &call);
	}
	if (status == RF_OK && request)
		*request = call ? &call->request : NULL;
	rf_leave(comm->context);
	return status;
}

static int start_and_wait(rf_comm *comm, struct asked *asked)
{
	rf_request *request;
	int status = start(comm, asked, NULL, true, &request);

	return status == RF_OK ? rf_wait(&request, RF_NO_TIMEOUT) : status;
}

/* ---- what each collective asks for ---------------------------------------------------------- */

static struct asked ask_allreduce(const void *send, void *recv, size_t count, rf_dtype dtype,
				  rf_op op)
{
	return (struct asked){.task = {.collective = RF_ALLREDUCE,
				       .dtype = dtype,
				       .op = op,
				       .count = count,
				       .send = send,
				       .recv = recv},
			      .reads_here = true,
			      .writes_here = true};
}

static struct asked ask_reduce(const rf_comm *comm, const void *send, void *recv, size_t count,
			       rf_dtype dtype, rf_op op, int root)
{
	bool is_root = comm && comm->rank == root;

	return (struct asked){.task = {.collective = RF_REDUCE,
				       .dtype = dtype,
				       .op = op,
				       .count = count,
				       .root = root,
				       .send = !is_root && send == RF_IN_PLACE ? NULL : send,
				       .recv = is_root ? recv : NULL},
			      .has_root = true,
			      .reads_here = true,
			      .writes_here = is_root};
}

static struct asked ask_broadcast(void *buffer, size_t count, rf_dtype dtype, int root)
{
	return (struct asked){.task = {.collective = RF_BROADCAST,
				       .dtype = dtype,
				       .op = RF_SUM,
				       .count = count,
				       .root = root,
				       .send = buffer,
				       .recv = buffer},
			      .has_root = true,
			      .reads_here = true,
			      .writes_here = true};
}

static struct asked ask_reduce_scatter(const void *send, void *recv, size_t count,
				       const size_t *counts, bool uneven, rf_dtype dtype, rf_op op)
{
	return (struct asked){.task = {.collective = RF_REDUCE_SCATTER,
				       .dtype = dtype,
				       .op = op,
				       .count = count,
				       .counts = counts,
				       .send = send,
				       .recv = recv},
			      .counts_per_rank = uneven,
			      .by_rank = !uneven,
			      .reads_here = true};
}

static struct asked ask_allgather(const void *send, void *recv, size_t count, const size_t *counts,
				  bool uneven, rf_dtype dtype)
{
	return (struct asked){.task = {.collective = RF_ALLGATHER,
				       .dtype = dtype,
				       .op = RF_SUM,
				       .count = count,
				       .counts = counts,
				       .send = send,
				       .recv = recv},
			      .counts_per_rank = uneven,
			      .by_rank = !uneven,
			      .writes_here = true};
}

static struct asked ask_barrier(void)
{
	return (struct asked){.task = {.collective = RF_BARRIER, .dtype = RF_UINT8, .op = RF_SUM}};
}

/* ---- the public calls ----------------------------------------------------------------------- */

int rf_allreduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
		 rf_op op)
{
	struct asked asked = ask_allreduce(send, recv, count, dtype, op);

	return start_and_wait(comm, &asked);
}

int rf_iallreduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
		  rf_op op, const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_allreduce(send, recv, count, dtype, op);

	return start(comm, &asked, options, false, request);
}

int rf_reduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype, rf_op op,
	      int root)
{
	struct asked asked = ask_reduce(comm, send, recv, count, dtype, op, root);

	return start_and_wait(comm, &asked);
}

int rf_ireduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype, rf_op op,
	       int root, const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_reduce(comm, send, recv, count, dtype, op, root);

	return start(comm, &asked, options, false, request);
}

int rf_broadcast(rf_comm *comm, void *buffer, size_t count, rf_dtype dtype, int root)
{
	struct asked asked = ask_broadcast(buffer, count, dtype, root);

	return start_and_wait(comm, &asked);
}

int rf_ibroadcast(rf_comm *comm, void *buffer, size_t count, rf_dtype dtype, int root,
		  const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_broadcast(buffer, count, dtype, root);

	return start(comm, &asked, options, false, request);
}

int rf_reduce_scatter(rf_comm *comm, const void *send, void *recv, size_t recv_count,
		      rf_dtype dtype, rf_op op)
{
	struct asked asked = ask_reduce_scatter(send, recv, recv_count, NULL, false, dtype, op);

	return start_and_wait(comm, &asked);
}

int rf_ireduce_scatter(rf_comm *comm, const void *send, void *recv, size_t recv_count,
		       rf_dtype dtype, rf_op op, const rf_call_options *options,
		       rf_request **request)
{
	struct asked asked = ask_reduce_scatter(send, recv, recv_count, NULL, false, dtype, op);

	return start(comm, &asked, options, false, request);
}

int rf_reduce_scatterv(rf_comm *comm, const void *send, void *recv, const size_t *recv_counts,
		       rf_dtype dtype, rf_op op)
{
	struct asked asked = ask_reduce_scatter(send, recv, 0, recv_counts, true, dtype, op);

	return start_and_wait(comm, &asked);
}

int rf_ireduce_scatterv(rf_comm *comm, const void *send, void *recv, const size_t *recv_counts,
			rf_dtype dtype, rf_op op, const rf_call_options *options,
			rf_request **request)
{
	struct asked asked = ask_reduce_scatter(send, recv, 0, recv_counts, true, dtype, op);

	return start(comm, &asked, options, false, request);
}

int rf_allgather(rf_comm *comm, const void *send, void *recv, size_t send_count, rf_dtype dtype)
{
	struct asked asked = ask_allgather(send, recv, send_count, NULL, false, dtype);

	return start_and_wait(comm, &asked);
}

int rf_iallgather(rf_comm *comm, const void *send, void *recv, size_t send_count, rf_dtype dtype,
		  const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_allgather(send, recv, send_count, NULL, false, dtype);

	return start(comm, &asked, options, false, request);
}

int rf_allgatherv(rf_comm *comm, const void *send, void *recv, const size_t *counts, rf_dtype dtype)
{
	struct asked asked = ask_allgather(send, recv, 0, counts, true, dtype);

	return start_and_wait(comm, &asked);
}

int rf_iallgatherv(rf_comm *comm, const void *send, void *recv, const size_t *counts,
		   rf_dtype dtype, const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_allgather(send, recv, 0, counts, true, dtype);

	return start(comm, &asked, options, false, request);
}

int rf_barrier(rf_comm *comm)
{
	struct asked asked = ask_barrier();

	return start_and_wait(comm, &asked);
}

int rf_ibarrier(rf_comm *comm, const rf_call_options *options, rf_request **request)
{
	struct asked asked = ask_barrier();

	return start(comm, &asked, options, false, request);
}
