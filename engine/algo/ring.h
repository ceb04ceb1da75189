/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring: its state, and which block and which memory a step has to do with. Private to ring.c.
 */
#ifndef RF_RING_H
#define RF_RING_H

#include "engine/algo/cut.h"
#include "engine/algo/group.h"

enum {
	RING_SLOTS = 2,
	RING_SEND_WINDOW = 32, /* sends of one chunk that may be pending: bits of done_mask */
};
#define RING_NONE UINT32_MAX

/* What a chunk has to do next: two queues a channel, since the two neighbours are independent. */
enum ring_work { RING_SEND, RING_ACK, RING_WORKS };

struct ring_chunk {
	uint32_t received;  /* steps whose bytes are in place */
	uint32_t posted;    /* steps whose send was taken */
	uint32_t done;      /* steps whose send has completed, and all before it */
	uint32_t done_mask; /* bit i: the send of step done + i has completed */
	uint32_t freed_out; /* slots reported as free to the rank before */
	uint32_t freed_in;  /* slots reported as free by the rank after */
	uint32_t next[RING_WORKS];
	bool queued[RING_WORKS];
	bool landing;   /* step `received` has been accepted and is on its way */
	bool freeing;   /* likewise the next report of a free slot */
	bool converted; /* the fp32 form of the first step's input is in its slot */
};

struct ring_queue {
	uint32_t head;
	uint32_t tail;
};

struct ring {
	struct rf_group *group;
	const struct rf_task *task;
	struct rf_cut cut;
	unsigned channels;
	int before;
	int after;
	uint32_t fold_steps; /* reduce-scatter steps, the first ones */
	uint32_t steps;
	rf_dtype wire_type; /* of partials */
	size_t wire_bytes;  /* of one element of them */
	size_t bytes;       /* of one element of the call */
	bool slots;         /* partials are in scratch */
	uint32_t slot_uses; /* steps whose result goes into a slot */
	uint32_t frees;     /* how many of a chunk's slots are reported as free */
	size_t slot_bytes;
	void *scratch;
	void *result; /* where the own block ends, before it is moved to its place */
	uint64_t receives_left;
	uint64_t sends_left; /* not completed */
	bool ended;
	struct ring_chunk *chunks;
	struct ring_queue *queues; /* channel * RING_WORKS + work */
};

/* ---- who, what, where ----------------------------------------------------------------------- */

static inline int ring_send_block(const struct ring *ring, uint32_t step)
{
	int64_t rank = ring->group->rank;

	if (step < ring->fold_steps)
		return rf_group_wrap(ring->group, rank - 1 - step);
	return rf_group_wrap(ring->group, rank - (int64_t)(step - ring->fold_steps));
}

static inline int ring_receive_block(const struct ring *ring, uint32_t step)
{
	int64_t rank = ring->group->rank;

	if (step < ring->fold_steps)
		return rf_group_wrap(ring->group, rank - 2 - step);
	return rf_group_wrap(ring->group, rank - 1 - (int64_t)(step - ring->fold_steps));
}

static inline size_t ring_element_bytes(const struct ring *ring, uint32_t step)
{
	return step < ring->fold_steps ? ring->wire_bytes : ring->bytes;
}

static inline bool ring_converts(const struct ring *ring)
{
	return ring->fold_steps && ring->wire_type != ring->task->dtype;
}

static inline void *ring_slot(const struct ring *ring, uint32_t slot, uint32_t k)
{
	return rf_at(ring->scratch, ((size_t)slot * ring->cut.chunks + k) * ring->slot_bytes);
}

static inline const void *ring_input(const struct ring *ring, int block, uint32_t k)
{
	size_t offset = rf_cut_chunk_offset(&ring->cut, block, k);

	if (!ring->fold_steps)
		offset = k * ring->cut.chunk; /* allgather: send is the own part only */
	return rf_at(ring->task->send, offset * ring->bytes);
}

/* Where a block's chunk is at last. */
static inline void *ring_output(const struct ring *ring, int block, uint32_t k)
{
	if (block == ring->group->rank)
		return rf_at(ring->result, k * ring->cut.chunk * ring->bytes);
	return rf_at(ring->task->recv, rf_cut_chunk_offset(&ring->cut, block, k) * ring->bytes);
}

/* Where the fold of a step goes. */
static inline void *ring_partial(const struct ring *ring, uint32_t step, uint32_t k)
{
	if (ring->slots && step < ring->slot_uses)
		return ring_slot(ring, step % RING_SLOTS, k);
	return ring_output(ring, ring_receive_block(ring, step), k);
}

static inline const void *ring_payload(const struct ring *ring, uint32_t step, uint32_t k)
{
	int block = ring_send_block(ring, step);

	if (step == 0 && ring_converts(ring))
		return ring_slot(ring, RING_SLOTS, k);
	if (step == 0)
		return ring_input(ring, block, k);
	if (step < ring->fold_steps)
		return ring_partial(ring, step - 1, k);
	return ring_output(ring, block, k);
}

static inline bool ring_send_done(const struct ring_chunk *chunk, uint32_t step)
{
	if (step < chunk->done)
		return true;
	return step < chunk->posted && chunk->done_mask >> (step - chunk->done) & 1;
}

#endif
