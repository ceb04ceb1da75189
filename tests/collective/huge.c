/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than 2^31 elements and more than 4 GiB, really moved between two ranks, with little memory:
 * a window of a few MiB is mapped over and over into the address range of a buffer. So values
 * repeat with the window's length, which is a prime number of pages: whatever lands where 32 bits
 * of an offset or a count would have put it has the wrong phase.
 *
 * The maximum of two ranks is as good as any: of two contributions no partials differ from results.
 */
#include "tests/collective/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WINDOW_PAGES = 4093, PAGE = 4096 };
static const size_t window = (size_t)WINDOW_PAGES * PAGE;
static const size_t count = ((size_t)1 << 32) + 123457;

/* One window mapped as often as it takes. */
static uint8_t *map_window(uint8_t **one)
{
	size_t times = (count + window - 1) / window;
	int memory = memfd_create("window", MFD_CLOEXEC);
	uint8_t *whole = mmap(NULL, times * window, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(memory >= 0 && ftruncate(memory, (off_t)window) == 0, "memfd: %m");
	CHECK(whole != MAP_FAILED, "no address range: %m");
	for (size_t i = 0; i < times; i++)
		CHECK(mmap(whole + i * window, window, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED, memory, 0) != MAP_FAILED,
		      "mapping: %m");
	close(memory);
	*one = whole;
	return whole;
}

static uint8_t value_at(int of_rank, size_t i)
{
	struct dice dice = {i / 8 + (uint64_t)of_rank * 1000003u};

	return (uint8_t)(dice_roll(&dice, UINT64_MAX) >> (i % 8 * 8));
}

static void check_window(const uint8_t *result, int first_rank, int last_rank)
{
	for (size_t i = 0; i < window; i++) {
		uint8_t expected = 0;

		for (int r = first_rank; r <= last_rank; r++)
			expected = value_at(r, i) > expected ? value_at(r, i) : expected;
		CHECK(result[i] == expected, "byte %zu of the window is wrong", i);
	}
}

int main(void)
{
	rf_counters counters = RF_COUNTERS_INIT;
	uint8_t *send, *recv, *one;
	double since;

	rank_begin(300);
	CHECK(size == 2, "made for two ranks");
	rank_case("more than 2^32 elements");
	send = map_window(&one);
	for (size_t i = 0; i < window; i++)
		send[i] = value_at(rank, i);
	recv = map_window(&one);
	CHECK_OK(rf_barrier(world));
	since = seconds_now();
	CHECK_OK(rf_allreduce(world, send, recv, count, RF_UINT8, RF_MAX));
	check_window(recv, 0, 1);
	CHECK_OK(rf_comm_counters(world, &counters));
	CHECK(counters.payload_bytes_received >= count, "only %llu bytes have come",
	      (unsigned long long)counters.payload_bytes_received);
	if (rank == 0)
		printf("%zu elements in %.1f s\n", count, seconds_now() - since);
	rank_end();
	return 0;
}
