/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cutting a call into blocks and chunks: sizes only, no memory of the call is looked at.
 */
#include "engine/algo/cut.h"
#include "engine/segment.h"

#include <stdlib.h>

enum { CUT_UNIT = 64 }; /* elements: even blocks start at cache lines if the buffer does */

static int cut_offsets(struct rf_cut *cut, const size_t *counts)
{
	cut->offsets = malloc(((size_t)cut->blocks + 1) * sizeof(*cut->offsets));
	if (!cut->offsets)
		return RF_ERR_NOMEM;
	cut->offsets[0] = 0;
	for (int i = 0; i < cut->blocks; i++)
		cut->offsets[i + 1] = cut->offsets[i] + counts[i];
	return RF_OK;
}

static size_t cut_longest(const struct rf_cut *cut)
{
	size_t longest = 0;

	for (int i = 0; i < cut->blocks; i++) {
		size_t length = rf_cut_length(cut, i);

		if (length > longest)
			longest = length;
	}
	return longest;
}

size_t rf_cut_offset(const struct rf_cut *cut, int block)
{
	size_t b = (size_t)block;

	if (cut->offsets)
		return cut->offsets[block];
	if (block == cut->blocks)
		return cut->count;
	return (cut->each * b + (b < cut->rest ? b : cut->rest)) * cut->unit;
}

/* Blocks that differ by one unit; equal ones where the count allows it, as a caller without counts
 * means. */
static void cut_even(struct rf_cut *cut)
{
	size_t blocks = (size_t)cut->blocks;

	cut->unit = cut->count / CUT_UNIT >= blocks ? CUT_UNIT : 1;
	if (cut->count && cut->count % blocks == 0)
		cut->unit = cut->count / blocks;
	cut->each = cut->count / cut->unit / blocks;
	cut->rest = cut->count / cut->unit % blocks;
}

/* The chunk that was asked for, or as much larger as the number of chunks demands. */
static int cut_chunks(struct rf_cut *cut, const struct rf_plan *plan, size_t element_bytes,
		      uint64_t steps)
{
	size_t longest = cut_longest(cut);
	size_t most = (plan->segment_max_bytes ? plan->segment_max_bytes : RF_SEGMENT_PAYLOAD_MAX) /
		      element_bytes;
	size_t chunks;

	cut->chunk = plan->chunk_bytes / element_bytes;
	if (cut->chunk > longest)
		cut->chunk = longest;
	if (cut->chunk == 0)
		cut->chunk = 1;
	if (longest / cut->chunk >= RF_CUT_CHUNKS_MAX)
		cut->chunk = (longest / RF_CUT_CHUNKS_MAX / CUT_UNIT + 1) * CUT_UNIT;
	if (cut->chunk > most)
		cut->chunk = most;
	chunks = longest / cut->chunk + (longest % cut->chunk != 0);
	if (steps && chunks > UINT32_MAX / steps)
		return RF_ERR_UNSUPPORTED;
	cut->chunks = (uint32_t)chunks;
	return RF_OK;
}

int rf_cut_init(struct rf_cut *cut, int blocks, size_t count, const size_t *counts,
		const struct rf_plan *plan, size_t element_bytes, uint64_t steps)
{
	int status = RF_OK;

	*cut = (struct rf_cut){.blocks = blocks, .count = count};
	cut_even(cut);
	if (counts)
		status = cut_offsets(cut, counts);
	if (status == RF_OK)
		status = cut_chunks(cut, plan, element_bytes, steps);
	if (status != RF_OK)
		rf_cut_free(cut);
	return status;
}

void rf_cut_free(struct rf_cut *cut)
{
	free(cut->offsets);
	cut->offsets = NULL;
}
