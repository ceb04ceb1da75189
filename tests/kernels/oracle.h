/* SPDX-License-Identifier: BSD-3-Clause */
/* The definition of folds and conversions, one element at a time, written without regard to speed
 * and independent of the kernels. */
#ifndef RF_TEST_ORACLE_H
#define RF_TEST_ORACLE_H

#include "engine/kernels/kernels.h"

/*
 * dst[i] for i < count: the fold of the sources, each of its own type, along the tree, divided if
 * divisor is above 1. Expects the default floating-point environment.
 */
void oracle_fold(rf_op op, rf_dtype dst_type, void *dst, const rf_dtype *source_types,
		 const void *const *sources, size_t source_count, size_t count, uint64_t divisor);

#endif
