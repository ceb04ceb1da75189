/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/nodes.h"

#include <stdlib.h>
#include <string.h>

uint64_t base_seed(void)
{
	const char *text = getenv("RINGFOLD_TEST_SEED");

	return text ? strtoull(text, NULL, 0) : UINT64_C(20240611);
}

/* ---- wiring --------------------------------------------------------------------------------- */

void cluster_start(struct cluster *cluster, uint64_t seed, unsigned count, bool no_payload)
{
	cluster->count = count;
	if (!cluster->most_bytes)
		cluster->most_bytes = 64u << seed % 11;
	if (cluster->most_bytes > cluster->params.segment_max_bytes)
		cluster->most_bytes = cluster->params.segment_max_bytes;
	cluster->no_payload = no_payload;
	assert_int_equal(rf_sim_create(seed, &cluster->params, &cluster->sim), RF_OK);
	for (unsigned i = 0; i < count; i++) {
		struct node *node = &cluster->nodes[i];
		struct rf_transport_env env = {.no_payload = no_payload};

		node->cluster = cluster;
		for (unsigned j = 0; j < NODES_MAX; j++)
			rf_list_init(&node->peers[j].incoming);
		assert_int_equal(rf_sim_net_create(cluster->sim, i, &node->net), RF_OK);
		env.net = node->net;
		assert_int_equal(rf_transport_sim.create(&env, &node->transport), RF_OK);
	}
}

static void free_incoming(struct incoming *incoming)
{
	rf_list_remove(&incoming->node);
	free(incoming->memory);
	free(incoming);
}

static void free_all_incoming(struct rf_transport_peer *peer)
{
	RF_LIST_EACH(node, &peer->incoming)
	{
		free_incoming(RF_CONTAINER(node, struct incoming, node));
	}
}

void cluster_end(struct cluster *cluster)
{
	for (unsigned i = 0; i < cluster->count; i++) {
		struct node *node = &cluster->nodes[i];

		node->transport->ops->destroy(node->transport);
		assert_int_equal(rf_sim_stream_count(cluster->sim, i), 0);
		node->net->ops->destroy(node->net);
		for (unsigned j = 0; j < NODES_MAX; j++) {
			free_all_incoming(&node->peers[j]);
			for (unsigned k = 0; k < SENDS_MAX; k++)
				free(node->buffers[j][k]);
		}
	}
	rf_sim_destroy(cluster->sim);
}

void stream_pair(struct cluster *cluster, unsigned from, unsigned to, struct rf_stream *pair[2])
{
	struct rf_net *net = cluster->nodes[from].net, *far = cluster->nodes[to].net;
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
		rf_sim_set_alarm(cluster->sim, rf_sim_now(cluster->sim) + 1000);
		if (rf_sim_next(cluster->sim, &process) == RF_SIM_RUN)
			drive(cluster, process);
	}
	rf_sim_set_alarm(cluster->sim, UINT64_MAX);
	assert_int_equal(pair[0]->ops->connected(pair[0]), RF_OK);
	assert_int_equal(far->ops->accept(listener, NULL, &pair[1]), RF_OK);
	far->ops->close_listener(listener);
}

void wire(struct cluster *cluster, unsigned from, unsigned to)
{
	struct node *node = &cluster->nodes[from], *far = &cluster->nodes[to];
	struct rf_transport_peer *peer = &node->peers[to], *back = &far->peers[from];

	peer->node = node;
	peer->other = far;
	back->node = far;
	back->other = node;
	assert_int_equal(
		node->transport->ops->open(node->transport, peer, NULL, 0, &peer->endpoint), RF_OK);
	for (unsigned lane = 0; lane < node->transport->caps.lanes; lane++) {
		struct rf_stream *pair[2];

		stream_pair(cluster, from, to, pair);
		assert_int_equal(node->transport->ops->attach(peer->endpoint, lane, pair[0]),
				 RF_OK);
		assert_int_equal(far->transport->ops->accept(far->transport, back, lane, pair[1]),
				 RF_OK);
	}
}

struct cluster *two_nodes(uint64_t seed)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));

	rf_sim_params_calm(&cluster->params);
	cluster->most_bytes = 4096;
	cluster_start(cluster, seed, 2, false);
	wire(cluster, 0, 1);
	return cluster;
}

void free_cluster(struct cluster *cluster)
{
	cluster_end(cluster);
	free(cluster);
}

/* ---- the owner ------------------------------------------------------------------------------ */

size_t segment_bytes(const struct cluster *cluster, unsigned number)
{
	uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;

	return number % 7 == 0 ? 0 : (size_t)(mixed % (cluster->most_bytes + 1));
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

int send_one(struct rf_transport_peer *peer, unsigned number)
{
	struct node *node = peer->node;
	struct cluster *cluster = node->cluster;
	unsigned from = (unsigned)(node - cluster->nodes), to = (unsigned)(peer - node->peers);
	size_t bytes = segment_bytes(cluster, number);
	uint8_t *payload = cluster->no_payload ? (uint8_t *)64 : malloc(bytes + 1);
	struct rf_transport_send send = {
		.payload = payload,
		.bytes = bytes,
		.lane = number % node->transport->caps.lanes,
		.cookie = number,
	};
	int rc;

	make_header(from, number, bytes, send.header);
	for (size_t i = 0; i < bytes && !cluster->no_payload; i++)
		payload[i] = pattern(from, number, i);
	rc = node->transport->ops->send(peer->endpoint, &send);
	if (cluster->no_payload)
		return rc;
	if (rc == RF_OK) {
		node->buffers[to][number] = payload;
	} else {
		memset(payload, 0, bytes);
		free(payload);
	}
	return rc;
}

int send_some(struct rf_transport_peer *peer)
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

static void on_segment(struct rf_transport_peer *peer, struct rf_receive *receive)
{
	struct cluster *cluster = peer->node->cluster;
	const struct rf_transport_ops *ops = peer->node->transport->ops;
	struct incoming *incoming = calloc(1, sizeof(*incoming));
	struct rf_segment segment;
	unsigned lanes = peer->node->transport->caps.lanes;

	assert_int_equal(rf_segment_decode(receive->header, &segment), RF_OK);
	incoming->number = (unsigned)segment.seq;
	receive->user = incoming;
	rf_list_append(&peer->incoming, &incoming->node);
	assert_int_equal(segment.chunk, peer->other - cluster->nodes);
	assert_int_equal(receive->bytes, segment_bytes(cluster, incoming->number));
	/* In order within its lane. */
	assert_int_equal(receive->lane, segment.seq % lanes);
	assert_int_equal(segment.seq, receive->lane + lanes * peer->received[receive->lane]);
	if (incoming->number < cluster->last_number)
		cluster->lane_changes++;
	cluster->last_number = incoming->number;
	if (cluster->deaf)
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
	unsigned from = (unsigned)(peer->other - peer->node->cluster->nodes);

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
	if (peer->node->cluster->no_payload)
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
	else if (!peer->node->cluster->no_payload)
		check_bytes(peer, incoming, incoming->memory, 0, receive->bytes);
	peer->received[receive->lane]++;
	peer->received_all++;
	free_incoming(incoming);
}

static void on_sent(struct rf_transport_peer *peer, uint64_t number)
{
	void **buffer = &peer->node->buffers[peer - peer->node->peers][number];

	peer->completed++;
	if (peer->node->cluster->no_payload)
		return;
	assert_non_null(*buffer); /* once only */
	free(*buffer);
	*buffer = NULL;
}

void on_event(const struct rf_transport_event *event)
{
	struct rf_transport_peer *peer = event->peer;

	assert_int_equal(peer->down, 0); /* nothing after it */
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
		free_all_incoming(peer);
		assert_true(event->reason[0]);
		break;
	}
}

void drive(struct cluster *cluster, unsigned process)
{
	struct node *node = &cluster->nodes[process];
	struct rf_transport_event event;

	/* A few only: the rest must make the process run again. */
	for (int i = 0; i < 3; i++) {
		if (node->transport->ops->poll(node->transport, &event) != RF_OK)
			break;
		on_event(&event);
	}
	for (unsigned i = 0; i < cluster->count; i++) {
		struct rf_transport_peer *peer = &node->peers[i];

		/* Only when told: a lost WRITABLE shows as idleness. */
		if (peer->writable)
			while (send_some(peer))
				;
		peer->writable = false;
	}
}

void run(struct cluster *cluster)
{
	unsigned process;

	while ((cluster->ended = rf_sim_next(cluster->sim, &process)) == RF_SIM_RUN)
		drive(cluster, process);
}
