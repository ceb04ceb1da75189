/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: one region of memory that all ranks of a communicator share, if all of them are on one
 * host. Here are its words and slots, and who may touch them when; which collective moves what
 * through them is the business of engine/algo/arena.c, how the region reaches all ranks that of
 * attach.c. docs/shm-layout.md draws it, docs/memory-ordering.md has the proof.
 *
 * Time in an arena is counted in ticks, the same on all ranks because calls are: a tick is one slot
 * full of data. At tick t every rank
 *
 *   enters   writes its contribution to its own slot t % RF_ARENA_DEPTH, then the slot's header
 *            (release): the tick, and the fingerprint of the call that it belongs to;
 *   folds    once it has seen the headers of those whose data it needs (acquire), and writes its
 *            part of the result to its own result area of that slot, then the result's tick
 *            (release), where others need it;
 *   leaves   reads the others' results (acquire), or their slots.
 *
 * A rank does these in an order of its own in which entering t + 2 comes after folding t, and
 * entering t + 3 after leaving t. So whoever has seen the header of t + 2 knows that its writer
 * reads nothing of a slot before t + 1 any more, nor of a result before t: four slots are enough,
 * and no word says that a slot is free. A rank may enter t once it has seen everybody's t - 2.
 */
#ifndef RF_ARENA_H
#define RF_ARENA_H

#include "engine/segment.h"

#include <stdatomic.h>

enum {
	RF_ARENA_LINE = 64, /* what two cores hand over at once */
	RF_ARENA_DEPTH = 4,
	RF_ARENA_ALIGN = 4096, /* of each rank's slots: no two ranks write to one page */
	RF_ARENA_INLINE = 32,  /* payload bytes that travel in the header's own line */
};

/* The line that says that a slot is full. Its data follows for short ones: one hand-over. */
struct rf_arena_header {
	_Atomic uint64_t tick; /* + 1; 0: never used */
	uint8_t fingerprint[24];
	uint8_t payload[RF_ARENA_INLINE];
};

/* What a rank tells of itself; written by it alone unless said otherwise. */
struct rf_arena_rank {
	struct rf_arena_header headers[RF_ARENA_DEPTH];
	struct {
		_Atomic uint64_t tick; /* + 1: the result area holds this tick's */
		uint8_t unused[RF_ARENA_LINE - 8];
	} results[RF_ARENA_DEPTH];
	/* Set by its rank before it sleeps; cleared by it, or by whoever rings. */
	_Atomic uint32_t sleeps;
	_Atomic uint32_t core; /* + 1: where it was when it last waited; 0: not told. A hint. */
	uint8_t unused[RF_ARENA_LINE - 8];
	uint8_t nonce[16]; /* written once it has mapped the region: it proves that it has */
	uint8_t unused_too[RF_ARENA_LINE - 16];
};

/* At the start of the region. */
struct rf_arena_base {
	uint64_t magic;
	uint32_t size; /* ranks */
	uint32_t reserved;
	uint64_t part_bytes;
	uint8_t nonce[16]; /* what its maker wrote: it proves to the others that they map it */
	uint8_t unused[RF_ARENA_LINE - 40];
	_Atomic uint32_t sleepers; /* how many ranks have `sleeps` set: one word to look at */
	uint8_t unused_too[RF_ARENA_LINE - 4];
	/* Set by whoever fails the communicator: no call ends well from then on, and why is told by
	 * the control streams. In a line of its own, which everybody keeps a copy of. */
	_Atomic uint32_t failed;
	uint8_t unused_as_well[RF_ARENA_LINE - 4];
	struct rf_arena_rank ranks[]; /* then the slots, each rank's on pages of its own */
};

/* One rank's view. */
struct rf_arena {
	struct rf_arena_base *base;
	size_t region_bytes;
	int rank, size;
	size_t part_bytes; /* what one rank folds of a tick; a multiple of 64 */
	size_t slot_bytes; /* size * part_bytes: what one rank enters in a tick */
	uint8_t *slots;    /* of rank 0 */
	size_t rank_bytes; /* from one rank's slots to the next one's */

	uint64_t next_tick; /* the first one that no call here has taken */
	uint64_t seen;  /* everybody's ticks before this have been seen, and of this one those */
	int seen_ranks; /* of the ranks before seen_ranks */
	uint64_t next_ticket, serving; /* calls go through one after the other */
	const void **sources;          /* room for a pointer a rank, for folds */
	int odd;                       /* a rank that has made another call; -1: none */
	uint64_t odd_tick;             /* where its header is */
	/* Rings rank q: it sleeps, and a word that it may wait for has changed. */
	void (*ring)(void *user, int rank);
	void *ring_user;
	bool armed; /* this rank's `sleeps` may be set */
};

/* How large a region for so many ranks is, within a budget; *part_bytes is 0 if it is too small. */
size_t rf_arena_region_bytes(int size, size_t budget_bytes, size_t *part_bytes);
/* The maker's: writes the base into zeroed memory. */
void rf_arena_format(void *region, int size, size_t part_bytes, const uint8_t nonce[16]);
/* A view of a formatted region. RF_ERR_PROTOCOL: it is not one of this many ranks and bytes. */
int rf_arena_open(struct rf_arena *arena, void *region, size_t region_bytes, int rank, int size);

static inline struct rf_arena_rank *rf_arena_rank(const struct rf_arena *arena, int rank)
{
	return &arena->base->ranks[rank];
}

/* Rank's slot and result area of a tick. */
static inline uint8_t *rf_arena_slot(const struct rf_arena *arena, int rank, uint64_t tick)
{
	return arena->slots + (size_t)rank * arena->rank_bytes +
	       (size_t)(tick % RF_ARENA_DEPTH) * (arena->slot_bytes + arena->part_bytes);
}
static inline uint8_t *rf_arena_result(const struct rf_arena *arena, int rank, uint64_t tick)
{
	return rf_arena_slot(arena, rank, tick) + arena->slot_bytes;
}

/* This rank's slot, or its result, is full. Rings those who sleep. */
void rf_arena_enter(struct rf_arena *arena, uint64_t tick, const uint8_t fingerprint[24],
		    const void *payload, size_t bytes);
void rf_arena_publish_result(struct rf_arena *arena, uint64_t tick);

/* The header if rank has entered this tick, else NULL. Acquires the slot. This rank has entered it
 * too: a fingerprint that differs from its own is noted in arena->odd. */
const struct rf_arena_header *rf_arena_entered(struct rf_arena *arena, int rank, uint64_t tick);
static inline bool rf_arena_has_result(const struct rf_arena *arena, int rank, uint64_t tick)
{
	return atomic_load_explicit(
		       &rf_arena_rank(arena, rank)->results[tick % RF_ARENA_DEPTH].tick,
		       memory_order_seq_cst) == tick + 1;
}

/* The first rank that has not entered this tick, -1 if all have. This rank has. Goes through the
 * ticks in order, and through each header once. */
int rf_arena_first_absent(struct rf_arena *arena, uint64_t tick);

/* This rank waits for another one, on this core: true if that one was last seen on it too, and it
 * is this rank that should leave (of two the higher one). */
static inline bool rf_arena_shares_core(struct rf_arena *arena, int rank, int core)
{
	_Atomic uint32_t *mine = &rf_arena_rank(arena, arena->rank)->core;
	uint32_t here = (uint32_t)core + 1;

	if (atomic_load_explicit(mine, memory_order_relaxed) != here)
		atomic_store_explicit(mine, here, memory_order_relaxed);
	return rank < arena->rank && atomic_load_explicit(&rf_arena_rank(arena, rank)->core,
							  memory_order_relaxed) == here;
}

void rf_arena_fail(struct rf_arena *arena);
static inline bool rf_arena_has_failed(const struct rf_arena *arena)
{
	return atomic_load_explicit(&arena->base->failed, memory_order_acquire);
}

/* Before a sleep: from now on whoever publishes rings. The caller looks at the words once more
 * afterwards, and only then sleeps. And after it, or instead. */
void rf_arena_arm(struct rf_arena *arena);
void rf_arena_disarm(struct rf_arena *arena);

#endif
