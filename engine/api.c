/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective calls: arguments are checked, made into a task, and started. The blocking forms
 * start and wait.
 */
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/cq.h"
#include "engine/options.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

/* What is being asked for, before it is checked. */
struct asked {
	struct rf_task task;
	bool counts_per_rank; /* task.counts must be there */
	bool by_rank;         /* task.count is that of one block, the same for all ranks */
	bool has_root;
	bool writes_here;        /* recv is written on this rank */
	bool reads_here;         /* send is read on this rank */
	bool in_place_elsewhere; /* RF_IN_PLACE on a rank that has no recv */
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

__attribute__((format(printf, 3, 4))) static int
refuse(const rf_comm *comm, const struct asked *asked, const char *format, ...)
{
	char why[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	rf_log(&comm->context->logger, RF_LOG_ERROR, "%s: %s",
	       rf_collective_name(asked->task.collective), why);
	return RF_ERR_INVALID;
}

static int check_options(const rf_comm *comm, const struct asked *asked,
			 const rf_call_options *options)
{
	if (!options)
		return RF_OK;
	if (!RF_OPTIONS_FIT(options))
		return refuse(comm, asked,
			      "options.size is %zu, which is not set, or there is more behind it "
			      "than this version knows: begin with RF_CALL_OPTIONS_INIT",
			      options->size);
	if (!rf_timeout_fits(options->deadline_ms))
		return refuse(comm, asked,
			      "options.deadline_ms is %lld: it is milliseconds from 0, or "
			      "RF_NO_TIMEOUT",
			      (long long)options->deadline_ms);
	if ((unsigned)options->order > RF_ORDER_TREE)
		return refuse(comm, asked,
			      "options.order is %d: there are RF_ORDER_ANY (%d) and "
			      "RF_ORDER_TREE (%d)",
			      (int)options->order, RF_ORDER_ANY, RF_ORDER_TREE);
	if ((unsigned)options->wire > RF_WIRE_FLOAT32)
		return refuse(comm, asked,
			      "options.wire is %d: there are RF_WIRE_SAME (%d) and "
			      "RF_WIRE_FLOAT32 (%d)",
			      (int)options->wire, RF_WIRE_SAME, RF_WIRE_FLOAT32);
	if (options->cq && rf_cq_context(options->cq) != comm->context)
		return refuse(comm, asked,
			      "options.cq is of another context than the "
			      "communicator: make one of rf_comm_context()");
	return RF_OK;
}

static int check_kind(const rf_comm *comm, struct asked *asked)
{
	struct rf_task *task = &asked->task;

	if (!rf_dtype_name(task->dtype))
		return refuse(comm, asked, "dtype is %d: there are 0 (%s) to %d (%s)",
			      (int)task->dtype, rf_dtype_name((rf_dtype)0), RF_DTYPE_COUNT - 1,
			      rf_dtype_name((rf_dtype)(RF_DTYPE_COUNT - 1)));
	if (!rf_op_name(task->op))
		return refuse(comm, asked, "op is %d: there are 0 (%s) to %d (%s)", (int)task->op,
			      rf_op_name((rf_op)0), RF_OP_COUNT - 1,
			      rf_op_name((rf_op)(RF_OP_COUNT - 1)));
	if (task->dtype == RF_BOOL && task->op == RF_AVG)
		return refuse(comm, asked,
			      "avg is not defined for bool: max is its or, min its "
			      "and");
	if (asked->has_root && (task->root < 0 || task->root >= comm->size))
		return refuse(comm, asked, "root is %d: the communicator has the ranks 0 to %d",
			      task->root, comm->size - 1);
	if (asked->counts_per_rank && !task->counts)
		return refuse(comm, asked,
			      "the counts are NULL: they are one for each of the %d "
			      "ranks",
			      comm->size);
	if (!total_count(comm, asked))
		return refuse(comm, asked,
			      "more bytes than the address space has: count is in "
			      "elements of %zu bytes, and all ranks' are at most %td "
			      "bytes",
			      rf_dtype_size(task->dtype), PTRDIFF_MAX);
	return RF_OK;
}

/* What this rank's block has, of a buffer of all blocks. */
static size_t my_count(const rf_comm *comm, const struct rf_task *task)
{
	return task->counts ? task->counts[comm->rank] : task->count / (size_t)comm->size;
}

/* NULL is right for a buffer of nothing. */
static int check_buffers(const rf_comm *comm, const struct asked *asked)
{
	const struct rf_task *task = &asked->task;
	const char *recv = task->collective == RF_BROADCAST ? "buffer" : "recv";
	bool reads = asked->reads_here && task->count;
	bool writes = asked->writes_here && task->count;

	if (task->collective == RF_REDUCE_SCATTER)
		writes = my_count(comm, task) || (task->send == RF_IN_PLACE && task->count);
	if (task->collective == RF_ALLGATHER)
		reads = my_count(comm, task) > 0;
	if (asked->in_place_elsewhere && task->count)
		return refuse(comm, asked,
			      "send is RF_IN_PLACE on rank %d: only the root (%d) has "
			      "a recv to find the input in",
			      comm->rank, task->root);
	if (writes && !task->recv)
		return refuse(comm, asked, "%s is NULL, for %zu elements", recv, task->count);
	if (task->count && task->recv == RF_IN_PLACE)
		return refuse(comm, asked, "%s is RF_IN_PLACE, which is for send only", recv);
	if (reads && !task->send)
		return refuse(comm, asked,
			      "send is NULL, for %zu elements (RF_IN_PLACE: the input "
			      "is in recv)",
			      task->count);
	return RF_OK;
}

static int check(const rf_comm *comm, struct asked *asked, const rf_call_options *options)
{
	int status = check_options(comm, asked, options);

	if (status == RF_OK)
		status = check_kind(comm, asked);
	if (status == RF_OK)
		status = check_buffers(comm, asked);
	return status;
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

	if (!comm)
		return RF_ERR_INVALID;
	status = rf_enter(comm->context);
	if (status != RF_OK)
		return status;
	if (!request && !(options && options->cq))
		status = refuse(comm, asked,
				"request is NULL, and so is options.cq: one of them "
				"is how the call's end is learned");
	if (status == RF_OK)
		status = check(comm, asked, options);
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
			      .writes_here = is_root,
			      .in_place_elsewhere = !is_root && send == RF_IN_PLACE};
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
