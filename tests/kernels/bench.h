/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RF_TEST_KERNELS_BENCH_H
#define RF_TEST_KERNELS_BENCH_H

/* Measures the active set of kernels and prints a table, or JSON. Returns an exit status. */
int bench_run(int json);

#endif
