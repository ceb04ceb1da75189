/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives through the arena (engine/arena/arena.h), where all ranks share memory.
 *
 * A call is cut into ticks. Small allreduces are one-shot: everybody enters all of its input, and
 * folds all ranks' inputs itself: one hand-over each way. Larger ones are folded where they meet:
 * of each tick a rank enters what others fold, folds its own part straight out of its own buffer
 * and the others' slots into the result area and its own buffer, and copies the others' results out
 * of theirs. (Parallel reduce-scatter and allgather over shared slots, without copying what a rank
 * folds itself: the movement-avoiding reduction of J. Peng et al., Optimizing MPI Collectives on
 * Shared Memory Multi-Cores, SC 2023.) Entering runs up to two
 * ticks ahead of folding, and folding ahead of copying out, so that ranks seldom wait, and ranks
 * that share a core do much in each turn.
 *
 * Every element is folded by one rank along the tree of RF_ORDER_TREE, 16-bit floats in fp32 with
 * one rounding.
 */
#include "engine/algo/arena_call.h"

#include <stdlib.h>

enum { STEPS_AT_ONCE = 64 /* before the engine looks around */ };

/* ---- advancing ------------------------------------------------------------------------------ */

/* Each answers the rank that it waits for, -1: none, it may go on. */

static int before_entering(const struct rf_arena_call *c)
{
	uint64_t tick = c->first_tick + c->entered;

	return tick < 2 ? -1 : rf_arena_first_absent(c->arena, tick - 2);
}

static int before_using(const struct rf_arena_call *c)
{
	uint64_t tick = c->first_tick + c->folded;

	/* Of a broadcast only the root has to have come; a barrier waits for all. */
	if (c->shape != RF_ARENA_SPREAD || c->task->collective == RF_BARRIER)
		return rf_arena_first_absent(c->arena, tick);
	if (rf_arena_is_root(c) || rf_arena_entered(c->arena, c->task->root, tick))
		return -1;
	return c->task->root;
}

static int before_taking(const struct rf_arena_call *c)
{
	for (int rank = 0; rank < c->group->size; rank++) {
		if (rank != c->group->rank &&
		    !rf_arena_has_result(c->arena, rank, c->first_tick + c->left))
			return rank;
	}
	return -1;
}

enum step { NOTHING, ENTER, USE, TAKE };

/* What can be done now, what others wait for first; or which rank has to come. */
static enum step next_step(const struct rf_arena_call *c, int *awaited)
{
	*awaited = -1;
	if (c->entered < c->ticks && c->entered <= c->folded + 1 && c->entered <= c->left + 2) {
		*awaited = before_entering(c);
		if (*awaited < 0)
			return ENTER;
	}
	if (c->folded < c->entered) {
		*awaited = before_using(c);
		if (*awaited < 0)
			return USE;
	}
	if (c->left < c->folded) {
		*awaited = before_taking(c);
		if (*awaited < 0)
			return TAKE;
	}
	return NOTHING;
}

static void do_step(struct rf_arena_call *c, enum step step)
{
	switch (step) {
	case ENTER:
		rf_arena_tick_enter(c, c->entered);
		c->entered++;
		break;
	case USE:
		rf_arena_tick_use(c, c->folded);
		c->folded++;
		if (!c->has_results)
			c->left = c->folded;
		break;
	case TAKE:
		rf_arena_tick_take(c, c->left);
		c->left++;
		break;
	case NOTHING:
		break;
	}
}

/* Whether it is this call's turn. */
static bool begin(struct rf_arena_call *c)
{
	if (c->arena->serving != c->ticket)
		return false;
	if (!c->begun) {
		c->begun = true;
		c->first_tick = c->arena->next_tick;
		c->arena->next_tick += c->ticks;
	}
	return true;
}

static int arena_advance(void *state, int *awaited)
{
	struct rf_arena_call *c = state;

	*awaited = -1;
	if (!begin(c) || rf_arena_has_failed(c->arena))
		return RF_ERR_AGAIN;
	for (int steps = 0; steps < STEPS_AT_ONCE && c->left < c->ticks; steps++) {
		enum step step = next_step(c, awaited);

		if (c->arena->odd >= 0) {
			c->group->ops->mismatch(
				c->group, c->arena->odd,
				rf_arena_rank(c->arena, c->arena->odd)
					->headers[c->arena->odd_tick % RF_ARENA_DEPTH]
					.fingerprint);
			return RF_ERR_MISMATCH;
		}
		if (step == NOTHING)
			return RF_ERR_AGAIN;
		do_step(c, step);
	}
	if (c->left < c->ticks)
		return RF_ERR_AGAIN;
	c->arena->serving++;
	return RF_OK;
}

static bool arena_poll(void *state)
{
	struct rf_arena_call *c = state;
	int awaited;

	return begin(c) && !rf_arena_has_failed(c->arena) &&
	       (next_step(c, &awaited) != NOTHING || c->arena->odd >= 0);
}

/* ---- the seam ------------------------------------------------------------------------------- */

static int arena_create(struct rf_group *group, const struct rf_task *task,
			const struct rf_plan *plan, void **state)
{
	struct rf_arena_call *c = malloc(sizeof(*c));
	int status;

	if (!c)
		return RF_ERR_NOMEM;
	*c = (struct rf_arena_call){.group = group,
				    .arena = group->arena,
				    .task = task,
				    .element = rf_dtype_size(task->dtype)};
	status = rf_arena_cut(c, plan);
	if (status != RF_OK) {
		free(c);
		return status;
	}
	/* A reduce's results are for the root alone. */
	c->has_results = c->shape == RF_ARENA_MEETING &&
			 (task->collective == RF_ALLREDUCE || rf_arena_is_root(c));
	c->ticket = c->arena->next_ticket++;
	*state = c;
	return RF_OK;
}

static void arena_destroy(void *state)
{
	struct rf_arena_call *c = state;

	rf_cut_free(&c->blocks);
	free(c);
}

/* No segment is ever sent to it. */
static int arena_accept(void *state, const struct rf_arrival *arrival, struct rf_landing *landing)
{
	(void)state;
	(void)arrival;
	(void)landing;
	return RF_ERR_PROTOCOL;
}

const struct rf_algo rf_algo_arena = {
	.name = "arena",
	.collectives = (1u << RF_COLLECTIVE_COUNT) - 1,
	.tree_order = true,
	.is_pipelined = true,
	.in_shared_memory = true,
	.summary = "through memory that all ranks share",
	.create = arena_create,
	.advance = arena_advance,
	.poll = arena_poll,
	.accept = arena_accept,
	.destroy = arena_destroy,
};
