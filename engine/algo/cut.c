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
	size_t units, each, rest, b = (size_t)block;

	if (cut->offsets)
		return cut->offsets[block];
	if (block == cut->blocks)
		return cut->count;
	units = cut->count / cut->unit;
	each = units / (size_t)cut->blocks;
	rest = units % (size_t)cut->blocks;
	return (each * b + (b < rest ? b : rest)) * cut->unit;
}

/* The chunk that was asked for, or as much larger as the number of chunks demands. */
static int cut_chunks(struct rf_cut *cut, size_t chunk_bytes, size_t element_bytes, uint64_t steps)
{
	size_t longest = cut_longest(cut);
	size_t most = RF_SEGMENT_PAYLOAD_MAX / element_bytes;
	size_t chunks;

	cut->chunk = chunk_bytes / element_bytes;
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
		size_t chunk_bytes, size_t element_bytes, uint64_t steps)
{
	int status = RF_OK;

	*cut = (struct rf_cut){.blocks = blocks, .count = count};
	cut->unit = count / CUT_UNIT >= (size_t)blocks ? CUT_UNIT : 1;
	if (count && count % (size_t)blocks == 0) /* equal blocks, as a caller without counts means */
		cut->unit = count / (size_t)blocks;
	if (counts)
		status = cut_offsets(cut, counts);
	if (status == RF_OK)
		status = cut_chunks(cut, chunk_bytes, element_bytes, steps);
	if (status != RF_OK)
		rf_cut_free(cut);
	return status;
}

void rf_cut_free(struct rf_cut *cut)
{
	free(cut->offsets);
	cut->offsets = NULL;
}
