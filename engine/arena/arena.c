/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena's words: sizes, publishing, and who is to be rung. Every store of a tick and every load
 * of one is sequentially consistent, because of the sleepers: whoever publishes stores a tick and
 * then reads `sleepers`, whoever goes to sleep writes `sleepers` and then reads the ticks; one of
 * the two must see the other. On x86 only the stores cost more than with release and acquire, and
 * about as much as the fence that would be needed otherwise.
 */
#include "engine/arena/arena.h"

#include <string.h>

enum {
	PART_MOST = 128 << 10,
	PART_UNIT = 64,
};
static const uint64_t MAGIC = 0x616e657261666c72u;

static size_t round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static size_t head_bytes(int size)
{
	return round_up(sizeof(struct rf_arena_base) + (size_t)size * sizeof(struct rf_arena_rank),
			RF_ARENA_ALIGN);
}

static size_t rank_bytes(int size, size_t part_bytes)
{
	return round_up(RF_ARENA_DEPTH * ((size_t)size + 1) * part_bytes, RF_ARENA_ALIGN);
}

size_t rf_arena_region_bytes(int size, size_t budget_bytes, size_t *part_bytes)
{
	size_t head = head_bytes(size);
	size_t part = 0;

	if (budget_bytes > head)
		part = (budget_bytes - head) / (size_t)size / RF_ARENA_DEPTH / ((size_t)size + 1);
	if (part > PART_MOST)
		part = PART_MOST;
	/* What rounding adds must fit too. */
	part = part / PART_UNIT * PART_UNIT;
	while (part && head + (size_t)size * rank_bytes(size, part) > budget_bytes)
		part -= PART_UNIT;
	*part_bytes = part;
	return part ? head + (size_t)size * rank_bytes(size, part) : 0;
}

void rf_arena_format(void *region, int size, size_t part_bytes, const uint8_t nonce[16])
{
	struct rf_arena_base *base = region;

	base->magic = MAGIC;
	base->size = (uint32_t)size;
	base->part_bytes = part_bytes;
	memcpy(base->nonce, nonce, sizeof(base->nonce));
}

int rf_arena_open(struct rf_arena *arena, void *region, size_t region_bytes, int rank, int size)
{
	struct rf_arena_base *base = region;
	size_t part = base->part_bytes;

	if (region_bytes < head_bytes(size) || base->magic != MAGIC ||
	    base->size != (uint32_t)size || part < PART_UNIT || part > PART_MOST ||
	    part % PART_UNIT ||
	    region_bytes < head_bytes(size) + (size_t)size * rank_bytes(size, part))
		return RF_ERR_PROTOCOL;
	*arena = (struct rf_arena){
		.base = base,
		.region_bytes = region_bytes,
		.rank = rank,
		.odd = -1,
		.size = size,
		.part_bytes = part,
		.slot_bytes = (size_t)size * part,
		.slots = (uint8_t *)region + head_bytes(size),
		.rank_bytes = rank_bytes(size, part),
	};
	return RF_OK;
}

static void wake_sleepers(struct rf_arena *arena)
{
	struct rf_arena_base *base = arena->base;

	if (!atomic_load(&base->sleepers))
		return;
	for (int rank = 0; rank < arena->size; rank++) {
		_Atomic uint32_t *sleeps = &base->ranks[rank].sleeps;

		if (rank == arena->rank || !atomic_load(sleeps) || !atomic_exchange(sleeps, 0))
			continue;
		atomic_fetch_sub(&base->sleepers, 1);
		arena->ring(arena->ring_user, rank);
	}
}

void rf_arena_enter(struct rf_arena *arena, uint64_t tick, const uint8_t fingerprint[24],
		    const void *payload, size_t bytes)
{
	struct rf_arena_header *header =
		&rf_arena_rank(arena, arena->rank)->headers[tick % RF_ARENA_DEPTH];

	memcpy(header->fingerprint, fingerprint, sizeof(header->fingerprint));
	if (bytes)
		memcpy(header->payload, payload, bytes);
	atomic_store(&header->tick, tick + 1);
	wake_sleepers(arena);
}

void rf_arena_publish_result(struct rf_arena *arena, uint64_t tick)
{
	atomic_store(&rf_arena_rank(arena, arena->rank)->results[tick % RF_ARENA_DEPTH].tick,
		     tick + 1);
	wake_sleepers(arena);
}

void rf_arena_fail(struct rf_arena *arena)
{
	atomic_store(&arena->base->failed, 1);
	wake_sleepers(arena);
}

void rf_arena_arm(struct rf_arena *arena)
{
	if (!atomic_exchange(&rf_arena_rank(arena, arena->rank)->sleeps, 1))
		atomic_fetch_add(&arena->base->sleepers, 1);
	arena->armed = true;
}

void rf_arena_disarm(struct rf_arena *arena)
{
	if (atomic_exchange(&rf_arena_rank(arena, arena->rank)->sleeps, 0))
		atomic_fetch_sub(&arena->base->sleepers, 1);
	arena->armed = false;
}

const struct rf_arena_header *rf_arena_entered(struct rf_arena *arena, int rank, uint64_t tick)
{
	unsigned slot = tick % RF_ARENA_DEPTH;
	const struct rf_arena_header *theirs = &rf_arena_rank(arena, rank)->headers[slot];
	const struct rf_arena_header *mine = &rf_arena_rank(arena, arena->rank)->headers[slot];

	if (atomic_load(&theirs->tick) != tick + 1)
		return NULL;
	if (memcmp(theirs->fingerprint, mine->fingerprint, sizeof(mine->fingerprint))) {
		arena->odd = rank;
		arena->odd_tick = tick;
	}
	return theirs;
}

int rf_arena_first_absent(struct rf_arena *arena, uint64_t tick)
{
	while (arena->seen <= tick) {
		for (; arena->seen_ranks < arena->size; arena->seen_ranks++) {
			if (arena->seen_ranks != arena->rank &&
			    !rf_arena_entered(arena, arena->seen_ranks, arena->seen))
				return arena->seen_ranks;
		}
		arena->seen++;
		arena->seen_ranks = 0;
	}
	return -1;
}
