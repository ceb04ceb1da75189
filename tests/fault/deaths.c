/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die, stop, or leave. */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int leave(rf_comm *comm)
{
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static int idle(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);

	seat_watch(seat, comm);
	return leave(comm);
}

/* Calls until one fails; says "going" after the third. */
static int call_on(struct seat *seat, size_t count)
{
	rf_comm *comm = seat_join(seat);
	float *values = calloc(count, sizeof(float));
	int status;

	CHECK(values, "out of memory");
	for (int64_t calls = 1;; calls++) {
		status = rf_allreduce(comm, RF_IN_PLACE, values, count, RF_FLOAT32, RF_SUM);
		if (status != RF_OK)
			break;
		if (calls == 3)
			seat_say(seat, "going", RF_OK, NULL, calls);
	}
	seat_say(seat, "failed", status, comm, 0);
	free(values);
	return leave(comm);
}

static int call_large(struct seat *seat)
{
	return call_on(seat, 4 << 20);
}

static int call_small(struct seat *seat)
{
	return call_on(seat, 1);
}

static void kill_one(role *what, int victim, bool calls)
{
	struct team team;
	int64_t at;

	team_init(&team, 5);
	team_start_all(&team, what);
	team_joined(&team);
	for (int i = 0; i < team.size && calls; i++)
		team_hear(&team, i, "going", 20000);
	at = team_kill(&team, victim);
	for (int i = 0; i < team.size; i++) {
		if (i != victim)
			team_hear_failed(&team, i, RF_ERR_RANK_DEAD, victim, at, 1000);
	}
	team_end(&team);
}

void a_killed_rank_is_known_while_idle(void)
{
	kill_one(idle, 2, false);
	kill_one(idle, 4, false);
}

void a_killed_rank_is_known_in_a_large_call(void)
{
	kill_one(call_large, 3, true);
}

void a_killed_rank_is_known_among_small_calls(void)
{
	kill_one(call_small, 1, true);
}

void a_killed_master_is_known_as_any_other(void)
{
	kill_one(idle, 0, false);
	kill_one(call_large, 0, true);
	kill_one(call_small, 0, true);
}

/* By its deadline and the time that a query takes; and when it goes on, it learns what happened. */
void a_stopped_rank_is_named_by_the_deadline(void)
{
	struct team team;
	int64_t at;

	for (int victim = 0; victim < 4; victim += 3) {
		team_init(&team, 4);
		team_set("RINGFOLD_TIMEOUT", "1s");
		team_start_all(&team, call_small);
		team_joined(&team);
		for (int i = 0; i < team.size; i++)
			team_hear(&team, i, "going", 20000);
		at = now_ns();
		team_signal(&team, victim, SIGSTOP);
		for (int i = 0; i < team.size; i++) {
			if (i != victim)
				team_hear_failed(&team, i, RF_ERR_TIMEOUT, victim, at, 2500);
		}
		for (int i = 0; i < team.size; i++) {
			if (i != victim)
				CHECK(team_reap(&team, i, 10000) == 0, "rank %d", i);
		}
		team_signal(&team, victim, SIGCONT);
		team_hear(&team, victim, "failed", 10000);
		team_end(&team);
	}
}

static int exit_at_once(struct seat *seat)
{
	seat_join(seat);
	seat_await(seat, "exit");
	exit(0);
}

void an_exit_without_leaving_is_a_death(void)
{
	struct team team;
	int64_t at;

	team_init(&team, 3);
	team_start(&team, 0, idle);
	team_start(&team, 1, exit_at_once);
	team_start(&team, 2, call_small);
	team_joined(&team);
	at = now_ns();
	team_tell(&team, 1, "exit");
	team_hear_failed(&team, 0, RF_ERR_RANK_DEAD, 1, at, 1000);
	team_hear_failed(&team, 2, RF_ERR_RANK_DEAD, 1, at, 1000);
	team_end(&team);
}

static int leave_when_told(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);

	CHECK_OK(rf_barrier(comm));
	seat_await(seat, "leave");
	return leave(comm);
}

/* Knows of no failure until told to call. */
static int stay(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	rf_failure failure = RF_FAILURE_INIT;

	CHECK_OK(rf_barrier(comm));
	while (!seat_is_told(seat)) {
		CHECK(rf_comm_failure(comm, &failure) == 0, "leaving is taken for a failure: %s",
		      failure.message);
		poll(NULL, 0, 2);
	}
	seat_await(seat, "look");
	seat_say(seat, "fine", RF_OK, NULL, 0);
	seat_await(seat, "call");
	seat_say(seat, "failed", rf_barrier(comm), comm, 0);
	return leave(comm);
}

void leaving_and_exiting_is_no_death(void)
{
	struct pollfd nothing = {.fd = -1};
	struct team team;
	int64_t at;

	team_init(&team, 4);
	for (int i = 0; i < 4; i++)
		team_start(&team, i, i == 1 ? leave_when_told : stay);
	team_joined(&team);
	team_tell(&team, 1, "leave");
	CHECK(team_reap(&team, 1, 10000) == 0, "the leaver fails");
	poll(&nothing, 1, 700); /* twice as long as a death may take to be found */
	team_tell_all(&team, "look");
	for (int i = 0; i < 4; i++) {
		if (i != 1)
			team_hear(&team, i, "fine", 10000);
	}
	at = now_ns();
	team_tell_all(&team, "call");
	for (int i = 0; i < 4; i++) {
		if (i != 1)
			team_hear_failed(&team, i, RF_ERR_RANK_LEFT, 1, at, 1000);
	}
	team_end(&team);
}
