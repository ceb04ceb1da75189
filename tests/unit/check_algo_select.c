/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every call gets a plan that can do it; what the configuration forces is followed where it can be.
 */
#include "engine/select.h"
#include "engine/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

static struct rf_config config;

static struct rf_task task_of(rf_collective collective, rf_dtype dtype, size_t count)
{
	struct rf_task task = {
		.collective = collective, .dtype = dtype, .op = RF_SUM, .count = count};

	return task;
}

static void check_plan(const struct rf_task *task, rf_wire wire, int size)
{
	struct rf_plan plan;
	bool folds = task->collective != RF_BARRIER && task->collective != RF_BROADCAST &&
		     task->collective != RF_ALLGATHER;
	bool half = task->dtype == RF_BFLOAT16 || task->dtype == RF_FLOAT16;

	rf_select(&config, task, wire, size, false, &plan);
	CHECK(plan.algo != NULL);
	CHECK(plan.algo->collectives & 1u << task->collective);
	CHECK(task->order != RF_ORDER_TREE || !folds || plan.algo->tree_order);
	CHECK(plan.chunk_bytes >= 64 && plan.chunk_bytes % 64 == 0);
	CHECK(plan.chunk_bytes <= RF_SEGMENT_PAYLOAD_MAX);
	CHECK(plan.channels >= 1);
	CHECK(plan.wire_type ==
	      (wire == RF_WIRE_FLOAT32 && half && folds ? RF_FLOAT32 : task->dtype));
}

static void check_every_call_has_a_plan(void)
{
	for (int c = 0; c < RF_COLLECTIVE_COUNT; c++)
		for (int d = 0; d < RF_DTYPE_COUNT; d++)
			for (unsigned bits = 0; bits < 60; bits += 3)
				for (int variant = 0; variant < 4; variant++) {
					struct rf_task task = task_of((rf_collective)c, (rf_dtype)d,
								      ((size_t)1 << bits) - 1);

					task.order = variant & 1 ? RF_ORDER_TREE : RF_ORDER_ANY;
					check_plan(&task,
						   variant & 2 ? RF_WIRE_FLOAT32 : RF_WIRE_SAME,
						   1 + (int)bits);
				}
}

static const char *chosen_of(rf_collective collective, size_t bytes, int size)
{
	struct rf_task task = task_of(collective, RF_UINT8, bytes);
	struct rf_plan plan;

	rf_select(&config, &task, RF_WIRE_SAME, size, false, &plan);
	return plan.algo->name;
}

static const char *chosen(rf_collective collective, size_t bytes)
{
	return chosen_of(collective, bytes, 4);
}

static void check_limits_are_followed(void)
{
	config.doubling_max_bytes = 1000;
	config.tree_max_bytes = 2000;
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 1000), "doubling"));
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 1001), "ring"));
	config.direct_max_bytes = 3000;
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 1001), "direct"));
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 3001), "ring"));
	config.doubling_max_bytes = config.direct_max_bytes = 0;
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 0), "ring"));
	CHECK(!strcmp(chosen(RF_REDUCE, 2000), "tree"));
	CHECK(!strcmp(chosen(RF_BROADCAST, 2001), "chain"));
	CHECK(!strcmp(chosen(RF_ALLGATHER, 1), "ring"));
	config.pairwise_max_bytes = 4000;
	CHECK(!strcmp(chosen(RF_ALLGATHER, 4000), "direct"));
	CHECK(!strcmp(chosen(RF_REDUCE_SCATTER, 4000), "direct"));
	CHECK(!strcmp(chosen(RF_ALLGATHER, 4001), "ring"));
	CHECK(!strcmp(chosen(RF_REDUCE_SCATTER, 4001), "ring"));
	CHECK(!strcmp(chosen_of(RF_ALLGATHER, 4000, 32), "direct"));
	CHECK(!strcmp(chosen_of(RF_ALLGATHER, 4000, 33), "ring"));
}

static void check_forcing(void)
{
	struct rf_task task = task_of(RF_ALLREDUCE, RF_FLOAT32, 1 << 20);
	struct rf_plan plan;

	strcpy(config.algorithm, "direct");
	CHECK(!strcmp(chosen(RF_ALLREDUCE, 8), "direct"));
	CHECK(!strcmp(chosen(RF_BROADCAST, 8), "tree"));
	strcpy(config.algorithm, "ring");
	task.order = RF_ORDER_TREE;
	rf_select(&config, &task, RF_WIRE_SAME, 4, false, &plan);
	CHECK(!strcmp(plan.algo->name, "direct"));
	strcpy(config.algorithm, "no such");
	check_every_call_has_a_plan();
	config.algorithm[0] = '\0';
	config.chunk_bytes = 100;
	config.channels = 3;
	rf_select(&config, &task, RF_WIRE_SAME, 4, false, &plan);
	CHECK(plan.chunk_bytes == 128 && plan.channels == 3);
	config.chunk_bytes = SIZE_MAX;
	check_every_call_has_a_plan();
}

int main(void)
{
	for (size_t i = 0; i < rf_select_row_count; i++)
		CHECK(rf_select_rows[i].algo == rf_algo_find(rf_select_rows[i].algo->name));
	check_every_call_has_a_plan();
	check_limits_are_followed();
	check_forcing();
	return 0;
}
