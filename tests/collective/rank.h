/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a test that runs under `ringfold run`: its communicator of all ranks, its dice, and
 * how it says what is wrong. A watchdog ends a rank that hangs, and says in which case.
 */
#ifndef TESTS_COLLECTIVE_RANK_H
#define TESTS_COLLECTIVE_RANK_H

#include "ringfold.h"

#include <stdbool.h>
#include <stdint.h>

extern rf_comm *world;
extern int rank, size;
extern uint64_t seed; /* the same on all ranks: RINGFOLD_TEST_SEED */

/* Random numbers: common ones are drawn alike on all ranks, own ones are not. */
struct dice {
	uint64_t state;
};
extern struct dice common, own;
uint64_t dice_roll(struct dice *dice, uint64_t bound); /* 0 .. bound - 1 */

/* Joins the world; ends the program with 77 if it was not started by a launcher. */
void rank_begin(unsigned watchdog_seconds);
/* Leaves it; checks that nothing is left. */
void rank_end(void);
/* The case that runs now, for messages. The dice begin anew with each. */
void rank_case(const char *name);

void rank_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));
#define CHECK(condition, ...)                                       \
	do {                                                        \
		if (!(condition))                                   \
			rank_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
/* That a call answers what it must. */
#define CHECK_STATUS(call, expected)                                                  \
	do {                                                                          \
		int check_status = (call);                                            \
		if (check_status != (expected))                                       \
			rank_fail(__FILE__, __LINE__, "%s answers %s, not %s", #call, \
				  rf_strerror(check_status), rf_strerror(expected));  \
	} while (0)
#define CHECK_OK(call) CHECK_STATUS(call, RF_OK)

double seconds_now(void);
/* A log that is not looked at. */
void rank_no_log(void *user, rf_log_level level, const char *line);
/* A port that nobody listens on. */
int rank_free_port(void);

#endif
