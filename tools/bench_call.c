/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives as bench sees them: a row each, with how large a call of a given size is and how
 * bus bandwidth follows from algorithm bandwidth (the factors in common use: what the busiest link
 * carries at the least, divided by the size).
 */
#include "tools/bench.h"

struct arguments {
	const struct bench_case *what;
	size_t count;
	int rank, root;
	const void *send;
	void *recv;
	const rf_call_options *options;
};

struct collective {
	/* Of a rank's buffers, in units of the whole (true) or of a rank's part of it. */
	bool sends_whole, receives_whole;
	double (*bus_factor)(double ranks);
	int (*start)(rf_comm *comm, const struct arguments *with, rf_request **request);
};

static double factor_allreduce(double ranks)
{
	return 2 * (ranks - 1) / ranks;
}

static double factor_part(double ranks)
{
	return (ranks - 1) / ranks;
}

static double factor_one(double ranks)
{
	(void)ranks;
	return 1;
}

static int start_allreduce(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	return rf_iallreduce(comm, with->send, with->recv, with->count, with->what->dtype,
			     with->what->op, with->options, request);
}

static int start_reduce(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	const bool is_root = with->rank == with->root;
	/* In place is for the root; the others' input is where it would be. */
	const void *const send = with->send == RF_IN_PLACE && !is_root ? with->recv : with->send;

	return rf_ireduce(comm, send, is_root ? with->recv : NULL, with->count, with->what->dtype,
			  with->what->op, with->root, with->options, request);
}

static int start_broadcast(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	return rf_ibroadcast(comm, with->recv, with->count, with->what->dtype, with->root,
			     with->options, request);
}

static int start_reduce_scatter(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	return rf_ireduce_scatter(comm, with->send, with->recv, with->count, with->what->dtype,
				  with->what->op, with->options, request);
}

static int start_allgather(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	return rf_iallgather(comm, with->send, with->recv, with->count, with->what->dtype,
			     with->options, request);
}

static int start_barrier(rf_comm *comm, const struct arguments *with, rf_request **request)
{
	return rf_ibarrier(comm, with->options, request);
}

static const struct collective collectives[RF_COLLECTIVE_COUNT] = {
	[RF_ALLREDUCE] = {true, true, factor_allreduce, start_allreduce},
	[RF_REDUCE] = {true, true, factor_one, start_reduce},
	[RF_BROADCAST] = {true, true, factor_one, start_broadcast},
	[RF_REDUCE_SCATTER] = {true, false, factor_part, start_reduce_scatter},
	[RF_ALLGATHER] = {false, true, factor_part, start_allgather},
	[RF_BARRIER] = {true, true, factor_one, start_barrier},
};

void bench_shape(const struct bench *bench, const struct bench_case *what,
		 struct bench_shape *shape)
{
	const struct collective *const row = &collectives[what->collective];
	const size_t ranks = (size_t)bench->ranks;
	const size_t parts = row->sends_whole && row->receives_whole ? 1 : ranks;
	size_t count = what->bytes / rf_dtype_size(what->dtype) / parts;

	/* Each rank has something, however small the size. */
	if (count == 0 && what->bytes > 0)
		count = 1;
	if (what->collective == RF_BARRIER)
		count = 0;
	shape->count = count;
	shape->send_count = row->sends_whole ? count * parts : count;
	shape->recv_count = row->receives_whole ? count * parts : count;
	shape->bytes = count * parts * rf_dtype_size(what->dtype);
	shape->bus_factor = row->bus_factor((double)ranks);
}

int bench_call(const struct bench *bench, const struct bench_case *what,
	       const struct bench_shape *shape, int root, void *send, void *recv)
{
	const struct bench_settings *const settings = bench->settings;
	const void *const input = settings->in_place ? RF_IN_PLACE : send;
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	const struct arguments with = {what,  shape->count, bench->rank, root,
				       input, recv,         &options};
	rf_request *request;
	int error;

	/* What most programs call. */
	if (what->collective == RF_ALLREDUCE && settings->order == RF_ORDER_ANY &&
	    settings->wire == RF_WIRE_SAME)
		return rf_allreduce(bench->comm, input, recv, shape->count, what->dtype, what->op);
	options.order = settings->order;
	options.wire = settings->wire;
	error = collectives[what->collective].start(bench->comm, &with, &request);
	return error ? error : rf_wait(&request, RF_NO_TIMEOUT);
}
