/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts past 2^31 elements and buffers past 4 GiB, and a thousand ranks: every algorithm runs them
 * without any payload, in a hostile world, and every byte that was expected comes.
 */
#include "tests/unit/check_algo_world.h"
#include "engine/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where receive buffers of no memory are said to be: above all that a process can have. */
#define NOWHERE ((uintptr_t)1 << 47)

static struct world_case current;

static const char *describe(void)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s %s of %zu %s, %d ranks%s, wire %s",
		 current.plan.algo->name, rf_collective_name(current.task.collective),
		 current.task.count, rf_dtype_name(current.task.dtype), current.ranks,
		 current.in_place ? ", in place" : "", rf_dtype_name(current.plan.wire_type));
	return text;
}

static void run(const struct rf_algo *algo, rf_collective collective, int ranks, size_t count,
		rf_dtype dtype, rf_dtype wire_type, bool in_place)
{
	size_t n = (size_t)ranks;
	size_t *counts = calloc(n, sizeof(*counts));
	const void **send = calloc(n, sizeof(*send));
	void **recv = calloc(n, sizeof(*recv));

	/* Uneven: the second rank has half of all. */
	for (size_t i = 0; i < n; i++)
		counts[i] = count / 2 / n;
	counts[n > 1] += count - count / 2 / n * n;
	for (size_t i = 0; i < n; i++) {
		recv[i] = (void *)NOWHERE;
		send[i] = in_place ? recv[i] : (void *)(NOWHERE / 2);
	}
	current = (struct world_case){
		.seed = count,
		.ranks = ranks,
		.plan = {.algo = algo,
			 .chunk_bytes = 256 << 10,
			 .channels = 2,
			 .wire_type = wire_type},
		.task = {.collective = collective,
			 .dtype = dtype,
			 .op = RF_AVG,
			 .divisor = n,
			 .root = ranks / 2,
			 .count = collective == RF_BARRIER ? 0 : count,
			 .counts = counts},
		.in_place = in_place,
		.no_payload = true,
		.again = 10,
		.at_once = 20,
		.late = 50,
		.late_rank = -1,
	};
	world_run(&current, send, recv);
	free(counts);
	free(send);
	free(recv);
}

static void run_sizes(const struct rf_algo *algo, rf_collective collective)
{
	static const int ranks[] = {2, 5};

	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		bool in_place = i % 2;

		run(algo, collective, ranks[i], ((size_t)1 << 31) + 7, RF_INT8, RF_INT8, in_place);
		run(algo, collective, ranks[i], ((size_t)5 << 30) + 1, RF_FLOAT64, RF_FLOAT64,
		    !in_place);
	}
	run(algo, collective, 3, ((size_t)3 << 31) + 3, RF_BFLOAT16, RF_FLOAT32, true);
	run(algo, collective, 3, ((size_t)3 << 31) + 3, RF_BFLOAT16, RF_FLOAT32, false);
	run(algo, collective, 7, ((size_t)3 << 31) + 3, RF_FLOAT16, RF_FLOAT32, false);
}

int main(void)
{
	world_describe = describe;
	for (size_t i = 0; rf_algos[i]; i++)
		for (int c = 0; c < RF_COLLECTIVE_COUNT; c++) {
			if (!(rf_algos[i]->collectives & 1u << c) || rf_algos[i]->in_shared_memory)
				continue;
			run_sizes(rf_algos[i], (rf_collective)c);
			if (strcmp(rf_algos[i]->name, "direct"))
				run(rf_algos[i], (rf_collective)c, 1021, 5000, RF_INT32, RF_INT32,
				    false);
			else
				run(rf_algos[i], (rf_collective)c, 211, 5000, RF_INT32, RF_INT32,
				    false);
		}
	return 0;
}
