/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing, dying, strangers' bytes: what was sent arrives, the rest is told once and touches
 * nothing. */
#include "tests/conformance/world.h"

#include <stdlib.h>
#include <string.h>

static void close_endpoint(struct world *world, unsigned at, unsigned to)
{
	struct end *end = &world->ends[at];

	end->transport->ops->close(end->to[to]);
	end->to[to] = NULL;
	end->gone[to] = true;
	/* The caller's memory is free from here on. */
	for (unsigned lane = 0; lane < MAX_LANES; lane++)
		for (struct message *m = end->routes[to][lane].first; m; m = m->next) {
			if (m->payload)
				memset(m->payload, 0xdd, m->bytes);
			free(m->payload);
			m->payload = NULL;
		}
}

static bool posted_ones_arrived(struct world *world)
{
	for (unsigned lane = 0; lane < world->lanes; lane++)
		for (struct message *m = world->ends[0].routes[1][lane].first; m; m = m->next)
			if (m->state != MESSAGE_QUEUED && !m->delivered && !m->discarded)
				return false;
	return true;
}

static bool one_is_down(struct world *world)
{
	return world_down(world, 1, 0);
}

static bool zero_is_down(struct world *world)
{
	return world_down(world, 0, 1);
}

/* Everything that was posted arrives, and then the receiver hears of the end. */
static void close_is_orderly(const struct harness *harness)
{
	for (unsigned lanes = 1; lanes <= 3; lanes++) {
		struct world *world = world_make(harness, 2, lanes, 0);

		for (unsigned i = 0; i < 24; i++)
			world_send(world, 0, 1, i % lanes, below(world, 3 << 20), i & 1);
		close_endpoint(world, 0, 1);
		world_until(world, posted_ones_arrived, "what was sent before close arrives");
		if (harness->dial)
			world_until(world, one_is_down, "the receiver hears of the close");
		world_destroy(world);
	}
}

/* The end of what comes does not cut off what goes. */
static void a_peer_that_closed_still_gets_what_is_on_its_way(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);

	world->choose = always_later;
	for (unsigned i = 0; i < 12; i++)
		world_send(world, 0, 1, 0, 1 << 20, false);
	world_send(world, 1, 0, 0, 5000, false);
	close_endpoint(world, 1, 0);
	world_settle(world);
	world->choose = any_answer;
	for (struct arrival *a = world->ends[0].arrivals; a; a = a->next)
		world_answer(world, a, ANSWER_INTO);
	world_settle(world);
	REQUIRE(world->ends[1].arrivals != NULL);
	world_answer(world, world->ends[1].arrivals, ANSWER_PIECES);
	world_until(world, posted_ones_arrived, "what was on its way arrives");
	world_destroy(world);
}

/* As a process that has finished first: it closes, forgets, and is gone at once. */
static void the_last_words_of_one_that_leaves_are_heard(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 2, 0);

	world->choose = always_later;
	for (unsigned i = 0; i < 8; i++)
		world_send(world, 0, 1, i % 2, 150000, false);
	close_endpoint(world, 0, 1);
	world->ends[0].transport->ops->forget(world->ends[0].transport, &world->ends[0].peers[1]);
	world_settle(world);
	world->choose = any_answer;
	for (struct arrival *a = world->ends[1].arrivals, *next; a; a = next) {
		next = a->next;
		world_answer(world, a, ANSWER_INTO);
	}
	world_until(world, posted_ones_arrived, "the last words arrive");
	world_until(world, one_is_down, "and then the end");
	world_destroy(world);
}

/* All memory of the peer goes back to the allocator when DOWN is fetched; the model requires that
 * no event follows. */
static void kill_after(const struct harness *harness, unsigned steps, unsigned victim,
		       bool hold_pieces)
{
	struct world *world = world_make(harness, 3, 2, 16384);

	world->hold_pieces = hold_pieces;
	for (unsigned i = 0; i < 90; i++) {
		unsigned from = (unsigned)below(world, 3), to = (unsigned)below(world, 2);

		world_send(world, from, to + (to >= from), (unsigned)below(world, 2),
			   below(world, 1 << 20), below(world, 2));
	}
	for (unsigned i = 0; i < steps; i++)
		world_step(world);
	world_kill(world, victim);
	for (unsigned i = 0; i < 3; i++)
		while (i != victim && !world_down(world, i, victim)) {
			world_release_all(world);
			if (!world_step(world))
				world->harness->idle(world);
		}
	/* The two others are not touched by it. */
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < 3; j++)
			REQUIRE(i == victim || j == victim || !world_down(world, i, j));
	world_settle(world);
	world_destroy(world);
}

static void a_death_is_told_once_and_nothing_is_touched(const struct harness *harness)
{
	for (unsigned steps = 0; steps < 12; steps++)
		kill_after(harness, steps * steps / 3, steps % 3, steps & 1);
}

/* An idle peer's end is told too. */
static void an_idle_peer_that_dies_is_noticed(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);

	world_settle(world);
	world_kill(world, 1);
	world_until(world, zero_is_down, "an idle peer's death is noticed");
	world_settle(world);
	world_destroy(world);
}

static void nothing_is_touched_after_destroy(const struct harness *harness)
{
	for (unsigned steps = 0; steps < 20; steps++) {
		struct world *world = world_make(harness, 3, 2, 16384);

		world->choose = steps % 3 ? any_answer : always_later;
		world->hold_pieces = steps % 2;
		for (unsigned i = 0; i < 60; i++) {
			unsigned from = (unsigned)below(world, 3), to = (unsigned)below(world, 2);

			world_send(world, from, to + (to >= from), (unsigned)below(world, 2),
				   below(world, 1 << 20), below(world, 2));
		}
		for (unsigned i = 0; i < steps; i++)
			world_step(world);
		world_destroy(world);
	}
}

/* Receives end as by discard; the way to the peer stays. */
static void a_forgotten_peer_is_forgotten(const struct harness *harness)
{
	for (unsigned steps = 0; steps < 10; steps++) {
		struct world *world = world_make(harness, 2, 1, 16384);
		struct end *end = &world->ends[1];
		struct arrival *next;

		world->hold_pieces = steps % 2;
		for (unsigned i = 0; i < 20; i++)
			world_send(world, 0, 1, 0, below(world, 1 << 20), false);
		for (unsigned i = 0; i < steps; i++)
			world_step(world);
		end->transport->ops->forget(end->transport, &end->peers[0]);
		for (struct arrival *a = end->arrivals; a; a = next) {
			next = a->next;
			if (a->memory)
				memset(a->memory, 0xdd, a->message->bytes);
			free(a->memory);
			free(a);
		}
		end->arrivals = NULL;
		world->hold_pieces = false;
		world_send(world, 1, 0, 0, 700000, false);
		for (unsigned i = 0; i < 200; i++)
			world_step(world);
		REQUIRE(end->arrivals == NULL);
		world_settle(world);
		world_destroy(world);
	}
}

/* ---- garbage ---- */

/* Until the far end has had enough of it. */
static void write_all(struct world *world, struct rf_stream *stream, const uint8_t *bytes,
		      size_t count)
{
	while (count && !world_down(world, 1, 0)) {
		struct iovec iov = {(void *)bytes, count};
		size_t sent = 0;
		int status = stream->ops->send(stream, &iov, 1, &sent);

		REQUIRE(status == RF_OK || status == RF_ERR_AGAIN);
		if (status == RF_OK) {
			bytes += sent;
			count -= sent;
		}
		if (!world_step(world))
			world->harness->idle(world);
	}
}

/* A good segment and then bytes that are none, in portions; down with a reason. */
static void expect_down_after(const struct harness *harness, const uint8_t *bytes, size_t count,
			      size_t portion, int status, bool end_of_file)
{
	struct world *world = world_make(harness, 2, 1, 0);
	struct rf_stream *stream;

	world_send(world, 0, 1, 0, 3333, false);
	world_until(world, all_delivered, "a good segment arrives");
	/* Another lane than the sender's own. */
	world->lanes = 2;
	stream = harness->dial(world, 0, 1, 1);
	for (size_t at = 0; at < count; at += portion)
		write_all(world, stream, bytes + at, count - at < portion ? count - at : portion);
	if (end_of_file) {
		stream->ops->close(stream);
		stream = NULL;
	}
	world_until(world, one_is_down, "bytes that are no segment bring the peer down");
	REQUIRE(world->ends[1].down_event[0].status == status);
	world_settle(world);
	if (stream)
		stream->ops->close(stream);
	world_destroy(world);
}

static const struct rf_segment good = {
	.version = RF_WIRE_VERSION, .type = RF_SEGMENT_DATA, .comm = 1, .channel = 1};

static void garbage_brings_the_peer_down(const struct harness *harness)
{
	uint8_t bytes[256], header[RF_SEGMENT_HEADER_BYTES];
	uint64_t random = suite_seed * 2 + 1;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(next_random(&random) >> 40);
	bytes[0] = 'G';
	expect_down_after(harness, bytes, sizeof(bytes), 256, RF_ERR_VERSION, false);
	expect_down_after(harness, bytes, sizeof(bytes), 7, RF_ERR_VERSION, false);
	rf_segment_encode(&good, header);
	header[1] = RF_SEGMENT_TYPE_COUNT;
	expect_down_after(harness, header, sizeof(header), 64, RF_ERR_PROTOCOL, false);
	rf_segment_encode(&good, header);
	header[35] = 0x7f;
	expect_down_after(harness, header, sizeof(header), 63, RF_ERR_PROTOCOL, false);
	rf_segment_encode(&good, header);
	header[2] = 32;
	expect_down_after(harness, header, sizeof(header), 1, RF_ERR_PROTOCOL, false);
}

static void half_a_header_brings_the_peer_down(const struct harness *harness)
{
	uint8_t header[RF_SEGMENT_HEADER_BYTES];

	rf_segment_encode(&good, header);
	expect_down_after(harness, header, 1, 1, RF_ERR_NETWORK, true);
	expect_down_after(harness, header, 63, 10, RF_ERR_NETWORK, true);
}

/* The model is told of a segment of which it has posted nothing itself. */
static void half_a_payload_brings_the_peer_down(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);
	struct rf_stream *stream;
	uint8_t bytes[RF_SEGMENT_HEADER_BYTES + 1000] = {0};
	struct rf_segment segment = good;

	world->lanes = 2;
	world->hold_posts = true;
	world_send(world, 0, 1, 1, 100000, false)->state = MESSAGE_POSTED;
	segment.comm = 1;
	segment.bytes = 100000;
	rf_segment_encode(&segment, bytes);
	stream = harness->dial(world, 0, 1, 1);
	write_all(world, stream, bytes, sizeof(bytes));
	world_settle(world);
	stream->ops->close(stream);
	world_until(world, one_is_down, "half a payload brings the peer down");
	REQUIRE(world->ends[1].down_event[0].status == RF_ERR_NETWORK);
	world_destroy(world);
}

const struct conformance_case end_cases[] = {
	{"close_is_orderly", close_is_orderly, false},
	{"a_peer_that_closed_still_gets_what_is_on_its_way",
	 a_peer_that_closed_still_gets_what_is_on_its_way, false},
	{"the_last_words_of_one_that_leaves_are_heard", the_last_words_of_one_that_leaves_are_heard,
	 true},
	{"a_death_is_told_once_and_nothing_is_touched", a_death_is_told_once_and_nothing_is_touched,
	 false},
	{"an_idle_peer_that_dies_is_noticed", an_idle_peer_that_dies_is_noticed, false},
	{"nothing_is_touched_after_destroy", nothing_is_touched_after_destroy, false},
	{"a_forgotten_peer_is_forgotten", a_forgotten_peer_is_forgotten, false},
	{"garbage_brings_the_peer_down", garbage_brings_the_peer_down, true},
	{"half_a_header_brings_the_peer_down", half_a_header_brings_the_peer_down, true},
	{"half_a_payload_brings_the_peer_down", half_a_payload_brings_the_peer_down, true},
	{NULL, NULL, false},
};
