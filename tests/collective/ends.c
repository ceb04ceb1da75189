/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that end badly, each on a communicator that is given up for it; the world goes on. */
#include "tests/collective/cases.h"
#include "tests/collective/rank.h"

#include <string.h>

static bool names(const rf_failure *failure, int which)
{
	for (size_t i = 0; i < failure->rank_count && i < failure->rank_capacity; i++) {
		if (failure->ranks[i] == which)
			return true;
	}
	return false;
}

/* The report is this error, names that rank, and is what every later call answers. */
static void check_report(rf_comm *comm, int error, int culprit, const char *text)
{
	rf_failure failure = RF_FAILURE_INIT;
	int ranks[64];
	float value = 0;

	failure.ranks = ranks;
	failure.rank_capacity = 64;
	CHECK_STATUS(rf_comm_failure(comm, &failure), 1);
	CHECK(failure.error == error, "told %s: %s", rf_strerror(failure.error), failure.message);
	CHECK(names(&failure, culprit), "rank %d is not named: %s", culprit, failure.message);
	CHECK(!text || strstr(failure.message, text), "\"%s\" is not in: %s", text,
	      failure.message);
	CHECK_STATUS(rf_allreduce(comm, RF_IN_PLACE, &value, 1, RF_FLOAT32, RF_SUM), error);
	CHECK_STATUS(rf_barrier(comm), error);
	failure.ranks = NULL;
	failure.rank_capacity = 0;
	CHECK_STATUS(rf_comm_failure(comm, &failure), 1);
	CHECK(failure.rank_count >= 1, "without room, the number is missing");
}

/* A communicator that is going to fail. */
static rf_comm *make_victim(int64_t deadline_ms)
{
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	rf_failure failure = RF_FAILURE_INIT;
	rf_comm *comm;

	options.deadline_ms = deadline_ms;
	CHECK_OK(rf_comm_split(world, 0, rank, &options, &comm));
	CHECK_STATUS(rf_comm_failure(comm, &failure), 0);
	CHECK_OK(rf_barrier(world)); /* else it may fail before the last rank has it */
	return comm;
}

static void give_up(rf_comm *comm)
{
	CHECK_OK(rf_barrier(world));
	CHECK_OK(rf_comm_destroy(&comm));
}

/* By the communicator's deadline, then by one of the call's own. */
void a_deadline_names_the_late_rank(void)
{
	for (int by_call = 0; by_call < 2 && size > 1; by_call++) {
		rf_comm *comm = make_victim(by_call ? RF_NO_TIMEOUT : 300);
		rf_call_options options = RF_CALL_OPTIONS_INIT;
		double since = seconds_now();
		rf_request *request;
		int late = size / 2;
		int32_t one = 1;

		if (by_call)
			options.deadline_ms = 300;
		if (rank != late) {
			CHECK_OK(rf_iallreduce(comm, RF_IN_PLACE, &one, 1, RF_INT32, RF_SUM,
					       &options, &request));
			CHECK_STATUS(rf_wait(&request, RF_NO_TIMEOUT), RF_ERR_TIMEOUT);
			CHECK(seconds_now() - since >= 0.29, "before the deadline");
			check_report(comm, RF_ERR_TIMEOUT, late, NULL);
		}
		CHECK_OK(rf_barrier(world));
		if (rank == late)
			check_report(comm, RF_ERR_TIMEOUT, late, NULL);
		give_up(comm);
	}
}

void an_abort_ends_the_calls_of_all_ranks(void)
{
	for (int by_cancel = 0; by_cancel < 2 && size > 1; by_cancel++) {
		rf_comm *comm = make_victim(RF_NO_TIMEOUT);
		rf_request *requests[2];
		int aborter = size - 1;

		if (rank != aborter || by_cancel) {
			CHECK_OK(rf_ibarrier(comm, NULL, &requests[0]));
			/* Not all ranks start this one, so that none can have ended it. */
			if (rank != 0 || size == 1)
				CHECK_OK(rf_ibarrier(comm, NULL, &requests[1]));
		}
		CHECK_OK(rf_barrier(world));
		if (rank == aborter && by_cancel)
			CHECK_OK(rf_cancel(requests[1]));
		else if (rank == aborter)
			CHECK_OK(rf_comm_abort(comm));
		if (rank != aborter || by_cancel) {
			int status = rf_wait(&requests[0], RF_NO_TIMEOUT);

			CHECK(status == RF_ERR_ABORTED || (by_cancel && status == RF_OK), "%s",
			      rf_strerror(status));
			if (rank != 0)
				CHECK_STATUS(rf_wait(&requests[1], RF_NO_TIMEOUT), RF_ERR_ABORTED);
		}
		CHECK_OK(rf_barrier(world));
		CHECK_STATUS(rf_barrier(comm), RF_ERR_ABORTED);
		check_report(comm, RF_ERR_ABORTED, aborter, NULL);
		give_up(comm);
	}
}

/* One rank's call differs in one respect: dtype, op, count, collective, root. */
void a_mismatch_is_told_to_all_with_both_views(void)
{
	float values[8] = {0};

	for (int respect = 0; respect < 5 && size > 1; respect++) {
		rf_comm *comm = make_victim(RF_NO_TIMEOUT);
		int odd = respect % size;
		bool is_odd = rank == odd;
		int status, root = 0;

		if (respect == 4) {
			root = is_odd ? size - 1 - (odd == size - 1) : 0;
			if (root == 0 && is_odd)
				root = 1 % size;
			status = rf_broadcast(comm, values, 8, RF_FLOAT32, root);
		} else if (respect == 3 && is_odd) {
			status = rf_barrier(comm);
		} else {
			status = rf_allreduce(comm, RF_IN_PLACE, values,
					      respect == 0 && is_odd ? 7 : 8,
					      respect == 1 && is_odd ? RF_INT32 : RF_FLOAT32,
					      respect == 2 && is_odd ? RF_MAX : RF_SUM);
		}
		/* Who had ended already learns of it by the next call. */
		CHECK(status == RF_OK || status == RF_ERR_MISMATCH, "%s", rf_strerror(status));
		if (status == RF_OK)
			status = rf_barrier(comm);
		CHECK_STATUS(status, RF_ERR_MISMATCH);
		check_report(comm, RF_ERR_MISMATCH, odd,
			     respect == 3   ? "barrier"
			     : respect == 4 ? "broadcast"
					    : "allreduce of 8 float32, sum");
		give_up(comm);
	}
}

void a_call_after_a_rank_has_left_fails(void)
{
	rf_comm *comm = make_victim(RF_NO_TIMEOUT);
	rf_failure failure = RF_FAILURE_INIT;

	CHECK_OK(rf_barrier(comm));
	if (rank == 0)
		CHECK_OK(rf_comm_destroy(&comm));
	CHECK_OK(rf_barrier(world));
	if (rank)
		CHECK_STATUS(rf_comm_failure(comm, &failure), 0); /* leaving is none */
	CHECK_OK(rf_barrier(world));
	if (rank) {
		int status;

		do /* the goodbye may be on its way still: a barrier cannot end without rank 0 */
			status = rf_barrier(comm);
		while (status == RF_OK);
		CHECK_STATUS(status, RF_ERR_RANK_LEFT);
		check_report(comm, RF_ERR_RANK_LEFT, 0, NULL);
	}
	CHECK_OK(rf_barrier(world));
	if (comm)
		CHECK_OK(rf_comm_destroy(&comm));
}
