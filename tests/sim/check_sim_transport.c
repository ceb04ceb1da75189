/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator itself: what it delivers, what it finds out, and that it replays. A small owner
 * that speaks to the transport seam directly stands in for the engine.
 */
#include "transports/sim/sim.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES_MAX = 4, SENDS_MAX = 64, WATCHDOG_SECONDS = 300, SEEDS = 150 };

struct node;

/* What a node knows of another one. */
struct rf_transport_peer {
	struct node *node, *other;
	struct rf_endpoint *endpoint;
	unsigned to_send, sent, completed; /* segments */
	unsigned received[8], received_all;
	unsigned last_lane, down;
	bool writable;
};

struct node {
	struct world *world;
	struct rf_net *net;
	struct rf_transport *transport;
	struct rf_transport_peer peers[NODES_MAX];
	void *buffers[NODES_MAX][SENDS_MAX]; /* of sends that are not complete */
};

struct world {
	struct rf_sim *sim;
	struct rf_sim_params params;
	unsigned count;
	struct node nodes[NODES_MAX];
	bool no_payload;
	bool deaf;             /* nobody answers segments */
	unsigned lane_changes; /* a segment sent later, on another lane, came first */
	unsigned last_number;
	enum rf_sim_state ended;
};

static uint64_t base_seed(void)
{
	const char *text = getenv("RINGFOLD_TEST_SEED");

	return text ? strtoull(text, NULL, 0) : UINT64_C(20240611);
}

/* ---- wiring --------------------------------------------------------------------------------- */

static void world_start(struct world *world, uint64_t seed, unsigned count, bool no_payload)
{
	world->count = count;
	world->no_payload = no_payload;
	assert_int_equal(rf_sim_create(seed, &world->params, &world->sim), RF_OK);
	for (unsigned i = 0; i < count; i++) {
		struct node *node = &world->nodes[i];
		struct rf_transport_env env = {.no_payload = no_payload};

		node->world = world;
		assert_int_equal(rf_sim_net_create(world->sim, i, &node->net), RF_OK);
		env.net = node->net;
		assert_int_equal(rf_transport_sim.create(&env, &node->transport), RF_OK);
	}
}

static void world_end(struct world *world)
{
	for (unsigned i = 0; i < world->count; i++) {
		struct node *node = &world->nodes[i];

		node->transport->ops->destroy(node->transport);
		assert_int_equal(rf_sim_stream_count(world->sim, i), 0);
		node->net->ops->destroy(node->net);
		for (unsigned j = 0; j < NODES_MAX; j++)
			for (unsigned k = 0; k < SENDS_MAX; k++)
				free(node->buffers[j][k]);
	}
	rf_sim_destroy(world->sim);
}

static void drive(struct world *world, unsigned process);

static void stream_pair(struct world *world, unsigned from, unsigned to, struct rf_stream *pair[2])
{
	struct rf_net *net = world->nodes[from].net, *far = world->nodes[to].net;
	struct rf_listener *listener;
	struct rf_addr addr;
	uint16_t port;

	assert_int_equal(far->ops->listen(far, 0, 0, &listener, &port), RF_OK);
	addr = rf_sim_addr(to, port);
	assert_int_equal(net->ops->connect(net, &addr, NULL, &pair[0]), RF_OK);
	assert_int_equal(pair[0]->ops->connected(pair[0]), RF_ERR_AGAIN);
	while (pair[0]->ops->connected(pair[0]) == RF_ERR_AGAIN) {
		unsigned process;

		/* Nobody watches it: let time pass. */
		rf_sim_set_alarm(world->sim, rf_sim_now(world->sim) + 1000);
		if (rf_sim_next(world->sim, &process) == RF_SIM_RUN)
			drive(world, process);
	}
	rf_sim_set_alarm(world->sim, UINT64_MAX);
	assert_int_equal(pair[0]->ops->connected(pair[0]), RF_OK);
	assert_int_equal(far->ops->accept(listener, NULL, &pair[1]), RF_OK);
	far->ops->close_listener(listener);
}

static void wire(struct world *world, unsigned from, unsigned to)
{
	struct node *node = &world->nodes[from], *far = &world->nodes[to];
	struct rf_transport_peer *peer = &node->peers[to], *back = &far->peers[from];

	peer->node = node;
	peer->other = far;
	back->node = far;
	back->other = node;
	assert_int_equal(
		node->transport->ops->open(node->transport, peer, NULL, 0, &peer->endpoint), RF_OK);
	for (unsigned lane = 0; lane < node->transport->caps.lanes; lane++) {
		struct rf_stream *pair[2];

		stream_pair(world, from, to, pair);
		assert_int_equal(node->transport->ops->attach(peer->endpoint, lane, pair[0]),
				 RF_OK);
		assert_int_equal(far->transport->ops->accept(far->transport, back, lane, pair[1]),
				 RF_OK);
	}
}

/* ---- the owner ------------------------------------------------------------------------------ */

static size_t segment_bytes(const struct world *world, unsigned number)
{
	uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;

	return number % 7 == 0 ? 0 : (size_t)(mixed % (world->params.segment_max_bytes + 1));
}

static uint8_t pattern(unsigned from, unsigned number, size_t at)
{
	return (uint8_t)(from * 31 + number * 17 + at * 7 + (at >> 8));
}

static void make_header(unsigned from, unsigned number, size_t bytes, uint8_t *header)
{
	const struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = RF_SEGMENT_DATA,
		.seq = number,
		.chunk = from,
		.bytes = (uint32_t)bytes,
	};

	rf_segment_encode(&segment, header);
}

static int send_one(struct rf_transport_peer *peer, unsigned number)
{
	struct node *node = peer->node;
	struct world *world = node->world;
	unsigned from = (unsigned)(node - world->nodes), to = (unsigned)(peer - node->peers);
	size_t bytes = segment_bytes(world, number);
	uint8_t *payload = world->no_payload ? (uint8_t *)64 : malloc(bytes + 1);
	struct rf_transport_send send = {
		.payload = payload,
		.bytes = bytes,
		.lane = number % node->transport->caps.lanes,
		.cookie = number,
	};
	int rc;

	make_header(from, number, bytes, send.header);
	for (size_t i = 0; i < bytes && !world->no_payload; i++)
		payload[i] = pattern(from, number, i);
	rc = node->transport->ops->send(peer->endpoint, &send);
	if (world->no_payload)
		return rc;
	if (rc == RF_OK) {
		node->buffers[to][number] = payload;
	} else {
		memset(payload, 0, bytes);
		free(payload);
	}
	return rc;
}

static int send_some(struct rf_transport_peer *peer)
{
	int did = 0;

	while (peer->endpoint && !peer->down && peer->sent < peer->to_send) {
		int rc = send_one(peer, peer->sent);

		if (rc == RF_ERR_AGAIN)
			break;
		assert_true(rc == RF_OK || rc == RF_SENT_AT_ONCE);
		peer->sent++;
		peer->completed += rc == RF_SENT_AT_ONCE;
		did = 1;
	}
	return did;
}

/* The engine's part of a receive. */
struct incoming {
	unsigned number;
	uint8_t *memory;
	size_t seen;
};

static void on_segment(struct rf_transport_peer *peer, struct rf_receive *receive)
{
	struct world *world = peer->node->world;
	const struct rf_transport_ops *ops = peer->node->transport->ops;
	struct incoming *incoming = calloc(1, sizeof(*incoming));
	struct rf_segment segment;
	unsigned lanes = peer->node->transport->caps.lanes;

	assert_int_equal(rf_segment_decode(receive->header, &segment), RF_OK);
	incoming->number = (unsigned)segment.seq;
	receive->user = incoming;
	assert_int_equal(segment.chunk, peer->other - world->nodes);
	assert_int_equal(receive->bytes, segment_bytes(world, incoming->number));
	/* In order within its lane. */
	assert_int_equal(receive->lane, segment.seq % lanes);
	assert_int_equal(segment.seq, receive->lane + lanes * peer->received[receive->lane]);
	if (incoming->number < world->last_number)
		world->lane_changes++;
	world->last_number = incoming->number;
	if (world->deaf)
		return;
	if (peer->node->transport->caps.borrow && incoming->number % 2) {
		assert_int_equal(ops->receive_pieces(receive), RF_OK);
	} else {
		incoming->memory = malloc(receive->bytes + 1);
		assert_int_equal(ops->receive_into(receive, incoming->memory), RF_OK);
	}
}

static void check_bytes(struct rf_transport_peer *peer, const struct incoming *incoming,
			const uint8_t *memory, size_t offset, size_t bytes)
{
	unsigned from = (unsigned)(peer->other - peer->node->world->nodes);

	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(memory[i], pattern(from, incoming->number, offset + i));
}

static void on_piece(struct rf_transport_peer *peer, const struct rf_transport_event *event)
{
	struct incoming *incoming = event->receive->user;

	assert_int_equal(event->offset, incoming->seen);
	incoming->seen += event->bytes;
	assert_true(incoming->seen <= event->receive->bytes);
	if (incoming->seen < event->receive->bytes)
		assert_int_equal(event->bytes % 64, 0);
	if (peer->node->world->no_payload)
		assert_null(event->piece);
	else
		check_bytes(peer, incoming, event->piece, event->offset, event->bytes);
	peer->node->transport->ops->release(event->receive);
}

static void on_delivered(struct rf_transport_peer *peer, struct rf_receive *receive)
{
	struct incoming *incoming = receive->user;

	if (!incoming->memory)
		assert_int_equal(incoming->seen, receive->bytes);
	else if (!peer->node->world->no_payload)
		check_bytes(peer, incoming, incoming->memory, 0, receive->bytes);
	peer->received[receive->lane]++;
	peer->received_all++;
	free(incoming->memory);
	free(incoming);
}

static void on_sent(struct rf_transport_peer *peer, uint64_t number)
{
	void **buffer = &peer->node->buffers[peer - peer->node->peers][number];

	peer->completed++;
	if (peer->node->world->no_payload)
		return;
	assert_non_null(*buffer); /* once only */
	free(*buffer);
	*buffer = NULL;
}

static void on_event(const struct rf_transport_event *event)
{
	struct rf_transport_peer *peer = event->peer;

	switch (event->kind) {
	case RF_EVENT_SEGMENT:
		on_segment(peer, event->receive);
		break;
	case RF_EVENT_PIECE:
		on_piece(peer, event);
		break;
	case RF_EVENT_DELIVERED:
		on_delivered(peer, event->receive);
		break;
	case RF_EVENT_SENT:
		on_sent(peer, event->cookie);
		peer->writable = true;
		break;
	case RF_EVENT_WRITABLE:
		peer->writable = true;
		break;
	case RF_EVENT_DOWN:
		peer->down++;
		assert_true(event->reason[0]);
		break;
	}
}

static void drive(struct world *world, unsigned process)
{
	struct node *node = &world->nodes[process];
	struct rf_transport_event event;

	/* A few only: the rest must make the process run again. */
	for (int i = 0; i < 3; i++) {
		if (node->transport->ops->poll(node->transport, &event) != RF_OK)
			break;
		on_event(&event);
	}
	for (unsigned i = 0; i < world->count; i++) {
		struct rf_transport_peer *peer = &node->peers[i];

		/* Only when told: a lost WRITABLE shows as idleness. */
		if (peer->writable)
			while (send_some(peer))
				;
		peer->writable = false;
	}
}

static void run(struct world *world)
{
	unsigned process;

	while ((world->ended = rf_sim_next(world->sim, &process)) == RF_SIM_RUN)
		drive(world, process);
}

/* ---- delivery ------------------------------------------------------------------------------- */

static void exchange(struct world *world, uint64_t seed, unsigned count, unsigned segments)
{
	world_start(world, seed, count, world->no_payload);
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < count; j++)
			if (i != j) {
				wire(world, i, j);
				world->nodes[i].peers[j].to_send = segments;
			}
	run(world);
}

static void check_exchange(struct world *world, unsigned segments)
{
	assert_null(rf_sim_violation(world->sim));
	assert_int_equal(world->ended, RF_SIM_IDLE);
	for (unsigned i = 0; i < world->count; i++)
		for (unsigned j = 0; j < world->count; j++) {
			const struct rf_transport_peer *peer = &world->nodes[i].peers[j];

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
		struct world *world = calloc(1, sizeof(*world));

		rf_sim_params_hostile(&world->params, seed);
		exchange(world, seed, 2 + seed % (NODES_MAX - 1), 30);
		check_exchange(world, 30);
		lane_changes += world->lane_changes;
		world_end(world);
		free(world);
	}
	assert_true(lane_changes > 0);
}

static uint64_t exchange_hash(uint64_t seed, uint64_t params_seed)
{
	struct world *world = calloc(1, sizeof(*world));
	uint64_t hash;

	rf_sim_params_hostile(&world->params, params_seed);
	exchange(world, seed, 3, 20);
	check_exchange(world, 20);
	hash = rf_sim_trace_hash(world->sim);
	world_end(world);
	free(world);
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
		struct world *world = calloc(1, sizeof(*world));

		rf_sim_params_hostile(&world->params, seed);
		world->no_payload = true;
		exchange(world, seed, 3, 20);
		check_exchange(world, 20);
		world_end(world);
		free(world);
	}
}

/* ---- findings ------------------------------------------------------------------------------- */

static struct world *two_nodes(uint64_t seed)
{
	struct world *world = calloc(1, sizeof(*world));

	rf_sim_params_calm(&world->params);
	world->params.segment_max_bytes = 4096;
	world_start(world, seed, 2, false);
	wire(world, 0, 1);
	return world;
}

static void free_world(struct world *world)
{
	world_end(world);
	free(world);
}

static void early_reuse_of_a_buffer_is_found(void **state)
{
	(void)state;
	for (size_t at = 0; at < 2; at++) {
		struct world *world = two_nodes(base_seed());
		struct rf_transport_peer *peer = &world->nodes[0].peers[1];
		size_t bytes = segment_bytes(world, 1);

		assert_true(bytes > 9);
		assert_int_equal(send_one(peer, 1), RF_OK);
		((uint8_t *)world->nodes[0].buffers[1][1])[at ? bytes - 1 : 0] ^= 1;
		world->deaf = true;
		peer->received[0] = 0;
		world->nodes[1].peers[0].received[0] = 1;
		peer->node->transport->ops->close(peer->endpoint);
		assert_non_null(rf_sim_violation(world->sim));
		free_world(world);
	}
}

static void early_reuse_is_found_at_completion(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *peer = &world->nodes[0].peers[1];

	(void)state;
	world->nodes[1].peers[0].received[0] = 1;
	assert_int_equal(send_one(peer, 1), RF_OK);
	((uint8_t *)world->nodes[0].buffers[1][1])[5] ^= 1;
	run(world);
	assert_int_equal(peer->completed, 1);
	assert_non_null(rf_sim_violation(world->sim));
	free_world(world);
}

static void a_withdrawn_send_arrives_and_leaves_its_buffer(void **state)
{
	unsigned again = 0, done = 0;

	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 40; seed++) {
		struct world *world = calloc(1, sizeof(*world));
		struct rf_transport_peer *peer = &world->nodes[0].peers[1];
		const struct rf_transport_ops *ops;
		int rc;

		rf_sim_params_calm(&world->params);
		world->params.withdraw_again = 500;
		world->params.late = 500;
		world->params.late_ns = 1000000;
		world_start(world, seed, 2, false);
		wire(world, 0, 1);
		ops = world->nodes[0].transport->ops;
		world->nodes[1].peers[0].received[0] = 1;
		assert_int_equal(send_one(peer, 1), RF_OK);
		rc = ops->withdraw(peer->endpoint, 1);
		if (rc == RF_OK) {
			memset(world->nodes[0].buffers[1][1], 0, segment_bytes(world, 1));
			free(world->nodes[0].buffers[1][1]);
			world->nodes[0].buffers[1][1] = NULL;
			done++;
		} else {
			assert_int_equal(rc, RF_ERR_AGAIN);
			again++;
		}
		run(world);
		assert_null(rf_sim_violation(world->sim));
		assert_int_equal(peer->completed, rc == RF_OK ? 0 : 1);
		assert_int_equal(world->nodes[1].peers[0].received_all, 1);
		free_world(world);
	}
	assert_true(again && done);
}

/* ---- faults --------------------------------------------------------------------------------- */

static void free_incoming(struct incoming *incoming)
{
	free(incoming->memory);
	free(incoming);
}

/* Runs until a segment lies unanswered at node 1, and gives it. */
static struct rf_receive *unanswered(struct world *world)
{
	struct node *node = &world->nodes[1];
	struct rf_transport_event event;
	unsigned process;

	world->deaf = true;
	while (rf_sim_next(world->sim, &process) == RF_SIM_RUN) {
		if (process == 0) {
			drive(world, 0);
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
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport_peer *here = &world->nodes[1].peers[0];
	struct incoming *incoming;

	(void)state;
	wire(world, 1, 0);
	there->to_send = 5;
	send_some(there);
	incoming = unanswered(world)->user;
	rf_sim_kill(world->sim, 0);
	run(world);
	assert_int_equal(world->ended, RF_SIM_IDLE);
	assert_int_equal(here->down, 1);
	assert_int_equal(there->down, 0);
	assert_int_equal(send_one(here, 1), RF_ERR_AGAIN);
	free_incoming(incoming);
	world->nodes[1].transport->ops->close(here->endpoint);
	assert_null(rf_sim_violation(world->sim));
	free_world(world);
}

static void a_silent_process_holds_everything_up_and_may_go_on(void **state)
{
	(void)state;
	for (int partition = 0; partition < 2; partition++) {
		struct world *world = two_nodes(base_seed());
		struct rf_transport_peer *there = &world->nodes[0].peers[1];
		struct rf_transport_peer *here = &world->nodes[1].peers[0];

		there->to_send = 20;
		if (partition)
			rf_sim_set_side(world->sim, 1, 1);
		else
			rf_sim_silence(world->sim, 1, true);
		run(world);
		assert_int_equal(world->ended, RF_SIM_IDLE);
		assert_int_equal(here->received_all, 0);
		assert_int_equal(there->down, 0);
		if (partition)
			rf_sim_set_side(world->sim, 1, 0);
		else
			rf_sim_silence(world->sim, 1, false);
		run(world);
		assert_int_equal(here->received_all, 20);
		assert_int_equal(there->completed, 20);
		free_world(world);
	}
}

static void a_cut_stream_takes_its_peer_down_on_both_sides(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport_peer *here = &world->nodes[1].peers[0];

	(void)state;
	run(world);
	assert_true(rf_sim_cut(world->sim, 0, 1));
	run(world);
	assert_int_equal(there->down, 1);
	assert_int_equal(here->down, 1);
	assert_false(rf_sim_cut(world->sim, 0, 1));
	/* And they may meet again. */
	world->nodes[0].transport->ops->close(there->endpoint);
	there->down = here->down = 0;
	wire(world, 0, 1);
	there->to_send = 3;
	run(world);
	assert_int_equal(here->received_all, 3);
	free_world(world);
}

static void what_was_sent_before_an_orderly_close_arrives(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport_peer *here = &world->nodes[1].peers[0];

	(void)state;
	there->to_send = 10;
	send_some(there);
	assert_int_equal(there->sent, 10);
	there->node->transport->ops->close(there->endpoint);
	there->endpoint = NULL;
	run(world);
	assert_int_equal(here->received_all, 10);
	assert_int_equal(here->down, 0);
	assert_int_equal(rf_sim_stream_count(world->sim, 1), 0);
	free_world(world);
}

static void a_forgotten_peer_gives_no_more_events(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport_peer *here = &world->nodes[1].peers[0];
	struct rf_receive *receive;

	(void)state;
	there->to_send = 10;
	receive = unanswered(world);
	free_incoming(receive->user);
	here->node->transport->ops->forget(here->node->transport, here);
	run(world);
	assert_int_equal(here->received_all, 0);
	assert_int_equal(here->down, 0);
	assert_int_equal(there->down, 1);
	free_world(world);
}

static void a_discarded_segment_makes_way_for_the_next(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport_peer *here = &world->nodes[1].peers[0];
	struct rf_receive *receive;

	(void)state;
	there->to_send = 10;
	receive = unanswered(world);
	world->deaf = false;
	free_incoming(receive->user);
	here->node->transport->ops->discard(receive);
	here->received[0] = 1;
	run(world);
	assert_int_equal(here->received_all, 9);
	assert_int_equal(there->completed, 10);
	free_world(world);
}

/* ---- remote memory -------------------------------------------------------------------------- */

static void puts_land_before_the_send_behind_them(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	struct rf_transport_peer *there = &world->nodes[0].peers[1];
	struct rf_transport *transport, *far;
	uint8_t target[64] = {0}, source[16];
	struct rf_transport_put put = {
		.local = source, .bytes = sizeof(source), .offset = 48, .cookie = 900};
	void *mapped;
	int rc;

	(void)state;
	rf_sim_params_calm(&world->params);
	world->params.put = world->params.load_store = true;
	world->params.inline_bytes = 64;
	world_start(world, base_seed(), 2, false);
	wire(world, 0, 1);
	transport = world->nodes[0].transport;
	far = world->nodes[1].transport;
	memset(source, 7, sizeof(source));
	assert_int_equal(far->ops->expose(far, target, sizeof(target), &put.key), RF_OK);
	assert_int_equal(transport->ops->put(there->endpoint, &put), RF_SENT_AT_ONCE);
	memset(source, 9, sizeof(source));
	rc = send_one(there, 0);
	assert_int_equal(rc, RF_SENT_AT_ONCE);
	run(world);
	assert_int_equal(world->nodes[1].peers[0].received_all, 1);
	assert_int_equal(target[47], 0);
	assert_int_equal(target[48], 7);
	assert_int_equal(target[63], 7);
	/* Other hosts' memory cannot be mapped. */
	assert_int_equal(transport->ops->map(there->endpoint, put.key, sizeof(target), &mapped),
			 RF_ERR_UNSUPPORTED);
	/* Beyond the end: the way is broken. */
	put.offset = 49;
	assert_int_equal(transport->ops->put(there->endpoint, &put), RF_SENT_AT_ONCE);
	run(world);
	assert_int_equal(world->nodes[1].peers[0].down, 1);
	far->ops->unexpose(far, put.key);
	free_world(world);
}

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

static void turn(struct world *world)
{
	struct rf_net_event events[4];
	unsigned process;
	int count;

	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_RUN);
	world->nodes[process].net->ops->poll(world->nodes[process].net, false, 0, events, 4,
					     &count);
	rf_net_dispatch(world->nodes[process].net, events, count);
	drive(world, process);
}

static void streams_keep_order_and_end_orderly(void **state)
{
	enum { BYTES = 20000 };
	static uint8_t source[BYTES], target[BYTES];

	(void)state;
	for (uint64_t seed = base_seed(); seed < base_seed() + 50; seed++) {
		struct world *world = calloc(1, sizeof(*world));
		struct transfer out = {.watch.ready = note_ready}, in = out;
		struct rf_stream *pair[2];
		size_t sent = 0, received = 0, n = 1;

		rf_sim_params_hostile(&world->params, seed);
		world_start(world, seed, 2, false);
		for (size_t i = 0; i < BYTES; i++)
			source[i] = (uint8_t)(i * 7 + seed + (i >> 8));
		stream_pair(world, 0, 1, pair);
		pair[0]->ops->watch(pair[0], RF_NET_DATA, &out.watch, RF_NET_OUT);
		pair[1]->ops->watch(pair[1], RF_NET_DATA, &in.watch, RF_NET_IN);
		while (n) {
			struct iovec iov = {source + sent, BYTES - sent};

			turn(world);
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
		free_world(world);
	}
}

static void a_dead_process_resets_its_streams(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct transfer in = {.watch.ready = note_ready};
	struct rf_stream *pair[2];
	struct rf_addr addr;
	uint8_t buffer[4];
	size_t n;

	(void)state;
	run(world);
	stream_pair(world, 0, 1, pair);
	pair[1]->ops->watch(pair[1], RF_NET_CONTROL, &in.watch, RF_NET_IN);
	rf_sim_kill(world->sim, 0);
	while (!in.events)
		turn(world);
	assert_int_equal(receive_some(pair[1], buffer, sizeof(buffer), &n), RF_ERR_NETWORK);
	pair[1]->ops->local_addr(pair[1], &addr);
	assert_true(addr.port != 0);
	pair[0]->ops->close(pair[0]);
	pair[1]->ops->close(pair[1]);
	free_world(world);
}

static void nobody_there_is_refused_and_silence_times_out(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_net *net = world->nodes[0].net, *far = world->nodes[1].net;
	struct transfer out = {.watch.ready = note_ready};
	struct rf_addr addr = rf_sim_addr(1, 77);
	struct rf_listener *listener;
	struct rf_stream *stream;
	uint64_t before;
	uint16_t port;

	(void)state;
	run(world);
	for (int silent = 0; silent < 2; silent++) {
		if (silent) {
			assert_int_equal(far->ops->listen(far, 77, 77, &listener, &port), RF_OK);
			rf_sim_silence(world->sim, 1, true);
		}
		before = rf_sim_now(world->sim);
		assert_int_equal(net->ops->connect(net, &addr, NULL, &stream), RF_OK);
		stream->ops->watch(stream, RF_NET_CONTROL, &out.watch, RF_NET_OUT);
		while (stream->ops->connected(stream) == RF_ERR_AGAIN)
			turn(world);
		assert_int_equal(stream->ops->connected(stream), RF_ERR_NETWORK);
		assert_true(rf_sim_now(world->sim) - before >=
			    (silent ? world->params.connect_timeout_ns : 1));
		stream->ops->close(stream);
	}
	far->ops->close_listener(listener);
	free_world(world);
}

static int resolve(struct world *world, const char *name, struct rf_addr *addr)
{
	struct rf_net *net = world->nodes[0].net;
	void *handle = NULL;
	unsigned process;
	int count, rc;

	while ((rc = net->ops->resolve(net, name, 5, &handle, addr, 1, &count)) == RF_ERR_AGAIN)
		assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_RUN);
	assert_null(handle);
	return rc;
}

static void names_may_come_late(void **state)
{
	struct world *world = two_nodes(base_seed());
	struct rf_addr addr;
	char text[RF_ADDR_TEXT];
	unsigned process;

	(void)state;
	run(world);
	rf_sim_set_name_time(world->sim, 1, rf_sim_now(world->sim) + 15000000000u);
	assert_int_equal(resolve(world, "sim-0", &addr), RF_OK);
	assert_string_equal(rf_addr_format(&addr, text), "sim-0:5");
	assert_int_equal(resolve(world, "sim-1", &addr), RF_ERR_NETWORK);
	assert_int_equal(resolve(world, "other", &addr), RF_ERR_NETWORK);
	rf_sim_set_alarm(world->sim, rf_sim_now(world->sim) + 16000000000u);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_ALARM);
	assert_int_equal(resolve(world, "sim-1", &addr), RF_OK);
	free_world(world);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void timers_run_their_process_at_their_time(void **state)
{
	struct world *world = two_nodes(base_seed());
	uint64_t begin;
	unsigned process;

	(void)state;
	run(world);
	begin = rf_sim_now(world->sim);
	rf_sim_set_timer(world->sim, 1, begin + 500);
	rf_sim_set_timer(world->sim, 0, begin + 300);
	rf_sim_set_alarm(world->sim, begin + 400);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 0);
	assert_int_equal(rf_sim_now(world->sim), begin + 300);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_ALARM);
	rf_sim_set_timer(world->sim, 1, begin + 600);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 1);
	assert_int_equal(rf_sim_now(world->sim), begin + 600);
	rf_sim_set_timer(world->sim, 1, begin + 700);
	rf_sim_set_timer(world->sim, 1, UINT64_MAX);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_IDLE);
	rf_sim_again(world->sim, 1);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_RUN);
	assert_int_equal(process, 1);
	assert_int_equal(rf_sim_next(world->sim, &process), RF_SIM_IDLE);
	free_world(world);
}

static void turning_in_circles_is_found(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	enum rf_sim_state found;
	unsigned process;

	(void)state;
	rf_sim_params_calm(&world->params);
	world->params.livelock_rounds = 1000;
	world_start(world, base_seed(), 1, false);
	do
		rf_sim_again(world->sim, 0);
	while ((found = rf_sim_next(world->sim, &process)) == RF_SIM_RUN);
	assert_int_equal(found, RF_SIM_LIVELOCK);
	free_world(world);
}

static void bandwidth_and_latency_make_the_time(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	struct rf_transport_peer *peer = &world->nodes[0].peers[1];
	uint64_t begin, took;
	unsigned segments = 50, bytes = 0;

	(void)state;
	rf_sim_params_calm(&world->params);
	world->params.segment_max_bytes = 100000;
	world->params.bytes_per_second = 1000000000;
	world->params.latency_ns = 5000;
	world->params.queue_depth = 100;
	world_start(world, base_seed(), 2, false);
	wire(world, 0, 1);
	run(world);
	begin = rf_sim_now(world->sim);
	for (unsigned i = 0; i < segments; i++)
		bytes += (unsigned)segment_bytes(world, i);
	peer->to_send = segments;
	send_some(peer);
	run(world);
	took = rf_sim_now(world->sim) - begin;
	assert_true(took > bytes);
	assert_true(took < bytes + bytes / 10 + 100000);
	free_world(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_segment_arrives_whole_and_in_its_lane),
		cmocka_unit_test(the_same_seed_replays_exactly),
		cmocka_unit_test(payloads_may_be_no_memory),
		cmocka_unit_test(early_reuse_of_a_buffer_is_found),
		cmocka_unit_test(early_reuse_is_found_at_completion),
		cmocka_unit_test(a_withdrawn_send_arrives_and_leaves_its_buffer),
		cmocka_unit_test(a_dead_process_breaks_its_peers_endpoints_and_receives),
		cmocka_unit_test(a_silent_process_holds_everything_up_and_may_go_on),
		cmocka_unit_test(a_cut_stream_takes_its_peer_down_on_both_sides),
		cmocka_unit_test(what_was_sent_before_an_orderly_close_arrives),
		cmocka_unit_test(a_forgotten_peer_gives_no_more_events),
		cmocka_unit_test(a_discarded_segment_makes_way_for_the_next),
		cmocka_unit_test(puts_land_before_the_send_behind_them),
		cmocka_unit_test(streams_keep_order_and_end_orderly),
		cmocka_unit_test(a_dead_process_resets_its_streams),
		cmocka_unit_test(nobody_there_is_refused_and_silence_times_out),
		cmocka_unit_test(names_may_come_late),
		cmocka_unit_test(timers_run_their_process_at_their_time),
		cmocka_unit_test(turning_in_circles_is_found),
		cmocka_unit_test(bandwidth_and_latency_make_the_time),
	};

	printf("RINGFOLD_TEST_SEED=%" PRIu64 "\n", base_seed());
	alarm(WATCHDOG_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
