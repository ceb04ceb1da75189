/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Helpers of the algorithms beside those that algo.h declares. Private to the room.
 */
#ifndef RF_GROUP_H
#define RF_GROUP_H

#include "engine/algo/algo.h"

/* The whole call of a group of one rank. */
void rf_group_alone(struct rf_group *group, const struct rf_task *task);

/* value modulo size, for value >= -size. */
static inline int rf_group_wrap(const struct rf_group *group, int64_t value)
{
	return (int)((value + group->size) % group->size);
}

#endif
