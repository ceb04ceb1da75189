/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What grows with the number of ranks, and what does not; and sizes that no test machine holds. On
 * the whole engine under a calm simulator, without payloads.
 *
 *   check_sim_scale [RANKS]     default 256
 */
#include "tests/sim/world.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned log2_up(unsigned n)
{
	unsigned bits = 0;

	while (1u << bits < n)
		bits++;
	return bits;
}

static size_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void make_world(struct world *world, int size)
{
	struct rf_sim_params params;
	struct world_setup setup = {.seed = 1,
				    .size = size,
				    .ranks_per_host = 8,
				    .params = &params,
				    .no_payload = true};

	rf_sim_params_calm(&params);
	params.lanes = 1;
	world_create(world, &setup);
}

static void sum_on_all(struct world *world, size_t count, rf_dtype dtype)
{
	rf_request **requests = calloc((size_t)world->size, sizeof(*requests));
	static char buffer; /* its address only: no payload is touched */

	WORLD_CHECK(requests, "out of memory");
	for (int rank = 0; rank < world->size; rank++)
		WORLD_CHECK(rf_iallreduce(world->comms[rank], RF_IN_PLACE, &buffer, count, dtype,
					  RF_SUM, NULL, &requests[rank]) == RF_OK,
			    "rank %d does not start", rank);
	WORLD_CHECK(world_run(world, requests, (size_t)world->size, UINT64_MAX),
		    "a sum does not end: %s", world->last_log);
	for (int rank = 0; rank < world->size; rank++)
		WORLD_CHECK(world_take(&requests[rank]) == RF_OK, "a sum failed: %s",
			    world->last_log);
	free(requests);
}

/* Connections are O(log n) a rank, also after sums by doubling and by the ring. */
static void connections_grow_with_the_logarithm(int size)
{
	struct world world;
	unsigned bound, most = 0;
	size_t before = heap_bytes(), joined, used;

	make_world(&world, size);
	joined = heap_bytes();
	world_pass(&world,
		   UINT64_C(2000000000)); /* the leader's streams to those that joined end */
	for (int rank = 0; rank < size; rank++) {
		unsigned count = rf_sim_stream_count(world.sim, (unsigned)rank);

		most = count > most ? count : most;
	}
	/* Two lifelines for each power of two, and one end more while a dial is crossed. */
	bound = 2 * log2_up((unsigned)size) + 2;
	printf("%d ranks: at most %u lifelines a rank (2 log2 n is %u), %zu KiB of heap a rank\n",
	       size, most, 2 * log2_up((unsigned)size), (joined - before) / (size_t)size / 1024);
	WORLD_CHECK(most <= bound, "a rank holds %u streams", most);

	sum_on_all(&world, 1, RF_FLOAT32);
	sum_on_all(&world, 16 << 20, RF_FLOAT32);
	used = heap_bytes();
	most = 0;
	for (int rank = 0; rank < size; rank++) {
		unsigned count = rf_sim_stream_count(world.sim, (unsigned)rank);

		most = count > most ? count : most;
	}
	/* Doubling has a partner for each power of two, each with a control stream and a data lane
	 * each way; the ring has two neighbours. */
	bound = 8 * (log2_up((unsigned)size) + 2);
	printf("%d ranks, after a small and a large sum: at most %u streams a rank, %zu KiB of "
	       "heap\n",
	       size, most, (used - before) / (size_t)size / 1024);
	WORLD_CHECK(most <= bound, "a rank holds %u streams after sums", most);
	world_destroy(&world);
}

/* Elements past 2^31 and bytes past 4 GiB, by every algorithm that select takes for them. */
static void huge_counts_are_summed(void)
{
	struct world world;

	make_world(&world, 5);
	sum_on_all(&world, ((size_t)1 << 31) + 7, RF_UINT8);
	sum_on_all(&world, ((size_t)1 << 32) + 1, RF_FLOAT64);
	world_destroy(&world);
}

int main(int argc, char **argv)
{
	int size = argc > 1 ? atoi(argv[1]) : 256;

	huge_counts_are_summed();
	connections_grow_with_the_logarithm(64);
	connections_grow_with_the_logarithm(size);
	return 0;
}
