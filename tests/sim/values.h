/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inputs whose reductions are exact in every type, so that results can be compared bit by bit with
 * one computed from the definition: small whole numbers, of which only the first ranks have any but
 * the neutral one.
 */
#ifndef TESTS_SIM_VALUES_H
#define TESTS_SIM_VALUES_H

#include "ringfold.h"

/* Writes rank's input of a call: elements first .. first + count - 1. */
void values_input(uint64_t call, int rank, rf_dtype dtype, rf_op op, size_t first, size_t count,
		  void *buffer);
/* Writes what the fold over all ranks must be. */
void values_expected(uint64_t call, int size, rf_dtype dtype, rf_op op, size_t first, size_t count,
		     void *buffer);

#endif
