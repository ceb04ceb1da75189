/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that come late, twice, never, or with another idea of the job. */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Joins, makes a sum, leaves. */
static int join_and_sum(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	int64_t sum = 1;

	if (!comm)
		return 0;
	CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &sum, 1, RF_INT64, RF_SUM));
	CHECK(sum == seat->size, "the sum is %lld", (long long)sum);
	seat_say(seat, "summed", RF_OK, NULL, sum);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

/* Sockets of this port's listener that have connected, from the kernel's table. */
static int connections_to(int port)
{
	static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
	int count = 0;

	for (int i = 0; i < 2; i++) {
		FILE *table = fopen(tables[i], "r");
		char line[512];

		while (table && fgets(line, sizeof(line), table)) {
			unsigned local, state;

			if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &local, &state) ==
				    2 &&
			    (int)local == port && state == 1)
				count++;
		}
		if (table)
			fclose(table);
	}
	return count;
}

static void await_connections(const struct team *team, int count)
{
	int64_t until = now_ns() + INT64_C(20000000000);

	while (connections_to(team->port) < count) {
		CHECK(now_ns() < until, "only %d connections to the master",
		      connections_to(team->port));
		poll(NULL, 0, 2);
	}
}

static void one_killed_comes_again(void)
{
	struct team team;

	team_init(&team, 4);
	for (int i = 0; i < 3; i++)
		team_start(&team, i, join_and_sum);
	await_connections(&team, 2);
	team_kill(&team, 1);
	team_start(&team, 1, join_and_sum);
	team_start(&team, 3, join_and_sum);
	team_joined(&team);
	team_end(&team);
}

/* Several times: its successor has to come while the leader is not yet sure of the death. */
void a_rank_killed_in_rendezvous_may_come_again(void)
{
	for (int round = 0; round < 5; round++)
		one_killed_comes_again();
}

void a_master_killed_in_rendezvous_may_come_again(void)
{
	struct team team;

	team_init(&team, 3);
	for (int i = 0; i < 2; i++)
		team_start(&team, i, join_and_sum);
	await_connections(&team, 1);
	team_kill(&team, 0);
	team_start(&team, 2, join_and_sum);
	team_start(&team, 0, join_and_sum);
	team_joined(&team);
	team_end(&team);
}

static void check_absent(const struct team *team, int rank)
{
	const char *log = team_log(team, rank);

	CHECK(strstr(log, "error") && strstr(log, "ranks 2, 3, 5 of 6"),
	      "rank %d does not list 2, 3 and 5: %s", rank, log);
}

/* Its deadline passes after those of the others: they have given up, and yet they did come. */
static int join_patiently(struct seat *seat)
{
	setenv("RINGFOLD_TIMEOUT", "8s", 1);
	return join_and_sum(seat);
}

/* 0, 1 and 4 come; 2, 3 and 5 never do. */
void absent_ranks_are_listed_by_all(void)
{
	static const int present[] = {0, 1, 4};
	struct team team;
	struct report report;

	team_init(&team, 6);
	team_set("RINGFOLD_TIMEOUT", "5s");
	for (int i = 0; i < 3; i++)
		team_start(&team, present[i], i ? join_and_sum : join_patiently);
	for (int i = 0; i < 3; i++) {
		report = team_hear(&team, present[i], "joined", 10000);
		CHECK(report.status == RF_ERR_RENDEZVOUS || report.status == RF_ERR_TIMEOUT,
		      "rank %d: %s", present[i], rf_strerror(report.status));
		CHECK(team_reap(&team, present[i], 10000) == 0, "rank %d", present[i]);
		check_absent(&team, present[i]);
	}
	team_end(&team);
	/* Without its master a rank can only name that. */
	team_init(&team, 6);
	team_set("RINGFOLD_TIMEOUT", "500ms");
	team_start(&team, 5, join_and_sum);
	report = team_hear(&team, 5, "joined", 10000);
	CHECK(report.status == RF_ERR_RENDEZVOUS || report.status == RF_ERR_TIMEOUT, "%s",
	      rf_strerror(report.status));
	CHECK(team_reap(&team, 5, 10000) == 0, "rank 5");
	CHECK(strstr(team_log(&team, 5), "rank 0"), "rank 0 is not named: %s", team_log(&team, 5));
	team_end(&team);
}

void the_master_may_come_last_or_first(void)
{
	struct team team;

	for (int last = 0; last < 2; last++) {
		team_init(&team, 4);
		for (int i = 0; i < 4; i++) {
			int rank = last ? 3 - i : i;

			if (i == (last ? 3 : 1)) /* the difference is seen by the others */
				poll(NULL, 0, 300);
			team_start(&team, rank, join_and_sum);
		}
		team_joined(&team);
		team_end(&team);
	}
}

static int join_as_of_five(struct seat *seat)
{
	setenv("WORLD_SIZE", "5", 1);
	return join_and_sum(seat);
}

void a_wrong_world_size_fails_all(void)
{
	struct team team;

	team_init(&team, 3);
	team_start(&team, 0, join_and_sum);
	team_start(&team, 1, join_and_sum);
	await_connections(&team, 1);
	team_start(&team, 2, join_as_of_five);
	for (int i = 0; i < 3; i++) {
		struct report report = team_hear(&team, i, "joined", 10000);

		CHECK(report.status == RF_ERR_RENDEZVOUS, "rank %d: %s", i,
		      rf_strerror(report.status));
		CHECK(team_reap(&team, i, 10000) == 0, "rank %d", i);
		CHECK(strchr(team_log(&team, i), '5') && strchr(team_log(&team, i), '3'),
		      "rank %d does not show both sizes: %s", i, team_log(&team, i));
	}
	team_end(&team);
}

static int join_as_one(struct seat *seat)
{
	setenv("RANK", "1", 1);
	return join_and_sum(seat);
}

void two_ranks_of_one_number_fail_all(void)
{
	struct team team;

	team_init(&team, 4);
	team_start(&team, 0, join_and_sum);
	team_start(&team, 1, join_and_sum);
	await_connections(&team, 1);
	team_start(&team, 2, join_as_one);
	for (int i = 0; i < 3; i++) {
		struct report report = team_hear(&team, i, "joined", 10000);

		CHECK(report.status == RF_ERR_RENDEZVOUS, "rank %d: %s", i,
		      rf_strerror(report.status));
		CHECK(team_reap(&team, i, 10000) == 0, "rank %d", i);
		CHECK(strstr(team_log(&team, i), "rank 1"), "rank %d does not name rank 1: %s", i,
		      team_log(&team, i));
	}
	team_end(&team);
}

/* ---- ports and addresses -------------------------------------------------------------------- */

void a_port_range_serves_several_ranks(void)
{
	struct team team;
	char range[32];

	team_init(&team, 4);
	/* Neighbours of a free port, of which some may be taken: it is a range. */
	snprintf(range, sizeof(range), "%d-%d", team.port > 60000 ? team.port - 40 : team.port + 1,
		 team.port > 60000 ? team.port - 1 : team.port + 40);
	team_set("RINGFOLD_PORT", range);
	team_start_all(&team, join_and_sum);
	team_joined(&team);
	team_end(&team);
}

static int make_context(struct seat *seat)
{
	rf_context *context = NULL;
	int status = rf_context_create(NULL, &context);

	seat_say(seat, "made", status, NULL, 0);
	if (context)
		CHECK_OK(rf_context_destroy(&context));
	return 0;
}

static int hold_context(struct seat *seat)
{
	rf_context *context;

	CHECK_OK(rf_context_create(NULL, &context));
	seat_say(seat, "made", RF_OK, NULL, 0);
	seat_await(seat, "end");
	CHECK_OK(rf_context_destroy(&context));
	return 0;
}

void a_busy_port_is_said(void)
{
	struct team team;
	struct report report;
	char port[16];

	team_init(&team, 2);
	snprintf(port, sizeof(port), "%d", team.port);
	team_set("RINGFOLD_PORT", port);
	team_start(&team, 0, hold_context);
	team_hear(&team, 0, "made", 10000);
	team_start(&team, 1, make_context);
	report = team_hear(&team, 1, "made", 10000);
	CHECK(report.status < 0, "two listen on one port");
	CHECK(strstr(team_log(&team, 1), port), "the port is not named: %s", team_log(&team, 1));
	team_tell(&team, 0, "end");
	team_end(&team);
}

void ipv6_alone_is_enough(void)
{
	struct team team;

	if (access("/proc/net/if_inet6", R_OK) != 0) {
		printf("skipped: no IPv6 here\n");
		return;
	}
	team_init(&team, 3);
	snprintf(team.host, sizeof(team.host), "::1");
	team_start_all(&team, join_and_sum);
	team_joined(&team);
	team_end(&team);
}
