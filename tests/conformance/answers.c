/* SPDX-License-Identifier: BSD-3-Clause */
/* What cases are made of: random numbers, answers, and the ends that they wait for. */
#include "tests/conformance/world.h"

#include <stdlib.h>

uint64_t suite_seed;
uint64_t worlds_made; /* each has its own random numbers */

void fail_at(const char *file, int line, const char *what)
{
	fflush(stdout);
	fprintf(stderr, "%s:%d: does not hold: %s (seed %llu)\n", file, line, what,
		(unsigned long long)suite_seed);
	exit(1);
}

uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

uint64_t below(struct world *world, uint64_t bound)
{
	return (next_random(&world->random) >> 11) % bound;
}

enum answer always_into(struct world *world, const struct arrival *arrival)
{
	(void)world;
	(void)arrival;
	return ANSWER_INTO;
}

enum answer always_pieces(struct world *world, const struct arrival *arrival)
{
	(void)world;
	(void)arrival;
	return ANSWER_PIECES;
}

enum answer always_later(struct world *world, const struct arrival *arrival)
{
	(void)world;
	(void)arrival;
	return ANSWER_LATER;
}

enum answer any_answer(struct world *world, const struct arrival *arrival)
{
	(void)arrival;
	return (enum answer)below(world, ANSWER_LATER);
}

static bool every_message(struct world *world, bool (*holds)(struct world *, struct message *))
{
	for (unsigned i = 0; i < world->end_count; i++)
		for (unsigned to = 0; to < world->end_count; to++)
			for (unsigned lane = 0; lane < world->lanes; lane++)
				for (struct message *m = world->ends[i].routes[to][lane].first; m;
				     m = m->next)
					if (!holds(world, m))
						return false;
	return true;
}

static bool is_sent(struct world *world, struct message *m)
{
	(void)world;
	return m->state == MESSAGE_SENT || m->state == MESSAGE_WITHDRAWN;
}

static bool is_delivered(struct world *world, struct message *m)
{
	return is_sent(world, m) &&
	       (m->delivered || m->discarded || (m->state == MESSAGE_WITHDRAWN && !m->arrived));
}

bool all_sent(struct world *world)
{
	return every_message(world, is_sent);
}

bool all_delivered(struct world *world)
{
	return every_message(world, is_delivered);
}
