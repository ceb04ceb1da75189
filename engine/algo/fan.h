/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast and reduce over any tree: the algorithms that differ only in its shape share this
 * machine. Private to the algorithms.
 */
#ifndef RF_FAN_H
#define RF_FAN_H

#include "engine/algo/algo.h"

enum { RF_FAN_CHILDREN_MAX = 31 };

/* A rank's neighbours in the tree, as numbers in the group. A child's contribution is folded after
 * those of the children before it; a broadcast serves them from the first to the last. */
struct rf_fan_shape {
	int parent; /* -1: the root */
	int child_count;
	int children[RF_FAN_CHILDREN_MAX];
};

/* A rank's number with the root as 0, and back. */
static inline int rf_fan_number(const struct rf_group *group, const struct rf_task *task)
{
	return (group->rank - task->root + group->size) % group->size;
}

static inline int rf_fan_rank(const struct rf_group *group, const struct rf_task *task, int number)
{
	return (int)(((int64_t)number + task->root) % group->size);
}

int rf_fan_create(struct rf_group *group, const struct rf_task *task, const struct rf_plan *plan,
		  const struct rf_fan_shape *shape, void **state);
int rf_fan_advance(void *state, int *awaited);
int rf_fan_accept(void *state, const struct rf_arrival *arrival, struct rf_landing *landing);
void rf_fan_arrived(void *state, const struct rf_arrival *arrival);
void rf_fan_sent(void *state, int to, unsigned channel, uint32_t chunk);
void rf_fan_destroy(void *state);

#endif
