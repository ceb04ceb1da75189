/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls with known results: see sample.h. */
#include "tests/collective/sample.h"
#include "tests/sim/values.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 96, GUARD_BYTE = 0xa5, SHIFT_MAX = 67 };

/* ---- drawing -------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t bound)
{
	return dice_roll(&common, bound);
}

static size_t draw_count(size_t most)
{
	switch (draw(6)) {
	case 0:
		return draw(3);
	case 1:
		return 1 + draw(64);
	case 2:
		return (size_t)1 << draw(12);
	case 3:
		return 1 + draw(most);
	default:
		return draw(2000) | 1;
	}
}

static void draw_counts(struct sample *sample, int ranks)
{
	size_t total = 0;

	sample->counts = calloc((size_t)ranks, sizeof(size_t));
	CHECK(sample->counts, "out of memory");
	for (int i = 0; i < ranks; i++) {
		sample->counts[i] = draw(3) ? draw(1 + sample->count / 2) : 0;
		total += sample->counts[i];
	}
	sample->count = total;
}

static bool is_folding(rf_collective collective)
{
	return collective == RF_ALLREDUCE || collective == RF_REDUCE ||
	       collective == RF_REDUCE_SCATTER;
}

void sample_draw(struct sample *sample, rf_comm *comm, size_t most)
{
	int ranks = rf_comm_size(comm);

	sample->comm = comm;
	if (sample->dtype == RF_BOOL && sample->op == RF_AVG)
		sample->op = RF_SUM;
	sample->order = draw(4) ? RF_ORDER_ANY : RF_ORDER_TREE;
	sample->wire = draw(4) ? RF_WIRE_SAME : RF_WIRE_FLOAT32;
	if (!is_folding(sample->collective))
		sample->order = RF_ORDER_ANY;
	sample->root = (int)draw((uint64_t)ranks);
	sample->number = draw(UINT64_MAX);
	sample->count = sample->collective == RF_BARRIER ? 0 : draw_count(most);
	sample->counts = NULL;
	if (sample->collective == RF_REDUCE_SCATTER || sample->collective == RF_ALLGATHER) {
		if (draw(2))
			draw_counts(sample, ranks);
		else
			sample->count = sample->count / (size_t)ranks * (size_t)ranks;
	}
	sample->in_place = draw(2);
	sample->blocking = dice_roll(&own, 2);
	sample->send_shift = dice_roll(&own, 3) ? (unsigned)dice_roll(&own, SHIFT_MAX) : 0;
	sample->recv_shift = dice_roll(&own, 3) ? (unsigned)dice_roll(&own, SHIFT_MAX) : 0;
	sample->request = NULL;
}

void sample_draw_any(struct sample *sample, rf_comm *comm, size_t most)
{
	sample->collective = (rf_collective)draw(RF_COLLECTIVE_COUNT);
	sample->dtype = (rf_dtype)draw(RF_DTYPE_COUNT);
	sample->op = (rf_op)draw(RF_OP_COUNT);
	sample_draw(sample, comm, most);
}

/* ---- buffers -------------------------------------------------------------------------------- */

static size_t block_first(const struct sample *sample, int of_rank)
{
	size_t first = 0;

	if (!sample->counts)
		return sample->count / (size_t)rf_comm_size(sample->comm) * (size_t)of_rank;
	for (int i = 0; i < of_rank; i++)
		first += sample->counts[i];
	return first;
}

static size_t block_count(const struct sample *sample, int of_rank)
{
	return sample->counts ? sample->counts[of_rank]
			      : sample->count / (size_t)rf_comm_size(sample->comm);
}

static uint8_t *guarded(size_t bytes, unsigned shift, uint8_t **buffer)
{
	uint8_t *memory = malloc(bytes + shift + 2 * GUARD);

	CHECK(memory, "out of memory");
	memset(memory, GUARD_BYTE, bytes + shift + 2 * GUARD);
	*buffer = memory + GUARD + shift;
	return memory;
}

static void check_guards(const uint8_t *memory, size_t bytes, unsigned shift, const char *what)
{
	size_t whole = bytes + shift + 2 * GUARD;

	for (size_t i = 0; i < GUARD + shift; i++)
		CHECK(memory[i] == GUARD_BYTE, "%s: a byte before it was written", what);
	for (size_t i = whole - GUARD; i < whole; i++)
		CHECK(memory[i] == GUARD_BYTE, "%s: a byte behind it was written", what);
}

static void fill_input(const struct sample *sample, uint8_t *buffer)
{
	int me = rf_comm_rank(sample->comm);

	switch (sample->collective) {
	case RF_ALLGATHER:
		values_input(sample->number, 0, sample->dtype, RF_SUM, block_first(sample, me),
			     block_count(sample, me), buffer);
		break;
	case RF_BROADCAST:
		if (me == sample->root)
			values_input(sample->number, 0, sample->dtype, RF_SUM, 0, sample->count,
				     buffer);
		break;
	case RF_BARRIER:
		break;
	default:
		values_input(sample->number, me, sample->dtype, sample->op, 0, sample->count,
			     buffer);
		break;
	}
}

static bool has_output(const struct sample *sample)
{
	return sample->collective != RF_REDUCE || rf_comm_rank(sample->comm) == sample->root;
}

static void make_buffers(struct sample *sample)
{
	size_t element = rf_dtype_size(sample->dtype);
	int me = rf_comm_rank(sample->comm);
	size_t mine = block_count(sample, me) * element;
	bool in_recv;

	sample->in_place = sample->in_place && has_output(sample);
	sample->send_bytes = sample->collective == RF_ALLGATHER ? mine : sample->count * element;
	sample->recv_bytes = sample->collective == RF_REDUCE_SCATTER && !sample->in_place
				     ? mine
				     : sample->count * element;
	sample->send_memory = guarded(sample->send_bytes, sample->send_shift, &sample->send);
	sample->recv_memory = guarded(sample->recv_bytes, sample->recv_shift, &sample->recv);
	fill_input(sample, sample->send);
	in_recv = sample->collective == RF_BROADCAST || sample->in_place;
	if (in_recv && sample->collective == RF_ALLGATHER)
		memcpy(sample->recv + block_first(sample, me) * element, sample->send, mine);
	else if (in_recv && sample->send_bytes)
		memcpy(sample->recv, sample->send, sample->send_bytes);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int start_blocking(struct sample *s, const void *send, void *recv, size_t each)
{
	switch (s->collective) {
	case RF_ALLREDUCE:
		return rf_allreduce(s->comm, send, recv, s->count, s->dtype, s->op);
	case RF_REDUCE:
		return rf_reduce(s->comm, send, recv, s->count, s->dtype, s->op, s->root);
	case RF_BROADCAST:
		return rf_broadcast(s->comm, recv, s->count, s->dtype, s->root);
	case RF_REDUCE_SCATTER:
		return s->counts
			       ? rf_reduce_scatterv(s->comm, send, recv, s->counts, s->dtype, s->op)
			       : rf_reduce_scatter(s->comm, send, recv, each, s->dtype, s->op);
	case RF_ALLGATHER:
		return s->counts ? rf_allgatherv(s->comm, send, recv, s->counts, s->dtype)
				 : rf_allgather(s->comm, send, recv, each, s->dtype);
	default:
		return rf_barrier(s->comm);
	}
}

static int start_async(struct sample *s, const void *send, void *recv, size_t each,
		       const rf_call_options *o)
{
	rf_request **r = o->cq ? NULL : &s->request;

	switch (s->collective) {
	case RF_ALLREDUCE:
		return rf_iallreduce(s->comm, send, recv, s->count, s->dtype, s->op, o, r);
	case RF_REDUCE:
		return rf_ireduce(s->comm, send, recv, s->count, s->dtype, s->op, s->root, o, r);
	case RF_BROADCAST:
		return rf_ibroadcast(s->comm, recv, s->count, s->dtype, s->root, o, r);
	case RF_REDUCE_SCATTER:
		return s->counts ? rf_ireduce_scatterv(s->comm, send, recv, s->counts, s->dtype,
						       s->op, o, r)
				 : rf_ireduce_scatter(s->comm, send, recv, each, s->dtype, s->op, o,
						      r);
	case RF_ALLGATHER:
		return s->counts ? rf_iallgatherv(s->comm, send, recv, s->counts, s->dtype, o, r)
				 : rf_iallgather(s->comm, send, recv, each, s->dtype, o, r);
	default:
		return rf_ibarrier(s->comm, o, r);
	}
}

void sample_start(struct sample *sample, rf_call_options *options)
{
	rf_call_options plain = RF_CALL_OPTIONS_INIT;
	size_t each = sample->count / (size_t)rf_comm_size(sample->comm);
	const void *send;
	void *recv;

	make_buffers(sample);
	send = sample->in_place ? RF_IN_PLACE : sample->send;
	recv = has_output(sample) ? sample->recv : NULL;
	if (!options)
		options = &plain;
	options->order = sample->order;
	options->wire = sample->wire;
	if (sample->blocking && !options->cq && sample->order == RF_ORDER_ANY &&
	    sample->wire == RF_WIRE_SAME) {
		sample->status = start_blocking(sample, send, recv, each);
		return;
	}
	sample->blocking = false;
	CHECK_OK(start_async(sample, send, recv, each, options));
}

/* ---- judging -------------------------------------------------------------------------------- */

static void check_equal(const struct sample *sample, const uint8_t *got, const uint8_t *expected,
			size_t bytes, const char *what)
{
	size_t element = rf_dtype_size(sample->dtype);

	if (!bytes || memcmp(got, expected, bytes) == 0)
		return;
	for (size_t i = 0; i < bytes; i++)
		CHECK(got[i] == expected[i],
		      "%s of %s of %zu %s%s, %s%s%s%s: element %zu is wrong (byte 0x%02x, not "
		      "0x%02x)",
		      what, rf_collective_name(sample->collective), sample->count,
		      rf_dtype_name(sample->dtype), sample->counts ? " in uneven parts" : "",
		      rf_op_name(sample->op), sample->in_place ? ", in place" : "",
		      sample->order == RF_ORDER_TREE ? ", tree order" : "",
		      sample->wire == RF_WIRE_FLOAT32 ? ", fp32 wire" : "", i / element, got[i],
		      expected[i]);
}

static void check_send(const struct sample *sample)
{
	uint8_t *unchanged = malloc(sample->send_bytes + 1);

	CHECK(unchanged, "out of memory");
	memset(unchanged, GUARD_BYTE, sample->send_bytes + 1);
	fill_input(sample, unchanged);
	check_equal(sample, sample->send, unchanged, sample->send_bytes, "the input");
	free(unchanged);
}

static void check_result(const struct sample *sample)
{
	size_t element = rf_dtype_size(sample->dtype);
	uint8_t *expected = malloc(sample->count * element + 1);
	int me = rf_comm_rank(sample->comm);

	CHECK(expected, "out of memory");
	if (is_folding(sample->collective))
		values_expected(sample->number, rf_comm_size(sample->comm), sample->dtype,
				sample->op, 0, sample->count, expected);
	else
		values_input(sample->number, 0, sample->dtype, RF_SUM, 0, sample->count, expected);
	if (sample->collective == RF_REDUCE_SCATTER)
		check_equal(sample, sample->recv, expected + block_first(sample, me) * element,
			    block_count(sample, me) * element, "the result");
	else if (has_output(sample))
		check_equal(sample, sample->recv, expected, sample->count * element, "the result");
	free(expected);
}

void sample_judge(struct sample *sample, int status)
{
	CHECK(status == RF_OK, "%s: %s", rf_collective_name(sample->collective),
	      rf_strerror(status));
	check_guards(sample->send_memory, sample->send_bytes, sample->send_shift, "send");
	check_guards(sample->recv_memory, sample->recv_bytes, sample->recv_shift, "recv");
	check_send(sample);
	check_result(sample);
	free(sample->send_memory);
	free(sample->recv_memory);
	free(sample->counts);
}
