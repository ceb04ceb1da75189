/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives through the arena (engine/arena/arena.h), where all ranks share memory.
 *
 * A call is cut into ticks. Small allreduces are one-shot: everybody enters all of its input, and
 * folds all ranks' inputs itself: one hand-over each way. Larger ones are folded where they meet:
 * of each tick a rank enters what others fold, folds its own part straight out of its own buffer
 * and the others' slots into the result area and its own buffer, and copies the others' results out
 * of theirs. (Parallel reduce-scatter and allgather over shared slots, without copying what a rank
 * folds itself: the movement avoiding of YHCCL, Zhou et al., HPDC 2023.) Entering runs up to two
 * ticks ahead of folding, and folding ahead of copying out, so that ranks seldom wait, and ranks
 * that share a core do much in each turn.
 *
 * Every element is folded by one rank along the tree of RF_ORDER_TREE, 16-bit floats in fp32 with
 * one rounding.
 */
#include "engine/algo/cut.h"
#include "engine/arena/arena.h"
#include "engine/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
	/* Up to this much is read of each other rank by everybody in a one-shot allreduce; shared
	 * by the number of them. */
	ONE_SHOT_BYTES = 32 << 10,
	/* A call that is too short to fill its parts is still cut in a few ticks, so that the
	 * ranks' copying overlaps. */
	TICKS_WANTED = 4,
	PART_LEAST = 16 << 10,
	/* What is done before the engine looks around. */
	STEPS_AT_ONCE = 64,
};

enum shape {
	ONE_SHOT, /* enter all, fold all */
	MEETING,  /* enter the others' parts, fold mine, take the others' results */
	SCATTER,  /* enter the others' blocks, fold mine */
	GATHER,   /* enter my block, take the others' */
	SPREAD,   /* the root enters, the others take */
};

struct arena_call {
	struct rf_group *group;
	struct rf_arena *arena;
	const struct rf_task *task;
	enum shape shape;
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

/* ---- the cut -------------------------------------------------------------------------------- */

static bool is_root(const struct arena_call *c)
{
	return c->group->rank == c->task->root;
}

static size_t ceil_div(size_t a, size_t b)
{
	return a / b + (a % b != 0);
}

/* Elements, rounded up to whole lines. */
static size_t whole_lines(const struct arena_call *c, size_t count)
{
	size_t line = RF_ARENA_LINE / c->element;

	return ceil_div(count, line) * line;
}

/* Cuts `count` elements, of which a tick takes at most `most` and at least `least`. */
static void cut_ticks(struct arena_call *c, size_t count, size_t most, size_t least)
{
	size_t wanted = whole_lines(c, ceil_div(count, TICKS_WANTED));
	size_t each = wanted < least ? least : wanted;

	if (each > most)
		each = most;
	c->ticks = ceil_div(count, each);
	if (c->ticks == 0)
		c->ticks = 1; /* everybody is still seen to have made the call */
	/* Ticks of equal size. */
	each = whole_lines(c, ceil_div(count, c->ticks));
	c->tick_count = each > most ? most : each;
}

static enum shape shape_of(const struct arena_call *c)
{
	size_t bytes = c->task->count * c->element;

	switch (c->task->collective) {
	case RF_ALLREDUCE:
		if (bytes <= ONE_SHOT_BYTES / (size_t)(c->group->size - 1) &&
		    bytes <= c->arena->slot_bytes)
			return ONE_SHOT;
		return MEETING;
	case RF_REDUCE:
		return MEETING;
	case RF_REDUCE_SCATTER:
		return SCATTER;
	case RF_ALLGATHER:
		return GATHER;
	default:
		return SPREAD; /* a barrier spreads nothing */
	}
}

static size_t longest_block(const struct arena_call *c)
{
	size_t longest = 0;

	for (int i = 0; i < c->group->size; i++) {
		size_t length = rf_cut_length(&c->blocks, i);

		longest = length > longest ? length : longest;
	}
	return longest;
}

static int cut_call(struct arena_call *c, const struct rf_plan *plan)
{
	size_t part = c->arena->part_bytes / c->element;
	size_t slot = c->arena->slot_bytes / c->element;
	size_t least = PART_LEAST / c->element;
	int status;

	switch (c->shape) {
	case ONE_SHOT:
		c->ticks = 1;
		c->tick_count = c->task->count;
		return RF_OK;
	case MEETING:
		cut_ticks(c, c->task->count, slot, least * (size_t)c->group->size);
		return RF_OK;
	case SPREAD:
		cut_ticks(c, c->task->collective == RF_BARRIER ? 0 : c->task->count,
			  slot < 2 * part ? slot : 2 * part, least);
		return RF_OK;
	default:
		break;
	}
	status = rf_cut_init(&c->blocks, c->group->size, c->task->count, c->task->counts, plan,
			     c->element, 1);
	if (status == RF_OK)
		cut_ticks(c, longest_block(c), part, least);
	return status;
}

/* The elements of tick i: where they start, and how many. */
static size_t tick_elements(const struct arena_call *c, uint64_t i, size_t *start)
{
	size_t count = c->task->collective == RF_BARRIER ? 0 : c->task->count;

	*start = (size_t)i * c->tick_count;
	if (*start >= count)
		return 0;
	return count - *start < c->tick_count ? count - *start : c->tick_count;
}

/* Rank's part of n elements: parts are whole lines, the last ones may be short or empty. */
static size_t part_elements(const struct arena_call *c, size_t n, int rank, size_t *start)
{
	size_t each = whole_lines(c, ceil_div(n, (size_t)c->group->size));

	*start = each * (size_t)rank;
	if (*start >= n)
		return 0;
	return n - *start < each ? n - *start : each;
}

/* Tick i's elements of rank's block, and where they start in the whole. */
static size_t block_elements(const struct arena_call *c, uint64_t i, int rank, size_t *start)
{
	size_t length = rf_cut_length(&c->blocks, rank);
	size_t from = (size_t)i * c->tick_count;

	*start = rf_cut_offset(&c->blocks, rank) + from;
	if (from >= length)
		return 0;
	return length - from < c->tick_count ? length - from : c->tick_count;
}

static uint8_t *slot(const struct arena_call *c, int rank, uint64_t i)
{
	return rf_arena_slot(c->arena, rank, c->first_tick + i);
}

static uint8_t *result(const struct arena_call *c, int rank, uint64_t i)
{
	return rf_arena_result(c->arena, rank, c->first_tick + i);
}

static void copy(void *dst, const void *src, size_t bytes)
{
	if (bytes)
		memcpy(dst, src, bytes);
}

/* Into this rank's slot. */
static void copy_in(const struct arena_call *c, void *dst, const void *src, size_t bytes)
{
	copy(dst, src, bytes);
	c->group->traffic->sent += bytes;
}

/* Out of another rank's slot or result. */
static void copy_out(const struct arena_call *c, void *dst, const void *src, size_t bytes)
{
	copy(dst, src, bytes);
	c->group->traffic->received += bytes;
}

/* ---- one tick ------------------------------------------------------------------------------- */

static const uint8_t *input(const struct arena_call *c, size_t start)
{
	return rf_at(c->task->send, start * c->element);
}

static uint8_t *output(const struct arena_call *c, size_t start)
{
	return rf_at(c->task->recv, start * c->element);
}

/* In one line with the header. */
static bool is_inline(const struct arena_call *c)
{
	return c->shape == ONE_SHOT && c->task->count * c->element <= RF_ARENA_INLINE;
}

static void enter_meeting(const struct arena_call *c, uint64_t i, uint8_t *mine)
{
	size_t start, from;
	size_t n = tick_elements(c, i, &start);
	size_t kept = part_elements(c, n, c->group->rank, &from);

	if (!kept)
		from = n;
	copy_in(c, mine, input(c, start), from * c->element);
	copy_in(c, mine + (from + kept) * c->element, input(c, start + from + kept),
		(n - from - kept) * c->element);
}

static void enter_scatter(const struct arena_call *c, uint64_t i, uint8_t *mine)
{
	for (int rank = 0; rank < c->group->size; rank++) {
		size_t start, n = block_elements(c, i, rank, &start);

		/* In place the result goes where the input of another block was. */
		if (rank != c->group->rank || c->task->in_place)
			copy_in(c, mine + (size_t)rank * c->arena->part_bytes, input(c, start),
				n * c->element);
	}
}

static void enter(struct arena_call *c, uint64_t i)
{
	uint8_t *mine = slot(c, c->group->rank, i);
	const void *payload = NULL;
	size_t start, n, bytes = 0;

	switch (c->shape) {
	case ONE_SHOT:
		n = c->task->count * c->element;
		if (is_inline(c)) {
			payload = c->task->send;
			bytes = n;
			c->group->traffic->sent += n;
		} else {
			copy_in(c, mine, c->task->send, n);
		}
		break;
	case MEETING:
		enter_meeting(c, i, mine);
		break;
	case SCATTER:
		enter_scatter(c, i, mine);
		break;
	case GATHER:
		n = block_elements(c, i, c->group->rank, &start);
		copy_in(c, mine, rf_at(c->task->send, (size_t)i * c->tick_count * c->element),
			n * c->element);
		break;
	case SPREAD:
		n = tick_elements(c, i, &start);
		if (is_root(c))
			copy_in(c, mine, input(c, start), n * c->element);
		break;
	}
	rf_arena_enter(c->arena, c->first_tick + i, c->group->fingerprint, payload, bytes);
}

static void fold(const struct arena_call *c, void *dst, size_t n)
{
	c->group->traffic->received += n * c->element * (size_t)(c->group->size - 1);
	if (n)
		rf_foldp(c->task->op, c->task->dtype, dst, c->task->dtype, c->arena->sources,
			 (size_t)c->group->size, n, c->task->divisor);
}

static void fold_one_shot(struct arena_call *c)
{
	for (int rank = 0; rank < c->group->size; rank++) {
		if (rank == c->group->rank)
			c->arena->sources[rank] = c->task->send;
		else if (is_inline(c))
			c->arena->sources[rank] = rf_arena_rank(c->arena, rank)
							  ->headers[c->first_tick % RF_ARENA_DEPTH]
							  .payload;
		else
			c->arena->sources[rank] = slot(c, rank, 0);
	}
	fold(c, c->task->recv, c->task->count);
}

static void fold_meeting(struct arena_call *c, uint64_t i)
{
	size_t start, from;
	size_t n = tick_elements(c, i, &start);
	size_t kept = part_elements(c, n, c->group->rank, &from);
	uint8_t *mine = result(c, c->group->rank, i);
	bool is_only_mine = c->task->collective == RF_REDUCE && is_root(c);

	for (int rank = 0; rank < c->group->size; rank++)
		c->arena->sources[rank] = rank == c->group->rank
						  ? input(c, start + from)
						  : slot(c, rank, i) + from * c->element;
	if (is_only_mine) {
		fold(c, output(c, start + from), kept);
	} else {
		fold(c, mine, kept);
		c->group->traffic->sent += kept * c->element;
		if (c->task->collective == RF_ALLREDUCE)
			copy(output(c, start + from), mine, kept * c->element);
	}
	rf_arena_publish_result(c->arena, c->first_tick + i);
}

static void fold_scatter(struct arena_call *c, uint64_t i)
{
	size_t start;
	size_t n = block_elements(c, i, c->group->rank, &start);

	for (int rank = 0; rank < c->group->size; rank++) {
		if (rank == c->group->rank && !c->task->in_place)
			c->arena->sources[rank] = input(c, start);
		else
			c->arena->sources[rank] =
				slot(c, rank, i) + (size_t)c->group->rank * c->arena->part_bytes;
	}
	fold(c, output(c, (size_t)i * c->tick_count), n);
}

static void take_gathered(const struct arena_call *c, uint64_t i)
{
	size_t start, n;

	for (int rank = 0; rank < c->group->size; rank++) {
		n = block_elements(c, i, rank, &start);
		if (rank != c->group->rank)
			copy_out(c, output(c, start), slot(c, rank, i), n * c->element);
		else if (!c->task->in_place)
			copy(output(c, start),
			     rf_at(c->task->send, (size_t)i * c->tick_count * c->element),
			     n * c->element);
	}
}

/* What needs only slots: a fold, or taking what was entered. */
static void use_slots(struct arena_call *c, uint64_t i)
{
	size_t start, n;

	switch (c->shape) {
	case ONE_SHOT:
		fold_one_shot(c);
		break;
	case MEETING:
		fold_meeting(c, i);
		break;
	case SCATTER:
		fold_scatter(c, i);
		break;
	case GATHER:
		take_gathered(c, i);
		break;
	case SPREAD:
		n = tick_elements(c, i, &start);
		if (!is_root(c))
			copy_out(c, output(c, start), slot(c, c->task->root, i), n * c->element);
		break;
	}
}

static void take_results(const struct arena_call *c, uint64_t i)
{
	size_t start, from;
	size_t n = tick_elements(c, i, &start);

	for (int rank = 0; rank < c->group->size; rank++) {
		size_t kept = part_elements(c, n, rank, &from);

		if (rank != c->group->rank)
			copy_out(c, output(c, start + from), result(c, rank, i), kept * c->element);
	}
}

/* ---- advancing ------------------------------------------------------------------------------ */

/* Each answers the rank that it waits for, -1: none, it may go on. */

static int before_entering(const struct arena_call *c)
{
	uint64_t tick = c->first_tick + c->entered;

	return tick < 2 ? -1 : rf_arena_first_absent(c->arena, tick - 2);
}

static int before_using(const struct arena_call *c)
{
	uint64_t tick = c->first_tick + c->folded;

	/* Of a broadcast only the root has to have come; a barrier waits for all. */
	if (c->shape != SPREAD || c->task->collective == RF_BARRIER)
		return rf_arena_first_absent(c->arena, tick);
	if (is_root(c) || rf_arena_entered(c->arena, c->task->root, tick))
		return -1;
	return c->task->root;
}

static int before_taking(const struct arena_call *c)
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
static enum step next_step(const struct arena_call *c, int *awaited)
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

static void do_step(struct arena_call *c, enum step step)
{
	switch (step) {
	case ENTER:
		enter(c, c->entered);
		c->entered++;
		break;
	case USE:
		use_slots(c, c->folded);
		c->folded++;
		if (!c->has_results)
			c->left = c->folded;
		break;
	case TAKE:
		take_results(c, c->left);
		c->left++;
		break;
	case NOTHING:
		break;
	}
}

/* Whether it is this call's turn. */
static bool begin(struct arena_call *c)
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
	struct arena_call *c = state;

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
	struct arena_call *c = state;
	int awaited;

	return begin(c) && !rf_arena_has_failed(c->arena) &&
	       (next_step(c, &awaited) != NOTHING || c->arena->odd >= 0);
}

/* ---- the seam ------------------------------------------------------------------------------- */

static int arena_create(struct rf_group *group, const struct rf_task *task,
			const struct rf_plan *plan, void **state)
{
	struct arena_call *c = malloc(sizeof(*c));
	int status;

	if (!c)
		return RF_ERR_NOMEM;
	*c = (struct arena_call){.group = group,
				 .arena = group->arena,
				 .task = task,
				 .element = rf_dtype_size(task->dtype)};
	c->shape = shape_of(c);
	/* A reduce's results are for the root alone. */
	c->has_results = c->shape == MEETING && (task->collective == RF_ALLREDUCE || is_root(c));
	status = cut_call(c, plan);
	if (status != RF_OK) {
		free(c);
		return status;
	}
	c->ticket = c->arena->next_ticket++;
	*state = c;
	return RF_OK;
}

static void arena_destroy(void *state)
{
	struct arena_call *c = state;

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
