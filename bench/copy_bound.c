/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bound: every rank copies its buffer elsewhere, all of them at once, and nothing is reduced.
 * With stream=1 by stores that go past the caches. An allreduce of two ranks cannot move fewer
 * bytes out of place; ranks are kept together by the round alone.
 */
#include "bench/peer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

const char *const peer_name = "copy";
const char *const peer_help = "  stream=1    stores that go past the caches\n";

static int my_rank;
static bool streams;
static char *elsewhere;
static size_t elsewhere_bytes;

bool peer_set(const char *name, const char *value)
{
	if (strcmp(name, "stream"))
		return false;
	streams = atoi(value);
	return true;
}

void peer_open(const struct peer_place *place)
{
	my_rank = place->rank;
}

static void stream(char *to, const char *from, size_t bytes)
{
	size_t i = 0;

#ifdef __SSE2__
	for (; i + 64 <= bytes; i += 64)
		for (size_t k = i; k < i + 64; k += 16)
			_mm_stream_si128(
				(__m128i *)(void *)(to + k),
				_mm_loadu_si128((const __m128i *)(const void *)(from + k)));
	_mm_sfence();
#endif
	memcpy(to + i, from + i, bytes - i);
}

void peer_allreduce(float *values, size_t count)
{
	size_t bytes = count * sizeof(float);

	if (bytes > elsewhere_bytes) {
		free(elsewhere);
		elsewhere_bytes = (bytes + 4095) & ~(size_t)4095;
		elsewhere = aligned_alloc(4096, elsewhere_bytes);
		if (!elsewhere)
			peer_die("memory for the copy");
		memset(elsewhere, 0, elsewhere_bytes);
	}
	if (streams)
		stream(elsewhere, (const char *)values, bytes);
	else
		memcpy(elsewhere, values, bytes);
	__asm__ volatile("" : : "r"(elsewhere) : "memory");
}

/* Everybody keeps its own. */
int peer_winner(size_t index, size_t count)
{
	(void)index;
	(void)count;
	return my_rank;
}

void peer_close(void)
{
	free(elsewhere);
}
