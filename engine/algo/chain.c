/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chain: broadcast and reduce from rank to rank, chunk by chunk, for large sizes: every rank
 * receives and sends all of the bytes once, and all of them at the same time.
 */
#include "engine/algo/fan.h"

static int chain_create(struct rf_group *group, const struct rf_task *task,
			const struct rf_plan *plan, void **state)
{
	struct rf_fan_shape shape = {.parent = -1};
	int number = rf_fan_number(group, task);

	if (number)
		shape.parent = rf_fan_rank(group, task, number - 1);
	if (number + 1 < group->size)
		shape.children[shape.child_count++] = rf_fan_rank(group, task, number + 1);
	return rf_fan_create(group, task, plan, &shape, state);
}

const struct rf_algo rf_algo_chain = {
	.name = "chain",
	.collectives = 1u << RF_BROADCAST | 1u << RF_REDUCE,
	.is_pipelined = true,
	.summary = "n-1 steps, all of the bytes once through each rank; pipelined in chunks",
	.create = chain_create,
	.advance = rf_fan_advance,
	.accept = rf_fan_accept,
	.arrived = rf_fan_arrived,
	.sent = rf_fan_sent,
	.destroy = rf_fan_destroy,
};
