/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The four-rank sum: every rank brings ones * (rank + 1), and after the call every rank has the
 * sum, 1 + 2 + 3 + 4 = 10. On four machines (the first is the master; start them in any order):
 *
 *	MASTER_ADDR=master.bigdata19 MASTER_PORT=7880 rank=0 world=4 ./four_rank_sum
 *	MASTER_ADDR=master.bigdata19 MASTER_PORT=7880 rank=1 world=4 ./four_rank_sum
 *	...
 *
 * On one machine: ringfold run -n 4 ./four_rank_sum
 */
#include <ringfold.h>

#include <stdio.h>
#include <stdlib.h>

/* What a failed call is worth to the person who reads it: which call, which error, and, when a rank
 * was to blame, which one and why. */
static int report(const char *what, int error, const rf_comm *comm)
{
	rf_failure failure = RF_FAILURE_INIT;

	fprintf(stderr, "%s: %s\n", what, rf_strerror(error));
	if (comm && rf_comm_failure(comm, &failure) == 1)
		fprintf(stderr, "%s\n", failure.message);
	return EXIT_FAILURE;
}

int main(void)
{
	rf_comm *comm;
	float ones[1] = {1};
	int error, rank, status = EXIT_SUCCESS;

	/* Waits until all ranks have come, or says on stderr which are absent. */
	error = rf_comm_create_from_env(&comm);
	if (error)
		return report("cannot join the other ranks", error, NULL);

	rank = rf_comm_rank(comm);
	ones[0] *= (float)(rank + 1);
	printf("before %d data %.1f\n", rank, ones[0]);

	error = rf_allreduce(comm, RF_IN_PLACE, ones, 1, RF_FLOAT32, RF_SUM);
	if (error)
		status = report("the sum failed", error, comm);
	else
		printf("after %d data %.1f\n", rank, ones[0]);

	/* After a failure too: the connections and the memory are given back. */
	error = rf_comm_destroy(&comm);
	if (error)
		status = report("cannot leave", error, NULL);
	return status;
}
