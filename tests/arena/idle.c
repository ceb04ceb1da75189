/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of tests/arena/idle.sh: communicators that nobody uses cost no CPU time, and one who
 * waits for a rank that is late sleeps. */
#include "ringfold.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { IDLE_SECONDS = 10 };

/* Far below what a loop that polls would take, far above what sleeping does. */
static const double SHARE_MOST = 0.01;

static void check(int status, const char *what)
{
	if (status == RF_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, rf_strerror(status));
	exit(1);
}

static double seconds(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void check_share(const char *what, double cpu, double wall)
{
	printf("%s: %.1f ms of CPU time in %.1f s\n", what, cpu * 1e3, wall);
	if (cpu / wall <= SHARE_MOST)
		return;
	fprintf(stderr, "%s: %.1f %% of a core\n", what, 100 * cpu / wall);
	exit(1);
}

int main(void)
{
	struct timespec idle = {.tv_sec = IDLE_SECONDS};
	float value = 1;
	double cpu, wall;
	rf_comm *comm, *half;

	check(rf_comm_create_from_env(&comm), "create");
	check(rf_comm_split(comm, rf_comm_rank(comm) % 2, 0, NULL, &half), "split");
	check(rf_allreduce(comm, RF_IN_PLACE, &value, 1, RF_FLOAT32, RF_SUM), "sum");
	check(rf_allreduce(half, RF_IN_PLACE, &value, 1, RF_FLOAT32, RF_SUM), "sum");
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	wall = seconds(CLOCK_MONOTONIC);
	/* Rank 0 is late: the others wait in a call. */
	if (rf_comm_rank(comm) == 0)
		nanosleep(&idle, NULL);
	check(rf_barrier(comm), "barrier");
	check_share(rf_comm_rank(comm) ? "waiting" : "idle",
		    seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, seconds(CLOCK_MONOTONIC) - wall);
	check(rf_comm_destroy(&half), "destroy");
	check(rf_comm_destroy(&comm), "destroy");
	return 0;
}
