/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making communicators, and (check_join_failures.c) their failure, on whole engines under the
 * simulator: nothing hangs, and whoever is missing is named on every rank.
 */
#include "tests/unit/check_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rf_request *requests[RANKS_MOST];
struct world world;

void join_contexts(int count, uint64_t seed)
{
	struct rf_sim_params params;
	struct world_setup setup = {.seed = seed, .size = count, .ranks_per_host = 1};

	rf_sim_params_hostile(&params, seed);
	setup.params = &params;
	memset(requests, 0, sizeof(requests));
	world_create_contexts(&world, &setup);
}

/* Context `at` begins to join as `rank` of `size`. */
void join_begin(int at, int rank, int size, int64_t timeout_ms)
{
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	int status;

	options.rank = rank;
	options.world_size = size;
	options.master_addr = "sim-0";
	options.master_port = 7880;
	options.create_timeout_ms = timeout_ms;
	options.deadline_ms = 1000;
	status = rf_comm_icreate(world.contexts[at], &options, &world.comms[at], &requests[at]);
	WORLD_CHECK(status == RF_OK, "context %d cannot begin: %s", at, rf_strerror(status));
}

void join_run(uint64_t virtual_ns)
{
	WORLD_CHECK(world_run(&world, requests, (size_t)world.size, virtual_ns), "it hangs");
}

/* Context `at` has ended with the status. */
void join_expect(int at, int status)
{
	int got = world_take(&requests[at]);

	WORLD_CHECK(got == status, "context %d: %s instead of %s", at, rf_strerror(got),
		    rf_strerror(status));
}

void join_expect_said(const char *text)
{
	WORLD_CHECK(strstr(world.last_log, text), "\"%s\" does not say \"%s\"", world.last_log,
		    text);
}

/* ---- rendezvous ----------------------------------------------------------------------------- */

static void absent_ranks_are_listed(uint64_t seed)
{
	join_contexts(9, seed);
	for (int rank = 0; rank < 3; rank++)
		join_begin(rank, rank, 9, 3000);
	join_begin(7, 7, 9, 60000);
	join_run(5 * SECOND);
	for (int rank = 0; rank < 3; rank++)
		join_expect(rank, RF_ERR_RENDEZVOUS);
	join_expect(7, RF_ERR_RENDEZVOUS);
	join_expect_said("ranks 3-6, 8 of 9");
	world_destroy(&world);
}

static void a_rank_that_expires_first_knows_who_is_absent(uint64_t seed)
{
	join_contexts(3, seed);
	join_begin(0, 0, 3, 60000);
	join_begin(1, 1, 3, 2000);
	world_run(&world, &requests[1], 1, 4 * SECOND);
	join_expect(1, RF_ERR_RENDEZVOUS);
	join_expect_said("rank 2 of 3");
	/* It may come again, and then all are there. */
	join_begin(1, 1, 3, 60000);
	join_begin(2, 2, 3, 60000);
	join_run(10 * SECOND);
	for (int rank = 0; rank < 3; rank++)
		join_expect(rank, RF_OK);
	world_destroy(&world);
}

static void the_master_may_come_last_and_its_name_later_still(uint64_t seed)
{
	join_contexts(4, seed);
	rf_sim_set_name_time(world.sim, 0, 20 * SECOND);
	for (int rank = 1; rank < 4; rank++)
		join_begin(rank, rank, 4, 60000);
	world_pass(&world, 15 * SECOND);
	join_begin(0, 0, 4, 60000);
	join_run(30 * SECOND);
	for (int rank = 0; rank < 4; rank++)
		join_expect(rank, RF_OK);
	world_destroy(&world);
}

static void an_unreachable_master_is_explained(uint64_t seed)
{
	join_contexts(2, seed);
	join_begin(1, 1, 2, 3000);
	join_run(4 * SECOND);
	join_expect(1, RF_ERR_RENDEZVOUS);
	join_expect_said("rank 0 at sim-0:7880 cannot be reached");
	rf_sim_set_name_time(world.sim, 0, UINT64_MAX);
	join_begin(1, 1, 2, 3000);
	join_run(4 * SECOND);
	join_expect(1, RF_ERR_RENDEZVOUS);
	join_expect_said("does not resolve");
	world_destroy(&world);
}

static void contradictions_name_both(uint64_t seed)
{
	join_contexts(3, seed);
	join_begin(0, 0, 3, 60000);
	world_pass(&world, SECOND);
	join_begin(1, 1, 4, 60000);
	WORLD_CHECK(world_run(&world, requests, 2, 10 * SECOND), "it hangs");
	join_expect(0, RF_ERR_RENDEZVOUS);
	join_expect(1, RF_ERR_RENDEZVOUS);
	join_expect_said("there are 4 ranks, rank 0 says 3");

	join_begin(0, 0, 3, 60000);
	join_begin(1, 1, 3, 60000);
	join_begin(2, 1, 3, 60000);
	join_run(10 * SECOND);
	for (int at = 0; at < 3; at++)
		join_expect(at, RF_ERR_RENDEZVOUS);
	join_expect_said("two processes say that they are rank 1");
	world_destroy(&world);
}

static void a_rank_that_dies_before_the_table_may_be_started_again(uint64_t seed)
{
	join_contexts(4, seed);
	join_begin(0, 0, 3, 60000);
	join_begin(1, 1, 3, 60000);
	world_pass(&world, 2 * SECOND);
	rf_sim_kill(world.sim, 1);
	world.dead[1] = true;
	world_pass(&world, 2 * SECOND);
	join_begin(3, 1, 3, 60000); /* in its place */
	join_begin(2, 2, 3, 60000);
	join_run(10 * SECOND);
	join_expect(0, RF_OK);
	join_expect(2, RF_OK);
	join_expect(3, RF_OK);
	world.dead[1] = false;
	WORLD_CHECK(rf_wait(&requests[1], 0) == RF_ERR_AGAIN, "the dead join has ended");
	rf_join_fail(requests[1]->comm, RF_ERR_ABORTED, "the test is over");
	join_expect(1, RF_ERR_ABORTED);
	world_destroy(&world);
}

static void a_second_communicator_meets_over_the_same_connections(uint64_t seed)
{
	rf_comm *first[5];

	join_contexts(5, seed);
	for (int rank = 0; rank < 5; rank++)
		join_begin(rank, rank, 5, 60000);
	join_run(10 * SECOND);
	for (int rank = 0; rank < 5; rank++) {
		join_expect(rank, RF_OK);
		first[rank] = world.comms[rank];
		world.comms[rank] = NULL;
	}
	/* The others come before the leader has begun, and wait. */
	for (int rank = 1; rank < 5; rank++)
		join_begin(rank, rank, 5, 60000);
	world_pass(&world, 5 * SECOND);
	join_begin(0, 0, 5, 60000);
	join_run(10 * SECOND);
	for (int rank = 0; rank < 5; rank++) {
		join_expect(rank, RF_OK);
		WORLD_CHECK(world.comms[rank]->id != first[rank]->id, "the same id twice");
		WORLD_CHECK(world.comms[rank]->id == world.comms[0]->id, "ids differ");
		WORLD_CHECK(rf_comm_destroy(&first[rank]) == RF_OK, "it cannot be destroyed");
	}
	world_destroy(&world);
}

/* Somebody dies at a random moment of the making: nobody hangs, and nobody is left believing in a
 * communicator that does not fail. */
static void a_death_at_any_moment_hangs_nobody(uint64_t seed)
{
	enum { RANKS = 7 };
	unsigned victim;

	join_contexts(RANKS, seed);
	victim = (unsigned)rf_sim_random(world.sim, RANKS);
	for (int rank = 0; rank < RANKS; rank++)
		join_begin(rank, rank, RANKS, 5000);
	for (uint64_t steps = rf_sim_random(world.sim, 400); steps > 0; steps--)
		world_step(&world);
	rf_sim_kill(world.sim, victim);
	world.dead[victim] = true;
	join_run(20 * SECOND);
	world_pass(&world, 2 * SECOND);
	for (int rank = 0; rank < RANKS; rank++) {
		rf_failure failure = RF_FAILURE_INIT;

		if (rank == (int)victim)
			continue;
		if (world_take(&requests[rank]) != RF_OK)
			continue;
		WORLD_CHECK(rf_comm_failure(world.comms[rank], &failure) == 1,
			    "rank %d does not know of the death of %u", rank, victim);
	}
	if (requests[victim]->ended) {
		world_take(&requests[victim]);
	} else {
		rf_join_fail(requests[victim]->comm, RF_ERR_ABORTED, "the test is over");
		world_take(&requests[victim]);
	}
	world_destroy(&world);
}

/* ---- by store ------------------------------------------------------------------------------- */

static struct {
	char key[64];
	uint8_t value[512];
	size_t bytes;
	unsigned sets;
} store_entry;

static int store_set(void *user, const char *key, const void *value, size_t bytes)
{
	(void)user;
	WORLD_CHECK(bytes <= sizeof(store_entry.value), "too large an entry");
	snprintf(store_entry.key, sizeof(store_entry.key), "%s", key);
	memcpy(store_entry.value, value, bytes);
	store_entry.bytes = bytes;
	store_entry.sets++;
	return RF_OK;
}

static int store_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
		     int64_t timeout_ms)
{
	(void)user;
	(void)timeout_ms;
	if (strcmp(key, store_entry.key) != 0)
		return RF_ERR_AGAIN;
	*bytes = store_entry.bytes;
	memcpy(value, store_entry.value, *bytes < capacity ? *bytes : capacity);
	return RF_OK;
}

static void begin_by_store(int at, int rank, int size)
{
	static const rf_store store = {.size = sizeof(store), .set = store_set, .get = store_get};
	rf_comm_options options = RF_COMM_OPTIONS_INIT;

	options.rank = rank;
	options.world_size = size;
	options.store = &store;
	options.create_timeout_ms = 60000;
	WORLD_CHECK(rf_comm_icreate(world.contexts[at], &options, &world.comms[at],
				    &requests[at]) == RF_OK,
		    "context %d cannot begin", at);
}

/* Polls all, so that the store has its turns. */
static void run_by_store(void)
{
	for (int round = 0; round < 20000; round++) {
		bool open = false;

		for (int at = 0; at < world.size; at++) {
			if (!requests[at] || requests[at]->ended || world.dead[at])
				continue;
			open = true;
			if (rf_join_needs_store(requests[at]->comm))
				rf_join_store_step(requests[at]->comm, 0);
			rf_sim_again(world.sim, (unsigned)at);
		}
		if (!open)
			return;
		world_pass(&world, MS);
	}
	world_fail("it hangs");
}

static void a_store_carries_the_rendezvous(uint64_t seed)
{
	memset(&store_entry, 0, sizeof(store_entry));
	join_contexts(5, seed);
	for (int rank = 3; rank >= 0; rank--)
		begin_by_store(rank, rank, 4);
	run_by_store();
	for (int rank = 0; rank < 4; rank++)
		join_expect(rank, RF_OK);
	WORLD_CHECK(store_entry.sets == 2 && store_entry.bytes == 1,
		    "the entry is still there for the next use");
	for (int rank = 0; rank < 4; rank++)
		WORLD_CHECK(rf_comm_destroy(&world.comms[rank]) == RF_OK, "cannot leave");

	/* A leader that dies leaves its entry behind; its successor's replaces it. */
	begin_by_store(0, 0, 3);
	for (int i = 0; i < 20; i++) {
		rf_join_store_step(requests[0]->comm, 0);
		world_pass(&world, MS);
	}
	rf_sim_kill(world.sim, 0);
	world.dead[0] = true;
	begin_by_store(1, 1, 3);
	begin_by_store(2, 2, 3);
	for (int i = 0; i < 1000; i++) {
		for (int at = 1; at < 3; at++)
			if (rf_join_needs_store(requests[at]->comm))
				rf_join_store_step(requests[at]->comm, 0);
		world_pass(&world, MS);
	}
	WORLD_CHECK(!requests[1]->ended && !requests[2]->ended, "a stale entry ends the join");
	begin_by_store(4, 0, 3);
	run_by_store();
	join_expect(1, RF_OK);
	join_expect(2, RF_OK);
	join_expect(4, RF_OK);
	rf_join_fail(requests[0]->comm, RF_ERR_ABORTED, "the test is over");
	join_expect(0, RF_ERR_ABORTED);
	world_destroy(&world);
}

static void ranks_are_written_for_people(void)
{
	static const struct {
		int ranks[8];
		size_t count, capacity;
		const char *text;
	} cases[] = {
		{{4}, 1, 64, "rank 4"},
		{{4, 5}, 2, 64, "ranks 4, 5"},
		{{3, 4, 5, 6, 7, 12}, 6, 64, "ranks 3-7, 12"},
		{{0, 2, 3, 5, 6, 7, 9}, 7, 64, "ranks 0, 2, 3, 5-7, 9"},
		{{10, 20, 30, 40}, 4, 18, "ranks 10, 20..."},
	};
	char text[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		WORLD_CHECK(!strcmp(rf_ranks_format(cases[i].ranks, cases[i].count, text,
						    cases[i].capacity),
				    cases[i].text),
			    "\"%s\" instead of \"%s\"", text, cases[i].text);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(uint64_t seed);
		int rounds;
	} tests[] = {
#define TEST(function, rounds) {#function, function, rounds}
		TEST(absent_ranks_are_listed, 5),
		TEST(a_rank_that_expires_first_knows_who_is_absent, 5),
		TEST(the_master_may_come_last_and_its_name_later_still, 5),
		TEST(an_unreachable_master_is_explained, 3),
		TEST(contradictions_name_both, 5),
		TEST(a_rank_that_dies_before_the_table_may_be_started_again, 5),
		TEST(a_second_communicator_meets_over_the_same_connections, 5),
		TEST(a_death_at_any_moment_hangs_nobody, 100),
		TEST(a_store_carries_the_rendezvous, 5),
		TEST(every_death_is_known_to_every_survivor_within_a_second, 30),
		TEST(the_late_are_named_and_not_those_that_wait_for_them, 30),
		TEST(a_goodbye_is_not_a_death_but_fails_later_calls, 10),
		TEST(malformed_payloads_are_refused, 2),
		TEST(impossible_ranks_are_refused, 1),
	};
	const char *only = getenv("RINGFOLD_TEST_ONLY");
	uint64_t seed = world_seed();

	printf("check_join: RINGFOLD_TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	ranks_are_written_for_people();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (only && strcmp(only, tests[i].name) != 0)
			continue;
		for (int round = 0; round < tests[i].rounds; round++)
			tests[i].run(seed + (uint64_t)round);
		printf("%s: ok\n", tests[i].name);
		fflush(stdout);
	}
	return 0;
}
