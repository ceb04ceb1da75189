/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a call's elements are cut: into one block a rank, and each block into chunks, which are what
 * one segment carries. Private to the algorithms.
 */
#ifndef RF_CUT_H
#define RF_CUT_H

#include "engine/algo/algo.h"

enum {
	/* Chunks of one block: above this the chunk grows, up to what a segment may carry. Only
	 * blocks of more than RF_CUT_CHUNKS_MAX * RF_SEGMENT_PAYLOAD_MAX (256 GiB) have more. */
	RF_CUT_CHUNKS_MAX = 4096,
};

struct rf_cut {
	int blocks;
	size_t count;
	size_t *offsets; /* blocks + 1 of them, in elements; NULL: even blocks */
	size_t unit;     /* even: block boundaries are multiples of it */
	size_t each;     /* even: units of a block */
	size_t rest;     /* even: blocks that have one more, the first ones */
	size_t chunk;    /* elements of a chunk */
	uint32_t chunks; /* of the longest block */
};

/* counts: elements of each block, or NULL: count elements are spread evenly, and equally if that is
 * possible. element_bytes: of the widest type that a chunk is sent in. steps: how often each chunk
 * may be numbered. */
int rf_cut_init(struct rf_cut *cut, int blocks, size_t count, const size_t *counts,
		const struct rf_plan *plan, size_t element_bytes, uint64_t steps);
void rf_cut_free(struct rf_cut *cut);

size_t rf_cut_offset(const struct rf_cut *cut, int block); /* block may be `blocks`: the end */

static inline size_t rf_cut_length(const struct rf_cut *cut, int block)
{
	return rf_cut_offset(cut, block + 1) - rf_cut_offset(cut, block);
}

/* How many chunks a block has; all but the last are full. */
static inline size_t rf_cut_chunks(const struct rf_cut *cut, int block)
{
	size_t length = rf_cut_length(cut, block);

	return length / cut->chunk + (length % cut->chunk != 0);
}

/* Elements of a chunk of a block; 0 if there is no such chunk. */
static inline size_t rf_cut_chunk_length(const struct rf_cut *cut, int block, uint32_t chunk)
{
	size_t length = rf_cut_length(cut, block);
	size_t start = chunk * cut->chunk;

	if (start >= length)
		return 0;
	return length - start < cut->chunk ? length - start : cut->chunk;
}

/* Where a chunk starts, in elements of the whole. */
static inline size_t rf_cut_chunk_offset(const struct rf_cut *cut, int block, uint32_t chunk)
{
	return rf_cut_offset(cut, block) + chunk * cut->chunk;
}

/* base + bytes, also where base is no memory (no_payload). */
static inline void *rf_at(const void *base, size_t bytes)
{
	return (void *)((uintptr_t)base + bytes);
}

#endif
