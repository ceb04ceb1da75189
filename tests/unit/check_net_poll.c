/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The posix network keeps what engine/net.h says of polling: lanes, wake-ups, and streams that end
 * meanwhile. Only loopback is used.
 */
#include "tests/unit/net_pairs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void control_can_be_waited_for_alone(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch data = counting(), control = counting();
	struct rf_stream *a[2], *b[2];

	(void)state;
	stream_pair(net, 4, NULL, a);
	stream_pair(net, 4, NULL, b);
	a[1]->ops->watch(a[1], RF_NET_DATA, &data.base, RF_NET_IN);
	b[1]->ops->watch(b[1], RF_NET_CONTROL, &control.base, RF_NET_IN);
	assert_int_equal(send_text(a[0], "x"), RF_OK);
	while (!data.calls)
		turn(net, false, SECOND);
	assert_int_equal(turn(net, true, 1000000), 0);
	assert_int_equal(send_text(b[0], "x"), RF_OK);
	while (!control.calls)
		turn(net, true, SECOND);
	/* Level-triggered, and both in the wider set; the lane can be changed. */
	assert_int_equal(turn(net, false, 0), 2);
	b[1]->ops->watch(b[1], RF_NET_DATA, &control.base, RF_NET_IN);
	assert_int_equal(turn(net, true, 0), 0);
	assert_int_equal(turn(net, false, 0), 2);
	b[1]->ops->watch(b[1], RF_NET_DATA, &control.base, 0);
	assert_int_equal(turn(net, false, 0), 1);
	close_pair(a);
	close_pair(b);
	net->ops->destroy(net);
}

/* A batch of one must not starve either lane. */
static void small_batches_starve_no_lane(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch data = counting(), control = counting();
	struct rf_stream *a[2], *b[2];

	(void)state;
	stream_pair(net, 4, NULL, a);
	stream_pair(net, 4, NULL, b);
	a[1]->ops->watch(a[1], RF_NET_DATA, &data.base, RF_NET_IN);
	b[1]->ops->watch(b[1], RF_NET_CONTROL, &control.base, RF_NET_IN);
	assert_int_equal(send_text(a[0], "x"), RF_OK);
	assert_int_equal(send_text(b[0], "x"), RF_OK);
	while (!data.calls || !control.calls) {
		struct rf_net_event event;
		int count;

		assert_int_equal(net->ops->poll(net, false, SECOND, &event, 1, &count), RF_OK);
		assert_true(count <= 1);
		rf_net_dispatch(net, &event, count);
	}
	close_pair(a);
	close_pair(b);
	net->ops->destroy(net);
}

/* Whichever of two ready streams is told first closes the other: that one must not be told. */
static void events_of_closed_streams_are_dropped(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch watch[2] = {counting(), counting()};
	struct counting_watch newcomer = counting();
	struct rf_stream *pairs[2][2], *fresh[2];
	struct rf_net_event events[BATCH];
	int count;

	(void)state;
	for (int i = 0; i < 2; i++)
		stream_pair(net, 4, NULL, pairs[i]);
	stream_pair(net, 4, NULL, fresh);
	for (int i = 0; i < 2; i++) {
		watch[i].closes = &pairs[1 - i][1];
		pairs[i][1]->ops->watch(pairs[i][1], RF_NET_DATA, &watch[i].base, RF_NET_IN);
		assert_int_equal(send_text(pairs[i][0], "x"), RF_OK);
	}
	do
		net->ops->poll(net, false, SECOND, events, BATCH, &count);
	while (count < 2);
	rf_net_dispatch(net, events, count);
	assert_int_equal(watch[0].calls + watch[1].calls, 1);
	/* A stream that takes over the place of a closed one does not inherit its events. */
	fresh[1]->ops->watch(fresh[1], RF_NET_DATA, &newcomer.base, RF_NET_IN);
	rf_net_dispatch(net, events, count);
	assert_int_equal(newcomer.calls, 0);
	close_pair(pairs[0]);
	close_pair(pairs[1]);
	close_pair(fresh);
	net->ops->destroy(net);
}

static void wake_ends_the_next_poll(void **state)
{
	struct rf_net *net = net_new();
	uint64_t before;

	(void)state;
	net->ops->wake(net);
	assert_int_equal(turn(net, false, UINT64_MAX), 0);
	assert_int_equal(turn(net, true, UINT64_MAX), 0);
	before = net->ops->now(net);
	turn(net, false, 3000000);
	assert_true(net->ops->now(net) - before >= 3000000);
	net->ops->destroy(net);
}

static void *sleep_in_poll(void *argument)
{
	turn(argument, true, UINT64_MAX);
	return NULL;
}

static void wake_ends_the_poll_of_another_thread(void **state)
{
	struct rf_net *net = net_new();
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, sleep_in_poll, net), 0);
	net->ops->wake(net);
	turn(net, false, UINT64_MAX);
	assert_int_equal(pthread_join(thread, NULL), 0);
	net->ops->destroy(net);
}

static void foreign_descriptors_can_be_watched(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch watch = counting();
	int fd = eventfd(1, EFD_CLOEXEC);

	(void)state;
	assert_int_equal(net->ops->watch_fd(net, fd, RF_NET_DATA, &watch.base, RF_NET_IN), RF_OK);
	assert_int_equal(turn(net, false, UINT64_MAX), 1);
	assert_int_equal(watch.calls, 1);
	assert_int_equal(net->ops->watch_fd(net, fd, RF_NET_DATA, NULL, 0), RF_OK);
	assert_int_equal(turn(net, false, 0), 0);
	close(fd);
	net->ops->destroy(net);
}

/* One thread polls without the lock while another one, under it, opens, watches and closes. */
struct shared_net {
	struct rf_net *net;
	pthread_mutex_t lock;
	bool stop;
};

static void *poll_and_dispatch(void *argument)
{
	struct shared_net *shared = argument;
	struct rf_net_event events[BATCH];
	bool stop = false;
	int count;

	while (!stop) {
		if (shared->net->ops->poll(shared->net, false, SECOND, events, BATCH, &count) !=
		    RF_OK)
			return shared;
		pthread_mutex_lock(&shared->lock);
		rf_net_dispatch(shared->net, events, count);
		stop = shared->stop;
		pthread_mutex_unlock(&shared->lock);
	}
	return NULL;
}

static void streams_may_close_while_another_thread_polls(void **state)
{
	struct shared_net shared = {.net = net_new(), .lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t thread;
	void *failed;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, poll_and_dispatch, &shared), 0);
	for (int round = 0; round < 300; round++) {
		struct counting_watch *watch = malloc(sizeof(*watch));
		struct rf_stream *pair[2];

		*watch = counting();
		pthread_mutex_lock(&shared.lock);
		stream_pair(shared.net, 4, NULL, pair);
		pair[1]->ops->watch(pair[1], RF_NET_DATA, &watch->base, RF_NET_IN);
		assert_int_equal(send_text(pair[0], "x"), RF_OK);
		pthread_mutex_unlock(&shared.lock);
		pthread_mutex_lock(&shared.lock);
		close_pair(pair);
		free(watch);
		shared.stop = round == 299;
		pthread_mutex_unlock(&shared.lock);
	}
	shared.net->ops->wake(shared.net);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	shared.net->ops->destroy(shared.net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_can_be_waited_for_alone),
		cmocka_unit_test(small_batches_starve_no_lane),
		cmocka_unit_test(events_of_closed_streams_are_dropped),
		cmocka_unit_test(wake_ends_the_next_poll),
		cmocka_unit_test(wake_ends_the_poll_of_another_thread),
		cmocka_unit_test(foreign_descriptors_can_be_watched),
		cmocka_unit_test(streams_may_close_while_another_thread_polls),
	};

	alarm(WATCHDOG_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
