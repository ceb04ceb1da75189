/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Select: the rows, and the sizes that a plan has beside its algorithm. Looks only at agreed values
 * and at the call, so that all ranks come to the same plan.
 */
#include "engine/select.h"
#include "engine/segment.h"

#include <string.h>

enum {
	SELECT_CHUNK_UNIT = 64,
	SELECT_CHUNK_LEAST = 256 << 10,
	/* A segment costs more than what its overlap saves: at 256 KiB a rank of two spent 4.9 ms
	 * of CPU on 16 MiB, at 1 MiB 4.5 ms (bench/ringfold_allreduce). */
	SELECT_CHUNK_MOST = 1 << 20,
	SELECT_CHUNK_WHOLE = 1 << 20, /* for algorithms that send all at once if they can */
	SELECT_CHUNKS = 2,            /* a block, so that folding and sending overlap */
	SELECT_CHANNELS_MOST = 16,    /* lanes that a transport may be asked for */
	/* Pairwise, every rank has a connection to every other. Over loopback TCP, four ranks and 1
	 * KiB: 93 us, where the ring takes 145. Eight ranks gather less quickly so from 8 KiB on
	 * (ringfold bench), which is why the limit is no higher by default. */
	SELECT_PAIRWISE_RANKS = 32,
};

#define BIT(collective) (1u << RF_##collective)

static size_t doubling_max(const struct rf_config *config)
{
	return config->doubling_max_bytes;
}

static size_t direct_max(const struct rf_config *config)
{
	return config->direct_max_bytes;
}

static size_t pairwise_max(const struct rf_config *config)
{
	return config->pairwise_max_bytes;
}

static size_t tree_max(const struct rf_config *config)
{
	return config->tree_max_bytes;
}

const struct rf_select_row rf_select_rows[] = {
	{(1u << RF_COLLECTIVE_COUNT) - 1, false, NULL, 0, &rf_algo_arena,
	 "where all ranks share memory"},
	{BIT(BARRIER), false, NULL, 0, &rf_algo_doubling, "the fewest steps"},
	{BIT(ALLREDUCE) | BIT(REDUCE) | BIT(REDUCE_SCATTER), true, NULL, 0, &rf_algo_direct,
	 "all contributions to an element meet at one rank"},
	{BIT(ALLREDUCE), false, doubling_max, 0, &rf_algo_doubling, "small: the fewest steps"},
	{BIT(ALLREDUCE), false, direct_max, 0, &rf_algo_direct, "two steps, for few ranks"},
	{BIT(REDUCE_SCATTER) | BIT(ALLGATHER), false, pairwise_max, SELECT_PAIRWISE_RANKS,
	 &rf_algo_direct, "small, few ranks: one step"},
	{BIT(ALLREDUCE) | BIT(REDUCE_SCATTER) | BIT(ALLGATHER), false, NULL, 0, &rf_algo_ring,
	 "the fewest bytes, to one neighbour"},
	{BIT(BROADCAST) | BIT(REDUCE), false, tree_max, 0, &rf_algo_tree, "small: few steps"},
	{BIT(BROADCAST) | BIT(REDUCE), false, NULL, 0, &rf_algo_chain,
	 "every byte once through each rank"},
};
const size_t rf_select_row_count = sizeof(rf_select_rows) / sizeof(rf_select_rows[0]);

static bool select_folds(const struct rf_task *task)
{
	return task->collective == RF_ALLREDUCE || task->collective == RF_REDUCE ||
	       task->collective == RF_REDUCE_SCATTER;
}

static bool select_can(const struct rf_algo *algo, const struct rf_task *task, bool has_arena)
{
	if (algo->in_shared_memory && !has_arena)
		return false;
	if (!(algo->collectives & 1u << task->collective))
		return false;
	return task->order != RF_ORDER_TREE || algo->tree_order || !select_folds(task);
}

static bool select_matches(const struct rf_select_row *row, const struct rf_config *config,
			   const struct rf_task *task, size_t bytes, int size)
{
	if (!(row->collectives & 1u << task->collective))
		return false;
	if (row->tree_order_only && task->order != RF_ORDER_TREE)
		return false;
	if (row->max_ranks && size > row->max_ranks)
		return false;
	if (!row->max_bytes)
		return true;
	return row->max_bytes(config) > 0 && bytes <= row->max_bytes(config);
}

static const struct rf_algo *select_algo(const struct rf_config *config, const struct rf_task *task,
					 size_t bytes, int size, bool has_arena)
{
	const struct rf_algo *algo = NULL;

	if (config->algorithm[0])
		algo = rf_algo_find(config->algorithm);
	if (algo && select_can(algo, task, has_arena))
		return algo;
	for (size_t i = 0; i < rf_select_row_count; i++) {
		if (!select_matches(&rf_select_rows[i], config, task, bytes, size))
			continue;
		algo = rf_select_rows[i].algo;
		if (select_can(algo, task, has_arena))
			return algo;
	}
	return NULL;
}

static size_t select_clamp(size_t value, size_t least, size_t most)
{
	return value < least ? least : value > most ? most : value;
}

/* The largest segment that every transport in use carries. */
static size_t select_segment_max(const struct rf_config *config)
{
	size_t most = config->segment_max_bytes;

	if (!most || most > RF_SEGMENT_PAYLOAD_MAX)
		most = RF_SEGMENT_PAYLOAD_MAX;
	return select_clamp(most / SELECT_CHUNK_UNIT * SELECT_CHUNK_UNIT, SELECT_CHUNK_UNIT, most);
}

/* block_bytes: what travels as one unit, on the wire. */
static size_t select_chunk(const struct rf_config *config, const struct rf_algo *algo,
			   size_t block_bytes)
{
	size_t chunk = config->chunk_bytes;

	if (!chunk && algo->is_pipelined)
		chunk = select_clamp(block_bytes / SELECT_CHUNKS, SELECT_CHUNK_LEAST,
				     SELECT_CHUNK_MOST);
	else if (!chunk)
		chunk = SELECT_CHUNK_WHOLE;
	chunk = (chunk + SELECT_CHUNK_UNIT - 1) / SELECT_CHUNK_UNIT * SELECT_CHUNK_UNIT;
	return select_clamp(chunk, SELECT_CHUNK_UNIT, select_segment_max(config));
}

void rf_select(const struct rf_config *config, const struct rf_task *task, rf_wire wire, int size,
	       bool has_arena, struct rf_plan *plan)
{
	size_t bytes = task->count * rf_dtype_size(task->dtype);
	bool half = task->dtype == RF_FLOAT16 || task->dtype == RF_BFLOAT16;
	size_t wire_bytes = bytes;

	plan->algo = select_algo(config, task, bytes, size, has_arena);
	plan->wire_type = task->dtype;
	if (wire == RF_WIRE_FLOAT32 && half && select_folds(task)) {
		plan->wire_type = RF_FLOAT32;
		wire_bytes = 2 * bytes;
	}
	plan->chunk_bytes = select_chunk(config, plan->algo, wire_bytes / (size_t)size);
	plan->segment_max_bytes = select_segment_max(config);
	plan->channels = 1;
	if (config->channels > 0)
		plan->channels =
			(unsigned)select_clamp((size_t)config->channels, 1, SELECT_CHANNELS_MOST);
}
