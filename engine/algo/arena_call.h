/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call through the arena: how it is cut into ticks (arena_cut.c), and what is done in one
 * (arena_tick.c). In which order that may be done is in arena.c. Private to the three.
 */
#ifndef RF_ARENA_CALL_H
#define RF_ARENA_CALL_H

#include "engine/algo/cut.h"
#include "engine/arena/arena.h"

enum rf_arena_shape {
	RF_ARENA_ONE_SHOT, /* enter all, fold all */
	RF_ARENA_MEETING,  /* enter the others' parts, fold mine, take the others' results */
	RF_ARENA_SCATTER,  /* enter the others' blocks, fold mine */
	RF_ARENA_GATHER,   /* enter my block, take the others' */
	RF_ARENA_SPREAD,   /* the root enters, the others take */
};

struct rf_arena_call {
	struct rf_group *group;
	struct rf_arena *arena;
	const struct rf_task *task;
	enum rf_arena_shape shape;
	size_t element;
	size_t tick_count; /* elements of a tick (MEETING, ONE_SHOT, SPREAD), or of a block in it */
	uint64_t ticks;
	struct rf_cut blocks; /* SCATTER, GATHER */
	uint64_t ticket;
	bool begun; /* it is its turn: first_tick is set */
	bool has_results;
	uint64_t first_tick;
	uint64_t entered, folded, left; /* ticks of this call */
};

static inline bool rf_arena_is_root(const struct rf_arena_call *c)
{
	return c->group->rank == c->task->root;
}

/* Decides shape, ticks and blocks; group, arena, task and element are set. */
int rf_arena_cut(struct rf_arena_call *c, const struct rf_plan *plan);

/* The elements of tick i: where they start, and how many. */
size_t rf_arena_tick_elements(const struct rf_arena_call *c, uint64_t i, size_t *start);
/* Rank's part of n elements: parts are whole lines, the last ones may be short or empty. */
size_t rf_arena_part_elements(const struct rf_arena_call *c, size_t n, int rank, size_t *start);
/* Tick i's elements of rank's block, and where they start in the whole. */
size_t rf_arena_block_elements(const struct rf_arena_call *c, uint64_t i, int rank, size_t *start);

/* Tick i of this call: enters it; uses what was entered (all that is needed has been); takes the
 * results of the others (all are there). */
void rf_arena_tick_enter(struct rf_arena_call *c, uint64_t i);
void rf_arena_tick_use(struct rf_arena_call *c, uint64_t i);
void rf_arena_tick_take(const struct rf_arena_call *c, uint64_t i);

#endif
