/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The failure of communicators that were made: whoever is late, dead or has left is named on every
 * rank, and what comes malformed over the wire is refused.
 */
#include "tests/unit/check_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ------------------------------------------------------------------------------- */

static void ready(int size, uint64_t seed)
{
	join_contexts(size, seed);
	for (int rank = 0; rank < size; rank++)
		join_begin(rank, rank, size, 60000);
	join_run(60 * SECOND);
	for (int rank = 0; rank < size; rank++)
		join_expect(rank, RF_OK);
}

/* The report on a rank: error, and exactly the ranks for which wanted() holds. */
static void expect_failure(int rank, int error, const bool *wanted)
{
	int ranks[RANKS_MOST];
	rf_failure failure = RF_FAILURE_INIT;
	size_t count = 0;

	failure.ranks = ranks;
	failure.rank_capacity = RANKS_MOST;
	WORLD_CHECK(rf_comm_failure(world.comms[rank], &failure) == 1, "rank %d knows nothing",
		    rank);
	WORLD_CHECK(failure.error == error, "rank %d: %s: %s", rank, rf_strerror(failure.error),
		    failure.message);
	for (int other = 0; other < world.size; other++) {
		if (!wanted[other])
			continue;
		WORLD_CHECK(count < failure.rank_count && ranks[count] == other,
			    "rank %d does not name rank %d: %s", rank, other, failure.message);
		count++;
	}
	WORLD_CHECK(count == failure.rank_count, "rank %d names too many: %s", rank,
		    failure.message);
}

void every_death_is_known_to_every_survivor_within_a_second(uint64_t seed)
{
	bool dead[RANKS_MOST] = {false};
	int size, deaths;

	join_contexts(1, seed);
	size = 3 + (int)rf_sim_random(world.sim, 30);
	deaths = 1 + (int)rf_sim_random(world.sim, 3);
	world_destroy(&world);
	ready(size, seed);
	for (int i = 0; i < deaths; i++) {
		int victim = (int)rf_sim_random(world.sim, (uint64_t)size);

		dead[victim] = world.dead[victim] = true;
		rf_sim_kill(world.sim, (unsigned)victim);
	}
	world_pass(&world, SECOND);
	for (int rank = 0; rank < size; rank++)
		if (!dead[rank])
			expect_failure(rank, RF_ERR_RANK_DEAD, dead);
	world_destroy(&world);
}

static void post_barrier(int rank)
{
	int status = rf_ibarrier(world.comms[rank], NULL, &requests[rank]);

	WORLD_CHECK(status == RF_OK, "rank %d cannot start: %s", rank, rf_strerror(status));
}

/* Of the ranks some do not start the call, some stand still: those, and no others, are named by
 * everybody else, soon after the deadline. */
void the_late_are_named_and_not_those_that_wait_for_them(uint64_t seed)
{
	bool late[RANKS_MOST] = {false}, silent[RANKS_MOST] = {false};
	int size, faults;

	join_contexts(1, seed);
	size = 4 + (int)rf_sim_random(world.sim, 20);
	faults = 1 + (int)rf_sim_random(world.sim, 2);
	world_destroy(&world);
	ready(size, seed);
	for (int i = 0; i < faults; i++) {
		int rank = (int)rf_sim_random(world.sim, (uint64_t)size);

		late[rank] = true;
		silent[rank] = rf_sim_random(world.sim, 2);
		if (silent[rank])
			rf_sim_silence(world.sim, (unsigned)rank, true);
	}
	for (int rank = 0; rank < size; rank++)
		if (!late[rank])
			post_barrier(rank);
	world_run(&world, requests, (size_t)size, 3 * SECOND);
	for (int rank = 0; rank < size; rank++) {
		if (!late[rank]) {
			join_expect(rank, RF_ERR_TIMEOUT);
			expect_failure(rank, RF_ERR_TIMEOUT, late);
		}
		if (silent[rank])
			rf_sim_silence(world.sim, (unsigned)rank, false);
	}
	world_pass(&world, SECOND);
	world_destroy(&world);
}

void a_goodbye_is_not_a_death_but_fails_later_calls(uint64_t seed)
{
	enum { RANKS = 6, LEAVER = 2 };
	bool left[RANKS_MOST] = {[LEAVER] = true};

	ready(RANKS, seed);
	for (int rank = 0; rank < RANKS; rank++)
		post_barrier(rank);
	join_run(SECOND);
	for (int rank = 0; rank < RANKS; rank++)
		join_expect(rank, RF_OK);
	WORLD_CHECK(rf_comm_destroy(&world.comms[LEAVER]) == RF_OK, "cannot leave");
	world_pass(&world, SECOND);
	for (int rank = 0; rank < RANKS; rank++) {
		rf_failure failure = RF_FAILURE_INIT;

		if (rank != LEAVER)
			WORLD_CHECK(rf_comm_failure(world.comms[rank], &failure) == 0,
				    "a goodbye is a failure: %s", failure.message);
	}
	post_barrier(0);
	join_run(SECOND);
	join_expect(0, RF_ERR_RANK_LEFT);
	world_pass(&world, SECOND);
	for (int rank = 0; rank < RANKS; rank++)
		if (rank != LEAVER)
			expect_failure(rank, RF_ERR_RANK_LEFT, left);
	world_destroy(&world);
}

/* ---- what comes over the wire --------------------------------------------------------------- */

void malformed_payloads_are_refused(uint64_t seed)
{
	enum { RANKS = 4, ROUNDS = 20000 };
	rf_comm *comm;
	struct rf_peer *peer;
	size_t refused = 0;

	ready(RANKS, seed);
	comm = world.comms[1];
	peer = comm->lifelines[0]->peer;
	for (int round = 0; round < ROUNDS; round++) {
		size_t bytes = rf_sim_random(world.sim, 80);
		uint8_t *payload = malloc(bytes ? bytes : 1); /* exact, for the sanitizer */
		struct rf_segment segment = {.comm = comm->id, .bytes = (uint32_t)bytes};

		WORLD_CHECK(payload, "out of memory");
		for (size_t i = 0; i < bytes; i++)
			payload[i] = rf_sim_random(world.sim, 3)
					     ? 0
					     : (uint8_t)rf_sim_random(world.sim, 256);
		if (rf_sim_random(world.sim, 2)) {
			segment.type = (uint8_t)(RF_SEGMENT_JOIN + rf_sim_random(world.sim, 5));
			refused += rf_join_on_segment(peer, &segment, payload) != RF_OK;
		} else {
			segment.type = (uint8_t)(RF_SEGMENT_DEATH + rf_sim_random(world.sim, 7));
			refused += rf_failure_on_segment(peer, &segment, payload) != RF_OK;
		}
		free(payload);
	}
	WORLD_CHECK(refused > ROUNDS / 2, "most of it should have been refused: %zu", refused);
	world_destroy(&world);
}

/* A report that is well-formed but names a rank that there is not, or too many. */
void impossible_ranks_are_refused(uint64_t seed)
{
	enum { RANKS = 4 };
	static const struct {
		uint32_t error, count, rank;
		int status;
	} cases[] = {
		{(uint32_t)RF_ERR_RANK_DEAD, 1, RANKS, RF_ERR_PROTOCOL},
		{(uint32_t)RF_ERR_RANK_DEAD, 1, UINT32_MAX, RF_ERR_PROTOCOL},
		{(uint32_t)RF_ERR_RANK_DEAD, RANKS + 1, 0, RF_ERR_PROTOCOL},
		{(uint32_t)RF_ERR_RANK_DEAD, UINT32_MAX, 0, RF_ERR_PROTOCOL},
		{(uint32_t)RF_OK, 1, 0, RF_ERR_PROTOCOL},
		{7, 1, 0, RF_ERR_PROTOCOL},
		{(uint32_t)RF_ERR_RANK_DEAD, 1, 3, RF_OK},
	};
	rf_comm *comm;

	ready(RANKS, seed);
	comm = world.comms[1];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t payload[64];
		struct rf_cursor c = {payload, payload + sizeof(payload), false};
		struct rf_segment segment = {.comm = comm->id, .type = RF_SEGMENT_DEATH};
		int status;

		rf_put_u32(&c, cases[i].error);
		rf_put_u32(&c, cases[i].count);
		for (uint32_t k = 0; k < cases[i].count && k <= RANKS; k++)
			rf_put_u32(&c, cases[i].rank);
		rf_put_string(&c, "a test");
		segment.bytes = (uint32_t)(c.at - payload);
		status = rf_failure_on_segment(comm->lifelines[0]->peer, &segment, payload);
		WORLD_CHECK(status == cases[i].status, "case %zu: %s", i, rf_strerror(status));
	}
	WORLD_CHECK(comm->failure && comm->failure->rank_count == 1 && comm->failure->ranks[0] == 3,
		    "the good report was not taken");
	world_destroy(&world);
}
