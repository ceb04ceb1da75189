/* SPDX-License-Identifier: BSD-3-Clause */
/* What is sent arrives: whole, once, in order, in whatever sizes and mixtures. */
#include "tests/conformance/world.h"

static const size_t sizes[] = {
	0,    1,    2,      63,     64,     65,     127,     128,     129,     1000,
	4095, 4096, 4097,   4160,   8191,   32768,  65535,   65536,   65537,   262079,
	0,    64,   262080, 262144, 262208, 524289, 1 << 20, 3145735, 4194304, 1,
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void send_all_sizes(const struct harness *harness,
			   enum answer (*choose)(struct world *, const struct arrival *))
{
	struct world *world = world_make(harness, 2, 1, 0);

	world->choose = choose;
	for (unsigned i = 0; i < SIZES; i++)
		world_send(world, 0, 1, 0, sizes[i], false);
	world_until(world, all_delivered, "all sizes arrive");
	/* One by one, so that none is met by the one before. */
	for (unsigned i = 0; i < SIZES; i++) {
		world_send(world, 1, 0, 0, sizes[i], false);
		world_until(world, all_delivered, "a segment on its own arrives");
	}
	world_settle(world);
	world_destroy(world);
}

static void every_size_lands_in_memory(const struct harness *harness)
{
	send_all_sizes(harness, always_into);
}

static void every_size_arrives_in_pieces(const struct harness *harness)
{
	send_all_sizes(harness, always_pieces);
}

static void answers_may_alternate(const struct harness *harness)
{
	send_all_sizes(harness, any_answer);
}

static void small_buffers_are_enough(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 1);

	for (unsigned i = 0; i < SIZES; i++)
		world_send(world, 0, 1, 0, sizes[i], false);
	world_until(world, all_delivered, "all sizes arrive through the smallest buffer");
	world_destroy(world);
}

static void lanes_keep_their_order(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, MAX_LANES, 0);

	for (unsigned i = 0; i < 400; i++) {
		unsigned from = (unsigned)below(world, 2);

		world_send(world, from, 1 - from, (unsigned)below(world, MAX_LANES),
			   below(world, 40000), false);
	}
	world_until(world, all_delivered, "every lane delivers in its order");
	world_settle(world);
	world_destroy(world);
}

static void many_small_segments(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);

	world->hold_posts = true;
	for (unsigned i = 0; i < 3000; i++)
		world_send(world, 0, 1, 0, below(world, 65), below(world, 4) != 0);
	world->hold_posts = false;
	world_until(world, all_delivered, "many small segments arrive");
	world_settle(world);
	world_destroy(world);
}

/* `more` is a hint: a segment with it must not wait for one that never comes. */
static void more_is_only_a_hint(const struct harness *harness)
{
	static const size_t some[] = {0, 8, 5000, 300000};
	struct world *world = world_make(harness, 2, 1, 0);

	for (unsigned i = 0; i < 4; i++) {
		world_send(world, 0, 1, 0, some[i], true);
		world_until(world, all_delivered, "a segment with more arrives by itself");
	}
	world_destroy(world);
}

static void all_ends_talk_with_all(const struct harness *harness)
{
	struct world *world = world_make(harness, 3, 2, 0);

	for (unsigned i = 0; i < 300; i++) {
		unsigned from = (unsigned)below(world, 3), to = (unsigned)below(world, 2);

		world_send(world, from, to + (to >= from), (unsigned)below(world, 2),
			   below(world, 8) ? below(world, 5000) : below(world, 1 << 20), false);
	}
	world_until(world, all_delivered, "three ends deliver to each other");
	world_settle(world);
	world_destroy(world);
}

/* Payloads of each in turn: several times what a stream holds. */
static void the_two_directions_do_not_wait_for_each_other(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);

	for (unsigned i = 0; i < 12; i++) {
		world_send(world, 0, 1, 0, 4 << 20, false);
		world_send(world, 1, 0, 0, 4 << 20, false);
	}
	world_until(world, all_delivered, "both directions deliver");
	world_destroy(world);
}

static void random_traffic_of(const struct harness *harness, unsigned ends, unsigned lanes,
			      size_t buffer)
{
	struct world *world = world_make(harness, ends, lanes, buffer);

	world->random ^= (uint64_t)ends << 32 | lanes << 16 | buffer;
	for (unsigned i = 0; i < 600; i++) {
		unsigned from = (unsigned)below(world, ends), to = (unsigned)below(world, ends - 1);
		size_t bytes = below(world, (uint64_t)1 << below(world, 20));

		world->hold_posts = below(world, 2);
		world_send(world, from, to + (to >= from), (unsigned)below(world, lanes), bytes,
			   below(world, 3) == 0);
		for (uint64_t steps = below(world, 4); steps; steps--)
			world_step(world);
	}
	world->hold_posts = false;
	world_until(world, all_delivered, "random traffic is delivered");
	world_settle(world);
	world_destroy(world);
}

static void random_traffic(const struct harness *harness)
{
	random_traffic_of(harness, 2, 1, 0);
	random_traffic_of(harness, 2, 3, 8192);
	random_traffic_of(harness, 3, 2, 65536);
}

const struct conformance_case data_cases[] = {
	{"every_size_lands_in_memory", every_size_lands_in_memory, false},
	{"every_size_arrives_in_pieces", every_size_arrives_in_pieces, false},
	{"answers_may_alternate", answers_may_alternate, false},
	{"small_buffers_are_enough", small_buffers_are_enough, false},
	{"lanes_keep_their_order", lanes_keep_their_order, false},
	{"many_small_segments", many_small_segments, false},
	{"more_is_only_a_hint", more_is_only_a_hint, false},
	{"all_ends_talk_with_all", all_ends_talk_with_all, false},
	{"the_two_directions_do_not_wait_for_each_other",
	 the_two_directions_do_not_wait_for_each_other, false},
	{"random_traffic", random_traffic, false},
	{NULL, NULL, false},
};
