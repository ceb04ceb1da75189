/* SPDX-License-Identifier: BSD-3-Clause */
/* Control streams and dials: what holds on every network. */
#include "tests/unit/check_control_world.h"

/* ---- control streams ------------------------------------------------------------------------ */

static void segments_arrive_in_order(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);

	for (uint64_t seq = 0; seq < 1000; seq++)
		send_seq(peer, seq);
	UNTIL(b->received == 1000);
	CHECK(b->ups == 1);
	/* Acknowledged, so that they are not kept for ever. */
	UNTIL(peer->control->acked >= 960);
	CHECK(!b->deaths && !a->deaths);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void both_dial_at_once(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *at_a = peer_of(a, b, true), *at_b = peer_of(b, a, true);
	uint64_t to_a = 0, to_b = 0;

	CHECK(rf_control_hold(at_a, true) == RF_OK && rf_control_hold(at_b, true) == RF_OK);
	while (to_a < 500) {
		send_seq(at_a, to_b++);
		send_seq(at_b, to_a++);
		turn();
	}
	UNTIL(a->received == 500 && b->received == 500);
	CHECK(streams_of(at_a) == 2 && streams_of(at_b) == 2);
	CHECK(!a->deaths && !b->deaths);
	rf_control_release(at_a);
	rf_control_release(at_b);
	rf_peer_put(at_a);
	rf_peer_put(at_b);
	/* Nobody needs them: both go, and the peers with them. */
	UNTIL(!a->context.peers.count && !b->context.peers.count);
	CHECK(!a->deaths && !b->deaths);
	world_stop(a);
	world_stop(b);
}

static void big_payloads_arrive(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	static const size_t sizes[] = {0, 1, 63, 16320, 16321, 65536, 65537, 1000003, 20000000};
	size_t size_count = sizeof(sizes) / sizeof(sizes[0]) - (sim ? 2 : 0);

	for (size_t i = 0; i < size_count; i++) {
		struct rf_segment segment = {.type = RF_SEGMENT_TABLE};
		uint8_t *payload = malloc(sizes[i] + 1);

		for (size_t at = 0; at < sizes[i]; at++)
			payload[at] = pattern(at);
		CHECK(rf_control_send(peer, &segment, payload, sizes[i]) == RF_OK);
		send_seq(peer, i);
		free(payload);
		UNTIL(b->received == 2 * i + 2);
		CHECK(b->big_bytes == sizes[i] && b->big_right);
	}
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void a_lost_stream_loses_and_doubles_nothing(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *at_a = peer_of(a, b, true), *at_b = peer_of(b, a, true);
	struct rf_segment table = {.type = RF_SEGMENT_TABLE};
	size_t big = sim ? 30000 : 3000000;
	uint8_t *payload = malloc(big);
	uint64_t to_a = 0, to_b = 0;
	size_t tables = 0;

	for (size_t i = 0; i < big; i++)
		payload[i] = pattern(i);
	rf_control_hold(at_a, true);
	rf_control_hold(at_b, false);
	UNTIL(rf_control_is_up(at_a));
	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 50; i++) {
			send_seq(at_a, to_b++);
			send_seq(at_b, to_a++);
		}
		if (round % 7 == 3) {
			CHECK(rf_control_send(at_a, &table, payload, big) == RF_OK);
			tables++;
		}
		for (int i = 0; i < round % 5 * (sim ? 50 : 1); i++)
			turn();
		cut(round & 1 ? at_a : at_b);
		turn();
	}
	UNTIL(a->received == to_a && b->received == to_b + tables);
	CHECK(b->big_right && !a->deaths && !b->deaths);
	free(payload);
	rf_control_release(at_a);
	rf_control_release(at_b);
	rf_peer_put(at_a);
	rf_peer_put(at_b);
	world_stop(a);
	world_stop(b);
}

static void a_dead_process_is_dead_after_redialling(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, ""), *c = world_start(2, "");
	struct rf_peer *ab = peer_of(a, b, true), *bc, *cb;
	uint64_t start;

	rf_control_hold(ab, true);
	UNTIL(rf_control_is_up(ab));
	/* c knows no address of b: b dialled it. */
	cb = peer_of(c, b, false);
	bc = peer_of(b, c, true);
	rf_control_hold(cb, false);
	rf_control_hold(bc, true);
	UNTIL(rf_control_is_up(cb) && rf_control_is_up(bc));
	rf_server_stop(&b->context); /* closes, and says no goodbye */
	rf_peer_put(bc);
	world_stop(b);
	start = now_ms();
	UNTIL(a->deaths && c->deaths);
	CHECK(now_ms() - start >= 250 && now_ms() - start < 900);
	CHECK(a->last_state == RF_PEER_DEAD && c->last_state == RF_PEER_DEAD);
	CHECK(strstr(a->death_reason, sim ? "sim-1" : "127.0.0.1"));
	CHECK(sim || strstr(a->death_reason, "closed"));
	CHECK(rf_control_send(ab, &(struct rf_segment){.type = RF_SEGMENT_CREDIT}, NULL, 0) ==
	      RF_ERR_RANK_DEAD);
	rf_control_release(ab);
	rf_peer_put(ab);
	rf_control_release(cb);
	rf_peer_put(cb);
	CHECK(!a->context.peers.count && !c->context.peers.count);
	world_stop(a);
	world_stop(c);
}

static void nobody_there_is_a_death(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);

	world_stop(b);
	send_seq(peer, 0);
	UNTIL(a->deaths);
	CHECK(strstr(a->death_reason, "refused"));
	rf_peer_put(peer);
	world_stop(a);
}

static void a_goodbye_is_no_death(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *at_a = peer_of(a, b, true), *at_b = peer_of(b, a, true);

	rf_control_hold(at_a, true);
	rf_control_hold(at_b, true);
	UNTIL(rf_control_is_up(at_a) && rf_control_is_up(at_b));
	for (uint64_t seq = 0; seq < 300; seq++)
		send_seq(at_b, seq);
	rf_control_release(at_b);
	rf_peer_put(at_b);
	rf_control_shutdown(&b->context);
	UNTIL(rf_control_all_closed(&b->context));
	world_stop(b);
	UNTIL(a->deaths);
	CHECK(a->last_state == RF_PEER_LEFT && a->received == 300);
	rf_control_release(at_a);
	rf_peer_put(at_a);
	UNTIL(!a->context.peers.count);
	world_stop(a);
}

static void both_leave_at_once(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *at_a = peer_of(a, b, true), *at_b = peer_of(b, a, true);

	rf_control_hold(at_a, true);
	rf_control_hold(at_b, true);
	UNTIL(rf_control_is_up(at_a) && rf_control_is_up(at_b));
	rf_control_shutdown(&a->context);
	rf_control_shutdown(&b->context);
	UNTIL(rf_control_all_closed(&a->context) && rf_control_all_closed(&b->context));
	rf_peer_put(at_a);
	rf_peer_put(at_b);
	world_stop(a);
	world_stop(b);
}

static void idle_streams_close_and_come_back(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *at_a = peer_of(a, b, true), *at_b;

	send_seq(at_a, 0);
	UNTIL(b->received == 1);
	at_b = rf_peer_find(&b->context, a->context.id);
	CHECK(at_b && rf_process_id_equal(at_b->id, a->context.id));
	UNTIL(!streams_of(at_a) && !b->context.peers.count);
	/* b has forgotten all: the numbering begins anew. */
	send_seq(at_a, 1);
	send_seq(at_a, 2);
	UNTIL(b->received == 3);
	/* One side's need keeps it, however idle it is. */
	at_b = peer_of(b, a, false);
	rf_control_hold(at_b, false);
	turn_for(2500);
	CHECK(rf_control_is_up(at_a) && rf_control_is_up(at_b));
	CHECK(!a->deaths && !b->deaths);
	rf_control_release(at_b);
	rf_peer_put(at_b);
	UNTIL(!streams_of(at_a));
	rf_peer_put(at_a);
	world_stop(a);
	world_stop(b);
}

static void a_violation_ends_the_peer(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);

	rf_control_hold(peer, true);
	b->refuse_segments = true;
	send_seq(peer, 0);
	UNTIL(b->deaths);
	CHECK(strstr(b->death_reason, "cannot be taken"));
	UNTIL(a->deaths);
	rf_control_release(peer);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void suspicion_finds_the_living_and_the_dead(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);

	rf_control_suspect(peer, "a test");
	UNTIL(a->ups == 1);
	rf_control_suspect(peer, "a test");
	turn_for(50);
	CHECK(!a->deaths);
	UNTIL(!streams_of(peer));
	world_stop(b);
	rf_control_suspect(peer, "a test");
	UNTIL(a->deaths);
	rf_peer_put(peer);
	world_stop(a);
}

/* ---- dials ---------------------------------------------------------------------------------- */

static void rendezvous(struct world *at, const struct rf_addr *addrs, unsigned count,
		       uint64_t timeout_ms, struct outcome *outcome)
{
	struct rf_dial *dial;

	memset(outcome, 0, sizeof(*outcome));
	CHECK(rf_dial_rendezvous(&at->context, addrs, count,
				 rf_now(&at->context) + timeout_ms * RF_MS, on_rendezvous, outcome,
				 &dial) == RF_OK);
	UNTIL(outcome->done);
}

static void a_rendezvous_learns_who_is_there(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_addr addrs[2] = {addr_of(b), addr_of(b)};
	struct rf_peer *at_b = peer_of(b, a, false);
	struct outcome outcome, again;

	addrs[0].port = 1; /* refused */
	rf_control_hold(at_b, false);
	rendezvous(a, addrs, 2, 5000, &outcome);
	CHECK(outcome.status == RF_OK);
	CHECK(rf_process_id_equal(outcome.peer->id, b->context.id));
	CHECK(rf_addr_equal(&outcome.peer->addrs[0], &addrs[1]));
	CHECK(rf_control_is_up(outcome.peer));
	rf_control_hold(outcome.peer, false);
	for (uint64_t seq = 0; seq < 100; seq++)
		send_seq(outcome.peer, seq);
	UNTIL(b->received == 100 && rf_control_is_up(at_b));
	CHECK(b->ups == 1);
	for (uint64_t seq = 0; seq < 100; seq++)
		send_seq(at_b, seq);
	UNTIL(a->received == 100);
	/* A second one beside the stream that stands: the numbering goes on. */
	rendezvous(a, addrs + 1, 1, 5000, &again);
	CHECK(again.status == RF_OK && again.peer == outcome.peer);
	for (uint64_t seq = 100; seq < 200; seq++) {
		send_seq(outcome.peer, seq);
		send_seq(at_b, seq);
		if (seq == 150)
			cut(at_b);
	}
	UNTIL(a->received == 200 && b->received == 200);
	CHECK(!a->deaths && !b->deaths);
	rf_peer_put(again.peer);
	rf_peer_put(outcome.peer);
	rf_peer_put(at_b);
	world_stop(a);
	world_stop(b);
}

static void a_rendezvous_waits_for_its_deadline(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_addr addr = addr_of(b);
	struct outcome outcome;
	uint64_t start = now_ms();

	world_stop(b);
	rendezvous(a, &addr, 1, 700, &outcome);
	CHECK(outcome.status == RF_ERR_TIMEOUT && now_ms() - start >= 700);
	CHECK(strstr(outcome.reason, "refused"));
	/* Nor is this process its own leader. */
	addr = addr_of(a);
	rendezvous(a, &addr, 1, 300, &outcome);
	CHECK(outcome.status == RF_ERR_TIMEOUT && strstr(outcome.reason, "another process"));
	world_stop(a);
}

static void a_late_listener_is_found(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_addr addr = addr_of(b);
	struct outcome outcome = {0};
	struct rf_dial *dial;
	char port[16];

	snprintf(port, sizeof(port), "%u", addr.port);
	world_stop(b);
	CHECK(rf_dial_rendezvous(&a->context, &addr, 1, rf_now(&a->context) + 5000 * RF_MS,
				 on_rendezvous, &outcome, &dial) == RF_OK);
	turn_for(600);
	b = world_start(1, port);
	UNTIL(outcome.done);
	CHECK(outcome.status == RF_OK);
	rf_peer_put(outcome.peer);
	world_stop(a);
	world_stop(b);
}

static void data_lanes_pass_hello(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, ""), *c = world_start(2, "");
	struct rf_addr addrs[2] = {addr_of(c), addr_of(b)};
	struct outcome outcome = {0};
	struct rf_dial *dial;
	struct rf_peer *peer;

	/* The wrong process at the first address is passed over. */
	CHECK(rf_peer_get(&a->context, b->context.id, addrs, 2, &peer) == RF_OK);
	CHECK(rf_dial_data(peer, 0, 3, rf_now(&a->context) + 5000 * RF_MS, on_data, &outcome,
			   &dial) == RF_OK);
	UNTIL(outcome.done);
	CHECK(outcome.status == RF_OK && b->lanes == 1 && c->lanes == 0);
	outcome.stream->ops->close(outcome.stream);
	CHECK(b->context.peers.count == 1); /* kept, though nobody referred to it */
	outcome.done = false;
	CHECK(rf_dial_data(peer, 5, 3, rf_now(&a->context) + 5000 * RF_MS, on_data, &outcome,
			   &dial) == RF_OK);
	UNTIL(outcome.done);
	CHECK(outcome.status == RF_ERR_UNSUPPORTED && strstr(outcome.reason, "transport"));
	CHECK(rf_dial_data(peer, 0, 3, UINT64_MAX, on_data, &outcome, &dial) == RF_OK);
	rf_dial_cancel(dial);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
	world_stop(c);
}

const struct named_test stream_tests[] = {
	{"segments_arrive_in_order", segments_arrive_in_order},
	{"both_dial_at_once", both_dial_at_once},
	{"big_payloads_arrive", big_payloads_arrive},
	{"a_lost_stream_loses_and_doubles_nothing", a_lost_stream_loses_and_doubles_nothing},
	{"a_dead_process_is_dead_after_redialling", a_dead_process_is_dead_after_redialling},
	{"nobody_there_is_a_death", nobody_there_is_a_death},
	{"a_goodbye_is_no_death", a_goodbye_is_no_death},
	{"both_leave_at_once", both_leave_at_once},
	{"idle_streams_close_and_come_back", idle_streams_close_and_come_back},
	{"a_violation_ends_the_peer", a_violation_ends_the_peer},
	{"suspicion_finds_the_living_and_the_dead", suspicion_finds_the_living_and_the_dead},
	{"a_rendezvous_learns_who_is_there", a_rendezvous_learns_who_is_there},
	{"a_rendezvous_waits_for_its_deadline", a_rendezvous_waits_for_its_deadline},
	{"a_late_listener_is_found", a_late_listener_is_found},
	{"data_lanes_pass_hello", data_lanes_pass_hello},
};
const size_t stream_test_count = sizeof(stream_tests) / sizeof(stream_tests[0]);
