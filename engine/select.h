/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Select: from what all ranks agreed on and what the call carries to a plan. A table of rows, first
 * match wins; `ringfold info --algorithms` prints it.
 */
#ifndef RF_SELECT_H
#define RF_SELECT_H

#include "engine/algo/algo.h"
#include "engine/config.h"

/* One row: for these collectives, up to this size and number of ranks, this algorithm. */
struct rf_select_row {
	unsigned collectives;                                /* bits */
	bool tree_order_only;                                /* row is for RF_ORDER_TREE calls */
	size_t (*max_bytes)(const struct rf_config *config); /* NULL: any size */
	int max_ranks;                                       /* 0: any number */
	const struct rf_algo *algo;
	const char *why; /* for info */
};
extern const struct rf_select_row rf_select_rows[];
extern const size_t rf_select_row_count;

/* Never fails for a valid task: every collective has a row that takes all. config holds the agreed
 * values. An algorithm forced by config->algorithm is used where it can do the call. wire is the
 * call's. has_arena: all ranks share one. */
void rf_select(const struct rf_config *config, const struct rf_task *task, rf_wire wire, int size,
	       bool has_arena, struct rf_plan *plan);

#endif
