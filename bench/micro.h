/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bench/micro times, as C: a case prepares itself, then repeats one thing. Google Benchmark
 * (micro_main.cc) decides how often, and knows nothing of the library.
 */
#ifndef RF_BENCH_MICRO_H
#define RF_BENCH_MICRO_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct micro_case {
	const char *name;
	size_t bytes; /* moved by one repetition, for bytes per second; 0: not told */
	size_t size;  /* what the case is about, for begin() */
	int kind;     /* likewise */
	int kind2;
	void *(*begin)(const struct micro_case *one); /* NULL: not possible here; skipped */
	void (*repeat)(void *state, size_t times);
	void (*end)(void *state);
};

/* micro_kernels.c and micro.c; name NULL at the end. Names live as long as the process. */
const struct micro_case *micro_kernel_cases(void);
const struct micro_case *micro_primitive_cases(void);

#ifdef __cplusplus
}
#endif

#endif
