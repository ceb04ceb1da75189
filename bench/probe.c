/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the two cores are to each other, now: on a virtual machine that changes within seconds, and
 * every figure with it. On each line of standard input it answers with the time that a cache line
 * takes from core to core (ns, one way) and the rate at which a core pulls what the other one has
 * just written (GB/s), each the best of some tries, so that others at work do not count.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 4000, TRIES = 6, PULL_BYTES = 512 << 10 };

static struct {
	_Alignas(64) atomic_uint turn;
	_Alignas(64) atomic_uint written; /* times that the block was written */
	_Alignas(64) atomic_uint read;
	_Alignas(64) uint64_t block[PULL_BYTES / sizeof(uint64_t)];
} shared;

static double now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static cpu_set_t cores; /* of the process, as it was started */

static void pin(int which)
{
	cpu_set_t one;
	int seen = 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cores) && seen++ == which) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof(one), &one);
			return;
		}
}

/* Waits for a word; gives the core away if that takes long, for the other may need it. */
static void await(atomic_uint *word, unsigned value)
{
	for (unsigned spins = 0; atomic_load_explicit(word, memory_order_acquire) != value; spins++)
		if (spins > 20000)
			sched_yield();
}

static void *far_side(void *unused)
{
	(void)unused;
	pin(1);
	for (unsigned i = 0; i < TRIES * TURNS; i++) {
		await(&shared.turn, 2 * i + 1);
		atomic_store_explicit(&shared.turn, 2 * i + 2, memory_order_release);
	}
	for (unsigned i = 0; i < TRIES; i++) {
		memset(shared.block, (int)i, sizeof(shared.block));
		atomic_store_explicit(&shared.written, i + 1, memory_order_release);
		await(&shared.read, i + 1);
	}
	return NULL;
}

static double hand_over_ns(void)
{
	double best = 1e18;

	for (unsigned try = 0; try < TRIES; try++) {
		double start = now_ns();

		for (unsigned i = try * TURNS; i < (try + 1) * TURNS; i++) {
			atomic_store_explicit(&shared.turn, 2 * i + 1, memory_order_release);
			await(&shared.turn, 2 * i + 2);
		}
		start = (now_ns() - start) / (2.0 * TURNS);
		best = start < best ? start : best;
	}
	return best;
}

static double pull_rate(void)
{
	double best = 1e18;

	for (unsigned try = 0; try < TRIES; try++) {
		uint64_t sum = 0;
		double start;

		await(&shared.written, try + 1);
		start = now_ns();
		for (size_t i = 0; i < PULL_BYTES / sizeof(uint64_t); i += 8)
			sum += shared.block[i];
		start = now_ns() - start;
		/* The sum is looked at, so that it is made. */
		__asm__ volatile("" : : "r"(sum));
		best = start < best ? start : best;
		atomic_store_explicit(&shared.read, try + 1, memory_order_release);
	}
	return PULL_BYTES / best;
}

int main(void)
{
	char line[64];

	sched_getaffinity(0, sizeof(cores), &cores);
	pin(0);
	while (fgets(line, sizeof(line), stdin)) {
		pthread_t thread;
		double hand_over;

		memset(&shared, 0, sizeof(shared));
		if (pthread_create(&thread, NULL, far_side, NULL))
			return 1;
		hand_over = hand_over_ns();
		printf("%.1f %.2f\n", hand_over, pull_rate());
		fflush(stdout);
		pthread_join(thread, NULL);
	}
	return 0;
}
