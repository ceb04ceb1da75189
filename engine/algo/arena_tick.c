/* SPDX-License-Identifier: BSD-3-Clause */
/* One tick of a call through the arena: what is copied into this rank's slot, folded, and copied
 * out of the others' slots and results. */
#include "engine/algo/arena_call.h"
#include "engine/kernels/kernels.h"

#include <string.h>

static uint8_t *slot(const struct rf_arena_call *c, int rank, uint64_t i)
{
	return rf_arena_slot(c->arena, rank, c->first_tick + i);
}

static uint8_t *result(const struct rf_arena_call *c, int rank, uint64_t i)
{
	return rf_arena_result(c->arena, rank, c->first_tick + i);
}

static void copy(void *dst, const void *src, size_t bytes)
{
	if (bytes)
		memcpy(dst, src, bytes);
}

/* Into this rank's slot. */
static void copy_in(const struct rf_arena_call *c, void *dst, const void *src, size_t bytes)
{
	copy(dst, src, bytes);
	c->group->traffic->sent += bytes;
}

/* Out of another rank's slot or result. */
static void copy_out(const struct rf_arena_call *c, void *dst, const void *src, size_t bytes)
{
	copy(dst, src, bytes);
	c->group->traffic->received += bytes;
}

static const uint8_t *input(const struct rf_arena_call *c, size_t start)
{
	return rf_at(c->task->send, start * c->element);
}

static uint8_t *output(const struct rf_arena_call *c, size_t start)
{
	return rf_at(c->task->recv, start * c->element);
}

/* In one line with the header. */
static bool is_inline(const struct rf_arena_call *c)
{
	return c->shape == RF_ARENA_ONE_SHOT && c->task->count * c->element <= RF_ARENA_INLINE;
}

static void enter_meeting(const struct rf_arena_call *c, uint64_t i, uint8_t *mine)
{
	size_t start, from;
	size_t n = rf_arena_tick_elements(c, i, &start);
	size_t kept = rf_arena_part_elements(c, n, c->group->rank, &from);

	if (!kept)
		from = n;
	copy_in(c, mine, input(c, start), from * c->element);
	copy_in(c, mine + (from + kept) * c->element, input(c, start + from + kept),
		(n - from - kept) * c->element);
}

static void enter_scatter(const struct rf_arena_call *c, uint64_t i, uint8_t *mine)
{
	for (int rank = 0; rank < c->group->size; rank++) {
		size_t start, n = rf_arena_block_elements(c, i, rank, &start);

		/* In place the result goes where the input of another block was. */
		if (rank != c->group->rank || c->task->in_place)
			copy_in(c, mine + (size_t)rank * c->arena->part_bytes, input(c, start),
				n * c->element);
	}
}

void rf_arena_tick_enter(struct rf_arena_call *c, uint64_t i)
{
	uint8_t *mine = slot(c, c->group->rank, i);
	const void *payload = NULL;
	size_t start, n, bytes = 0;

	switch (c->shape) {
	case RF_ARENA_ONE_SHOT:
		n = c->task->count * c->element;
		if (is_inline(c)) {
			payload = c->task->send;
			bytes = n;
			c->group->traffic->sent += n;
		} else {
			copy_in(c, mine, c->task->send, n);
		}
		break;
	case RF_ARENA_MEETING:
		enter_meeting(c, i, mine);
		break;
	case RF_ARENA_SCATTER:
		enter_scatter(c, i, mine);
		break;
	case RF_ARENA_GATHER:
		n = rf_arena_block_elements(c, i, c->group->rank, &start);
		copy_in(c, mine, rf_at(c->task->send, (size_t)i * c->tick_count * c->element),
			n * c->element);
		break;
	case RF_ARENA_SPREAD:
		n = rf_arena_tick_elements(c, i, &start);
		if (rf_arena_is_root(c))
			copy_in(c, mine, input(c, start), n * c->element);
		break;
	}
	rf_arena_enter(c->arena, c->first_tick + i, c->group->fingerprint, payload, bytes);
}

static void fold(const struct rf_arena_call *c, void *dst, size_t n)
{
	c->group->traffic->received += n * c->element * (size_t)(c->group->size - 1);
	if (n)
		rf_foldp(c->task->op, c->task->dtype, dst, c->task->dtype, c->arena->sources,
			 (size_t)c->group->size, n, c->task->divisor);
}

static void fold_one_shot(struct rf_arena_call *c)
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

static void fold_meeting(struct rf_arena_call *c, uint64_t i)
{
	size_t start, from;
	size_t n = rf_arena_tick_elements(c, i, &start);
	size_t kept = rf_arena_part_elements(c, n, c->group->rank, &from);
	uint8_t *mine = result(c, c->group->rank, i);
	bool is_only_mine = c->task->collective == RF_REDUCE && rf_arena_is_root(c);

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

static void fold_scatter(struct rf_arena_call *c, uint64_t i)
{
	size_t start;
	size_t n = rf_arena_block_elements(c, i, c->group->rank, &start);

	for (int rank = 0; rank < c->group->size; rank++) {
		if (rank == c->group->rank && !c->task->in_place)
			c->arena->sources[rank] = input(c, start);
		else
			c->arena->sources[rank] =
				slot(c, rank, i) + (size_t)c->group->rank * c->arena->part_bytes;
	}
	fold(c, output(c, (size_t)i * c->tick_count), n);
}

static void take_gathered(const struct rf_arena_call *c, uint64_t i)
{
	size_t start, n;

	for (int rank = 0; rank < c->group->size; rank++) {
		n = rf_arena_block_elements(c, i, rank, &start);
		if (rank != c->group->rank)
			copy_out(c, output(c, start), slot(c, rank, i), n * c->element);
		else if (!c->task->in_place)
			copy(output(c, start),
			     rf_at(c->task->send, (size_t)i * c->tick_count * c->element),
			     n * c->element);
	}
}

void rf_arena_tick_use(struct rf_arena_call *c, uint64_t i)
{
	size_t start, n;

	switch (c->shape) {
	case RF_ARENA_ONE_SHOT:
		fold_one_shot(c);
		break;
	case RF_ARENA_MEETING:
		fold_meeting(c, i);
		break;
	case RF_ARENA_SCATTER:
		fold_scatter(c, i);
		break;
	case RF_ARENA_GATHER:
		take_gathered(c, i);
		break;
	case RF_ARENA_SPREAD:
		n = rf_arena_tick_elements(c, i, &start);
		if (!rf_arena_is_root(c))
			copy_out(c, output(c, start), slot(c, c->task->root, i), n * c->element);
		break;
	}
}

void rf_arena_tick_take(const struct rf_arena_call *c, uint64_t i)
{
	size_t start, from;
	size_t n = rf_arena_tick_elements(c, i, &start);

	for (int rank = 0; rank < c->group->size; rank++) {
		size_t kept = rf_arena_part_elements(c, n, rank, &from);

		if (rank != c->group->rank)
			copy_out(c, output(c, start + from), result(c, rank, i), kept * c->element);
	}
}
