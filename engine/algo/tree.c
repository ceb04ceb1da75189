/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tree: broadcast and reduce along a binomial tree, for small sizes: log2(n) steps.
 *
 * With the root as 0, a rank's parent is its number without the lowest bit that is set; the
 * children add one of the bits below that.
 */
#include "engine/algo/fan.h"

static int tree_create(struct rf_group *group, const struct rf_task *task,
		       const struct rf_plan *plan, void **state)
{
	struct rf_fan_shape shape = {.parent = -1};
	int64_t number = rf_fan_number(group, task);
	int64_t bit;

	for (bit = 1; bit < group->size && !(number & bit); bit <<= 1)
		if (number + bit < group->size)
			shape.children[shape.child_count++] =
				rf_fan_rank(group, task, (int)(number + bit));
	if (number)
		shape.parent = rf_fan_rank(group, task, (int)(number - bit));
	if (task->collective != RF_BROADCAST)
		return rf_fan_create(group, task, plan, &shape, state);
	/* The child with the deepest subtree first. */
	for (int i = 0, j = shape.child_count - 1; i < j; i++, j--) {
		int child = shape.children[i];

		shape.children[i] = shape.children[j];
		shape.children[j] = child;
	}
	return rf_fan_create(group, task, plan, &shape, state);
}

const struct rf_algo rf_algo_tree = {
	.name = "tree",
	.collectives = 1u << RF_BROADCAST | 1u << RF_REDUCE,
	.summary = "log2(n) steps, each with all of the bytes",
	.create = tree_create,
	.advance = rf_fan_advance,
	.accept = rf_fan_accept,
	.arrived = rf_fan_arrived,
	.sent = rf_fan_sent,
	.destroy = rf_fan_destroy,
};
