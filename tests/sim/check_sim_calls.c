/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random calls on the whole engine under the hostile simulator. Each seed samples ranks, hosts,
 * algorithm, communicators in flight, collectives, dtypes, ops, sizes, and in which order each rank
 * starts the calls of different communicators. Results are compared bit by bit with the definition.
 *
 *   check_sim_calls [SEEDS [FIRST_SEED]]     default: as many as fit in RINGFOLD_TEST_SECONDS (20)
 */
#include "tests/sim/values.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS_MAX = 3, CALLS_MAX = 12, GUARD = 64 };

struct sampled_call {
	rf_collective collective;
	rf_dtype dtype;
	rf_op op;
	rf_order order;
	rf_wire wire;
	int root;
	size_t count; /* elements of the whole */
	size_t *counts;
	bool in_place;
	uint64_t number; /* for the values */
};

/* One rank's part of one call. */
struct part {
	uint8_t *send, *recv; /* with a guard on both sides of each */
	size_t send_bytes, recv_bytes;
	rf_request *request;
};

struct run {
	struct world world;
	rf_comm *comms[COMMS_MAX][1024];
	int comm_count;
	int call_count; /* on each communicator */
	struct sampled_call calls[COMMS_MAX][CALLS_MAX];
	struct part *parts; /* [comm][call][rank] */
};

static struct part *part_of(struct run *run, int comm, int call, int rank)
{
	return &run->parts[((size_t)comm * CALLS_MAX + (size_t)call) * (size_t)run->world.size +
			   (size_t)rank];
}

/* ---- sampling ------------------------------------------------------------------------------- */

static uint64_t draw(struct run *run, uint64_t bound)
{
	return rf_sim_random(run->world.sim, bound);
}

static size_t sample_count(struct run *run)
{
	switch (draw(run, 6)) {
	case 0:
		return 0;
	case 1:
		return 1 + draw(run, 3);
	case 2:
		return draw(run, 100);
	case 3:
		return draw(run, 3000);
	default:
		return draw(run, run->world.size > 64 ? 5000 : 40000);
	}
}

static void sample_counts(struct run *run, struct sampled_call *call)
{
	size_t total = 0;

	call->counts = calloc((size_t)run->world.size, sizeof(size_t));
	for (int rank = 0; rank < run->world.size; rank++) {
		call->counts[rank] = draw(run, 3) ? draw(run, 1 + call->count / 4) : 0;
		total += call->counts[rank];
	}
	call->count = total;
}

static struct sampled_call sample_call(struct run *run, uint64_t number)
{
	struct sampled_call call = {
		.collective = (rf_collective)draw(run, RF_COLLECTIVE_COUNT),
		.dtype = (rf_dtype)draw(run, RF_DTYPE_COUNT),
		.op = (rf_op)draw(run, RF_OP_COUNT),
		.order = draw(run, 4) ? RF_ORDER_ANY : RF_ORDER_TREE,
		.wire = draw(run, 4) ? RF_WIRE_SAME : RF_WIRE_FLOAT32,
		.root = (int)draw(run, (uint64_t)run->world.size),
		.in_place = draw(run, 2),
		.number = number,
	};

	if (call.dtype == RF_BOOL && call.op == RF_AVG)
		call.op = RF_SUM;
	call.count = sample_count(run);
	if (call.collective == RF_BARRIER)
		call.count = 0;
	if (call.collective == RF_REDUCE_SCATTER || call.collective == RF_ALLGATHER) {
		if (draw(run, 2))
			sample_counts(run, &call);
		else
			call.count = call.count / (size_t)run->world.size * (size_t)run->world.size;
	}
	return call;
}

static int sample_size(uint64_t seed)
{
	static const int large[] = {37, 61, 64, 127, 128, 256};

	if (seed % 40 == 39)
		return large[seed / 40 % 6];
	if (seed % 5 == 4)
		return 9 + (int)(seed / 5 % 25);
	return 1 + (int)(seed % 9);
}

/* ---- buffers -------------------------------------------------------------------------------- */

static size_t block_first(const struct sampled_call *call, int size, int rank)
{
	size_t first = 0;

	if (!call->counts)
		return call->count / (size_t)size * (size_t)rank;
	for (int i = 0; i < rank; i++)
		first += call->counts[i];
	return first;
}

static size_t block_count(const struct sampled_call *call, int size, int rank)
{
	return call->counts ? call->counts[rank] : call->count / (size_t)size;
}

static uint8_t *guarded(size_t bytes)
{
	uint8_t *memory = malloc(bytes + 2 * GUARD);

	WORLD_CHECK(memory, "out of memory");
	memset(memory, 0xa5, bytes + 2 * GUARD);
	return memory;
}

static void check_guards(const uint8_t *memory, size_t bytes, const char *what)
{
	for (int i = 0; i < GUARD; i++)
		WORLD_CHECK(memory[i] == 0xa5 && memory[GUARD + bytes + (size_t)i] == 0xa5,
			    "%s was written outside of its bounds", what);
}

/* What a rank puts in: for allgather and broadcast the values of one rank. */
static void fill_input(const struct run *run, const struct sampled_call *call, int rank,
		       void *buffer)
{
	int size = run->world.size;

	switch (call->collective) {
	case RF_ALLGATHER:
		values_input(call->number, 0, call->dtype, RF_SUM, block_first(call, size, rank),
			     block_count(call, size, rank), buffer);
		break;
	case RF_BROADCAST:
		if (rank == call->root)
			values_input(call->number, 0, call->dtype, RF_SUM, 0, call->count, buffer);
		break;
	case RF_BARRIER:
		break;
	default:
		values_input(call->number, rank, call->dtype, call->op, 0, call->count, buffer);
		break;
	}
}

static bool has_output(const struct sampled_call *call, int rank)
{
	return call->collective != RF_REDUCE || rank == call->root;
}

static void make_buffers(struct run *run, const struct sampled_call *call, int rank,
			 struct part *part)
{
	size_t element = rf_dtype_size(call->dtype);
	size_t mine = block_count(call, run->world.size, rank) * element;

	part->send_bytes = call->collective == RF_ALLGATHER ? mine : call->count * element;
	part->recv_bytes = call->collective == RF_REDUCE_SCATTER && !call->in_place
				   ? mine
				   : call->count * element;
	part->send = guarded(part->send_bytes);
	part->recv = guarded(part->recv_bytes);
	fill_input(run, call, rank, part->send + GUARD);
	if (call->collective == RF_BROADCAST ||
	    (call->in_place && call->collective != RF_ALLGATHER && has_output(call, rank)))
		memcpy(part->recv + GUARD, part->send + GUARD, part->send_bytes);
	else if (call->in_place && call->collective == RF_ALLGATHER)
		memcpy(part->recv + GUARD + block_first(call, run->world.size, rank) * element,
		       part->send + GUARD, part->send_bytes);
}

/* ---- starting ------------------------------------------------------------------------------- */

static void start_part(struct run *run, int comm_index, int call_index, int rank)
{
	const struct sampled_call *call = &run->calls[comm_index][call_index];
	struct part *part = part_of(run, comm_index, call_index, rank);
	rf_comm *comm = run->comms[comm_index][rank];
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	bool in_place = call->in_place && has_output(call, rank);
	size_t each = call->count / (size_t)run->world.size;
	const void *send;
	void *recv;
	int status = RF_ERR_INVALID;

	options.order = call->order;
	options.wire = call->wire;
	make_buffers(run, call, rank, part);
	send = in_place ? RF_IN_PLACE : part->send + GUARD;
	recv = has_output(call, rank) ? part->recv + GUARD : NULL;
	switch (call->collective) {
	case RF_ALLREDUCE:
		status = rf_iallreduce(comm, send, recv, call->count, call->dtype, call->op,
				       &options, &part->request);
		break;
	case RF_REDUCE:
		status = rf_ireduce(comm, send, recv, call->count, call->dtype, call->op,
				    call->root, &options, &part->request);
		break;
	case RF_BROADCAST:
		status = rf_ibroadcast(comm, recv, call->count, call->dtype, call->root, &options,
				       &part->request);
		break;
	case RF_REDUCE_SCATTER:
		status = call->counts
				 ? rf_ireduce_scatterv(comm, send, recv, call->counts, call->dtype,
						       call->op, &options, &part->request)
				 : rf_ireduce_scatter(comm, send, recv, each, call->dtype, call->op,
						      &options, &part->request);
		break;
	case RF_ALLGATHER:
		status = call->counts ? rf_iallgatherv(comm, send, recv, call->counts, call->dtype,
						       &options, &part->request)
				      : rf_iallgather(comm, send, recv, each, call->dtype, &options,
						      &part->request);
		break;
	default:
		status = rf_ibarrier(comm, &options, &part->request);
		break;
	}
	WORLD_CHECK(status == RF_OK, "rank %d: %s did not start: %s: %s", rank,
		    rf_collective_name(call->collective), rf_strerror(status), run->world.last_log);
}

/* Each rank starts the calls of each communicator in order, and the communicators interleaved in an
 * order of its own. */
static void start_all(struct run *run, int rank)
{
	int next[COMMS_MAX] = {0};
	int left = run->comm_count * run->call_count;

	while (left) {
		int comm = (int)draw(run, (uint64_t)run->comm_count);

		if (next[comm] == run->call_count)
			continue;
		start_part(run, comm, next[comm]++, rank);
		left--;
		if (!draw(run, 8))
			world_pass(&run->world, draw(run, 300000));
	}
}

/* ---- judging -------------------------------------------------------------------------------- */

static void check_equal(const struct sampled_call *call, int rank, const uint8_t *got,
			const uint8_t *expected, size_t bytes)
{
	size_t element = rf_dtype_size(call->dtype);

	for (size_t i = 0; i < bytes; i++)
		WORLD_CHECK(got[i] == expected[i],
			    "rank %d: %s of %zu %s, %s%s%s: element %zu is wrong (byte 0x%02x, not "
			    "0x%02x)",
			    rank, rf_collective_name(call->collective), call->count,
			    rf_dtype_name(call->dtype), rf_op_name(call->op),
			    call->in_place ? ", in place" : "",
			    call->order == RF_ORDER_TREE ? ", tree order" : "", i / element, got[i],
			    expected[i]);
}

static void judge(struct run *run, const struct sampled_call *call, const uint8_t *expected,
		  int rank, struct part *part)
{
	size_t element = rf_dtype_size(call->dtype);
	int size = run->world.size;
	uint8_t *unchanged = malloc(part->send_bytes + 1);

	check_guards(part->send, part->send_bytes, "send");
	check_guards(part->recv, part->recv_bytes, "recv");
	if (!call->in_place || !has_output(call, rank)) {
		memset(unchanged, 0xa5, part->send_bytes + 1);
		fill_input(run, call, rank, unchanged);
		check_equal(call, rank, part->send + GUARD, unchanged, part->send_bytes);
	}
	free(unchanged);
	if (call->collective == RF_REDUCE_SCATTER)
		check_equal(call, rank, part->recv + GUARD,
			    expected + block_first(call, size, rank) * element,
			    block_count(call, size, rank) * element);
	else if (call->collective != RF_BARRIER && has_output(call, rank))
		check_equal(call, rank, part->recv + GUARD, expected, call->count * element);
}

static void judge_call(struct run *run, int comm, int index)
{
	struct sampled_call *call = &run->calls[comm][index];
	size_t bytes = call->count * rf_dtype_size(call->dtype);
	uint8_t *expected = malloc(bytes + 1);

	if (call->collective == RF_ALLGATHER || call->collective == RF_BROADCAST)
		values_input(call->number, 0, call->dtype, RF_SUM, 0, call->count, expected);
	else
		values_expected(call->number, run->world.size, call->dtype, call->op, 0,
				call->count, expected);
	for (int rank = 0; rank < run->world.size; rank++) {
		struct part *part = part_of(run, comm, index, rank);
		int status = world_take(&part->request);

		WORLD_CHECK(status == RF_OK, "rank %d: %s: %s: %s", rank,
			    rf_collective_name(call->collective), rf_strerror(status),
			    run->world.last_log);
		judge(run, call, expected, rank, part);
		free(part->send);
		free(part->recv);
	}
	free(expected);
	free(call->counts);
}

/* ---- a seed --------------------------------------------------------------------------------- */

static void make_comms(struct run *run)
{
	int size = run->world.size;
	rf_request **requests = calloc((size_t)size, sizeof(*requests));

	for (int rank = 0; rank < size; rank++)
		run->comms[0][rank] = run->world.comms[rank];
	for (int comm = 1; comm < run->comm_count; comm++) {
		for (int rank = 0; rank < size; rank++) {
			int status = rf_comm_isplit(run->comms[0][rank], 0, rank, NULL,
						    &run->comms[comm][rank], &requests[rank]);

			WORLD_CHECK(status == RF_OK, "split: %s", rf_strerror(status));
		}
		WORLD_CHECK(world_run(&run->world, requests, (size_t)size, UINT64_MAX),
			    "a split does not end: %s", run->world.last_log);
		for (int rank = 0; rank < size; rank++)
			WORLD_CHECK(world_take(&requests[rank]) == RF_OK, "a split failed: %s",
				    run->world.last_log);
	}
	free(requests);
}

static void one_seed(uint64_t seed)
{
	static const char *const algorithms[] = {NULL, NULL, "ring", "direct", "doubling"};
	struct rf_sim_params params;
	struct world_setup setup = {.seed = seed, .params = &params};
	struct run *run = calloc(1, sizeof(*run));
	size_t total;

	rf_sim_params_hostile(&params, seed);
	setup.size = sample_size(seed);
	setup.ranks_per_host = 1 + (int)(seed / 3 % 4);
	setup.algorithm = algorithms[seed / 7 % 5];
	setup.chunk_bytes = seed % 3 ? 64u << (seed / 11 % 8) : 0;
	setup.eager_bytes = seed % 2 ? 256 : 0;
	setup.eager_budget_bytes = seed % 4 == 1 ? 2048 : seed % 8 == 3 ? 100 : 0;
	world_create(&run->world, &setup);
	run->comm_count = 1 + (int)(seed % COMMS_MAX);
	run->call_count = setup.size > 64 ? 3 : 1 + (int)draw(run, CALLS_MAX);
	make_comms(run);
	total = (size_t)COMMS_MAX * CALLS_MAX * (size_t)setup.size;
	run->parts = calloc(total, sizeof(*run->parts));
	for (int comm = 0; comm < run->comm_count; comm++) {
		for (int call = 0; call < run->call_count; call++)
			run->calls[comm][call] =
				sample_call(run, seed * 1000 + (uint64_t)(comm * CALLS_MAX + call));
	}
	for (int rank = 0; rank < setup.size; rank++)
		start_all(run, rank);
	for (size_t i = 0; i < total; i++) {
		if (run->parts[i].request &&
		    !world_run(&run->world, &run->parts[i].request, 1, 60000000000u))
			world_fail("calls do not end: %s", run->world.last_log);
	}
	for (int comm = 0; comm < run->comm_count; comm++) {
		for (int call = 0; call < run->call_count; call++)
			judge_call(run, comm, call);
	}
	for (int comm = 1; comm < run->comm_count; comm++) {
		for (int rank = 0; rank < setup.size; rank++)
			WORLD_CHECK(rf_comm_destroy(&run->comms[comm][rank]) == RF_OK, "destroy");
	}
	world_destroy(&run->world);
	free(run->parts);
	free(run);
}

int main(int argc, char **argv)
{
	return world_run_seeds(argc, argv, one_seed);
}
