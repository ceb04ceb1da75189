/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control streams, hello, listener and dials, over the posix network, several contexts in one
 * process. The rest of the engine is played by this file.
 */
#include "engine/control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTEXTS = 3, WATCHDOG_S = 60, LOG_BYTES = 65536 };

static const char *current;

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s: line %d: not so: %s\n", current, __LINE__, \
				#condition);                                            \
			_exit(1);                                                       \
		}                                                                       \
	} while (0)

/* ---- the rest of the engine ----------------------------------------------------------------- */

/* What a context has been told. */
struct world {
	rf_context context;
	uint64_t next_seq; /* expected of the one that sends in order */
	size_t received;
	size_t big_bytes;
	bool big_right;
	unsigned ups;
	unsigned deaths;
	enum rf_peer_state last_state;
	char death_reason[512];
	unsigned lanes;
	uint32_t eager_seen;
	char log[LOG_BYTES];
	size_t log_bytes;
	unsigned log_lines;
	bool refuse_segments;
};
static struct world worlds[CONTEXTS];

static struct world *world_of(rf_context *context)
{
	return RF_CONTAINER(context, struct world, context);
}

void rf_context_wake(rf_context *context)
{
	context->net->ops->wake(context->net);
}

void rf_data_init(struct rf_peer *peer)
{
	rf_list_init(&peer->blocked_calls);
}

void rf_data_close(struct rf_peer *peer)
{
	(void)peer;
}

int rf_data_accept(struct rf_peer *peer, unsigned transport_index, unsigned lane,
		   struct rf_stream *stream)
{
	CHECK(transport_index == 0 && lane == 3);
	world_of(peer->context)->lanes++;
	stream->ops->close(stream);
	return RF_OK;
}

void rf_data_on_eager_freed(struct rf_peer *peer, uint32_t eager_freed)
{
	world_of(peer->context)->eager_seen = eager_freed;
}

int rf_call_on_credit(struct rf_peer *peer, const struct rf_segment *segment)
{
	struct world *world = world_of(peer->context);

	CHECK(segment->type == RF_SEGMENT_CREDIT || segment->type == RF_SEGMENT_WANT);
	if (world->refuse_segments)
		return RF_ERR_PROTOCOL;
	CHECK(segment->seq == world->next_seq);
	world->next_seq++;
	world->received++;
	return RF_OK;
}

int rf_failure_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
			  const uint8_t *payload)
{
	(void)payload;
	CHECK(segment->type >= RF_SEGMENT_DEATH && segment->type <= RF_SEGMENT_ANSWER);
	world_of(peer->context)->received++;
	return RF_OK;
}

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

int rf_join_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
		       const uint8_t *payload)
{
	struct world *world = world_of(peer->context);

	world->big_bytes = segment->bytes;
	world->big_right = true;
	for (size_t i = 0; i < segment->bytes; i++)
		world->big_right &= payload[i] == pattern(i);
	world->received++;
	return RF_OK;
}

void rf_peer_died(struct rf_peer *peer, const char *reason)
{
	struct world *world = world_of(peer->context);

	world->deaths++;
	world->last_state = peer->state;
	snprintf(world->death_reason, sizeof(world->death_reason), "%s", reason);
}

void rf_join_peer_up(struct rf_peer *peer)
{
	world_of(peer->context)->ups++;
}

/* ---- contexts ------------------------------------------------------------------------------- */

static void on_log(void *user, rf_log_level level, const char *line)
{
	struct world *world = user;

	(void)level;
	world->log_lines++;
	world->log_bytes += (size_t)snprintf(world->log + world->log_bytes,
					     sizeof(world->log) - world->log_bytes, "%s\n", line);
	if (world->log_bytes > sizeof(world->log) - 1024)
		world->log_bytes = 0;
}

static struct world *world_start(int i, const char *port)
{
	struct world *world = &worlds[i];
	rf_context *context = &world->context;

	memset(world, 0, sizeof(*world));
	context->id = (struct rf_process_id){0x1000u + (unsigned)i, 0x2000u + (unsigned)i};
	context->config.redial_ms = 300;
	snprintf(context->config.port, sizeof(context->config.port), "%s", port);
	context->logger = (struct rf_logger){RF_LOG_INFO, on_log, world};
	context->transport_count = 1;
	rf_list_init(&context->comm_list);
	CHECK(rf_net_posix_create(&context->net) == RF_OK);
	CHECK(rf_server_start(context) == RF_OK);
	return world;
}

static void world_stop(struct world *world)
{
	rf_context *context = &world->context;

	rf_server_stop(context);
	context->net->ops->destroy(context->net);
	rf_map_free(&context->peers);
	rf_timers_free(&context->timers);
	context->net = NULL;
}

static void turn_one(rf_context *context, uint64_t timeout_ns)
{
	struct rf_net_event events[64];
	int count = 0;

	CHECK(context->net->ops->poll(context->net, false, timeout_ns, events, 64, &count) ==
	      RF_OK);
	rf_net_dispatch(context->net, events, count);
	rf_timers_run(&context->timers, rf_now(context));
}

static void turn(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		if (worlds[i].context.net)
			turn_one(&worlds[i].context, 100000);
}

/* The watchdog ends what never comes. */
#define UNTIL(condition)             \
	do {                         \
		while (!(condition)) \
			turn();      \
	} while (0)

static uint64_t now_ms(void)
{
	return rf_now(&worlds[0].context) / RF_MS;
}

static void turn_for(uint64_t ms)
{
	uint64_t end = now_ms() + ms;

	UNTIL(now_ms() >= end);
}

static struct rf_addr addr_of(const struct world *world)
{
	return (struct rf_addr){.family = 4, .port = world->context.port, .ip = {127, 0, 0, 1}};
}

static struct rf_peer *peer_of(struct world *at, struct world *of, bool dialable)
{
	struct rf_addr addr = addr_of(of);
	struct rf_peer *peer;

	CHECK(rf_peer_get(&at->context, of->context.id, &addr, dialable ? 1 : 0, &peer) == RF_OK);
	return peer;
}

static void send_seq(struct rf_peer *peer, uint64_t seq)
{
	struct rf_segment segment = {.type = RF_SEGMENT_CREDIT, .seq = seq};

	CHECK(rf_control_send(peer, &segment, NULL, 0) == RF_OK);
}

static int streams_of(struct rf_peer *peer)
{
	int count = 0;

	if (peer->control)
		RF_LIST_EACH(node, &peer->control->streams)
	count++;
	return count;
}

/* Cuts the connections of a peer as a network would, without a word. */
static void cut(struct rf_peer *peer)
{
	RF_LIST_EACH(node, &peer->control->streams)
	RF_CONTAINER(node, struct rf_control_stream, node)->broken = true;
	rf_control_look(peer->control);
}

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

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
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
	uint8_t *payload = malloc(3000000);
	uint64_t to_a = 0, to_b = 0;
	size_t tables = 0;

	for (size_t i = 0; i < 3000000; i++)
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
			CHECK(rf_control_send(at_a, &table, payload, 3000000) == RF_OK);
			tables++;
		}
		for (int i = 0; i < round % 5; i++)
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
	CHECK(strstr(a->death_reason, "closed") && strstr(a->death_reason, "127.0.0.1"));
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

/* A forked child has all descriptors too: the far end must not mistake it for its parent. */
static void a_forked_child_keeps_nothing_open(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	int ends[2];
	char byte;
	pid_t child;

	rf_control_hold(peer, true);
	UNTIL(rf_control_is_up(peer));
	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		rf_server_abandon(&a->context);
		rf_server_abandon(&b->context);
		close(ends[1]);
		while (read(ends[0], &byte, 1) > 0)
			continue;
		_exit(0);
	}
	close(ends[0]);
	world_stop(b);
	UNTIL(a->deaths);
	CHECK(kill(child, 0) == 0);
	close(ends[1]);
	CHECK(waitpid(child, NULL, 0) == child);
	rf_control_release(peer);
	rf_peer_put(peer);
	world_stop(a);
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
	CHECK(!a->context.peers.count);
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

struct outcome {
	bool done;
	int status;
	struct rf_peer *peer;
	struct rf_stream *stream;
	char reason[256];
};

static void on_rendezvous(void *user, int status, struct rf_peer *peer, const char *reason)
{
	struct outcome *outcome = user;

	CHECK(!outcome->done);
	outcome->done = true;
	outcome->status = status;
	outcome->peer = peer;
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
}

static void on_data(void *user, unsigned lane, int status, struct rf_stream *stream,
		    const char *reason)
{
	struct outcome *outcome = user;

	CHECK(!outcome->done && lane == 3);
	outcome->done = true;
	outcome->status = status;
	outcome->stream = stream;
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
}

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

/* ---- strangers ------------------------------------------------------------------------------ */

static int connect_to(const struct world *world)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(world->context.port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Whether the other side has ended it; what it said is thrown away or kept. */
static bool is_closed(int fd, uint8_t *kept, size_t *bytes)
{
	uint8_t bin[4096];
	ssize_t n = recv(fd, bin, sizeof(bin), 0);

	if (n > 0 && kept) {
		memcpy(kept + *bytes, bin, (size_t)n);
		*bytes += (size_t)n;
	}
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void garbage_is_turned_away(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	unsigned seed = (unsigned)time(NULL);
	const char *given = getenv("RINGFOLD_TEST_SEED");
	uint8_t noise[2048];

	if (given)
		seed = (unsigned)strtoul(given, NULL, 10);
	printf("garbage: RINGFOLD_TEST_SEED=%u\n", seed);
	srand(seed);
	for (int round = 0; round < 300; round++) {
		struct rf_hello hello = {.from = {1, 2}, .purpose = RF_PURPOSE_CONTROL};
		struct rf_handshake good;
		size_t bytes = (size_t)rand() % sizeof(noise);
		int fd = connect_to(b);

		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)rand();
		if (round % 3) {
			/* A hello with something wrong in it. */
			hello.session = 1;
			hello.to = b->context.id;
			rf_handshake_say(&good, RF_SEGMENT_HELLO, &hello);
			memcpy(noise, good.out, good.out_bytes);
			noise[(size_t)rand() % 64] ^= (uint8_t)(1 + rand() % 255);
			bytes = 64 + (size_t)rand() % 400;
		}
		CHECK(send(fd, noise, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
		shutdown(fd, SHUT_WR);
		UNTIL(is_closed(fd, NULL, NULL));
		close(fd);
	}
	CHECK(b->log_lines < 20);
	send_seq(peer, 0);
	UNTIL(b->received == 1);
	CHECK(!b->deaths || b->last_state != RF_PEER_ALIVE);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void a_flood_of_strangers_starves_nobody(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer;
	int fds[RF_STRANGERS_MAX + 200], count = 0;

	for (; count < RF_STRANGERS_MAX + 200; count++) {
		fds[count] = connect_to(b);
		if (count % 50 == 0)
			turn();
		CHECK(b->context.server->stranger_count <= RF_STRANGERS_MAX);
	}
	peer = peer_of(a, b, true);
	send_seq(peer, 0);
	UNTIL(b->received == 1);
	/* The oldest went first. */
	CHECK(is_closed(fds[0], NULL, NULL) && !is_closed(fds[count - 1], NULL, NULL));
	CHECK(b->log_lines < 20);
	/* And the rest are not waited for for ever. */
	UNTIL(b->context.server->stranger_count == 0);
	for (int i = 0; i < count; i++)
		close(fds[i]);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void no_descriptors_left_is_survived(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	struct rlimit was, low;
	int waiting[4], probe, turns = 0;

	for (int i = 0; i < 4; i++)
		waiting[i] = connect_to(b);
	CHECK(getrlimit(RLIMIT_NOFILE, &was) == 0);
	probe = dup(0);
	close(probe);
	low = was;
	low.rlim_cur = (rlim_t)probe;
	CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
	send_seq(peer, 0); /* cannot even make a socket */
	while (turns++ < 50)
		turn();
	CHECK(strstr(b->log, "ulimit -n") && b->log_lines < 10);
	CHECK(!a->deaths);
	CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
	UNTIL(b->received == 1);
	for (int i = 0; i < 4; i++)
		close(waiting[i]);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

/* ---- versions ------------------------------------------------------------------------------- */

static void another_version_is_told_so(void)
{
	struct world *b = world_start(0, "");
	struct rf_hello hello = {.from = {1, 2}, .purpose = RF_PURPOSE_CONTROL, .session = 1};
	struct rf_handshake future;
	uint8_t answer[4096];
	size_t bytes = 0;
	int fd = connect_to(b);

	rf_handshake_say(&future, RF_SEGMENT_HELLO, &hello);
	future.out[0] = 9;
	future.out[1] = 200; /* nothing else of it is looked at */
	CHECK(send(fd, future.out, sizeof(future.out), MSG_NOSIGNAL) > 0);
	UNTIL(is_closed(fd, answer, &bytes));
	close(fd);
	answer[bytes] = 0;
	CHECK(bytes > 64 && answer[0] == RF_WIRE_VERSION && answer[1] == RF_SEGMENT_REFUSE);
	CHECK(strstr((char *)answer + 68, "version 1") && strstr((char *)answer + 68, "speak 9"));
	CHECK(strstr(b->log, "version 9") && strstr(b->log, "speaks 1"));
	world_stop(b);
}

/* A listener that answers whatever comes with some bytes. */
static void answer_dial_with(const uint8_t *bytes, size_t count, uint64_t timeout_ms,
			     struct outcome *outcome)
{
	struct world *a = &worlds[0];
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct rf_addr addr = {.family = 4, .ip = {127, 0, 0, 1}};
	struct rf_dial *dial;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 8) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
	addr.port = ntohs(at.sin_port);
	memset(outcome, 0, sizeof(*outcome));
	CHECK(rf_dial_rendezvous(&a->context, &addr, 1, rf_now(&a->context) + timeout_ms * RF_MS,
				 on_rendezvous, outcome, &dial) == RF_OK);
	while (!outcome->done) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			CHECK(send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
			shutdown(fd, SHUT_WR);
			while (!outcome->done && !is_closed(fd, NULL, NULL))
				turn();
			close(fd);
		}
		turn();
	}
	close(listener);
}

static void dials_meet_other_versions_and_garbage(void)
{
	struct world *a = world_start(0, "");
	struct rf_handshake said = {0};
	struct outcome outcome;

	rf_handshake_refuse(&said, RF_REFUSAL_VERSION, "whatever");
	said.out[0] = 7;
	answer_dial_with(said.out, said.out_bytes, 5000, &outcome);
	CHECK(outcome.status == RF_ERR_VERSION);
	CHECK(strstr(outcome.reason, "version 7") && strstr(outcome.reason, "speaks 1"));
	CHECK(strstr(a->log, "version 7"));

	said.out[0] = 1;
	said.out[8] = 'R';
	answer_dial_with(said.out, said.out_bytes, 300, &outcome);
	CHECK(outcome.status == RF_ERR_TIMEOUT && strstr(outcome.reason, "no ringfold process"));

	rf_handshake_refuse(&said, RF_REFUSAL_DEAD, "rest in\npeace");
	answer_dial_with(said.out, said.out_bytes, 5000, &outcome);
	CHECK(outcome.status == RF_ERR_RANK_DEAD && strstr(outcome.reason, "rest in?peace"));
	world_stop(a);
}

static void ports_are_taken_from_the_configuration(void)
{
	struct world *a = world_start(0, ""), *b = &worlds[1];
	char range[32];

	snprintf(range, sizeof(range), "%u-%u", a->context.port, a->context.port);
	memset(b, 0, sizeof(*b));
	b->context.logger = (struct rf_logger){RF_LOG_DEBUG, on_log, b};
	CHECK(rf_net_posix_create(&b->context.net) == RF_OK);
	snprintf(b->context.config.port, sizeof(range), "%s", range);
	CHECK(rf_server_start(&b->context) == RF_ERR_SYSTEM && strstr(b->log, range));
	static const char *const wrong[] = {"x", "0", "70000", "7000-", "8000-7000", "1-2-3", "-5"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(b->context.config.port, sizeof(range), "%s", wrong[i]);
		CHECK(rf_server_start(&b->context) == RF_ERR_CONFIG);
	}
	CHECK(!b->context.server && !b->context.listener);
	b->context.net->ops->destroy(b->context.net);
	b->context.net = NULL;
	world_stop(a);
}

/* ---- the list ------------------------------------------------------------------------------- */

#define TESTS(X)                                   \
	X(segments_arrive_in_order)                \
	X(both_dial_at_once)                       \
	X(big_payloads_arrive)                     \
	X(a_lost_stream_loses_and_doubles_nothing) \
	X(a_dead_process_is_dead_after_redialling) \
	X(a_forked_child_keeps_nothing_open)       \
	X(nobody_there_is_a_death)                 \
	X(a_goodbye_is_no_death)                   \
	X(both_leave_at_once)                      \
	X(idle_streams_close_and_come_back)        \
	X(a_violation_ends_the_peer)               \
	X(suspicion_finds_the_living_and_the_dead) \
	X(a_rendezvous_learns_who_is_there)        \
	X(a_rendezvous_waits_for_its_deadline)     \
	X(a_late_listener_is_found)                \
	X(data_lanes_pass_hello)                   \
	X(garbage_is_turned_away)                  \
	X(a_flood_of_strangers_starves_nobody)     \
	X(no_descriptors_left_is_survived)         \
	X(another_version_is_told_so)              \
	X(dials_meet_other_versions_and_garbage)   \
	X(ports_are_taken_from_the_configuration)

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
#define X(name) {#name, name},
	TESTS(X)
#undef X
};

static void too_late(int number)
{
	(void)number;
	(void)!write(2, "watchdog: ", 10);
	(void)!write(2, current, strlen(current));
	(void)!write(2, "\n", 1);
	_exit(1);
}

/* Without arguments all; else those named. */
int main(int argc, char **argv)
{
	signal(SIGALRM, too_late);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		bool wanted = argc < 2;

		for (int a = 1; a < argc; a++)
			wanted |= strcmp(argv[a], tests[i].name) == 0;
		if (!wanted)
			continue;
		current = tests[i].name;
		alarm(WATCHDOG_S);
		tests[i].run();
		printf("ok %s\n", current);
		fflush(stdout);
	}
	return 0;
}
