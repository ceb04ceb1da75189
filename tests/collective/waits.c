/* SPDX-License-Identifier: BSD-3-Clause */
/* How calls end: waits, completion queues, the library's thread, counters, memory. */
#include "tests/collective/cases.h"
#include "tests/collective/sample.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 16 };

/* Starts calls; a pause is made by the last rank, so that the others' are not done at once. */
static void start_calls(struct sample samples[CALLS], rf_request *requests[CALLS],
			rf_call_options *options)
{
	for (int i = 0; i < CALLS; i++) {
		sample_draw_any(&samples[i], world, i ? 2000 : 100000);
		samples[i].blocking = false;
		if (options)
			options->user = &samples[i];
		sample_start(&samples[i], options);
		if (requests)
			requests[i] = samples[i].request;
	}
}

/* With nobody else in the call it cannot end. The gate is another communicator. */
void a_wait_that_times_out_leaves_the_call_alive(void)
{
	rf_request *request = NULL, *first;
	rf_comm *gate;

	CHECK_OK(rf_wait(&request, 0)); /* none */
	CHECK_OK(rf_test(&request));
	CHECK_OK(rf_wait_all(&request, 1, 0));
	CHECK_OK(rf_comm_split(world, 0, rank, NULL, &gate));
	if (rank) {
		CHECK_OK(rf_barrier(gate));
		CHECK_OK(rf_barrier(world));
	} else {
		CHECK_OK(rf_ibarrier(world, NULL, &request));
		first = request;
		if (size > 1) {
			CHECK_STATUS(rf_test(&request), RF_ERR_AGAIN);
			CHECK_STATUS(rf_wait(&request, 20), RF_ERR_AGAIN);
			CHECK_STATUS(rf_wait_all(&request, 1, 20), RF_ERR_AGAIN);
		}
		CHECK(request == first, "a wait that timed out took the request");
		CHECK_OK(rf_barrier(gate));
		CHECK_OK(rf_wait(&request, RF_NO_TIMEOUT));
		CHECK(!request, "it has ended and is not NULL");
	}
	CHECK_OK(rf_comm_destroy(&gate));
}

void wait_any_hands_out_each_call_once(void)
{
	struct sample samples[CALLS];
	rf_request *requests[CALLS];
	size_t index;

	start_calls(samples, requests, NULL);
	for (int left = CALLS; left; left--) {
		int status = rf_wait_any(requests, CALLS, RF_NO_TIMEOUT, &index);

		CHECK(index < CALLS && !requests[index], "index %zu", index);
		CHECK(samples[index].request, "call %zu has ended twice", index);
		samples[index].request = NULL;
		sample_judge(&samples[index], status);
	}
	CHECK_OK(rf_wait_any(requests, CALLS, 0, &index));
	CHECK(index == CALLS, "all are NULL, and the index is %zu", index);
}

void wait_all_ends_all(void)
{
	struct sample samples[CALLS];
	rf_request *requests[CALLS];
	int status;

	start_calls(samples, requests, NULL);
	do
		status = rf_wait_all(requests, CALLS, 1);
	while (status == RF_ERR_AGAIN);
	for (int i = 0; i < CALLS; i++) {
		CHECK(!requests[i], "a request is left");
		sample_judge(&samples[i], status);
	}
}

static int take(rf_cq *cq, int64_t timeout_ms)
{
	rf_completion completions[5];
	int count = rf_cq_poll(cq, completions, 5, timeout_ms);

	CHECK(count >= 0, "rf_cq_poll: %s", rf_strerror(count));
	for (int i = 0; i < count; i++) {
		struct sample *sample = completions[i].user;

		CHECK(sample->number, "a completion has come twice");
		sample_judge(sample, completions[i].status);
		sample->number = 0;
	}
	return count;
}

static void use_queue(rf_context *context, bool by_descriptor)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	struct sample samples[CALLS];
	struct pollfd readable = {.events = POLLIN};

	CHECK_OK(rf_cq_create(context, &options.cq));
	readable.fd = rf_cq_fd(options.cq);
	CHECK(poll(&readable, 1, 0) == 0, "an empty queue is readable");
	start_calls(samples, NULL, &options);
	for (int left = CALLS; left;) {
		int taken;

		if (by_descriptor) { /* drives a little, then looks at the descriptor */
			taken = take(options.cq, 0);
			CHECK(poll(&readable, 1, 1) >= 0, "poll");
		} else {
			taken = take(options.cq, RF_NO_TIMEOUT);
			CHECK(taken, "nothing has come, and the wait is over");
		}
		left -= taken;
		if (left)
			CHECK_STATUS(rf_cq_destroy(&options.cq), RF_ERR_BUSY);
	}
	CHECK(poll(&readable, 1, 0) == 0, "an empty queue is readable");
	CHECK(take(options.cq, 0) == 0, "more completions than calls");
	CHECK_OK(rf_cq_destroy(&options.cq));
	CHECK(!options.cq, "a destroyed queue is not NULL");
}

void a_queue_hands_out_each_completion_once(void)
{
	use_queue(rf_comm_context(world), false);
}

void a_queue_can_be_polled_by_its_descriptor(void)
{
	use_queue(rf_comm_context(world), true);
}

/* A world over a second context. Rank 0's first one holds the master's port already, so the new
 * one has a port of its own, which rank 0 chooses. */
static rf_comm *make_second_world(rf_progress progress, rf_context **context)
{
	rf_context_options options = RF_CONTEXT_OPTIONS_INIT;
	rf_comm_options with = RF_COMM_OPTIONS_INIT;
	int32_t port = rank == 0 ? rank_free_port() : 0;
	rf_comm *comm;

	CHECK_OK(rf_broadcast(world, &port, 1, RF_INT32, 0));
	options.progress = progress;
	with.rank = rank;
	with.world_size = size;
	with.master_addr = "127.0.0.1";
	with.master_port = port;
	CHECK_OK(rf_context_create(&options, context));
	CHECK_OK(rf_comm_create(*context, &with, &comm));
	return comm;
}

/* After the start no call into the library is made until the descriptor says that all has ended. */
void the_thread_moves_data_while_nobody_waits(void)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	rf_completion completion;
	enum { COUNT = 300000 };
	float *values = malloc(COUNT * sizeof(float));
	rf_context *context;
	rf_comm *comm = make_second_world(RF_PROGRESS_THREAD, &context);
	struct pollfd readable = {.events = POLLIN};

	CHECK(values, "out of memory");
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < COUNT; i++)
			values[i] = (float)(rank + i % 100);
		CHECK_OK(rf_cq_create(context, &options.cq));
		readable.fd = rf_cq_fd(options.cq);
		CHECK_OK(rf_iallreduce(comm, RF_IN_PLACE, values, COUNT, RF_FLOAT32, RF_MAX,
				       &options, NULL));
		CHECK(poll(&readable, 1, 60000) == 1, "the library's thread does not drive");
		CHECK(rf_cq_poll(options.cq, &completion, 1, 0) == 1, "no completion");
		CHECK_OK(completion.status);
		for (int i = 0; i < COUNT; i++)
			CHECK(values[i] == (float)(size - 1 + i % 100), "element %d", i);
		CHECK_OK(rf_cq_destroy(&options.cq));
	}
	CHECK_STATUS(rf_context_destroy(&context), RF_ERR_BUSY);
	CHECK_OK(rf_comm_destroy(&comm));
	CHECK_OK(rf_context_destroy(&context));
	CHECK(!context, "a destroyed context is not NULL");
	free(values);
}

void counters_count(void)
{
	const char *transport = getenv("RINGFOLD_TRANSPORT");
	rf_counters counters = RF_COUNTERS_INIT;
	uint64_t wait_ns, expected;
	rf_comm *comm;
	float *values = calloc(100000, sizeof(float));

	CHECK(values, "out of memory");
	CHECK_OK(rf_comm_split(world, 0, rank, NULL, &comm));
	for (int i = 0; i < 3; i++)
		CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, values, 100000, RF_FLOAT32, RF_SUM));
	CHECK_OK(rf_broadcast(comm, values, 1, RF_FLOAT32, 0));
	CHECK_OK(rf_comm_counters(comm, &counters));
	CHECK(counters.size == sizeof(counters), "the size is %zu", counters.size);
	CHECK(counters.calls[RF_ALLREDUCE] == 3, "allreduces");
	CHECK(counters.calls[RF_BROADCAST] == 1, "broadcasts");
	CHECK(counters.calls[RF_REDUCE] == 0, "reduces");
	CHECK(counters.calls_ended == 4, "%llu have ended",
	      (unsigned long long)counters.calls_ended);
	if (size > 1) {
		/* Each rank must send and receive at least this much of each sum. */
		expected = 3 * 4 * 2 * 100000 / (uint64_t)size;
		CHECK(counters.payload_bytes_sent >= expected, "too few bytes sent");
		CHECK(counters.payload_bytes_received >= expected, "too few bytes received");
		/* There are none in shared memory. */
		if (transport && !strcmp(transport, "tcp"))
			CHECK(counters.segments_sent && counters.segments_received, "no segments");
	} else {
		CHECK(!counters.payload_bytes_sent, "sent bytes to nobody");
	}
	for (int i = 0; i < size; i++)
		CHECK_OK(rf_comm_peer_wait_ns(comm, i, &wait_ns));
	CHECK_STATUS(rf_comm_peer_wait_ns(comm, size, &wait_ns), RF_ERR_INVALID);
	CHECK_STATUS(rf_comm_peer_wait_ns(comm, -1, &wait_ns), RF_ERR_INVALID);
	CHECK_OK(rf_comm_destroy(&comm));
	free(values);
}

void memory_is_handed_out_and_registered(void)
{
	rf_context *context = rf_comm_context(world);
	enum { COUNT = 50000 };
	static int32_t registered[COUNT];
	void *memory = NULL;
	int32_t *values;

	CHECK_OK(rf_alloc(context, COUNT * sizeof(int32_t), &memory));
	CHECK((uintptr_t)memory % 64 == 0, "not aligned");
	CHECK_OK(rf_register(context, registered, sizeof(registered)));
	CHECK_STATUS(rf_register(context, registered, sizeof(registered)), RF_ERR_BUSY);
	values = memory;
	for (int i = 0; i < COUNT; i++)
		values[i] = i + rank;
	CHECK_OK(rf_allreduce(world, values, registered, COUNT, RF_INT32, RF_MAX));
	for (int i = 0; i < COUNT; i++)
		CHECK(registered[i] == i + size - 1, "element %d", i);
	CHECK_OK(rf_unregister(context, registered));
	CHECK_STATUS(rf_unregister(context, registered), RF_ERR_INVALID);
	CHECK_STATUS(rf_free(context, registered), RF_ERR_INVALID);
	CHECK_OK(rf_free(context, memory));
	CHECK_OK(rf_free(context, NULL));
	CHECK_OK(rf_alloc(context, 0, &memory));
	CHECK_OK(rf_free(context, memory));
	CHECK_STATUS(rf_alloc(context, SIZE_MAX, &memory), RF_ERR_INVALID);
	CHECK_STATUS(rf_alloc(context, SIZE_MAX / 4, &memory), RF_ERR_NOMEM);
	CHECK_STATUS(rf_alloc(NULL, 1, &memory), RF_ERR_INVALID);
	CHECK_STATUS(rf_alloc(context, 1, NULL), RF_ERR_INVALID);
	CHECK_STATUS(rf_register(context, NULL, 1), RF_ERR_INVALID);
	CHECK_STATUS(rf_register(context, registered, 0), RF_ERR_INVALID);
}
