/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making communicators, and their failure, on whole engines under the simulator: nothing hangs,
 * whoever is missing, late or dead is named on every rank, and what comes malformed over the wire
 * is refused.
 */
#include "engine/failure.h"
#include "engine/join.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS     1000000ull
#define SECOND (1000 * MS)

enum { RANKS_MOST = 64 };

static rf_request *requests[RANKS_MOST];
static struct world world;

static void contexts(int count, uint64_t seed)
{
	struct rf_sim_params params;
	struct world_setup setup = {.seed = seed, .size = count, .ranks_per_host = 1};

	rf_sim_params_hostile(&params, seed);
	setup.params = &params;
	memset(requests, 0, sizeof(requests));
	world_create_contexts(&world, &setup);
}

/* Context `at` begins to join as `rank` of `size`. */
static void begin(int at, int rank, int size, int64_t timeout_ms)
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

static void run(uint64_t virtual_ns)
{
	WORLD_CHECK(world_run(&world, requests, (size_t)world.size, virtual_ns), "it hangs");
}

/* Context `at` has ended with the status. */
static void expect(int at, int status)
{
	int got = world_take(&requests[at]);

	WORLD_CHECK(got == status, "context %d: %s instead of %s", at, rf_strerror(got),
		    rf_strerror(status));
}

static void expect_said(const char *text)
{
	WORLD_CHECK(strstr(world.last_log, text), "\"%s\" does not say \"%s\"", world.last_log,
		    text);
}

/* ---- rendezvous ----------------------------------------------------------------------------- */

static void absent_ranks_are_listed(uint64_t seed)
{
	contexts(9, seed);
	for (int rank = 0; rank < 3; rank++)
		begin(rank, rank, 9, 3000);
	begin(7, 7, 9, 60000);
	run(5 * SECOND);
	for (int rank = 0; rank < 3; rank++)
		expect(rank, RF_ERR_RENDEZVOUS);
	expect(7, RF_ERR_RENDEZVOUS);
	expect_said("ranks 3-6, 8 of 9");
	world_destroy(&world);
}

static void a_rank_that_expires_first_knows_who_is_absent(uint64_t seed)
{
	contexts(3, seed);
	begin(0, 0, 3, 60000);
	begin(1, 1, 3, 2000);
	world_run(&world, &requests[1], 1, 4 * SECOND);
	expect(1, RF_ERR_RENDEZVOUS);
	expect_said("rank 2 of 3");
	/* It may come again, and then all are there. */
	begin(1, 1, 3, 60000);
	begin(2, 2, 3, 60000);
	run(10 * SECOND);
	for (int rank = 0; rank < 3; rank++)
		expect(rank, RF_OK);
	world_destroy(&world);
}

static void the_master_may_come_last_and_its_name_later_still(uint64_t seed)
{
	contexts(4, seed);
	rf_sim_set_name_time(world.sim, 0, 20 * SECOND);
	for (int rank = 1; rank < 4; rank++)
		begin(rank, rank, 4, 60000);
	world_pass(&world, 15 * SECOND);
	begin(0, 0, 4, 60000);
	run(30 * SECOND);
	for (int rank = 0; rank < 4; rank++)
		expect(rank, RF_OK);
	world_destroy(&world);
}

static void an_unreachable_master_is_explained(uint64_t seed)
{
	contexts(2, seed);
	begin(1, 1, 2, 3000);
	run(4 * SECOND);
	expect(1, RF_ERR_RENDEZVOUS);
	expect_said("rank 0 at sim-0:7880 cannot be reached");
	rf_sim_set_name_time(world.sim, 0, UINT64_MAX);
	begin(1, 1, 2, 3000);
	run(4 * SECOND);
	expect(1, RF_ERR_RENDEZVOUS);
	expect_said("does not resolve");
	world_destroy(&world);
}

static void contradictions_name_both(uint64_t seed)
{
	contexts(3, seed);
	begin(0, 0, 3, 60000);
	world_pass(&world, SECOND);
	begin(1, 1, 4, 60000);
	WORLD_CHECK(world_run(&world, requests, 2, 10 * SECOND), "it hangs");
	expect(0, RF_ERR_RENDEZVOUS);
	expect(1, RF_ERR_RENDEZVOUS);
	expect_said("there are 4 ranks, rank 0 says 3");

	begin(0, 0, 3, 60000);
	begin(1, 1, 3, 60000);
	begin(2, 1, 3, 60000);
	run(10 * SECOND);
	for (int at = 0; at < 3; at++)
		expect(at, RF_ERR_RENDEZVOUS);
	expect_said("two processes say that they are rank 1");
	world_destroy(&world);
}

static void a_rank_that_dies_before_the_table_may_be_started_again(uint64_t seed)
{
	contexts(4, seed);
	begin(0, 0, 3, 60000);
	begin(1, 1, 3, 60000);
	world_pass(&world, 2 * SECOND);
	rf_sim_kill(world.sim, 1);
	world.dead[1] = true;
	world_pass(&world, 2 * SECOND);
	begin(3, 1, 3, 60000); /* in its place */
	begin(2, 2, 3, 60000);
	run(10 * SECOND);
	expect(0, RF_OK);
	expect(2, RF_OK);
	expect(3, RF_OK);
	world.dead[1] = false;
	WORLD_CHECK(rf_wait(&requests[1], 0) == RF_ERR_AGAIN, "the dead join has ended");
	rf_join_fail(requests[1]->comm, RF_ERR_ABORTED, "the test is over");
	expect(1, RF_ERR_ABORTED);
	world_destroy(&world);
}

static void a_second_communicator_meets_over_the_same_connections(uint64_t seed)
{
	rf_comm *first[5];

	contexts(5, seed);
	for (int rank = 0; rank < 5; rank++)
		begin(rank, rank, 5, 60000);
	run(10 * SECOND);
	for (int rank = 0; rank < 5; rank++) {
		expect(rank, RF_OK);
		first[rank] = world.comms[rank];
		world.comms[rank] = NULL;
	}
	/* The others come before the leader has begun, and wait. */
	for (int rank = 1; rank < 5; rank++)
		begin(rank, rank, 5, 60000);
	world_pass(&world, 5 * SECOND);
	begin(0, 0, 5, 60000);
	run(10 * SECOND);
	for (int rank = 0; rank < 5; rank++) {
		expect(rank, RF_OK);
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

	contexts(RANKS, seed);
	victim = (unsigned)rf_sim_random(world.sim, RANKS);
	for (int rank = 0; rank < RANKS; rank++)
		begin(rank, rank, RANKS, 5000);
	for (uint64_t steps = rf_sim_random(world.sim, 400); steps > 0; steps--)
		world_step(&world);
	rf_sim_kill(world.sim, victim);
	world.dead[victim] = true;
	run(20 * SECOND);
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
	contexts(5, seed);
	for (int rank = 3; rank >= 0; rank--)
		begin_by_store(rank, rank, 4);
	run_by_store();
	for (int rank = 0; rank < 4; rank++)
		expect(rank, RF_OK);
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
	expect(1, RF_OK);
	expect(2, RF_OK);
	expect(4, RF_OK);
	rf_join_fail(requests[0]->comm, RF_ERR_ABORTED, "the test is over");
	expect(0, RF_ERR_ABORTED);
	world_destroy(&world);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void ready(int size, uint64_t seed)
{
	contexts(size, seed);
	for (int rank = 0; rank < size; rank++)
		begin(rank, rank, size, 60000);
	run(60 * SECOND);
	for (int rank = 0; rank < size; rank++)
		expect(rank, RF_OK);
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

static void every_death_is_known_to_every_survivor_within_a_second(uint64_t seed)
{
	bool dead[RANKS_MOST] = {false};
	int size, deaths;

	contexts(1, seed);
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
static void the_late_are_named_and_not_those_that_wait_for_them(uint64_t seed)
{
	bool late[RANKS_MOST] = {false}, silent[RANKS_MOST] = {false};
	int size, faults;

	contexts(1, seed);
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
			expect(rank, RF_ERR_TIMEOUT);
			expect_failure(rank, RF_ERR_TIMEOUT, late);
		}
		if (silent[rank])
			rf_sim_silence(world.sim, (unsigned)rank, false);
	}
	world_pass(&world, SECOND);
	world_destroy(&world);
}

static void a_goodbye_is_not_a_death_but_fails_later_calls(uint64_t seed)
{
	enum { RANKS = 6, LEAVER = 2 };
	bool left[RANKS_MOST] = {[LEAVER] = true};

	ready(RANKS, seed);
	for (int rank = 0; rank < RANKS; rank++)
		post_barrier(rank);
	run(SECOND);
	for (int rank = 0; rank < RANKS; rank++)
		expect(rank, RF_OK);
	WORLD_CHECK(rf_comm_destroy(&world.comms[LEAVER]) == RF_OK, "cannot leave");
	world_pass(&world, SECOND);
	for (int rank = 0; rank < RANKS; rank++) {
		rf_failure failure = RF_FAILURE_INIT;

		if (rank != LEAVER)
			WORLD_CHECK(rf_comm_failure(world.comms[rank], &failure) == 0,
				    "a goodbye is a failure: %s", failure.message);
	}
	post_barrier(0);
	run(SECOND);
	expect(0, RF_ERR_RANK_LEFT);
	world_pass(&world, SECOND);
	for (int rank = 0; rank < RANKS; rank++)
		if (rank != LEAVER)
			expect_failure(rank, RF_ERR_RANK_LEFT, left);
	world_destroy(&world);
}

/* ---- what comes over the wire --------------------------------------------------------------- */

static void malformed_payloads_are_refused(uint64_t seed)
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
static void impossible_ranks_are_refused(uint64_t seed)
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
