/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks learn when something goes wrong, on the whole engine under the simulator: deaths,
 * silence, cut connections, aborts, mismatches, and orderly leaving. Each case runs with many
 * seeds; the clock is virtual, so that the promised times are checked exactly.
 *
 *   check_sim_faults [SEEDS [FIRST_SEED]]    default: as many as fit in RINGFOLD_TEST_SECONDS (20)
 */
#include "tests/sim/values.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

struct fault_world {
	struct world world;
	float *buffers; /* size * count */
	size_t count;
	rf_request **requests;
};

static float *buffer_of(struct fault_world *fault, int rank)
{
	return fault->buffers + (size_t)rank * fault->count;
}

static void setup_world(struct fault_world *fault, uint64_t seed, int size, int64_t deadline_ms)
{
	struct rf_sim_params params;
	struct world_setup setup = {.seed = seed,
				    .size = size,
				    .ranks_per_host = 1 + (int)(seed % 3),
				    .params = &params,
				    .deadline_ms = deadline_ms,
				    .chunk_bytes = 4096};

	rf_sim_params_hostile(&params, seed);
	memset(fault, 0, sizeof(*fault));
	world_create(&fault->world, &setup);
	fault->count = 1 + (size_t)rf_sim_random(fault->world.sim, 100000);
	fault->buffers = calloc((size_t)size * fault->count, sizeof(float));
	fault->requests = calloc((size_t)size, sizeof(*fault->requests));
	WORLD_CHECK(fault->buffers && fault->requests, "out of memory");
}

static void end_world(struct fault_world *fault)
{
	world_leave(&fault->world);
	for (int rank = 0; rank < fault->world.size; rank++) {
		if (fault->requests[rank] && fault->world.dead[rank])
			world_bury(fault->requests[rank]);
		else if (fault->requests[rank])
			world_take(&fault->requests[rank]);
	}
	world_destroy(&fault->world);
	free(fault->buffers);
	free(fault->requests);
}

static int start_sum(struct fault_world *fault, int rank)
{
	return rf_iallreduce(fault->world.comms[rank], RF_IN_PLACE, buffer_of(fault, rank),
			     fault->count, RF_FLOAT32, RF_SUM, NULL, &fault->requests[rank]);
}

static void start_sums(struct fault_world *fault, int except)
{
	for (int rank = 0; rank < fault->world.size; rank++) {
		if (rank == except || fault->world.dead[rank])
			continue;
		WORLD_CHECK(start_sum(fault, rank) == RF_OK, "rank %d does not start", rank);
	}
}

static bool names(const rf_failure *failure, int rank)
{
	for (size_t i = 0; i < failure->rank_count && i < failure->rank_capacity; i++) {
		if (failure->ranks[i] == rank)
			return true;
	}
	return false;
}

/* The failure of a rank's communicator is this error and names that rank; and it stays so. */
static void check_failure(struct fault_world *fault, int rank, int error, int culprit)
{
	rf_failure failure = RF_FAILURE_INIT;
	int ranks[64];
	rf_request *request = NULL;
	float value = 0;
	int status;

	failure.ranks = ranks;
	failure.rank_capacity = 64;
	WORLD_CHECK(rf_comm_failure(fault->world.comms[rank], &failure) == 1,
		    "rank %d knows of no failure", rank);
	WORLD_CHECK(failure.error == error, "rank %d was told %s, not %s (%s)", rank,
		    rf_strerror(failure.error), rf_strerror(error), failure.message);
	WORLD_CHECK(culprit < 0 || names(&failure, culprit), "rank %d: rank %d is not named: %s",
		    rank, culprit, failure.message);
	WORLD_CHECK(failure.message[0], "rank %d: no reason is given", rank);
	status = rf_iallreduce(fault->world.comms[rank], RF_IN_PLACE, &value, 1, RF_FLOAT32, RF_SUM,
			       NULL, &request);
	WORLD_CHECK(status == error && !request, "rank %d: a failed communicator answers %s", rank,
		    rf_strerror(status));
}

/* All requests of the living end within the time; each with RF_OK (it was done before) or error. */
static void check_ends(struct fault_world *fault, uint64_t within, int error, int culprit)
{
	struct world *world = &fault->world;

	WORLD_CHECK(world_run(world, fault->requests, (size_t)world->size, within),
		    "calls have not ended after %llu ms: %s",
		    (unsigned long long)(within / 1000000), world->last_log);
	/* A rank whose call was done hears of it too, in its own time. */
	world_pass(world, within);
	for (int rank = 0; rank < world->size; rank++) {
		int status;

		if (world->dead[rank])
			continue;
		if (fault->requests[rank]) {
			status = world_take(&fault->requests[rank]);
			WORLD_CHECK(status == RF_OK || status == error, "rank %d: %s", rank,
				    rf_strerror(status));
		}
		check_failure(fault, rank, error, culprit);
	}
}

static void kill_rank(struct fault_world *fault, int rank)
{
	rf_sim_kill(fault->world.sim, (unsigned)rank);
	fault->world.dead[rank] = true;
}

/* ---- the cases ------------------------------------------------------------------------------ */

static int some_size(uint64_t seed)
{
	return 2 + (int)(seed % 12);
}

/* Within a second every survivor knows, whether or not they share a connection. */
static void a_death_is_known_within_a_second(uint64_t seed)
{
	struct fault_world fault;
	int victim;

	setup_world(&fault, seed, some_size(seed), 0);
	victim = (int)rf_sim_random(fault.world.sim, (uint64_t)fault.world.size);
	start_sums(&fault, -1);
	world_pass(&fault.world, rf_sim_random(fault.world.sim, 3000000));
	kill_rank(&fault, victim);
	check_ends(&fault, SECOND, RF_ERR_RANK_DEAD, victim);
	end_world(&fault);
}

static void an_idle_communicator_hears_of_a_death(uint64_t seed)
{
	struct fault_world fault;

	setup_world(&fault, seed, some_size(seed), 0);
	kill_rank(&fault, fault.world.size - 1);
	world_pass(&fault.world, SECOND);
	check_ends(&fault, 1, RF_ERR_RANK_DEAD, fault.world.size - 1);
	end_world(&fault);
}

/* Rank 0 is silent: the others' deadline passes, and it is named, not those that wait for it. */
static void the_silent_rank_is_named(uint64_t seed)
{
	struct fault_world fault;
	int size = some_size(seed);
	int victim;

	setup_world(&fault, seed, size, 5000);
	victim = (int)rf_sim_random(fault.world.sim, (uint64_t)size);
	rf_sim_silence(fault.world.sim, (unsigned)victim, true);
	start_sums(&fault, victim);
	fault.world.dead[victim] = true; /* it will not be asked */
	check_ends(&fault, 7 * SECOND, RF_ERR_TIMEOUT, victim);
	rf_sim_silence(fault.world.sim, (unsigned)victim, false);
	fault.world.dead[victim] = false;
	world_pass(&fault.world, 2 * SECOND);
	end_world(&fault);
}

/* It lives and answers, but does not call. */
static void the_late_rank_is_named(uint64_t seed)
{
	struct fault_world fault;
	int size = some_size(seed);
	int late;

	setup_world(&fault, seed, size, 5000);
	late = (int)rf_sim_random(fault.world.sim, (uint64_t)size);
	start_sums(&fault, late);
	check_ends(&fault, 7 * SECOND, RF_ERR_TIMEOUT, late);
	end_world(&fault);
}

/* Two calls pass their deadlines, and one query is on its way. The late rank comes to the first one
 * in time, and never to the second. */
static void a_later_call_is_not_forgotten(uint64_t seed)
{
	struct fault_world fault;
	int size = some_size(seed);
	rf_request *firsts[16] = {NULL};
	float values[16] = {0};
	int late;

	setup_world(&fault, seed, size, 1000);
	late = (int)rf_sim_random(fault.world.sim, (uint64_t)size);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rank == late || rf_iallreduce(fault.world.comms[rank], RF_IN_PLACE,
							  &values[rank], 1, RF_FLOAT32, RF_SUM,
							  NULL, &firsts[rank]) == RF_OK,
			    "rank %d does not start", rank);
	world_pass(&fault.world, SECOND / 10);
	start_sums(&fault, late);
	world_pass(&fault.world, SECOND + SECOND / 20);
	WORLD_CHECK(rf_iallreduce(fault.world.comms[late], RF_IN_PLACE, &values[late], 1,
				  RF_FLOAT32, RF_SUM, NULL, &firsts[late]) == RF_OK,
		    "rank %d does not start", late);
	check_ends(&fault, 3 * SECOND, RF_ERR_TIMEOUT, late);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(world_take(&firsts[rank]) == RF_OK, "the first call has failed");
	end_world(&fault);
}

static bool is_named(const struct fault_world *fault, int rank, int culprit)
{
	rf_failure failure = RF_FAILURE_INIT;
	int ranks[64];

	failure.ranks = ranks;
	failure.rank_capacity = 64;
	return rf_comm_failure(fault->world.comms[rank], &failure) == 1 && names(&failure, culprit);
}

/* All have answered a query about a call that then ended. Right after it one falls silent: the
 * answer that it gave before does not hide it. */
static void silence_after_an_answer_is_named(uint64_t seed)
{
	struct fault_world fault;
	rf_call_options quick = RF_CALL_OPTIONS_INIT;
	int size = 3 + (int)(seed % 11), late, silent;

	setup_world(&fault, seed, size, 1000);
	fault.count = 1;
	late = (int)rf_sim_random(fault.world.sim, (uint64_t)size);
	silent = (late + 1 + (int)rf_sim_random(fault.world.sim, (uint64_t)size - 1)) % size;
	start_sums(&fault, late);
	world_pass(&fault.world, SECOND + SECOND / 10);
	WORLD_CHECK(start_sum(&fault, late) == RF_OK, "rank %d does not start", late);
	WORLD_CHECK(world_run(&fault.world, fault.requests, (size_t)size, SECOND / 4),
		    "a late rank is not waited for");
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(world_take(&fault.requests[rank]) == RF_OK, "the late sum fails");
	rf_sim_silence(fault.world.sim, (unsigned)silent, true);
	quick.deadline_ms = 50;
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rank == silent ||
				    rf_iallreduce(fault.world.comms[rank], RF_IN_PLACE,
						  buffer_of(&fault, rank), fault.count, RF_FLOAT32,
						  RF_SUM, &quick, &fault.requests[rank]) == RF_OK,
			    "rank %d does not start", rank);
	fault.world.dead[silent] = true; /* it will not be asked */
	check_ends(&fault, 3 * SECOND, RF_ERR_TIMEOUT, silent);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rank == silent || !is_named(&fault, rank, late),
			    "rank %d names rank %d, which was late before", rank, late);
	rf_sim_silence(fault.world.sim, (unsigned)silent, false);
	fault.world.dead[silent] = false;
	world_pass(&fault.world, 2 * SECOND);
	end_world(&fault);
}

static void an_abort_ends_all_calls(uint64_t seed)
{
	struct fault_world fault;
	int aborter;

	setup_world(&fault, seed, some_size(seed), 0);
	aborter = (int)rf_sim_random(fault.world.sim, (uint64_t)fault.world.size);
	start_sums(&fault, aborter);
	world_pass(&fault.world, rf_sim_random(fault.world.sim, 3000000));
	WORLD_CHECK(rf_comm_abort(fault.world.comms[aborter]) == RF_OK, "abort");
	check_ends(&fault, SECOND, RF_ERR_ABORTED, aborter);
	end_world(&fault);
}

/* Whoever leaves orderly is no dead rank; a call that would need it fails at once. */
static void a_goodbye_is_not_a_death(uint64_t seed)
{
	struct fault_world fault;
	int leaver;

	setup_world(&fault, seed, some_size(seed), 0);
	leaver = (int)rf_sim_random(fault.world.sim, (uint64_t)fault.world.size);
	start_sums(&fault, -1);
	WORLD_CHECK(world_run(&fault.world, fault.requests, (size_t)fault.world.size, 600 * SECOND),
		    "the sum does not end");
	for (int rank = 0; rank < fault.world.size; rank++)
		WORLD_CHECK(world_take(&fault.requests[rank]) == RF_OK, "the sum failed");
	WORLD_CHECK(rf_comm_destroy(&fault.world.comms[leaver]) == RF_OK, "destroy");
	world_pass(&fault.world, 2 * SECOND);
	for (int rank = 0; rank < fault.world.size; rank++) {
		rf_failure failure = RF_FAILURE_INIT;

		WORLD_CHECK(rank == leaver ||
				    rf_comm_failure(fault.world.comms[rank], &failure) == 0,
			    "rank %d takes leaving for a failure: %s", rank, failure.message);
	}
	fault.world.dead[leaver] = true;
	for (int rank = 0; rank < fault.world.size; rank++) {
		int status = rank == leaver ? RF_OK : start_sum(&fault, rank);

		WORLD_CHECK(status == RF_OK || status == RF_ERR_RANK_LEFT, "rank %d: %s", rank,
			    rf_strerror(status));
	}
	check_ends(&fault, SECOND, RF_ERR_RANK_LEFT, leaver);
	fault.world.dead[leaver] = false;
	end_world(&fault);
}

/* Each rank but one makes the same call; the odd one differs in one respect. Credits may come
 * before their receiver has started the call. */
static void a_mismatch_is_told_to_all(uint64_t seed)
{
	struct fault_world fault;
	int odd, first;

	setup_world(&fault, seed, some_size(seed), 0);
	odd = (int)rf_sim_random(fault.world.sim, (uint64_t)fault.world.size);
	first = (int)rf_sim_random(fault.world.sim, (uint64_t)fault.world.size);
	for (int turn = 0; turn < fault.world.size; turn++) {
		int place = (first + turn) % fault.world.size;
		int rank = seed & 16 ? fault.world.size - 1 - place : place;
		rf_comm *comm = fault.world.comms[rank];
		rf_request **request = &fault.requests[rank];
		void *buffer = buffer_of(&fault, rank);
		uint64_t kind = rank == odd ? seed / 9 % 6 : seed / 9 % 6 == 5 ? 6 : 7;
		size_t count = kind == 0 ? fault.count / 2 : fault.count;
		rf_dtype dtype = kind == 1 ? RF_INT32 : RF_FLOAT32;
		rf_op op = kind == 2 ? RF_MAX : RF_SUM;
		int status =
			kind == 3 ? rf_ibarrier(comm, NULL, request)
			: kind >= 4 && kind <= 6
				? rf_ibroadcast(comm, buffer, count, dtype,
						kind == 5 ? fault.world.size - 1 : 0, NULL, request)
				: rf_iallreduce(comm, RF_IN_PLACE, buffer, count, dtype, op, NULL,
						request);

		WORLD_CHECK(status == RF_OK || status == RF_ERR_MISMATCH,
			    "rank %d does not start: %s", rank, rf_strerror(status));
		if (seed & 8)
			world_pass(&fault.world, rf_sim_random(fault.world.sim, 3000000));
	}
	check_ends(&fault, SECOND, RF_ERR_MISMATCH, odd);
	for (int rank = 0; rank < fault.world.size; rank++)
		WORLD_CHECK(strstr(fault.world.comms[rank]->failure->message,
				   seed / 9 % 6 == 5 ? "broadcast" : "allreduce"),
			    "rank %d: the other view is missing: %s", rank,
			    fault.world.comms[rank]->failure->message);
	end_world(&fault);
}

/* Two communicators: one with the victim, one without, which goes on. */
static void others_go_on(uint64_t seed)
{
	struct fault_world fault;
	rf_comm *halves[16] = {NULL};
	int size = 4 + (int)(seed % 8);

	setup_world(&fault, seed, size, 0);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rf_comm_isplit(fault.world.comms[rank], rank % 2, rank, NULL,
					   &halves[rank], &fault.requests[rank]) == RF_OK,
			    "split");
	WORLD_CHECK(world_run(&fault.world, fault.requests, (size_t)size, 600 * SECOND), "split");
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(world_take(&fault.requests[rank]) == RF_OK, "split");
	kill_rank(&fault, size - 1);
	world_pass(&fault.world, SECOND);
	for (int rank = 0; rank < size - 1; rank++) {
		bool with_victim = rank % 2 == (size - 1) % 2;
		int status =
			rf_iallreduce(halves[rank], RF_IN_PLACE, buffer_of(&fault, rank),
				      fault.count, RF_FLOAT32, RF_SUM, NULL, &fault.requests[rank]);

		WORLD_CHECK(status == (with_victim ? RF_ERR_RANK_DEAD : RF_OK), "rank %d: %s", rank,
			    rf_strerror(status));
	}
	WORLD_CHECK(world_run(&fault.world, fault.requests, (size_t)size, 600 * SECOND),
		    "the half without the victim stands still");
	for (int rank = 0; rank < size - 1; rank++) {
		WORLD_CHECK(!fault.requests[rank] || world_take(&fault.requests[rank]) == RF_OK,
			    "rank %d: the half without the victim fails", rank);
		WORLD_CHECK(rf_comm_destroy(&halves[rank]) == RF_OK, "destroy");
	}
	end_world(&fault);
}

/* A rank dies while all of them split: nobody waits for it until the creation's deadline. */
static void a_death_ends_a_split(uint64_t seed)
{
	struct fault_world fault;
	rf_comm *halves[16] = {NULL};
	int size = 4 + (int)(seed % 8), victim;

	setup_world(&fault, seed, size, 60000);
	victim = (int)rf_sim_random(fault.world.sim, (uint64_t)size);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rf_comm_isplit(fault.world.comms[rank], rank % 2, rank, NULL,
					   &halves[rank], &fault.requests[rank]) == RF_OK,
			    "split");
	world_pass(&fault.world, rf_sim_random(fault.world.sim, 5000000));
	kill_rank(&fault, victim);
	check_ends(&fault, SECOND, RF_ERR_RANK_DEAD, victim);
	for (int rank = 0; rank < size; rank++)
		WORLD_CHECK(rank == victim || !halves[rank] ||
				    rf_comm_destroy(&halves[rank]) == RF_OK,
			    "destroy");
	end_world(&fault);
}

/* One stream is reset; which one is up to the seed. All calls end, rightly or with an error. */
static void a_cut_stream_hangs_nobody(uint64_t seed)
{
	struct fault_world fault;
	struct world *world = &fault.world;
	int size = some_size(seed);

	setup_world(&fault, seed, size, 60000);
	for (int i = 0; i < size * (int)fault.count; i++)
		fault.buffers[i] = 1;
	start_sums(&fault, -1);
	world_pass(world, rf_sim_random(world->sim, 3000000));
	rf_sim_cut(world->sim, (unsigned)rf_sim_random(world->sim, (uint64_t)size), 0);
	WORLD_CHECK(world_run(world, fault.requests, (size_t)size, 70 * SECOND), "a cut hangs: %s",
		    world->last_log);
	for (int rank = 0; rank < size; rank++) {
		int status = world_take(&fault.requests[rank]);

		for (size_t i = 0; status == RF_OK && i < fault.count; i++)
			WORLD_CHECK(buffer_of(&fault, rank)[i] == (float)size,
				    "rank %d: wrong after a cut", rank);
		WORLD_CHECK(status == RF_OK || status == RF_ERR_NETWORK ||
				    status == RF_ERR_RANK_DEAD,
			    "rank %d: %s", rank, rf_strerror(status));
	}
	end_world(&fault);
}

static void sum_and_check(struct fault_world *fault)
{
	start_sums(fault, -1);
	WORLD_CHECK(
		world_run(&fault->world, fault->requests, (size_t)fault->world.size, 600 * SECOND),
		"the sum does not end: %s", fault->world.last_log);
	for (int rank = 0; rank < fault->world.size; rank++) {
		int status = world_take(&fault->requests[rank]);

		WORLD_CHECK(status == RF_OK, "rank %d: %s: %s", rank, rf_strerror(status),
			    fault->world.last_log);
	}
}

/* The connections of the one that was left end while the next is made: nobody takes that for a
 * break. */
static void a_communicator_after_another_is_whole(uint64_t seed)
{
	struct fault_world fault;

	setup_world(&fault, seed, some_size(seed), 0);
	for (int i = 0; i < 3; i++) {
		sum_and_check(&fault);
		for (int rank = 0; rank < fault.world.size; rank++) {
			WORLD_CHECK(rf_comm_destroy(&fault.world.comms[rank]) == RF_OK, "destroy");
			world_pass(&fault.world, rf_sim_random(fault.world.sim, 1000000));
		}
		if (seed % 2)
			world_pass(&fault.world, rf_sim_random(fault.world.sim, SECOND));
		world_join_all(&fault.world);
	}
	sum_and_check(&fault);
	world_pass(&fault.world, 2 * SECOND);
	sum_and_check(&fault);
	end_world(&fault);
}

static void (*const cases[])(uint64_t seed) = {
	a_death_is_known_within_a_second, an_idle_communicator_hears_of_a_death,
	the_silent_rank_is_named,         the_late_rank_is_named,
	an_abort_ends_all_calls,          a_goodbye_is_not_a_death,
	a_mismatch_is_told_to_all,        others_go_on,
	a_cut_stream_hangs_nobody,        a_communicator_after_another_is_whole,
	a_later_call_is_not_forgotten,    a_death_ends_a_split,
	silence_after_an_answer_is_named,
};

static void one_case(uint64_t seed)
{
	cases[seed % (sizeof(cases) / sizeof(cases[0]))](seed);
}

int main(int argc, char **argv)
{
	return world_run_seeds(argc, argv, one_case);
}
