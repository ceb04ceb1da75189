/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overlay graph: symmetric, connected for every number of ranks up to 4096, of logarithmic
 * degree and diameter, and connected still after random ranks have died.
 */
#include "engine/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MAX = 4096 };

static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void fail(int size, int rank, const char *what)
{
	fprintf(stderr, "check_overlay: %d ranks, rank %d: %s\n", size, rank, what);
	exit(1);
}

static int log2_up(int n)
{
	int log = 0;

	while ((1 << log) < n)
		log++;
	return log;
}

static void check_rank(int rank, int size)
{
	int neighbours[64], back[64];
	int count = rf_overlay_neighbours(rank, size, neighbours);

	if (count > 2 * log2_up(size))
		fail(size, rank, "too many neighbours");
	for (int i = 0; i < count; i++) {
		int n = neighbours[i], back_count;
		bool found = false;

		if (n < 0 || n >= size || n == rank)
			fail(size, rank, "a neighbour that is none");
		for (int k = 0; k < i; k++)
			if (neighbours[k] == n)
				fail(size, rank, "a neighbour twice");
		back_count = rf_overlay_neighbours(n, size, back);
		for (int k = 0; k < back_count; k++)
			found |= back[k] == rank;
		if (!found)
			fail(size, rank, "a neighbour that does not know it");
	}
}

/* Breadth first from the first rank that lives; returns how many are reached, *hops the longest
 * way. */
static int reach(int size, const bool *dead, int *hops)
{
	static int queue[RANKS_MAX], distance[RANKS_MAX];
	int head = 0, tail = 0, first = 0;

	memset(distance, -1, sizeof(distance));
	while (dead[first])
		first++;
	queue[tail++] = first;
	distance[first] = 0;
	*hops = 0;
	while (head < tail) {
		int rank = queue[head++], neighbours[64];
		int count = rf_overlay_neighbours(rank, size, neighbours);

		*hops = distance[rank];
		for (int i = 0; i < count; i++) {
			if (dead[neighbours[i]] || distance[neighbours[i]] >= 0)
				continue;
			distance[neighbours[i]] = distance[rank] + 1;
			queue[tail++] = neighbours[i];
		}
	}
	return tail;
}

static void check_size(int size)
{
	static const bool none[RANKS_MAX];
	int hops;

	/* The graph looks the same from everywhere: every rank where that is cheap. */
	for (int rank = 0; rank < size; rank += size < 130 ? 1 : size / 7)
		check_rank(rank, size);
	if (reach(size, none, &hops) != size)
		fail(size, 0, "not connected");
	if (hops > log2_up(size))
		fail(size, 0, "more hops than log2 of the ranks");
}

/* Fewer deaths than a rank has neighbours never cut anybody off; and a tenth of the ranks dying at
 * random does not either, for the sizes at which that is much less likely than a broken machine. */
static void check_deaths(int size, int deaths)
{
	static bool dead[RANKS_MAX];
	int hops;

	memset(dead, 0, sizeof(dead));
	for (int i = 0; i < deaths;) {
		int rank = (int)(next_random() % (uint64_t)size);

		if (dead[rank])
			continue;
		dead[rank] = true;
		i++;
	}
	if (reach(size, dead, &hops) != size - deaths)
		fail(size, deaths, "not connected after as many deaths");
}

int main(void)
{
	const char *seed = getenv("RINGFOLD_TEST_SEED");
	int neighbours[64];

	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u | 1;
	printf("check_overlay: RINGFOLD_TEST_SEED=%llu\n", (unsigned long long)random_state);
	if (rf_overlay_neighbours(0, 1, neighbours) != 0)
		fail(1, 0, "a neighbour of nobody");
	for (int size = 2; size <= RANKS_MAX; size++)
		check_size(size);
	for (int round = 0; round < 2000; round++) {
		int size = 3 + (int)(next_random() % 1000);
		int count = rf_overlay_neighbours(0, size, neighbours);

		check_deaths(size, (int)(next_random() % (uint64_t)count));
	}
	for (int round = 0; round < 200; round++)
		check_deaths(1024 + (int)(next_random() % 3000), 100);
	return 0;
}
