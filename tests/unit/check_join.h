/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of check_join share: a world of contexts that join, and what is expected of it. */
#ifndef TESTS_UNIT_CHECK_JOIN_H
#define TESTS_UNIT_CHECK_JOIN_H

#include "engine/failure.h"
#include "engine/join.h"
#include "tests/sim/world.h"

#define MS     1000000ull
#define SECOND (1000 * MS)

enum { RANKS_MOST = 64 };

extern rf_request *requests[RANKS_MOST];
extern struct world world;

void join_contexts(int count, uint64_t seed);
/* Context `at` begins to join as `rank` of `size`. */
void join_begin(int at, int rank, int size, int64_t timeout_ms);
void join_run(uint64_t virtual_ns);
/* Context `at` has ended with the status. */
void join_expect(int at, int status);
void join_expect_said(const char *text);

/* ---- check_join_failures.c ---- */

void every_death_is_known_to_every_survivor_within_a_second(uint64_t seed);
void the_late_are_named_and_not_those_that_wait_for_them(uint64_t seed);
void a_goodbye_is_not_a_death_but_fails_later_calls(uint64_t seed);
void malformed_payloads_are_refused(uint64_t seed);
void impossible_ranks_are_refused(uint64_t seed);

#endif
