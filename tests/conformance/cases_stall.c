/* SPDX-License-Identifier: BSD-3-Clause */
/* Late answers, full queues, and segments that are dropped or taken back on the way. */
#include "tests/conformance/world.h"

/* Runs until a segment stands unanswered at its end. */
static struct arrival *until_asked(struct world *world, const struct message *m)
{
	struct arrival *arrival;

	while (!(arrival = world_find(world, m->to, m)))
		if (!world_step(world))
			world->harness->idle(world);
	return arrival;
}

static void until_piece(struct world *world, struct arrival *arrival)
{
	while (world_borrows(world) && !arrival->piece)
		if (!world_step(world))
			world->harness->idle(world);
}

static void send_beside(struct world *world, unsigned lanes)
{
	for (unsigned i = 0; i < 40; i++) {
		world_send(world, 2, 1, i % lanes, below(world, 100000), false);
		world_send(world, 1, 0, i % lanes, below(world, 100000), false);
		if (lanes > 1)
			world_send(world, 0, 1, 1, below(world, 100000), false);
	}
}

static struct message *held;

static enum answer hold_one(struct world *world, const struct arrival *arrival)
{
	return arrival->message == held ? ANSWER_LATER : any_answer(world, arrival);
}

static bool all_but_the_held_lane(struct world *world)
{
	for (unsigned i = 0; i < world->end_count; i++)
		for (unsigned to = 0; to < world->end_count; to++)
			for (unsigned lane = 0; lane < world->lanes; lane++) {
				if (i == held->from && to == held->to && lane == held->lane)
					continue;
				for (struct message *m = world->ends[i].routes[to][lane].first; m;
				     m = m->next)
					if (m->state != MESSAGE_SENT ||
					    (!m->delivered && !m->discarded))
						return false;
			}
	return true;
}

/* An unanswered segment, with much behind it: nobody else notices, and everybody may sleep. */
static void an_unanswered_segment_holds_up_its_lane_only(const struct harness *harness)
{
	struct world *world = world_make(harness, 3, 2, 0);

	world->hold_posts = true;
	world->choose = hold_one;
	held = world_send(world, 0, 1, 0, 700001, false);
	for (unsigned i = 0; i < 30; i++)
		world_send(world, 0, 1, 0, 700001, false);
	world->hold_posts = false;
	send_beside(world, 2);
	world_until(world, all_but_the_held_lane, "the other lanes go on");
	world_settle(world);
	REQUIRE(world_find(world, 1, held) != NULL);
	REQUIRE(!held->next->arrived);
	world_answer(world, world_find(world, 1, held), ANSWER_PIECES);
	world_until(world, all_delivered, "the late answer sets its lane going");
	world_settle(world);
	world_destroy(world);
}

static void an_unreleased_piece_holds_up_its_lane_only(const struct harness *harness)
{
	struct world *world = world_make(harness, 3, 2, 0);
	struct arrival *arrival;

	world->choose = hold_one;
	held = world_send(world, 0, 1, 0, 3000007, false);
	world_send(world, 0, 1, 0, 3000007, false);
	arrival = until_asked(world, held);
	world->hold_pieces = true;
	world_answer(world, arrival, ANSWER_PIECES);
	until_piece(world, arrival);
	world->hold_pieces = false;
	send_beside(world, 2);
	world_until(world, all_but_the_held_lane, "the other lanes go on");
	world_settle(world);
	if (world_borrows(world)) {
		REQUIRE(arrival->piece != NULL && !held->delivered);
		world_release(world, arrival);
	}
	world_until(world, all_delivered, "the release sets its lane going");
	world_settle(world);
	world_destroy(world);
}

/* Every piece is released only when nothing else happens any more. */
static void late_releases(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 16384);
	struct message *m;

	world->choose = always_pieces;
	world->hold_pieces = true;
	for (unsigned i = 0; i < 3; i++)
		m = world_send(world, 0, 1, 0, 200001, false);
	while (!m->delivered) {
		struct arrival *arrival = world->ends[1].arrivals;

		if (world_step(world))
			continue;
		harness->idle(world);
		if (arrival && arrival->piece)
			world_release(world, arrival);
	}
	world_until(world, all_delivered, "all is delivered");
	world_destroy(world);
}

/* Against a receiver that does not answer, a sender is refused within bounds; then WRITABLE or
 * SENT comes (the model posts again only then), and all arrives. */
static void fill_until_refused(const struct harness *harness, size_t bytes)
{
	struct world *world = world_make(harness, 2, 1, 0);
	struct route *route = &world->ends[0].routes[1][0];
	size_t posted = 0;
	struct message *first;

	world->choose = always_later;
	first = world_send(world, 0, 1, 0, bytes, false);
	while (!route->refused) {
		posted += RF_SEGMENT_HEADER_BYTES + world_send(world, 0, 1, 0, bytes, false)->bytes;
		REQUIRE(posted < (size_t)64 << 20);
	}
	until_asked(world, first);
	world_settle(world);
	if (!route->refused)
		world_send(world, 0, 1, 0, bytes, false);
	world->choose = any_answer;
	world_answer(world, until_asked(world, first), ANSWER_INTO);
	world_until(world, all_delivered, "what was refused is taken later");
	world_settle(world);
	world_destroy(world);
}

static void a_full_queue_refuses_and_says_when_it_has_room(const struct harness *harness)
{
	fill_until_refused(harness, 1 << 20);
	fill_until_refused(harness, 3000);
	fill_until_refused(harness, 20000);
	fill_until_refused(harness, 9 << 20);
}

enum stage { UNANSWERED, LANDING, PIECE_OUT, PIECE_BACK, STAGES };

/* Brings a segment to a stage of its arrival. */
static struct arrival *bring_to(struct world *world, const struct message *m, enum stage stage)
{
	struct arrival *arrival = until_asked(world, m);

	if (stage == UNANSWERED)
		return arrival;
	world->hold_pieces = true;
	world_answer(world, arrival, stage == LANDING ? ANSWER_INTO : ANSWER_PIECES);
	if (stage == LANDING || !world_borrows(world)) {
		for (uint64_t steps = below(world, 3); steps && !m->delivered; steps--)
			world_step(world);
		return world_find(world, m->to, m);
	}
	if (m->bytes) {
		until_piece(world, arrival);
		if (stage == PIECE_BACK)
			world_release(world, arrival);
	}
	return arrival;
}

static void discard_at(const struct harness *harness, enum stage stage, size_t bytes)
{
	struct world *world = world_make(harness, 2, 1, 65536);
	struct arrival *arrival;
	struct message *m;

	world->choose = hold_one;
	held = m = world_send(world, 0, 1, 0, bytes, false);
	world_send(world, 0, 1, 0, 12345, false);
	world_send(world, 0, 1, 0, 1234567, false);
	arrival = bring_to(world, m, stage);
	/* Its memory goes back to the allocator at once. */
	if (arrival)
		world_discard(world, arrival);
	world_release_all(world);
	world_until(world, all_delivered, "what comes behind a dropped segment arrives");
	world_settle(world);
	world_destroy(world);
}

static void a_segment_may_be_dropped_at_any_time(const struct harness *harness)
{
	static const size_t some[] = {0, 1, 64, 5000, 65472, 300001, 20 << 20};

	for (unsigned stage = 0; stage < STAGES; stage++)
		for (unsigned i = 0; i < sizeof(some) / sizeof(some[0]); i++)
			discard_at(harness, (enum stage)stage, some[i]);
}

/* Against a receiver that stands still there are segments in every state: gone, half gone and
 * waiting. Those that are taken back arrive as they were or not at all, though their memory is
 * overwritten at once. */
static unsigned withdraw_against_a_full_stream(const struct harness *harness, size_t bytes,
					       unsigned count)
{
	struct world *world = world_make(harness, 2, 1, 0);
	struct message *messages[64];
	unsigned withdrawn = 0;

	world->choose = hold_one;
	held = messages[0] = world_send(world, 0, 1, 0, bytes, false);
	for (unsigned i = 1; i < count; i++)
		messages[i] = world_send(world, 0, 1, 0, bytes, below(world, 2));
	until_asked(world, held);
	if (below(world, 2))
		world_settle(world);
	for (unsigned i = 0; i < count; i++) {
		struct message *m = messages[below(world, count)];
		int status = RF_ERR_AGAIN;

		if (m->state == MESSAGE_POSTED)
			status = world_withdraw(world, m);
		REQUIRE(status == RF_OK || status == RF_ERR_AGAIN);
		withdrawn += status == RF_OK;
		if (below(world, 4) == 0)
			world_step(world);
	}
	if (world_find(world, 1, held))
		world_answer(world, world_find(world, 1, held), ANSWER_INTO);
	world_until(world, all_delivered, "what was not taken back arrives");
	world_settle(world);
	world_destroy(world);
	return withdrawn;
}

static void a_send_may_be_taken_back(const struct harness *harness)
{
	unsigned withdrawn = 0;

	for (unsigned round = 0; round < 6; round++) {
		withdrawn += withdraw_against_a_full_stream(harness, 6 << 20, 6);
		withdrawn += withdraw_against_a_full_stream(harness, 1 << 20, 24);
		withdrawn += withdraw_against_a_full_stream(harness, 70000, 64);
	}
	REQUIRE(withdrawn > 0);
}

const struct conformance_case stall_cases[] = {
	{"an_unanswered_segment_holds_up_its_lane_only",
	 an_unanswered_segment_holds_up_its_lane_only, false},
	{"an_unreleased_piece_holds_up_its_lane_only", an_unreleased_piece_holds_up_its_lane_only,
	 false},
	{"late_releases", late_releases, false},
	{"a_full_queue_refuses_and_says_when_it_has_room",
	 a_full_queue_refuses_and_says_when_it_has_room, false},
	{"a_segment_may_be_dropped_at_any_time", a_segment_may_be_dropped_at_any_time, false},
	{"a_send_may_be_taken_back", a_send_may_be_taken_back, false},
	{NULL, NULL, false},
};
