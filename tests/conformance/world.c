/* SPDX-License-Identifier: BSD-3-Clause */
/* The model that plays the engine: see world.h. */
#include "tests/conformance/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WATCHDOG_SECONDS = 120 };

/* ---- payloads ---- */

static void fill_payload(const struct message *m, uint8_t *memory)
{
	uint64_t state =
		(m->index * 64 + m->from * 16 + m->to * 4 + m->lane + 1) * 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < m->bytes; i += 8) {
		uint64_t word = next_random(&state);

		memcpy(memory + i, &word, m->bytes - i < 8 ? m->bytes - i : 8);
	}
}

/* Of exactly the size, so that a sanitizer sees a touch beyond it. */
static uint8_t *allocate(size_t bytes)
{
	uint8_t *memory = malloc(bytes ? bytes : 1);

	REQUIRE(memory != NULL);
	return memory;
}

static bool content_is_right(const struct message *m, const uint8_t *memory)
{
	uint8_t *expected = allocate(m->bytes);
	bool right;

	fill_payload(m, expected);
	right = !m->bytes || !memcmp(expected, memory, m->bytes);
	free(expected);
	return right;
}

/* Overwritten first: without a sanitizer, what is sent late is wrong and so seen. */
static void let_go(uint8_t **memory, size_t bytes)
{
	if (*memory)
		memset(*memory, 0xdd, bytes);
	free(*memory);
	*memory = NULL;
}

/* ---- sending ---- */

struct message *world_send(struct world *world, unsigned from, unsigned to, unsigned lane,
			   size_t bytes, bool more)
{
	struct route *route = &world->ends[from].routes[to][lane];
	struct message *m = calloc(1, sizeof(*m));

	size_t most = world->ends[from].transport->caps.segment_max_bytes;

	REQUIRE(m != NULL);
	most = most < world->harness->most_bytes ? most : world->harness->most_bytes;
	bytes = bytes < most ? bytes : most;
	m->from = from;
	m->to = to;
	m->lane = lane;
	m->index = route->count++;
	m->bytes = bytes;
	m->more = more;
	m->payload = allocate(bytes);
	fill_payload(m, m->payload);
	if (route->last)
		route->last->next = m;
	else
		route->first = m;
	route->last = m;
	if (!route->unposted)
		route->unposted = m;
	if (!world->hold_posts)
		world_post(world);
	return m;
}

static void describe(const struct message *m, struct rf_transport_send *send)
{
	const struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = RF_SEGMENT_DATA,
		.channel = (uint16_t)m->lane,
		.comm = m->from * 256 + m->to,
		.seq = m->index,
		.bytes = (uint32_t)m->bytes,
		.fingerprint = {.count = m->index * 3},
	};

	rf_segment_encode(&segment, send->header);
	send->payload = m->payload;
	send->bytes = m->bytes;
	send->lane = m->lane;
	send->more = m->more;
	send->cookie = m->index * MAX_LANES + m->lane;
}

/* Posts the next of a route; false: none, or it must wait. */
static bool post_next(struct end *end, struct route *route, unsigned to)
{
	struct rf_transport_send send;
	struct message *m = route->unposted;
	int status;

	while (m && m->state == MESSAGE_WITHDRAWN)
		m = route->unposted = m->next;
	if (!m || route->refused || end->down[to] || end->gone[to])
		return false;
	describe(m, &send);
	status = end->transport->ops->send(end->to[to], &send);
	/* The header is copied. */
	memset(send.header, 0xdd, sizeof(send.header));
	if (status == RF_ERR_AGAIN) {
		route->refused = true;
		return false;
	}
	REQUIRE(status == RF_OK || status == RF_SENT_AT_ONCE);
	m->state = MESSAGE_POSTED;
	route->unposted = m->next;
	if (m->bytes <= end->transport->caps.inline_bytes)
		REQUIRE(status == RF_SENT_AT_ONCE);
	if (status == RF_SENT_AT_ONCE) {
		m->state = MESSAGE_SENT;
		let_go(&m->payload, m->bytes);
	}
	return true;
}

void world_post(struct world *world)
{
	for (unsigned i = 0; i < world->end_count; i++)
		for (unsigned to = 0; to < world->end_count; to++)
			for (unsigned lane = 0; lane < world->lanes; lane++)
				while (post_next(&world->ends[i], &world->ends[i].routes[to][lane],
						 to))
					;
}

int world_withdraw(struct world *world, struct message *m)
{
	struct end *end = &world->ends[m->from];
	int status = RF_OK;

	if (m->state == MESSAGE_POSTED)
		status = end->transport->ops->withdraw(end->to[m->to],
						       m->index * MAX_LANES + m->lane);
	if (status == RF_OK && m->state != MESSAGE_SENT) {
		m->state = MESSAGE_WITHDRAWN;
		let_go(&m->payload, m->bytes);
	}
	return status;
}

/* ---- receiving ---- */

/* The next of its lane; what was withdrawn may be missing. */
static struct message *expected_message(struct world *world, const struct rf_receive *receive)
{
	struct route *route =
		&world->ends[receive->peer->other].routes[receive->peer->self][receive->lane];
	struct rf_segment segment;
	struct message *m = route->first;

	REQUIRE(rf_segment_decode(receive->header, &segment) == RF_OK);
	REQUIRE(segment.type == RF_SEGMENT_DATA && segment.bytes == receive->bytes);
	REQUIRE(segment.comm == receive->peer->other * 256 + receive->peer->self);
	REQUIRE(segment.channel == receive->lane);
	REQUIRE(segment.seq >= route->next_arrival && segment.seq < route->count);
	REQUIRE(segment.fingerprint.count == segment.seq * 3);
	while (m->index != segment.seq) {
		if (m->index >= route->next_arrival)
			REQUIRE(m->state == MESSAGE_WITHDRAWN);
		m = m->next;
	}
	route->next_arrival = m->index + 1;
	REQUIRE(m->bytes == receive->bytes && m->state != MESSAGE_QUEUED);
	return m;
}

static void segment_arrived(struct world *world, struct end *end, struct rf_receive *receive)
{
	struct arrival *arrival = calloc(1, sizeof(*arrival));

	REQUIRE(arrival != NULL);
	arrival->receive = receive;
	arrival->message = expected_message(world, receive);
	arrival->message->arrived = true;
	arrival->next = end->arrivals;
	end->arrivals = arrival;
	receive->user = arrival;
	arrival->answer = world->choose(world, arrival);
	if (arrival->answer != ANSWER_LATER)
		world_answer(world, arrival, arrival->answer);
}

bool world_borrows(const struct world *world)
{
	return world->borrows;
}

void world_answer(struct world *world, struct arrival *arrival, enum answer answer)
{
	struct end *end = &world->ends[arrival->message->to];
	const struct rf_transport_ops *ops = end->transport->ops;

	if (answer == ANSWER_PIECES && !world_borrows(world))
		answer = ANSWER_INTO;
	arrival->answer = answer;
	arrival->answered = true;
	if (answer == ANSWER_DISCARD) {
		world_discard(world, arrival);
		return;
	}
	arrival->memory = allocate(arrival->message->bytes);
	memset(arrival->memory, 0xcc, arrival->message->bytes);
	if (answer == ANSWER_INTO)
		REQUIRE(ops->receive_into(arrival->receive, arrival->memory) == RF_OK);
	else
		REQUIRE(ops->receive_pieces(arrival->receive) == RF_OK);
}

struct arrival *world_find(struct world *world, unsigned end, const struct message *message)
{
	struct arrival *arrival = world->ends[end].arrivals;

	while (arrival && arrival->message != message)
		arrival = arrival->next;
	return arrival;
}

static void remove_arrival(struct end *end, struct arrival *arrival)
{
	struct arrival **at = &end->arrivals;

	while (*at != arrival)
		at = &(*at)->next;
	*at = arrival->next;
	let_go(&arrival->memory, arrival->message->bytes);
	free(arrival);
}

void world_discard(struct world *world, struct arrival *arrival)
{
	struct end *end = &world->ends[arrival->message->to];

	end->transport->ops->discard(arrival->receive);
	arrival->message->discarded = true;
	remove_arrival(end, arrival);
}

static void piece_arrived(struct world *world, const struct rf_transport_event *event)
{
	struct arrival *arrival = event->receive->user;
	size_t total = arrival->message->bytes;

	REQUIRE(arrival->answer == ANSWER_PIECES && !arrival->piece);
	REQUIRE(event->bytes > 0 && event->offset == arrival->got);
	REQUIRE(event->bytes <= total - arrival->got);
	REQUIRE(event->bytes % 64 == 0 || event->offset + event->bytes == total);
	arrival->piece = event->piece;
	arrival->piece_bytes = event->bytes;
	if (!world->hold_pieces)
		world_release(world, arrival);
}

/* The piece is read only now: it must have stayed what it was while it was borrowed. */
void world_release(struct world *world, struct arrival *arrival)
{
	struct end *end = &world->ends[arrival->message->to];

	memcpy(arrival->memory + arrival->got, arrival->piece, arrival->piece_bytes);
	arrival->got += arrival->piece_bytes;
	arrival->piece = NULL;
	end->transport->ops->release(arrival->receive);
}

void world_release_all(struct world *world)
{
	world->hold_pieces = false;
	for (unsigned i = 0; i < world->end_count; i++)
		for (struct arrival *a = world->ends[i].arrivals; a; a = a->next)
			if (a->piece)
				world_release(world, a);
}

static void segment_delivered(struct end *end, struct arrival *arrival)
{
	REQUIRE(arrival->answered && !arrival->piece);
	if (arrival->answer == ANSWER_PIECES)
		REQUIRE(arrival->got == arrival->message->bytes);
	REQUIRE(content_is_right(arrival->message, arrival->memory));
	arrival->message->delivered = true;
	remove_arrival(end, arrival);
}

/* ---- events ---- */

static void writable_again(struct end *end, unsigned to)
{
	for (unsigned lane = 0; lane < MAX_LANES; lane++)
		end->routes[to][lane].refused = false;
}

static void segment_sent(struct end *end, const struct rf_transport_event *e)
{
	unsigned to = e->peer->other, lane = (unsigned)(e->cookie % MAX_LANES);
	struct message *m = end->routes[to][lane].first;

	if (e->cookie == PUT_COOKIE) {
		end->put_done = true;
		writable_again(end, to);
		return;
	}
	while (m && m->index != e->cookie / MAX_LANES)
		m = m->next;
	REQUIRE(m != NULL && m->state == MESSAGE_POSTED);
	m->state = MESSAGE_SENT;
	let_go(&m->payload, m->bytes);
	writable_again(end, to);
}

/* Nothing of the peer is touched any more: all its memory is given back. */
static void drop_arrivals(struct end *end, unsigned other)
{
	struct arrival *next;

	for (struct arrival *a = end->arrivals; a; a = next) {
		next = a->next;
		if (a->message->from == other)
			remove_arrival(end, a);
	}
}

static void drop_messages(struct end *end, unsigned to)
{
	for (unsigned lane = 0; lane < MAX_LANES; lane++)
		for (struct message *m = end->routes[to][lane].first; m; m = m->next)
			let_go(&m->payload, m->bytes);
}

static void peer_down(struct end *end, const struct rf_transport_event *event)
{
	unsigned other = event->peer->other;

	REQUIRE(!end->down[other]);
	REQUIRE(event->status < 0 && event->status != RF_ERR_AGAIN && event->reason[0]);
	REQUIRE(memchr(event->reason, 0, sizeof(event->reason)) != NULL);
	REQUIRE(event->endpoint == end->to[other]);
	end->down[other] = true;
	end->down_event[other] = *event;
	drop_arrivals(end, other);
	drop_messages(end, other);
	if (end->to[other])
		end->transport->ops->close(end->to[other]);
	end->to[other] = NULL;
}

static void handle(struct world *world, struct end *end, const struct rf_transport_event *event)
{
	unsigned other = event->peer->other;

	REQUIRE(event->peer == &end->peers[other]);
	REQUIRE(!end->down[other]);
	switch (event->kind) {
	case RF_EVENT_SEGMENT:
		REQUIRE(event->receive->peer == event->peer);
		REQUIRE(event->receive->lane < world->lanes);
		segment_arrived(world, end, event->receive);
		break;
	case RF_EVENT_PIECE:
		piece_arrived(world, event);
		break;
	case RF_EVENT_DELIVERED:
		segment_delivered(end, event->receive->user);
		break;
	case RF_EVENT_SENT:
		REQUIRE(event->endpoint == end->to[other]);
		segment_sent(end, event);
		break;
	case RF_EVENT_WRITABLE:
		REQUIRE(event->endpoint == end->to[other]);
		writable_again(end, other);
		break;
	case RF_EVENT_DOWN:
		peer_down(end, event);
		break;
	default:
		REQUIRE(!"an event of no known kind");
	}
}

static bool poll_transport(struct world *world, struct end *end)
{
	struct rf_transport_event event;
	bool happened = false;

	/* A bound, so that one end cannot keep the others from running. */
	for (int i = 0; i < 64; i++) {
		int status;

		memset(&event, 0xee, sizeof(event));
		status = end->transport->ops->poll(end->transport, &event);
		REQUIRE(status == RF_OK || status == RF_ERR_AGAIN);
		if (status != RF_OK)
			break;
		happened = true;
		handle(world, end, &event);
	}
	return happened;
}

static bool poll_net(struct end *end)
{
	struct rf_net_event events[16];
	int count = 0;

	if (end->net->ops->poll(end->net, false, 0, events, 16, &count) != RF_OK)
		return false;
	rf_net_dispatch(end->net, events, count);
	return count > 0;
}

bool world_step(struct world *world)
{
	bool happened = false;

	for (unsigned i = 0; i < world->end_count; i++) {
		struct end *end = &world->ends[i];

		if (!end->transport)
			continue;
		happened |= poll_net(end);
		happened |= poll_transport(world, end);
		happened |= end->transport->ops->arm(end->transport) != RF_OK;
	}
	if (!world->hold_posts)
		world_post(world);
	return happened;
}

static double seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void world_until(struct world *world, bool (*holds)(struct world *world), const char *what)
{
	double end = seconds_now() + WATCHDOG_SECONDS;

	while (!holds(world)) {
		if (!world_step(world))
			world->harness->idle(world);
		if (seconds_now() > end)
			fail_at(__FILE__, __LINE__, what);
	}
}

void world_settle(struct world *world)
{
	double end = seconds_now() + WATCHDOG_SECONDS;
	int quiet = 0;

	while (quiet < 40) {
		bool happened = world_step(world);

		happened = happened || world->harness->idle(world);
		quiet = happened ? 0 : quiet + 1;
		if (seconds_now() > end)
			fail_at(__FILE__, __LINE__, "an end that has nothing to do may sleep");
	}
}

bool world_down(struct world *world, unsigned at, unsigned other)
{
	return world->ends[at].down[other];
}

/* ---- life ---- */

struct world *world_make(const struct harness *harness, unsigned ends, unsigned lanes,
			 size_t receive_buffer_bytes)
{
	struct world *world = calloc(1, sizeof(*world));

	REQUIRE(world != NULL && ends <= MAX_ENDS && lanes <= MAX_LANES);
	world->harness = harness;
	world->end_count = ends;
	world->lanes = lanes;
	world->choose = any_answer;
	world->random = (suite_seed + worlds_made++ * 0x10001) * 2 + 1;
	for (unsigned i = 0; i < ends; i++)
		for (unsigned other = 0; other < ends; other++)
			world->ends[i].peers[other] = (struct rf_transport_peer){i, other};
	harness->make(world, receive_buffer_bytes);
	world->borrows = world->ends[0].transport->caps.borrow;
	return world;
}

void world_kill(struct world *world, unsigned i)
{
	struct end *end = &world->ends[i];

	if (!end->transport)
		return;
	end->transport->ops->destroy(end->transport);
	end->transport = NULL;
	for (unsigned other = 0; other < world->end_count; other++) {
		drop_arrivals(end, other);
		drop_messages(end, other);
		end->to[other] = NULL;
		end->gone[other] = true;
	}
}

void world_destroy(struct world *world)
{
	for (unsigned i = 0; i < world->end_count; i++)
		world_kill(world, i);
	world->harness->unmake(world);
	for (unsigned i = 0; i < world->end_count; i++)
		for (unsigned to = 0; to < world->end_count; to++)
			for (unsigned lane = 0; lane < world->lanes; lane++)
				while (world->ends[i].routes[to][lane].first) {
					struct message *m = world->ends[i].routes[to][lane].first;

					world->ends[i].routes[to][lane].first = m->next;
					free(m);
				}
	free(world);
}
