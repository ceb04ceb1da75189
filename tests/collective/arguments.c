/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments: each is refused before anything changes, so that the next right call works. */
#include "tests/collective/cases.h"
#include "tests/collective/rank.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

static void check_still_works(rf_comm *comm)
{
	int32_t one = 1;

	CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &one, 1, RF_INT32, RF_SUM));
	CHECK(one == size, "the sum is %d", one);
}

#define REFUSED(call) CHECK_STATUS(call, RF_ERR_INVALID)

static void check_no_comm(void)
{
	float values[4] = {0};
	size_t counts[1] = {1};

	REFUSED(rf_allreduce(NULL, RF_IN_PLACE, values, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_reduce(NULL, values, values, 1, RF_FLOAT32, RF_SUM, 0));
	REFUSED(rf_broadcast(NULL, values, 1, RF_FLOAT32, 0));
	REFUSED(rf_reduce_scatter(NULL, values, values, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_reduce_scatterv(NULL, values, values, counts, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allgather(NULL, values, values, 1, RF_FLOAT32));
	REFUSED(rf_allgatherv(NULL, values, values, counts, RF_FLOAT32));
	REFUSED(rf_barrier(NULL));
	REFUSED(rf_comm_rank(NULL));
	REFUSED(rf_comm_size(NULL));
	REFUSED(rf_comm_abort(NULL));
	CHECK(!rf_comm_context(NULL), "a context of nothing");
}

static void check_buffers(rf_comm *comm)
{
	float values[64] = {0};

	REFUSED(rf_allreduce(comm, NULL, values, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allreduce(comm, values, NULL, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, NULL, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allreduce(comm, values, (void *)RF_IN_PLACE, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_broadcast(comm, (void *)RF_IN_PLACE, 1, RF_FLOAT32, 0));
	REFUSED(rf_broadcast(comm, NULL, 1, RF_FLOAT32, 0));
	REFUSED(rf_reduce(comm, NULL, values, 1, RF_FLOAT32, RF_SUM, 0));
	REFUSED(rf_reduce(comm, values, NULL, 1, RF_FLOAT32, RF_SUM, rank));
	if (size > 1)
		REFUSED(rf_reduce(comm, RF_IN_PLACE, values, 1, RF_FLOAT32, RF_SUM,
				  (rank + 1) % size));
	REFUSED(rf_reduce_scatter(comm, NULL, values, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_reduce_scatter(comm, values, NULL, 1, RF_FLOAT32, RF_SUM));
	REFUSED(rf_reduce_scatterv(comm, values, values, NULL, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allgather(comm, NULL, values, 1, RF_FLOAT32));
	REFUSED(rf_allgather(comm, values, NULL, 1, RF_FLOAT32));
	REFUSED(rf_allgatherv(comm, values, values, NULL, RF_FLOAT32));
	/* Of nothing, NULL is right. */
	CHECK_OK(rf_allreduce(comm, NULL, NULL, 0, RF_FLOAT32, RF_SUM));
	CHECK_OK(rf_broadcast(comm, NULL, 0, RF_FLOAT32, 0));
	CHECK_OK(rf_reduce(comm, NULL, NULL, 0, RF_FLOAT32, RF_SUM, 0));
	CHECK_OK(rf_allgather(comm, NULL, NULL, 0, RF_FLOAT32));
	CHECK_OK(rf_reduce_scatter(comm, NULL, NULL, 0, RF_FLOAT32, RF_SUM));
}

static void check_types(rf_comm *comm)
{
	float values[8] = {0};

	for (int wrong = -1; wrong <= 1000; wrong += 1001) {
		REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, 1, (rf_dtype)wrong, RF_SUM));
		REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, 1, RF_FLOAT32, (rf_op)wrong));
		REFUSED(rf_broadcast(comm, values, 1, (rf_dtype)wrong, 0));
		REFUSED(rf_allgather(comm, values, values, 1, (rf_dtype)wrong));
		CHECK(rf_dtype_size((rf_dtype)wrong) == 0, "a size for no dtype");
		CHECK(!rf_dtype_name((rf_dtype)wrong) && !rf_op_name((rf_op)wrong) &&
			      !rf_collective_name((rf_collective)wrong),
		      "a name for nothing");
	}
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, 1, RF_DTYPE_COUNT, RF_SUM));
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, 1, RF_FLOAT32, RF_OP_COUNT));
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, 1, RF_BOOL, RF_AVG));
	REFUSED(rf_reduce_scatter(comm, RF_IN_PLACE, values, 1, RF_BOOL, RF_AVG));
	REFUSED(rf_broadcast(comm, values, 1, RF_FLOAT32, -1));
	REFUSED(rf_broadcast(comm, values, 1, RF_FLOAT32, size));
	REFUSED(rf_reduce(comm, values, values, 1, RF_FLOAT32, RF_SUM, size));
}

static void check_counts(rf_comm *comm)
{
	size_t *counts = calloc((size_t)size, sizeof(size_t));
	float values[8] = {0};

	CHECK(counts, "out of memory");
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, SIZE_MAX, RF_FLOAT32, RF_SUM));
	REFUSED(rf_allreduce(comm, RF_IN_PLACE, values, SIZE_MAX / 4 + 2, RF_FLOAT32, RF_SUM));
	REFUSED(rf_broadcast(comm, values, (size_t)1 << 62, RF_FLOAT64, 0));
	if (size > 1) {
		REFUSED(rf_allgather(comm, values, values, SIZE_MAX / 2 + 1, RF_UINT8));
		REFUSED(rf_reduce_scatter(comm, values, values, SIZE_MAX / 2 + 1, RF_UINT8,
					  RF_SUM));
		counts[0] = SIZE_MAX;
		counts[1] = 2;
		REFUSED(rf_allgatherv(comm, values, values, counts, RF_UINT8));
		REFUSED(rf_reduce_scatterv(comm, values, values, counts, RF_UINT8, RF_SUM));
	}
	free(counts);
}

/* Of a program that was built with a later header: what it does not ask for does not matter. */
static void check_later_options(rf_comm *comm)
{
	struct {
		rf_call_options known;
		uint64_t later;
	} options = {RF_CALL_OPTIONS_INIT, 0};
	rf_request *request = NULL;

	options.known.size = sizeof(options);
	CHECK_OK(rf_ibarrier(comm, &options.known, &request));
	CHECK_OK(rf_wait(&request, RF_NO_TIMEOUT));
	options.later = 1;
	REFUSED(rf_ibarrier(comm, &options.known, &request));
	options.later = 0;
	options.known.size = (size_t)1 << 40;
	REFUSED(rf_ibarrier(comm, &options.known, &request));
}

static void check_options_and_requests(rf_comm *comm)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	rf_request *request = NULL;
	rf_completion completion;
	rf_cq *cq = NULL;
	size_t index;

	REFUSED(rf_ibarrier(comm, NULL, NULL));
	REFUSED(rf_ibarrier(comm, &options, NULL));
	options.size = 0;
	REFUSED(rf_ibarrier(comm, &options, &request));
	options.size = sizeof(options) - 1;
	REFUSED(rf_ibarrier(comm, &options, &request));
	options = (rf_call_options)RF_CALL_OPTIONS_INIT;
	options.order = (rf_order)77;
	REFUSED(rf_ibarrier(comm, &options, &request));
	options = (rf_call_options)RF_CALL_OPTIONS_INIT;
	options.wire = (rf_wire)77;
	REFUSED(rf_ibarrier(comm, &options, &request));
	options = (rf_call_options)RF_CALL_OPTIONS_INIT;
	options.deadline_ms = -2;
	REFUSED(rf_ibarrier(comm, &options, &request));
	CHECK(!request, "a refused call has written a request");
	check_later_options(comm);
	REFUSED(rf_wait(&request, -2));
	REFUSED(rf_wait_all(&request, 1, INT64_MIN));
	REFUSED(rf_wait_any(&request, 1, -1000, &index));
	REFUSED(rf_wait(NULL, 0));
	REFUSED(rf_test(NULL));
	REFUSED(rf_wait_all(NULL, 1, 0));
	REFUSED(rf_wait_any(NULL, 1, 0, &index));
	REFUSED(rf_wait_any(&request, 1, 0, NULL));
	REFUSED(rf_cancel(NULL));
	REFUSED(rf_cq_create(NULL, &cq));
	REFUSED(rf_cq_create(rf_comm_context(comm), NULL));
	REFUSED(rf_cq_destroy(&cq));
	REFUSED(rf_cq_destroy(NULL));
	REFUSED(rf_cq_fd(NULL));
	REFUSED(rf_cq_poll(NULL, &completion, 1, 0));
	CHECK_OK(rf_cq_create(rf_comm_context(comm), &cq));
	REFUSED(rf_cq_poll(cq, NULL, 1, 0));
	REFUSED(rf_cq_poll(cq, &completion, 0, 0));
	REFUSED(rf_cq_poll(cq, &completion, 1, -2));
	CHECK_OK(rf_cq_destroy(&cq));
}

static void check_reports(rf_comm *comm)
{
	rf_failure failure = RF_FAILURE_INIT;
	rf_counters counters = RF_COUNTERS_INIT;
	uint64_t wait_ns;

	REFUSED(rf_comm_failure(NULL, &failure));
	REFUSED(rf_comm_failure(comm, NULL));
	failure.size = 0;
	REFUSED(rf_comm_failure(comm, &failure));
	REFUSED(rf_comm_counters(NULL, &counters));
	REFUSED(rf_comm_counters(comm, NULL));
	counters.size = 0;
	REFUSED(rf_comm_counters(comm, &counters));
	REFUSED(rf_comm_peer_wait_ns(comm, 0, NULL));
	REFUSED(rf_comm_peer_wait_ns(NULL, 0, &wait_ns));
}

void wrong_arguments_are_refused_and_harm_nothing(void)
{
	check_no_comm();
	check_buffers(world);
	check_still_works(world);
	check_types(world);
	check_still_works(world);
	check_counts(world);
	check_options_and_requests(world);
	check_reports(world);
	check_still_works(world);
}

static void check_groups(rf_comm *comm)
{
	int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
	rf_comm *made = NULL;

	REFUSED(rf_comm_create_group(NULL, ranks, size, 0, NULL, &made));
	REFUSED(rf_comm_create_group(comm, NULL, size, 0, NULL, &made));
	REFUSED(rf_comm_create_group(comm, ranks, 0, 0, NULL, &made));
	REFUSED(rf_comm_create_group(comm, ranks, INT_MAX, 0, NULL, &made)); /* not read */
	REFUSED(rf_comm_create_group(comm, ranks, size, 0, NULL, NULL));
	ranks[0] = (rank + 1) % size;
	if (size > 1)
		REFUSED(rf_comm_create_group(comm, ranks, 1, 0, NULL, &made)); /* not in it */
	ranks[0] = ranks[1] = rank;
	REFUSED(rf_comm_create_group(comm, ranks, 2, 0, NULL, &made)); /* twice */
	ranks[1] = size;
	REFUSED(rf_comm_create_group(comm, ranks, 2, 0, NULL, &made));
	ranks[1] = -1;
	REFUSED(rf_comm_create_group(comm, ranks, 2, 0, NULL, &made));
	CHECK(!made, "a refused group has written a communicator");
}

void wrong_communicator_arguments_are_refused(void)
{
	rf_context_options context_options = RF_CONTEXT_OPTIONS_INIT;
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	rf_context *context = NULL;
	rf_comm *made = NULL;
	rf_request *request = NULL;

	if (size <= 8)
		check_groups(world);
	REFUSED(rf_comm_split(NULL, 0, 0, NULL, &made));
	REFUSED(rf_comm_split(world, 0, 0, NULL, NULL));
	REFUSED(rf_comm_isplit(world, 0, 0, NULL, &made, NULL));
	REFUSED(rf_comm_create(NULL, NULL, NULL));
	REFUSED(rf_comm_create_from_env(NULL));
	REFUSED(rf_comm_icreate(NULL, NULL, &made, NULL));
	options.size = 0;
	REFUSED(rf_comm_create(NULL, &options, &made));
	REFUSED(rf_comm_split(world, 0, 0, &options, &made));
	REFUSED(rf_comm_icreate(NULL, &options, &made, &request));
	REFUSED(rf_comm_destroy(NULL));
	REFUSED(rf_comm_destroy(&made));
	REFUSED(rf_context_create(NULL, NULL));
	REFUSED(rf_context_destroy(NULL));
	REFUSED(rf_context_destroy(&context));
	context_options.size = 1;
	REFUSED(rf_context_create(&context_options, &context));
	context_options = (rf_context_options)RF_CONTEXT_OPTIONS_INIT;
	context_options.transport = "pigeons";
	context_options.log = rank_no_log;
	CHECK_STATUS(rf_context_create(&context_options, &context), RF_ERR_CONFIG);
	context_options.transport = NULL;
	context_options.port = "70000";
	CHECK_STATUS(rf_context_create(&context_options, &context), RF_ERR_CONFIG);
	context_options.port = "7010-7000";
	CHECK_STATUS(rf_context_create(&context_options, &context), RF_ERR_CONFIG);
	context_options.port = NULL;
	context_options.progress = (rf_progress)99;
	REFUSED(rf_context_create(&context_options, &context));
	context_options.progress = RF_PROGRESS_DEFAULT;
	context_options.log_level = (rf_log_level)99;
	REFUSED(rf_context_create(&context_options, &context));
	CHECK(!context && !made && !request, "something refused was made");
	check_still_works(world);
}
