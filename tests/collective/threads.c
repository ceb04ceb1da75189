/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads: of one process, each with a communicator of its own, on one context; one that waits
 * while another aborts; several that wait for calls of one communicator. Run under the launcher,
 * and with -fsanitize=thread where that is built.
 */
#include "tests/collective/sample.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, CALLS = 60 };

struct worker {
	pthread_t thread;
	rf_comm *comm;
	int number;
	rf_request *request;
	int status;
};

static void start(struct worker *worker, void *(*run)(void *))
{
	CHECK(pthread_create(&worker->thread, NULL, run, worker) == 0, "pthread_create");
}

static void join(struct worker *worker)
{
	CHECK(pthread_join(worker->thread, NULL) == 0, "pthread_join");
}

static void make_comms(struct worker workers[THREADS])
{
	memset(workers, 0, THREADS * sizeof(*workers));
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i;
		CHECK_OK(rf_comm_split(world, 0, rank, NULL, &workers[i].comm));
	}
}

static void destroy_comms(struct worker workers[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(rf_comm_destroy(&workers[i].comm));
}

/* ---- a communicator each -------------------------------------------------------------------- */

static int32_t input(const struct worker *worker, int of_rank, int call, int i)
{
	return of_rank * 7 + worker->number * 100 + call + i;
}

static void *sum_many(void *argument)
{
	struct worker *worker = argument;
	enum { COUNT = 5000 };
	int32_t *values = malloc(COUNT * sizeof(int32_t));

	CHECK(values, "out of memory");
	for (int call = 0; call < CALLS; call++) {
		int count = call % 7 ? 1 + call : COUNT;

		for (int i = 0; i < count; i++)
			values[i] = input(worker, rank, call, i);
		CHECK_OK(rf_allreduce(worker->comm, RF_IN_PLACE, values, (size_t)count, RF_INT32,
				      RF_MAX));
		for (int i = 0; i < count; i++)
			CHECK(values[i] == input(worker, size - 1, call, i),
			      "thread %d, call %d, element %d is wrong", worker->number, call, i);
	}
	free(values);
	return NULL;
}

static void each_thread_has_a_communicator(void)
{
	struct worker workers[THREADS];

	make_comms(workers);
	for (int i = 0; i < THREADS; i++)
		start(&workers[i], sum_many);
	for (int i = 0; i < THREADS; i++)
		join(&workers[i]);
	destroy_comms(workers);
}

/* Splitting and destroying, each thread from a communicator of its own, while the others call. */
static void *split_many(void *argument)
{
	struct worker *worker = argument;

	for (int i = 0; i < 6; i++) {
		int32_t one = 1;
		rf_comm *comm;

		CHECK_OK(rf_comm_split(worker->comm, 0, rank, NULL, &comm));
		CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &one, 1, RF_INT32, RF_SUM));
		CHECK(one == size, "the sum is %d", one);
		CHECK_OK(rf_barrier(comm));
		CHECK_OK(rf_comm_destroy(&comm));
	}
	return NULL;
}

static void threads_make_communicators_at_once(void)
{
	struct worker workers[THREADS];

	make_comms(workers);
	for (int i = 0; i < THREADS; i++)
		start(&workers[i], i ? split_many : sum_many);
	for (int i = 0; i < THREADS; i++)
		join(&workers[i]);
	destroy_comms(workers);
}

/* ---- waiting at once ------------------------------------------------------------------------ */

static void *wait_for_one(void *argument)
{
	struct worker *worker = argument;

	worker->status = rf_wait(&worker->request, RF_NO_TIMEOUT);
	return NULL;
}

/* Calls of one communicator, each waited for by a thread, which begin to wait in any order. */
static void calls_are_waited_for_at_once(void)
{
	struct worker workers[THREADS];
	struct sample samples[THREADS];

	memset(workers, 0, sizeof(workers));
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < THREADS; i++) {
			sample_draw_any(&samples[i], world, 60000);
			samples[i].blocking = false;
			sample_start(&samples[i], NULL);
			workers[i].request = samples[i].request;
			samples[i].request = NULL;
		}
		for (int i = 0; i < THREADS; i++)
			start(&workers[(i + rank) % THREADS], wait_for_one);
		for (int i = 0; i < THREADS; i++) {
			join(&workers[i]);
			sample_judge(&samples[i], workers[i].status);
		}
	}
}

/* One thread waits with short timeouts, and another asks for counters and the failure. */
static atomic_bool stop_looking;

static void *look(void *argument)
{
	struct worker *worker = argument;
	rf_counters counters = RF_COUNTERS_INIT;
	rf_failure failure = RF_FAILURE_INIT;
	uint64_t wait_ns;

	while (!atomic_load(&stop_looking)) {
		CHECK_OK(rf_comm_counters(worker->comm, &counters));
		CHECK_OK(rf_comm_peer_wait_ns(worker->comm, size - 1, &wait_ns));
		CHECK_STATUS(rf_comm_failure(worker->comm, &failure), 0);
	}
	return NULL;
}

static void looking_disturbs_no_call(void)
{
	struct worker watcher = {.comm = world}, worker = {.comm = world};

	atomic_store(&stop_looking, false);
	start(&watcher, look);
	sum_many(&worker);
	atomic_store(&stop_looking, true);
	join(&watcher);
}

/* ---- aborts --------------------------------------------------------------------------------- */

/* Every rank waits in a call that rank 0 never makes; another thread of one rank aborts. */
static void a_waiting_thread_is_freed_by_an_abort(void)
{
	for (int aborter = 0; aborter < size; aborter++) {
		struct worker worker = {0};
		rf_comm *comm;

		CHECK_OK(rf_comm_split(world, 0, rank, NULL, &comm));
		CHECK_OK(rf_barrier(world));
		if (rank || size == 1) {
			CHECK_OK(rf_ibarrier(comm, NULL, &worker.request));
			start(&worker, wait_for_one);
		}
		CHECK_OK(rf_barrier(world)); /* this thread drives while the other waits */
		if (rank == aborter)
			CHECK_OK(rf_comm_abort(comm));
		if (rank || size == 1) {
			join(&worker);
			CHECK(worker.status == RF_ERR_ABORTED || size == 1, "%s",
			      rf_strerror(worker.status));
		}
		CHECK_OK(rf_barrier(world));
		CHECK_STATUS(rf_barrier(comm), RF_ERR_ABORTED);
		CHECK_OK(rf_comm_destroy(&comm));
	}
}

/* Many aborts of one communicator at once, from many threads and ranks, in the midst of calls. */
static void *abort_it(void *argument)
{
	struct worker *worker = argument;

	CHECK_OK(rf_comm_abort(worker->comm));
	return NULL;
}

static void aborts_from_everywhere_end_calls_once(void)
{
	for (int round = 0; round < 4; round++) {
		struct worker workers[THREADS];
		int32_t one = 1;
		int status = RF_OK;
		rf_comm *comm;

		CHECK_OK(rf_comm_split(world, 0, rank, NULL, &comm));
		CHECK_OK(rf_barrier(world));
		for (int i = 0; i < THREADS; i++) {
			workers[i].comm = comm;
			start(&workers[i], abort_it);
		}
		while (status == RF_OK)
			status = rf_allreduce(comm, RF_IN_PLACE, &one, 1, RF_INT32, RF_MAX);
		CHECK(status == RF_ERR_ABORTED, "%s", rf_strerror(status));
		for (int i = 0; i < THREADS; i++)
			join(&workers[i]);
		CHECK_OK(rf_barrier(world));
		CHECK_OK(rf_comm_destroy(&comm));
	}
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"each thread has a communicator", each_thread_has_a_communicator},
		{"threads make communicators at once", threads_make_communicators_at_once},
		{"calls are waited for at once", calls_are_waited_for_at_once},
		{"looking disturbs no call", looking_disturbs_no_call},
		{"a waiting thread is freed by an abort", a_waiting_thread_is_freed_by_an_abort},
		{"aborts from everywhere end calls once", aborts_from_everywhere_end_calls_once},
	};
	double begin;

	setvbuf(stdout, NULL, _IOLBF, 0);
	rank_begin(120);
	begin = seconds_now();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rank_case(cases[i].name);
		cases[i].run();
		CHECK_OK(rf_barrier(world));
		if (rank == 0 && getenv("RINGFOLD_TEST_VERBOSE"))
			printf("%6.2f s %s\n", seconds_now() - begin, cases[i].name);
	}
	rank_end();
	if (rank == 0)
		printf("threads on %d ranks in %.1f s\n", size, seconds_now() - begin);
	return 0;
}
