/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated transport: what it delivers, what it finds out, and that it replays.
 */
#include "tests/sim/nodes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEDS = 150 };

/* ---- delivery ------------------------------------------------------------------------------- */

static void exchange(struct cluster *cluster, uint64_t seed, unsigned count, unsigned segments)
{
	cluster_start(cluster, seed, count, cluster->no_payload);
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < count; j++)
			if (i != j) {
				wire(cluster, i, j);
				cluster->nodes[i].peers[j].to_send = segments;
			}
	run(cluster);
}

static void check_exchange(struct cluster *cluster, unsigned segments)
{
	assert_null(rf_sim_violation(cluster->sim));
	assert_int_equal(cluster->ended, RF_SIM_IDLE);
	for (unsigned i = 0; i < cluster->count; i++)
		for (unsigned j = 0; j < cluster->count; j++) {
			const struct rf_transport_peer *peer = &cluster->nodes[i].peers[j];

			if (i == j)
				continue;
			assert_int_equal(peer->sent, segments);
			assert_int_equal(peer->completed, segments);
			assert_int_equal(peer->received_all, segments);
			assert_int_equal(peer->down, 0);
		}
}

static void every_segment_arrives_whole_and_in_its_lane(void **state)
{
	unsigned lane_changes = 0;

	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + SEEDS; seed++) {
		struct cluster *cluster = calloc(1, sizeof(*cluster));

		rf_sim_params_hostile(&cluster->params, seed);
		exchange(cluster, seed, 2 + seed % (NODES_MAX - 1), 30);
		check_exchange(cluster, 30);
		lane_changes += cluster->lane_changes;
		cluster_end(cluster);
		free(cluster);
	}
	assert_true(lane_changes > 0);
}

static uint64_t exchange_hash(uint64_t seed, uint64_t params_seed)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	uint64_t hash;

	rf_sim_params_hostile(&cluster->params, params_seed);
	exchange(cluster, seed, 3, 20);
	check_exchange(cluster, 20);
	hash = rf_sim_trace_hash(cluster->sim);
	cluster_end(cluster);
	free(cluster);
	return hash;
}

static void the_same_seed_replays_exactly(void **state)
{
	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 10; seed++) {
		uint64_t hash = exchange_hash(seed, seed);

		assert_true(exchange_hash(seed, seed) == hash);
		assert_true(exchange_hash(seed + 1, seed) != hash);
	}
}

static void payloads_may_be_no_memory(void **state)
{
	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 20; seed++) {
		struct cluster *cluster = calloc(1, sizeof(*cluster));

		rf_sim_params_hostile(&cluster->params, seed);
		cluster->no_payload = true;
		exchange(cluster, seed, 3, 20);
		check_exchange(cluster, 20);
		cluster_end(cluster);
		free(cluster);
	}
}

static void what_is_too_large_is_refused(void **state)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	struct rf_transport_peer *peer = &cluster->nodes[0].peers[1];
	struct rf_transport_send send = {.bytes = 129};

	(void)state;
	rf_sim_params_calm(&cluster->params);
	cluster->params.segment_max_bytes = 128;
	cluster_start(cluster, base_seed(), 2, false);
	wire(cluster, 0, 1);
	assert_int_equal(peer->node->transport->ops->send(peer->endpoint, &send), RF_ERR_INVALID);
	free_cluster(cluster);
}

/* ---- findings ------------------------------------------------------------------------------- */

static void early_reuse_of_a_buffer_is_found(void **state)
{
	(void)state;
	for (size_t at = 0; at < 2; at++) {
		struct cluster *cluster = two_nodes(base_seed());
		struct rf_transport_peer *peer = &cluster->nodes[0].peers[1];
		size_t bytes = segment_bytes(cluster, 1);

		assert_true(bytes > 9);
		assert_int_equal(send_one(peer, 1), RF_OK);
		((uint8_t *)cluster->nodes[0].buffers[1][1])[at ? bytes - 1 : 0] ^= 1;
		cluster->deaf = true;
		peer->received[0] = 0;
		cluster->nodes[1].peers[0].received[0] = 1;
		peer->node->transport->ops->close(peer->endpoint);
		assert_non_null(rf_sim_violation(cluster->sim));
		free_cluster(cluster);
	}
}

static void early_reuse_is_found_at_completion(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *peer = &cluster->nodes[0].peers[1];

	(void)state;
	cluster->nodes[1].peers[0].received[0] = 1;
	assert_int_equal(send_one(peer, 1), RF_OK);
	((uint8_t *)cluster->nodes[0].buffers[1][1])[5] ^= 1;
	run(cluster);
	assert_int_equal(peer->completed, 1);
	assert_non_null(rf_sim_violation(cluster->sim));
	free_cluster(cluster);
}

static void a_withdrawn_send_arrives_and_leaves_its_buffer(void **state)
{
	unsigned again = 0, done = 0;

	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 40; seed++) {
		struct cluster *cluster = calloc(1, sizeof(*cluster));
		struct rf_transport_peer *peer = &cluster->nodes[0].peers[1];
		const struct rf_transport_ops *ops;
		int rc;

		rf_sim_params_calm(&cluster->params);
		cluster->params.withdraw_again = 500;
		cluster->params.late = 500;
		cluster->params.late_ns = 1000000;
		cluster_start(cluster, seed, 2, false);
		wire(cluster, 0, 1);
		ops = cluster->nodes[0].transport->ops;
		cluster->nodes[1].peers[0].received[0] = 1;
		assert_int_equal(send_one(peer, 1), RF_OK);
		rc = ops->withdraw(peer->endpoint, 1);
		if (rc == RF_OK) {
			memset(cluster->nodes[0].buffers[1][1], 0, segment_bytes(cluster, 1));
			free(cluster->nodes[0].buffers[1][1]);
			cluster->nodes[0].buffers[1][1] = NULL;
			done++;
		} else {
			assert_int_equal(rc, RF_ERR_AGAIN);
			again++;
		}
		run(cluster);
		assert_null(rf_sim_violation(cluster->sim));
		assert_int_equal(peer->completed, rc == RF_OK ? 0 : 1);
		assert_int_equal(cluster->nodes[1].peers[0].received_all, 1);
		free_cluster(cluster);
	}
	assert_true(again && done);
}

/* ---- faults --------------------------------------------------------------------------------- */

/* Runs until a segment lies unanswered at node 1, and gives it. */
static struct rf_receive *unanswered(struct cluster *cluster)
{
	struct node *node = &cluster->nodes[1];
	struct rf_transport_event event;
	unsigned process;

	cluster->deaf = true;
	while (rf_sim_next(cluster->sim, &process) == RF_SIM_RUN) {
		if (process == 0) {
			drive(cluster, 0);
			continue;
		}
		assert_int_equal(node->transport->ops->poll(node->transport, &event), RF_OK);
		on_event(&event);
		if (event.kind == RF_EVENT_SEGMENT)
			return event.receive;
	}
	fail();
	return NULL;
}

static void a_dead_process_breaks_its_peers_endpoints_and_receives(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];

	(void)state;
	wire(cluster, 1, 0);
	there->to_send = 5;
	send_some(there);
	unanswered(cluster);
	rf_sim_kill(cluster->sim, 0);
	run(cluster);
	assert_int_equal(cluster->ended, RF_SIM_IDLE);
	assert_int_equal(here->down, 1);
	assert_int_equal(there->down, 0);
	assert_int_equal(send_one(here, 1), RF_ERR_AGAIN);
	cluster->nodes[1].transport->ops->close(here->endpoint);
	assert_null(rf_sim_violation(cluster->sim));
	free_cluster(cluster);
}

/* At any time: the survivors hear DOWN once, then nothing, and go on among themselves. */
static void a_death_at_any_time_is_told_once(void **state)
{
	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + SEEDS; seed++) {
		struct cluster *cluster = calloc(1, sizeof(*cluster));
		unsigned process;

		rf_sim_params_hostile(&cluster->params, seed);
		cluster_start(cluster, seed, 3, false);
		for (unsigned i = 0; i < 3; i++)
			for (unsigned j = 0; j < 3; j++)
				if (i != j) {
					wire(cluster, i, j);
					cluster->nodes[i].peers[j].to_send = 30;
				}
		rf_sim_set_alarm(cluster->sim,
				 rf_sim_now(cluster->sim) + rf_sim_random(cluster->sim, 1000000));
		while ((cluster->ended = rf_sim_next(cluster->sim, &process)) != RF_SIM_IDLE) {
			if (cluster->ended == RF_SIM_ALARM)
				rf_sim_kill(cluster->sim, 2);
			else
				drive(cluster, process);
		}
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(cluster->nodes[i].peers[2].down, 1);
			assert_int_equal(cluster->nodes[i].peers[1 - i].received_all, 30);
			assert_int_equal(cluster->nodes[i].peers[1 - i].completed, 30);
		}
		assert_null(rf_sim_violation(cluster->sim));
		free_cluster(cluster);
	}
}

static void a_silent_process_holds_everything_up_and_may_go_on(void **state)
{
	(void)state;
	for (int partition = 0; partition < 2; partition++) {
		struct cluster *cluster = two_nodes(base_seed());
		struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
		struct rf_transport_peer *here = &cluster->nodes[1].peers[0];

		there->to_send = 20;
		if (partition)
			rf_sim_set_side(cluster->sim, 1, 1);
		else
			rf_sim_silence(cluster->sim, 1, true);
		run(cluster);
		assert_int_equal(cluster->ended, RF_SIM_IDLE);
		assert_int_equal(here->received_all, 0);
		assert_int_equal(there->down, 0);
		if (partition)
			rf_sim_set_side(cluster->sim, 1, 0);
		else
			rf_sim_silence(cluster->sim, 1, false);
		run(cluster);
		assert_int_equal(here->received_all, 20);
		assert_int_equal(there->completed, 20);
		free_cluster(cluster);
	}
}

static void a_cut_stream_takes_its_peer_down_on_both_sides(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];

	(void)state;
	run(cluster);
	assert_true(rf_sim_cut(cluster->sim, 0, 1));
	run(cluster);
	assert_int_equal(there->down, 1);
	assert_int_equal(here->down, 1);
	assert_false(rf_sim_cut(cluster->sim, 0, 1));
	/* And they may meet again. */
	cluster->nodes[0].transport->ops->close(there->endpoint);
	there->down = here->down = 0;
	wire(cluster, 0, 1);
	there->to_send = 3;
	run(cluster);
	assert_int_equal(here->received_all, 3);
	free_cluster(cluster);
}

static void what_was_sent_before_an_orderly_close_arrives(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];

	(void)state;
	there->to_send = 10;
	send_some(there);
	assert_int_equal(there->sent, 10);
	there->node->transport->ops->close(there->endpoint);
	there->endpoint = NULL;
	run(cluster);
	assert_int_equal(here->received_all, 10);
	assert_int_equal(here->down, 0);
	assert_int_equal(rf_sim_stream_count(cluster->sim, 1), 0);
	free_cluster(cluster);
}

static void a_forgotten_peer_gives_no_more_events(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];

	(void)state;
	there->to_send = 10;
	unanswered(cluster);
	here->node->transport->ops->forget(here->node->transport, here);
	run(cluster);
	assert_int_equal(here->received_all, 0);
	assert_int_equal(here->down, 0);
	assert_int_equal(there->down, 1);
	free_cluster(cluster);
}

static void what_is_queued_for_a_forgotten_peer_is_dropped(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];
	struct rf_transport *transport = cluster->nodes[1].transport;
	struct rf_transport_event event;
	unsigned process = 0;

	(void)state;
	there->to_send = 1;
	while (process == 0) {
		assert_int_equal(rf_sim_next(cluster->sim, &process), RF_SIM_RUN);
		if (process == 0)
			drive(cluster, 0);
	}
	transport->ops->forget(transport, here);
	assert_int_equal(transport->ops->poll(transport, &event), RF_ERR_AGAIN);
	free_cluster(cluster);
}

static void a_discarded_segment_makes_way_for_the_next(void **state)
{
	struct cluster *cluster = two_nodes(base_seed());
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport_peer *here = &cluster->nodes[1].peers[0];
	struct rf_receive *receive;

	(void)state;
	there->to_send = 10;
	receive = unanswered(cluster);
	cluster->deaf = false;
	here->node->transport->ops->discard(receive);
	here->received[0] = 1;
	run(cluster);
	assert_int_equal(here->received_all, 9);
	assert_int_equal(there->completed, 10);
	free_cluster(cluster);
}

/* ---- remote memory -------------------------------------------------------------------------- */

static void puts_land_before_the_send_behind_them(void **state)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	struct rf_transport_peer *there = &cluster->nodes[0].peers[1];
	struct rf_transport *transport, *far;
	uint8_t target[64] = {0}, source[16];
	struct rf_transport_put put = {
		.local = source, .bytes = sizeof(source), .offset = 48, .cookie = 900};
	void *mapped;
	int rc;

	(void)state;
	rf_sim_params_calm(&cluster->params);
	cluster->params.put = cluster->params.load_store = true;
	cluster->params.inline_bytes = 64;
	cluster_start(cluster, base_seed(), 2, false);
	wire(cluster, 0, 1);
	transport = cluster->nodes[0].transport;
	far = cluster->nodes[1].transport;
	memset(source, 7, sizeof(source));
	assert_int_equal(far->ops->expose(far, target, sizeof(target), &put.key), RF_OK);
	assert_int_equal(transport->ops->put(there->endpoint, &put), RF_SENT_AT_ONCE);
	memset(source, 9, sizeof(source));
	rc = send_one(there, 0);
	assert_int_equal(rc, RF_SENT_AT_ONCE);
	run(cluster);
	assert_int_equal(cluster->nodes[1].peers[0].received_all, 1);
	assert_int_equal(target[47], 0);
	assert_int_equal(target[48], 7);
	assert_int_equal(target[63], 7);
	/* Other hosts' memory cannot be mapped. */
	assert_int_equal(transport->ops->map(there->endpoint, put.key, sizeof(target), &mapped),
			 RF_ERR_UNSUPPORTED);
	/* Beyond the end: the way is broken. */
	put.offset = 49;
	assert_int_equal(transport->ops->put(there->endpoint, &put), RF_SENT_AT_ONCE);
	run(cluster);
	assert_int_equal(cluster->nodes[1].peers[0].down, 1);
	far->ops->unexpose(far, put.key);
	free_cluster(cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_segment_arrives_whole_and_in_its_lane),
		cmocka_unit_test(the_same_seed_replays_exactly),
		cmocka_unit_test(payloads_may_be_no_memory),
		cmocka_unit_test(what_is_too_large_is_refused),
		cmocka_unit_test(early_reuse_of_a_buffer_is_found),
		cmocka_unit_test(early_reuse_is_found_at_completion),
		cmocka_unit_test(a_withdrawn_send_arrives_and_leaves_its_buffer),
		cmocka_unit_test(a_dead_process_breaks_its_peers_endpoints_and_receives),
		cmocka_unit_test(a_death_at_any_time_is_told_once),
		cmocka_unit_test(a_silent_process_holds_everything_up_and_may_go_on),
		cmocka_unit_test(a_cut_stream_takes_its_peer_down_on_both_sides),
		cmocka_unit_test(what_was_sent_before_an_orderly_close_arrives),
		cmocka_unit_test(a_forgotten_peer_gives_no_more_events),
		cmocka_unit_test(what_is_queued_for_a_forgotten_peer_is_dropped),
		cmocka_unit_test(a_discarded_segment_makes_way_for_the_next),
		cmocka_unit_test(puts_land_before_the_send_behind_them),
	};

	printf("RINGFOLD_TEST_SEED=%" PRIu64 "\n", base_seed());
	alarm(WATCHDOG_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
