/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives as bench sees them: a row each, with how large a call of a given size is and how
 * bus bandwidth follows from algorithm bandwidth (the factors in common use: what the busiest link
 * carries at the least, divided by the size).
 */
#include "tools/bench.h"

struct collective {
	/* Of a rank's buffers, in units of the whole (true) or of a rank's part of it. */
	bool sends_whole, receives_whole;
	double (*bus_factor)(double ranks);
	/* With options; *request is waited for by the caller. */
	int (*start)(const struct bench *bench, const struct bench_case *what, size_t count,
		     const void *send, void *recv, const rf_call_options *options,
		     rf_request **request);
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

static int start_allreduce(const struct bench *bench, const struct bench_case *what, size_t count,
			   const void *send, void *recv, const rf_call_options *options,
			   rf_request **request)
{
	return rf_iallreduce(bench->comm, send, recv, count, what->dtype, what->op, options,
			     request);
}

static int start_reduce(const struct bench *bench, const struct bench_case *what, size_t count,
			const void *send, void *recv, const rf_call_options *options,
			rf_request **request)
{
	/* In place is for the root; the others' input is where it would be. */
	if (send == RF_IN_PLACE && bench->rank != BENCH_ROOT)
		send = recv;
	return rf_ireduce(bench->comm, send, bench->rank == BENCH_ROOT ? recv : NULL, count,
			  what->dtype, what->op, BENCH_ROOT, options, request);
}

static int start_broadcast(const struct bench *bench, const struct bench_case *what, size_t count,
			   const void *send, void *recv, const rf_call_options *options,
			   rf_request **request)
{
	(void)send;
	return rf_ibroadcast(bench->comm, recv, count, what->dtype, BENCH_ROOT, options, request);
}

static int start_reduce_scatter(const struct bench *bench, const struct bench_case *what,
				size_t count, const void *send, void *recv,
				const rf_call_options *options, rf_request **request)
{
	return rf_ireduce_scatter(bench->comm, send, recv, count, what->dtype, what->op, options,
				  request);
}

static int start_allgather(const struct bench *bench, const struct bench_case *what, size_t count,
			   const void *send, void *recv, const rf_call_options *options,
			   rf_request **request)
{
	return rf_iallgather(bench->comm, send, recv, count, what->dtype, options, request);
}

static int start_barrier(const struct bench *bench, const struct bench_case *what, size_t count,
			 const void *send, void *recv, const rf_call_options *options,
			 rf_request **request)
{
	(void)what;
	(void)count;
	(void)send;
	(void)recv;
	return rf_ibarrier(bench->comm, options, request);
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
	       const struct bench_shape *shape, void *send, void *recv)
{
	const struct bench_settings *const settings = bench->settings;
	const void *const input = settings->in_place ? RF_IN_PLACE : send;
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	rf_request *request;
	int error;

	/* What most programs call. */
	if (what->collective == RF_ALLREDUCE && settings->order == RF_ORDER_ANY &&
	    settings->wire == RF_WIRE_SAME)
		return rf_allreduce(bench->comm, input, recv, shape->count, what->dtype, what->op);
	options.order = settings->order;
	options.wire = settings->wire;
	error = collectives[what->collective].start(bench, what, shape->count, input, recv,
						    &options, &request);
	return error ? error : rf_wait(&request, RF_NO_TIMEOUT);
}
