/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated network: streams, names, and virtual time.
 */
#include "tests/sim/nodes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- streams -------------------------------------------------------------------------------- */

static int receive_some(struct rf_stream *stream, void *buffer, size_t bytes, size_t *received)
{
	struct iovec iov[2] = {{buffer, bytes / 2},
			       {(uint8_t *)buffer + bytes / 2, bytes - bytes / 2}};

	return stream->ops->receive(stream, iov, 2, received);
}

struct transfer {
	struct rf_watch watch;
	unsigned events;
};

static void note_ready(struct rf_watch *watch, unsigned events)
{
	((struct transfer *)watch)->events |= events;
}

static void turn(struct cluster *cluster)
{
	struct rf_net_event events[4];
	unsigned process;
	int count;

	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
	cluster->nodes[process].net->ops->poll(cluster->nodes[process].net, false, 0, events, 4,
					       &count);
	rf_net_dispatch(cluster->nodes[process].net, events, count);
	drive(cluster, process);
}

static void streams_keep_order_and_end_orderly(void **state)
{
	enum { BYTES = 20000 };
	static uint8_t source[BYTES], target[BYTES];

	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 50; seed++) {
		struct cluster *cluster = calloc(1, sizeof(*cluster));
		struct transfer out = {.watch.ready = note_ready}, in = out;
		struct rf_stream *pair[2];
		size_t sent = 0, received = 0, n = 1;

		rf_sim_params_hostile(&cluster->params, seed);
		cluster_start(cluster, seed, 2, false);
		for (size_t i = 0; i < BYTES; i++)
			source[i] = (uint8_t)(i * 7 + seed + (i >> 8));
		stream_pair(cluster, 0, 1, pair);
		pair[0]->ops->watch(pair[0], RF_NET_DATA, &out.watch, RF_NET_OUT);
		pair[1]->ops->watch(pair[1], RF_NET_DATA, &in.watch, RF_NET_IN);
		while (n) {
			struct iovec iov = {source + sent, BYTES - sent};

			turn(cluster);
			if (out.events && sent < BYTES &&
			    pair[0]->ops->send(pair[0], &iov, 1, &n) == RF_OK)
				sent += n;
			if (sent == BYTES) {
				pair[0]->ops->watch(pair[0], RF_NET_DATA, NULL, 0);
				pair[0]->ops->shutdown(pair[0]);
			}
			n = 1;
			if (in.events && receive_some(pair[1], target + received,
						      BYTES - received + 1, &n) == RF_OK)
				received += n;
			out.events = in.events = 0;
		}
		assert_int_equal(received, BYTES);
		assert_memory_equal(source, target, BYTES);
		pair[0]->ops->close(pair[0]);
		pair[1]->ops->close(pair[1]);
		free_cluster(cluster);
	}
}

static void what_has_piled_up_is_read_at_once(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_stream *pair[2];
	uint8_t target[12] = {0};
	size_t n;

	(void)state;
	stream_pair(cluster, 0, 1, pair);
	for (uint8_t i = 0; i < 3; i++) {
		uint8_t source[3] = {i, i, i};
		struct iovec iov = {source, sizeof(source)};

		assert_int_equal(pair[0]->ops->send(pair[0], &iov, 1, &n), RF_OK);
	}
	run(cluster);
	assert_int_equal(receive_some(pair[1], target, sizeof(target), &n), RF_OK);
	assert_int_equal(n, 9);
	assert_memory_equal(target, "\0\0\0\1\1\1\2\2\2", 9);
	pair[0]->ops->close(pair[0]);
	pair[1]->ops->close(pair[1]);
	free_cluster(cluster);
}

static void a_dead_process_resets_its_streams(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct transfer in = {.watch.ready = note_ready};
	struct rf_stream *pair[2];
	struct rf_addr addr;
	uint8_t buffer[4];
	size_t n;

	(void)state;
	run(cluster);
	stream_pair(cluster, 0, 1, pair);
	pair[1]->ops->watch(pair[1], RF_NET_CONTROL, &in.watch, RF_NET_IN);
	rf_sim_kill(cluster->sim, 0);
	while (!in.events)
		turn(cluster);
	assert_int_equal(receive_some(pair[1], buffer, sizeof(buffer), &n), RF_ERR_NETWORK);
	pair[1]->ops->local_addr(pair[1], &addr);
	assert_true(addr.port != 0);
	pair[0]->ops->close(pair[0]);
	pair[1]->ops->close(pair[1]);
	free_cluster(cluster);
}

static void nobody_there_is_refused_and_silence_times_out(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_net *net = cluster->nodes[0].net, *far = cluster->nodes[1].net;
	struct transfer out = {.watch.ready = note_ready};
	struct rf_addr addr = rf_sim_addr(1, 77);
	struct rf_listener *listener;
	struct rf_stream *stream;
	uint64_t before;
	uint16_t port;

	(void)state;
	run(cluster);
	for (int silent = 0; silent < 2; silent++) {
		if (silent) {
			assert_int_equal(far->ops->listen(far, 77, 77, &listener, &port), RF_OK);
			rf_sim_silence(cluster->sim, 1, true);
		}
		before = rf_sim_now(cluster->sim);
		assert_int_equal(net->ops->connect(net, &addr, NULL, &stream), RF_OK);
		stream->ops->watch(stream, RF_NET_CONTROL, &out.watch, RF_NET_OUT);
		while (stream->ops->connected(stream) == RF_ERR_AGAIN)
			turn(cluster);
		assert_int_equal(stream->ops->connected(stream), RF_ERR_NETWORK);
		assert_true(rf_sim_now(cluster->sim) - before >=
			    (silent ? cluster->params.connect_timeout_ns : 1));
		stream->ops->close(stream);
	}
	far->ops->close_listener(listener);
	free_cluster(cluster);
}

static int resolve(struct cluster *cluster, const char *name, struct rf_addr *addr)
{
	struct rf_net *net = cluster->nodes[0].net;
	void *handle = NULL;
	unsigned process;
	int count, rc;

	while ((rc = net->ops->resolve(net, name, 5, &handle, addr, 1, &count)) == RF_ERR_AGAIN)
		assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
	assert_null(handle);
	return rc;
}

static void names_may_come_late(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_addr addr;
	char text[RF_ADDR_TEXT];
	unsigned process;

	(void)state;
	run(cluster);
	rf_sim_set_name_time(cluster->sim, 1, rf_sim_now(cluster->sim) + 15000000000u);
	assert_int_equal(resolve(cluster, "sim-0", &addr), RF_OK);
	assert_string_equal(rf_addr_format(&addr, text), "sim-0:5");
	assert_int_equal(resolve(cluster, "sim-1", &addr), RF_ERR_NETWORK);
	assert_int_equal(resolve(cluster, "other", &addr), RF_ERR_NETWORK);
	rf_sim_set_alarm(cluster->sim, rf_sim_now(cluster->sim) + 16000000000u);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_ALARM);
	assert_int_equal(resolve(cluster, "sim-1", &addr), RF_OK);
	free_cluster(cluster);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void timers_run_their_process_at_their_time(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	uint64_t begin;
	unsigned process;

	(void)state;
	run(cluster);
	begin = rf_sim_now(cluster->sim);
	rf_sim_set_timer(cluster->sim, 1, begin + 500);
	rf_sim_set_timer(cluster->sim, 0, begin + 300);
	rf_sim_set_alarm(cluster->sim, begin + 400);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 0);
	assert_int_equal(rf_sim_now(cluster->sim), begin + 300);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_ALARM);
	rf_sim_set_timer(cluster->sim, 1, begin + 600);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 1);
	assert_int_equal(rf_sim_now(cluster->sim), begin + 600);
	rf_sim_set_timer(cluster->sim, 1, begin + 700);
	rf_sim_set_timer(cluster->sim, 1, UINT64_MAX);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_IDLE);
	rf_sim_again(cluster->sim, 1);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 1);
	assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_IDLE);
	free_cluster(cluster);
}

/* Set, moved and cleared in any order, each runs at its time and at no other. */
static void many_timers_keep_their_times(void **state)
{
	enum { PROCESSES = 300 };
	uint64_t at[PROCESSES], begin;
	struct rf_sim_params params;
	struct rf_net *nets[PROCESSES];
	unsigned process, due = 0;
	struct rf_sim *sim;

	(void)state;
	rf_sim_params_calm(&params);
	assert_int_equal(rf_sim_create(base_seed(), &params, &sim), RF_OK);
	begin = rf_sim_now(sim);
	for (unsigned i = 0; i < PROCESSES; i++) {
		assert_int_equal(rf_sim_net_create(sim, i, &nets[i]), RF_OK);
		at[i] = UINT64_MAX;
	}
	for (int i = 0; i < 3000; i++) {
		process = (unsigned)rf_sim_random(sim, PROCESSES);
		at[process] =
			rf_sim_random(sim, 3) ? begin + 1 + rf_sim_random(sim, 500) : UINT64_MAX;
		rf_sim_set_timer(sim, process, at[process]);
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		due += at[i] != UINT64_MAX;
	for (; due; due--) {
		assert_int_equal(rf_sim_next(sim, &process), RF_SIM_RUN);
		assert_true(rf_sim_now(sim) == at[process]);
		at[process] = 0;
	}
	assert_int_equal(rf_sim_next(sim, &process), RF_SIM_IDLE);
	for (unsigned i = 0; i < PROCESSES; i++)
		nets[i]->ops->destroy(nets[i]);
	rf_sim_destroy(sim);
}

static void turning_in_circles_is_found(void **state)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	enum rf_sim_state found;
	unsigned process;

	(void)state;
	rf_sim_params_calm(&cluster->params);
	cluster->params.livelock_rounds = 1000;
	cluster_start(cluster, base_seed(), 1, false);
	do
		rf_sim_again(cluster->sim, 0);
	while ((found = rf_sim_next(cluster->sim, &process)) == RF_SIM_RUN);
	assert_int_equal(found, RF_SIM_LIVELOCK);
	free_cluster(cluster);
}

static void bandwidth_and_latency_make_the_time(void **state)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	struct rf_transport_peer *peer = &cluster->nodes[0].peers[1];
	uint64_t begin, took;
	unsigned segments = 50, bytes = 0;

	(void)state;
	rf_sim_params_calm(&cluster->params);
	cluster->most_bytes = 100000;
	cluster->params.bytes_per_second = 1000000000;
	cluster->params.latency_ns = 5000;
	cluster->params.queue_depth = 100;
	cluster_start(cluster, base_seed(), 2, false);
	wire(cluster, 0, 1);
	run(cluster);
	begin = rf_sim_now(cluster->sim);
	for (unsigned i = 0; i < segments; i++)
		bytes += (unsigned)segment_bytes(cluster, i);
	peer->to_send = segments;
	send_some(peer);
	run(cluster);
	took = rf_sim_now(cluster->sim) - begin;
	assert_true(took > bytes);
	assert_true(took < bytes + bytes / 10 + 100000);
	free_cluster(cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_keep_order_and_end_orderly),
		cmocka_unit_test(what_has_piled_up_is_read_at_once),
		cmocka_unit_test(a_dead_process_resets_its_streams),
		cmocka_unit_test(nobody_there_is_refused_and_silence_times_out),
		cmocka_unit_test(names_may_come_late),
		cmocka_unit_test(timers_run_their_process_at_their_time),
		cmocka_unit_test(many_timers_keep_their_times),
		cmocka_unit_test(turning_in_circles_is_found),
		cmocka_unit_test(bandwidth_and_latency_make_the_time),
	};

	printf("RINGFOLD_TEST_SEED=%" PRIu64 "\n", base_seed());
	alarm(WATCHDOG_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
