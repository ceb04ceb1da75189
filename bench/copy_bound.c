/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bound: every rank copies its buffer elsewhere, all of them at once, and nothing is reduced.
 * With stream=1 by stores that go past the caches. An allreduce of two ranks cannot move fewer
 * bytes out of place. The ranks meet before each copy, at a word of a file that all have mapped, so
 * that they really are at it together; the meeting counts. Each keeps to a core of its own where
 * there are enough: a floor must not depend on the scheduler.
 */
#include "bench/peer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { SPINS = 2000 };

static int my_rank, all_ranks;
static bool streams;
static atomic_uint *arrived; /* how many have come, over all meetings */
static unsigned meetings;
static char *elsewhere; /* where a copy in place goes */
static size_t elsewhere_bytes;

static bool set(const char *name, const char *value)
{
	if (strcmp(name, "stream"))
		return false;
	streams = atoi(value);
	return true;
}

static void keep_to_a_core(void)
{
	cpu_set_t cores, one;
	int seen = 0;

	CPU_ZERO(&cores);
	if (sched_getaffinity(0, sizeof(cores), &cores) || CPU_COUNT(&cores) < all_ranks)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cores) && seen++ == my_rank) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof(one), &one);
		}
}

static void open_bound(const struct peer_place *place)
{
	char path[512];
	int file;

	my_rank = place->rank;
	all_ranks = place->ranks;
	keep_to_a_core();
	snprintf(path, sizeof(path), "%s/meeting", place->folder ? place->folder : ".");
	file = open(path, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, 4096))
		peer_die("a file for the meeting");
	arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (arrived == MAP_FAILED)
		peer_die("mmap");
	close(file);
}

static void meet(void)
{
	unsigned all = ++meetings * (unsigned)all_ranks;

	atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel);
	for (unsigned spins = 0;
	     (int)(atomic_load_explicit(arrived, memory_order_acquire) - all) < 0; spins++)
		if (spins > SPINS)
			sched_yield();
}

static void stream(char *to, const char *from, size_t bytes)
{
	size_t i = 0;

#ifdef __SSE2__
	for (; i < bytes && ((uintptr_t)(to + i) & 15); i++)
		to[i] = from[i];
	for (; i + 64 <= bytes; i += 64)
		for (size_t k = i; k < i + 64; k += 16)
			_mm_stream_si128(
				(__m128i *)(void *)(to + k),
				_mm_loadu_si128((const __m128i *)(const void *)(from + k)));
	_mm_sfence();
#endif
	memcpy(to + i, from + i, bytes - i);
}

static void make_room(size_t bytes)
{
	if (bytes <= elsewhere_bytes)
		return;
	free(elsewhere);
	elsewhere_bytes = (bytes + 4095) & ~(size_t)4095;
	elsewhere = aligned_alloc(4096, elsewhere_bytes);
	if (!elsewhere)
		peer_die("memory for the copy");
	memset(elsewhere, 0, elsewhere_bytes);
}

static void copy(const struct peer_call *call)
{
	size_t bytes = call->count * (call->dtype == PEER_FLOAT32 ? 4 : 2);
	char *to = call->recv;

	if (call->send == call->recv) {
		make_room(bytes);
		to = elsewhere;
	}
	meet();
	if (streams)
		stream(to, call->send, bytes);
	else
		memcpy(to, call->send, bytes);
	__asm__ volatile("" : : "r"(to) : "memory");
}

/* Everybody keeps its own. */
static int winner(size_t index, size_t count)
{
	(void)index;
	(void)count;
	return my_rank;
}

static void close_bound(void)
{
	free(elsewhere);
}

const struct peer peer = {.name = "copy",
			  .help = "  stream=1    stores that go past the caches\n",
			  .set = set,
			  .open = open_bound,
			  .allreduce = copy,
			  .close = close_bound,
			  .winner = winner};
