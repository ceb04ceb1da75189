/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inputs and results as whole buffers. They repeat after a prime number of elements: no chunk or
 * block has such a size, so a piece in the wrong place is seen, and filling and comparing run at
 * the speed of memcpy and memcmp.
 */
#include "tools/bench.h"

#include <math.h>
#include <string.h>

enum { PERIOD = 61 };

/* One period, as it begins at some position. */
struct pattern {
	size_t element;
	unsigned char bytes[PERIOD * 8];
};

typedef double value_at(const struct bench *bench, const struct bench_case *what, size_t position,
			int rank, uint64_t round);

static double input_at(const struct bench *bench, const struct bench_case *what, size_t position,
		       int rank, uint64_t round)
{
	return bench_input(what, position, rank, bench->ranks, round);
}

static double expected_at(const struct bench *bench, const struct bench_case *what, size_t position,
			  int rank, uint64_t round)
{
	(void)rank;
	return bench_expected(what, position, bench->ranks, round);
}

static void make_pattern(const struct bench *bench, const struct bench_case *what, size_t start,
			 value_at *value, int rank, uint64_t round, struct pattern *pattern)
{
	pattern->element = rf_dtype_size(what->dtype);
	for (size_t i = 0; i < PERIOD; i++)
		bench_encode(what->dtype, value(bench, what, (start + i) % PERIOD, rank, round),
			     pattern->bytes + i * pattern->element);
}

static void write_pattern(const struct pattern *pattern, void *buffer, size_t count)
{
	const size_t bytes = count * pattern->element;
	size_t done = PERIOD * pattern->element;

	if (done > bytes)
		done = bytes;
	memcpy(buffer, pattern->bytes, done);
	while (done < bytes) {
		const size_t more = done < bytes - done ? done : bytes - done;

		memcpy((char *)buffer + done, buffer, more);
		done += more;
	}
}

static int64_t count_wrong(const struct bench_case *what, const struct pattern *pattern,
			   const unsigned char *buffer, size_t count, double tolerance)
{
	int64_t wrong = 0;

	for (size_t i = 0; i < count; i++) {
		const double expected =
			bench_decode(what->dtype, pattern->bytes + i % PERIOD * pattern->element);
		const double value = bench_decode(what->dtype, buffer + i * pattern->element);

		wrong += !(fabs(value - expected) <= tolerance * fabs(expected));
	}
	return wrong;
}

/* A buffer that equals itself a period later, and the pattern at its start, is the pattern. */
static int64_t compare(const struct bench_case *what, const struct pattern *pattern,
		       const void *buffer, size_t count, double tolerance)
{
	const size_t bytes = count * pattern->element;
	const size_t period = PERIOD * pattern->element;

	if (tolerance == 0 &&
	    memcmp(buffer, pattern->bytes, bytes < period ? bytes : period) == 0 &&
	    (bytes <= period || memcmp((const char *)buffer + period, buffer, bytes - period) == 0))
		return 0;
	return count_wrong(what, pattern, buffer, count, tolerance);
}

void bench_fill(const struct bench *bench, const struct bench_case *what,
		const struct bench_shape *shape, int root, uint64_t round, void *send, void *recv)
{
	const bool in_recv = bench->settings->in_place || what->collective == RF_BROADCAST;
	const bool is_part = what->collective == RF_ALLGATHER && in_recv;
	const size_t offset = is_part ? (size_t)bench->rank * shape->count : 0;
	struct pattern pattern;

	if (shape->count == 0)
		return;
	if (what->collective == RF_BROADCAST && bench->rank != root)
		return;
	make_pattern(bench, what, 0, input_at, bench->rank, round, &pattern);
	write_pattern(&pattern, (char *)(in_recv ? recv : send) + offset * pattern.element,
		      shape->send_count);
}

static int64_t verify_allgather(const struct bench *bench, const struct bench_case *what,
				const struct bench_shape *shape, uint64_t round, const void *recv)
{
	struct pattern pattern;
	int64_t wrong = 0;

	for (int rank = 0; rank < bench->ranks; rank++) {
		make_pattern(bench, what, 0, input_at, rank, round, &pattern);
		wrong += compare(what, &pattern,
				 (const char *)recv + (size_t)rank * shape->count * pattern.element,
				 shape->count, 0);
	}
	return wrong;
}

int64_t bench_verify(const struct bench *bench, const struct bench_case *what,
		     const struct bench_shape *shape, int first_root, int last_root, uint64_t round,
		     const void *recv)
{
	const double tolerance = bench_tolerance(what, bench->ranks);
	struct pattern pattern;
	size_t start = 0;

	if (shape->count == 0)
		return 0;
	switch (what->collective) {
	case RF_ALLGATHER:
		return verify_allgather(bench, what, shape, round, recv);
	case RF_BROADCAST:
		make_pattern(bench, what, 0, input_at, first_root, round, &pattern);
		break;
	case RF_REDUCE_SCATTER:
		start = (size_t)bench->rank * shape->count;
		make_pattern(bench, what, start, expected_at, 0, round, &pattern);
		break;
	case RF_REDUCE:
		if (bench->rank != last_root)
			return 0;
		make_pattern(bench, what, 0, expected_at, 0, round, &pattern);
		break;
	default:
		make_pattern(bench, what, 0, expected_at, 0, round, &pattern);
		break;
	}
	return compare(what, &pattern, recv, shape->recv_count, tolerance);
}
