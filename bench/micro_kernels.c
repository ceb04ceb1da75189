/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels, on buffers that fit in L1, in L2, and in no cache. Bytes are those read and written.
 * The kernels' own test prints the same beside the machine's limit (--bench). */
#include "bench/micro.h"
#include "engine/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES_MOST = 8, CASES_MOST = 128, NAME = 64 };

struct kernel_state {
	const struct micro_case *one;
	size_t count; /* elements */
	void *into;
	void *sources[SOURCES_MOST];
};

static void *filled(size_t bytes)
{
	void *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

static void end(void *state)
{
	struct kernel_state *kernel = state;

	free(kernel->into);
	for (int i = 0; i < SOURCES_MOST; i++)
		free(kernel->sources[i]);
	free(kernel);
}

/* kind: the dtype, kind2: the number of sources, size: bytes of each buffer. */
static void *begin(const struct micro_case *one)
{
	struct kernel_state *kernel = calloc(1, sizeof(*kernel));
	size_t element = rf_dtype_size((rf_dtype)one->kind);

	if (!kernel)
		return NULL;
	kernel->one = one;
	kernel->count = one->size / element;
	kernel->into = filled(kernel->count * 4 < one->size ? one->size : kernel->count * 4);
	for (int i = 0; i < one->kind2; i++) {
		kernel->sources[i] = filled(one->size);
		if (!kernel->sources[i] || !kernel->into) {
			end(kernel);
			return NULL;
		}
	}
	return kernel;
}

static void fold2(void *state, size_t times)
{
	struct kernel_state *kernel = state;
	rf_dtype dtype = (rf_dtype)kernel->one->kind;

	for (size_t i = 0; i < times; i++)
		rf_fold2(RF_SUM, dtype, kernel->into, dtype, kernel->into, dtype,
			 kernel->sources[0], kernel->count);
}

static void foldp(void *state, size_t times)
{
	struct kernel_state *kernel = state;
	rf_dtype dtype = (rf_dtype)kernel->one->kind;

	for (size_t i = 0; i < times; i++)
		rf_foldp(RF_SUM, dtype, kernel->into, dtype, (const void *const *)kernel->sources,
			 (size_t)kernel->one->kind2, kernel->count, 0);
}

/* From partials to the type, with a division: the end of an average. */
static void finish(void *state, size_t times)
{
	struct kernel_state *kernel = state;
	rf_dtype dtype = (rf_dtype)kernel->one->kind;

	for (size_t i = 0; i < times; i++)
		rf_finish(dtype, kernel->into, dtype, kernel->sources[0], kernel->count, 3);
}

static struct micro_case cases[CASES_MOST];
static char names[CASES_MOST][NAME];
static size_t case_count;

static void add(const char *kernel, void (*repeat)(void *, size_t), rf_dtype dtype, int sources,
		size_t size, size_t bytes)
{
	snprintf(names[case_count], NAME, "%s/%s/%d/%zuK", kernel, rf_dtype_name(dtype), sources,
		 size >> 10);
	cases[case_count] = (struct micro_case){.name = names[case_count],
						.bytes = bytes,
						.size = size,
						.kind = dtype,
						.kind2 = sources,
						.begin = begin,
						.repeat = repeat,
						.end = end};
	case_count++;
}

const struct micro_case *micro_kernel_cases(void)
{
	static const size_t sizes[] = {8 << 10, 256 << 10, 64 << 20};
	static const rf_dtype dtypes[] = {RF_FLOAT32, RF_FLOAT64, RF_BFLOAT16, RF_FLOAT16,
					  RF_INT32};

	case_count = 0;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
			size_t size = sizes[s];

			add("fold2", fold2, dtypes[d], 1, size, 3 * size);
			add("foldp", foldp, dtypes[d], 4, size, 5 * size);
			add("finish", finish, dtypes[d], 1, size, 2 * size);
		}
	}
	return cases;
}
