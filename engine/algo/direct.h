/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct: its state, and which block and which memory a round has to do with. Private to direct.c.
 */
#ifndef RF_DIRECT_H
#define RF_DIRECT_H

#include "engine/algo/cut.h"
#include "engine/algo/group.h"

enum {
	DIRECT_SLOTS = 2,
	DIRECT_SEND_WINDOW = 32, /* contributions to one rank that may be pending */
};
#define DIRECT_NONE (-1)

enum direct_kind { DIRECT_CONTRIBUTION, DIRECT_RESPONSE, DIRECT_KINDS };

/* What comes from one rank on one channel: in order, by kind. */
struct direct_lane {
	uint32_t next[DIRECT_KINDS]; /* in place, on this channel */
	bool landing[DIRECT_KINDS];  /* the one after them has been accepted */
};

struct direct_peer {
	uint32_t contributed; /* rounds posted to it */
	uint32_t responded;
	uint32_t done;           /* contributions completed, and all before */
	uint32_t done_mask;      /* bit i: contribution done + i has completed */
	uint32_t responses_left; /* to come */
	int next;                /* in the queue */
	bool queued;
	bool staged[DIRECT_SLOTS]; /* its contribution is in this slot */
};

struct direct {
	struct rf_group *group;
	const struct rf_task *task;
	struct rf_cut cut;
	unsigned channels;
	size_t bytes;    /* of one element */
	uint32_t rounds; /* of the own block */
	uint32_t folded; /* of them */
	int staged[DIRECT_SLOTS];
	bool result_pending[DIRECT_SLOTS]; /* reduce: on its way to the root, out of scratch */
	size_t slot_bytes;
	void *staging; /* slot * (size - 1) + other rank */
	void *results; /* reduce, not root: one a slot */
	void *result;  /* elsewhere: where the own block ends */
	const void **sources;
	struct direct_peer *peers;
	struct direct_lane *lanes; /* rank * channels + channel */
	int head;                  /* queue of ranks that something can be sent to */
	int tail;
	int awaited; /* the first rank whose contribution, at last whose response, is missing */
	uint64_t receives_left;
	uint64_t sends_left;
	bool copied; /* allgather: the own part is in recv */
	bool ended;
};

/* ---- who, what, where ----------------------------------------------------------------------- */

static inline bool direct_folds(const struct direct *direct)
{
	return direct->task->collective != RF_ALLGATHER;
}

/* Does a rank get the results of the others' blocks? */
static inline bool direct_gets_all(const struct direct *direct, int rank)
{
	if (direct->task->collective == RF_REDUCE)
		return rank == direct->task->root;
	return direct->task->collective != RF_REDUCE_SCATTER;
}

static inline uint32_t direct_chunks(const struct direct *direct, int block)
{
	return (uint32_t)rf_cut_chunks(&direct->cut, block);
}

static inline uint32_t direct_contributions(const struct direct *direct, int owner)
{
	return direct_folds(direct) ? direct_chunks(direct, owner) : 0;
}

static inline uint32_t direct_responses(const struct direct *direct, int owner, int to)
{
	uint32_t chunks = direct_chunks(direct, owner);

	if (direct_gets_all(direct, to))
		return chunks;
	return chunks > DIRECT_SLOTS ? chunks - DIRECT_SLOTS : 0;
}

static inline size_t direct_response_bytes(const struct direct *direct, int owner, int to,
					   uint32_t k)
{
	if (!direct_gets_all(direct, to))
		return 0;
	return rf_cut_chunk_length(&direct->cut, owner, k) * direct->bytes;
}

static inline void *direct_input(const struct direct *direct, int block, uint32_t k)
{
	return rf_at(direct->task->send,
		     rf_cut_chunk_offset(&direct->cut, block, k) * direct->bytes);
}

static inline void *direct_output(const struct direct *direct, int block, uint32_t k)
{
	return rf_at(direct->task->recv,
		     rf_cut_chunk_offset(&direct->cut, block, k) * direct->bytes);
}

static inline void *direct_staging(const struct direct *direct, uint32_t k, int from)
{
	size_t others = (size_t)direct->group->size - 1;
	size_t index = (size_t)(from < direct->group->rank ? from : from - 1);

	return rf_at(direct->staging, (k % DIRECT_SLOTS * others + index) * direct->slot_bytes);
}

/* The own block's chunk, when it is folded (or from the start, for allgather). */
static inline void *direct_result(const struct direct *direct, uint32_t k)
{
	if (direct->results)
		return rf_at(direct->results, k % DIRECT_SLOTS * direct->slot_bytes);
	return rf_at(direct->result, k * direct->cut.chunk * direct->bytes);
}

static inline struct direct_lane *direct_lane(const struct direct *direct, int from, uint32_t k)
{
	return &direct->lanes[(size_t)from * direct->channels + k % direct->channels];
}

static inline bool direct_has_come(const struct direct *direct, int from, enum direct_kind kind,
				   uint32_t k)
{
	return k / direct->channels < direct_lane(direct, from, k)->next[kind];
}

#endif
