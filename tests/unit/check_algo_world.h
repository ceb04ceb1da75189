/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A world for algorithms: all ranks of a group in one thread, their segments in queues. Hostile
 * within the contract of algo.h: sends are put off at any time, complete late (and their payload is
 * compared with what it was), arrive in pieces and in any order but that of their pair and channel;
 * ranks start late. It checks what algo.h demands of a machine while it runs.
 */
#ifndef CHECK_ALGO_WORLD_H
#define CHECK_ALGO_WORLD_H

#include "engine/algo/algo.h"

struct world_case {
	uint64_t seed;
	int ranks;
	struct rf_plan plan;
	struct rf_task task; /* send, recv and in_place are the ranks' own */
	bool in_place;
	bool no_payload;
	/* Percentages. */
	unsigned again;
	unsigned at_once;
	unsigned pieces;
	unsigned late;
	unsigned garbage;
	bool first_alone; /* each rank's first advance() is before any arrival, and is looked at */
	int late_rank;    /* starts only when nothing else can happen; -1: none */
	bool stop_early;  /* leave in the middle */
};

/* buffers: of each rank, as the task's; recv NULL where it has none. Runs all to their end.
 * Returns the number of segments. Any violation prints the case and exits. */
uint64_t world_run(const struct world_case *c, const void *const *send, void *const *recv);

uint64_t check_random(uint64_t *state);
/* 0 .. bound - 1 */
uint64_t check_below(uint64_t *state, uint64_t bound);

/* Printed when something fails. */
extern const char *(*world_describe)(void);
#define WORLD_CHECK(condition, ...)                                              \
	do {                                                                     \
		if (!(condition))                                                \
			world_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
	} while (0)
_Noreturn void world_fail(const char *file, int line, const char *condition, const char *format,
			  ...) __attribute__((format(printf, 4, 5)));

#endif
