/* SPDX-License-Identifier: BSD-3-Clause */
/* How a call through the arena is cut: into ticks, and those into parts or blocks. */
#include "engine/algo/arena_call.h"

enum {
	/* Up to this much is read of each other rank by everybody in a one-shot allreduce; shared
	 * by the number of them. */
	ONE_SHOT_BYTES = 32 << 10,
	/* A call that is too short to fill its parts is still cut in a few ticks, so that the
	 * ranks' copying overlaps. */
	TICKS_WANTED = 4,
	PART_LEAST = 16 << 10,
};

static size_t ceil_div(size_t a, size_t b)
{
	return a / b + (a % b != 0);
}

/* Elements, rounded up to whole lines. */
static size_t whole_lines(const struct rf_arena_call *c, size_t count)
{
	size_t line = RF_ARENA_LINE / c->element;

	return ceil_div(count, line) * line;
}

/* Cuts `count` elements, of which a tick takes at most `most` and at least `least`. */
static void cut_ticks(struct rf_arena_call *c, size_t count, size_t most, size_t least)
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

static enum rf_arena_shape shape_of(const struct rf_arena_call *c)
{
	size_t bytes = c->task->count * c->element;

	switch (c->task->collective) {
	case RF_ALLREDUCE:
		if (bytes <= ONE_SHOT_BYTES / (size_t)(c->group->size - 1) &&
		    bytes <= c->arena->slot_bytes)
			return RF_ARENA_ONE_SHOT;
		return RF_ARENA_MEETING;
	case RF_REDUCE:
		return RF_ARENA_MEETING;
	case RF_REDUCE_SCATTER:
		return RF_ARENA_SCATTER;
	case RF_ALLGATHER:
		return RF_ARENA_GATHER;
	default:
		return RF_ARENA_SPREAD; /* a barrier spreads nothing */
	}
}

static size_t longest_block(const struct rf_arena_call *c)
{
	size_t longest = 0;

	for (int i = 0; i < c->group->size; i++) {
		size_t length = rf_cut_length(&c->blocks, i);

		longest = length > longest ? length : longest;
	}
	return longest;
}

int rf_arena_cut(struct rf_arena_call *c, const struct rf_plan *plan)
{
	size_t part = c->arena->part_bytes / c->element;
	size_t slot = c->arena->slot_bytes / c->element;
	size_t least = PART_LEAST / c->element;
	int status;

	c->shape = shape_of(c);
	switch (c->shape) {
	case RF_ARENA_ONE_SHOT:
		c->ticks = 1;
		c->tick_count = c->task->count;
		return RF_OK;
	case RF_ARENA_MEETING:
		cut_ticks(c, c->task->count, slot, least * (size_t)c->group->size);
		return RF_OK;
	case RF_ARENA_SPREAD:
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

size_t rf_arena_tick_elements(const struct rf_arena_call *c, uint64_t i, size_t *start)
{
	size_t count = c->task->collective == RF_BARRIER ? 0 : c->task->count;

	*start = (size_t)i * c->tick_count;
	if (*start >= count)
		return 0;
	return count - *start < c->tick_count ? count - *start : c->tick_count;
}

size_t rf_arena_part_elements(const struct rf_arena_call *c, size_t n, int rank, size_t *start)
{
	size_t each = whole_lines(c, ceil_div(n, (size_t)c->group->size));

	*start = each * (size_t)rank;
	if (*start >= n)
		return 0;
	return n - *start < each ? n - *start : each;
}

size_t rf_arena_block_elements(const struct rf_arena_call *c, uint64_t i, int rank, size_t *start)
{
	size_t length = rf_cut_length(&c->blocks, rank);
	size_t from = (size_t)i * c->tick_count;

	*start = rf_cut_offset(&c->blocks, rank) + from;
	if (from >= length)
		return 0;
	return length - from < c->tick_count ? length - from : c->tick_count;
}
