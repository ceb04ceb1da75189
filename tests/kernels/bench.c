/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes per second of two-source folds, where the working set lies in each cache level and in
 * memory, beside two bounds measured in the same rounds: the limit, which is two loads and a store
 * of the set's widest vectors without arithmetic, and for the 16-bit floats the same kernel from
 * L1, where nothing but its instructions takes time. A rate counts both reads and the write. The
 * best of the rounds counts, because everything that disturbs makes it slower.
 */
#include "tests/kernels/bench.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "engine/kernels/kernels.h"

enum level { L1, L2, LLC, MEMORY, LEVEL_COUNT };

static const char *const level_names[] = {"L1", "L2", "LLC", "memory"};

#define ROUNDS        25
#define ROUND_SECONDS 0.002
#define STAGGER       320 /* so that the three buffers do not meet in the same sets */
#define LIMIT_STEP    256 /* bytes of each buffer in a round of the limit's loop */

struct bench {
	size_t bytes[LEVEL_COUNT]; /* of one of the three buffers */
	char *a, *b, *dst;
	double limit[LEVEL_COUNT];
	double rate[LEVEL_COUNT][RF_DTYPE_COUNT];
};

/* ---- the limit ------------------------------------------------------------------------------ */

typedef void limit_fn(char *dst, const char *a, const char *b, size_t bytes);

#if defined(__x86_64__)

#define MOVE(REGISTER, AT)                                 \
	"vmovups " #AT "(%[a],%[i]), %%" #REGISTER "0\n\t" \
	"vmovups " #AT "(%[b],%[i]), %%" #REGISTER "1\n\t" \
	"vmovups %%" #REGISTER "0, " #AT "(%[dst],%[i])\n\t"

#define LIMIT(NAME, MOVES)                                                                     \
	static void NAME(char *dst, const char *a, const char *b, size_t bytes)                \
	{                                                                                      \
		size_t i = 0;                                                                  \
                                                                                               \
		__asm__ volatile("1:\n\t" MOVES "add %[step], %[i]\n\t"                        \
				 "cmp %[bytes], %[i]\n\t"                                      \
				 "jb 1b\n\t"                                                   \
				 "vzeroupper"                                                  \
				 : [i] "+r"(i)                                                 \
				 : [a] "r"(a), [b] "r"(b), [dst] "r"(dst), [bytes] "r"(bytes), \
				   [step] "i"(LIMIT_STEP)                                      \
				 : "xmm0", "xmm1", "memory", "cc");                            \
	}

LIMIT(limit_avx2, MOVE(ymm, 0) MOVE(ymm, 32) MOVE(ymm, 64) MOVE(ymm, 96) MOVE(ymm, 128)
			  MOVE(ymm, 160) MOVE(ymm, 192) MOVE(ymm, 224))
LIMIT(limit_avx512, MOVE(zmm, 0) MOVE(zmm, 64) MOVE(zmm, 128) MOVE(zmm, 192))

#elif defined(__aarch64__)

static void limit_neon(char *dst, const char *a, const char *b, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 32)
		__asm__ volatile("ldp q0, q1, [%0]\n\t"
				 "ldp q2, q3, [%1]\n\t"
				 "stp q0, q1, [%2]"
				 :
				 : "r"(a + i), "r"(b + i), "r"(dst + i)
				 : "v0", "v1", "v2", "v3", "memory");
}

#endif

static void limit_plain(char *dst, const char *a, const char *b, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		(void)*(const volatile uint64_t *)(const void *)(b + i);
		*(volatile uint64_t *)(void *)(dst + i) =
			*(const volatile uint64_t *)(const void *)(a + i);
	}
}

static limit_fn *limit_of_set(const char *name)
{
#if defined(__x86_64__)
	if (strcmp(name, "avx2") == 0)
		return limit_avx2;
	if (strcmp(name, "avx512") == 0)
		return limit_avx512;
#elif defined(__aarch64__)
	if (strcmp(name, "neon") == 0)
		return limit_neon;
#endif
	return limit_plain;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* dtype RF_DTYPE_COUNT is the limit. */
static void run_once(const struct bench *bench, size_t bytes, int dtype)
{
	if (dtype == RF_DTYPE_COUNT)
		limit_of_set(rf_kernels_active()->name)(bench->dst, bench->a, bench->b, bytes);
	else
		rf_fold2(RF_SUM, (rf_dtype)dtype, bench->dst, (rf_dtype)dtype, bench->a,
			 (rf_dtype)dtype, bench->b, bytes / rf_dtype_size((rf_dtype)dtype));
}

static double measure_round(const struct bench *bench, size_t bytes, int dtype)
{
	size_t times = 1 + (size_t)(ROUND_SECONDS * 5e10) / (3 * bytes);
	double start;

	run_once(bench, bytes, dtype);
	start = now();
	for (size_t i = 0; i < times; i++)
		run_once(bench, bytes, dtype);
	return (double)(3 * bytes) * (double)times / (now() - start);
}

static void measure_level(struct bench *bench, enum level level)
{
	const size_t bytes = bench->bytes[level];

	bench->b = bench->a + bytes + STAGGER;
	bench->dst = bench->b + bytes + STAGGER;
	for (int round = 0; round < ROUNDS; round++) {
		for (int dtype = 0; dtype <= RF_DTYPE_COUNT; dtype++) {
			double *best = dtype == RF_DTYPE_COUNT ? &bench->limit[level]
							       : &bench->rate[level][dtype];
			const double rate = measure_round(bench, bytes, dtype);

			if (rate > *best)
				*best = rate;
		}
	}
}

static size_t cache_bytes(int name, size_t otherwise)
{
	const long bytes = sysconf(name);

	return bytes > 0 ? (size_t)bytes : otherwise;
}

static size_t within(size_t bytes, size_t most)
{
	return bytes < most ? bytes : most;
}

/*
 * Each working set fills half of its level; the memory's is four times the last level. Virtual
 * machines report last levels of which they have a share: hence the bounds.
 */
static void choose_sizes(struct bench *bench)
{
	const size_t l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
	const size_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
	const size_t llc = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 8 << 20);
	const size_t sets[LEVEL_COUNT] = {l1 / 2, l2 / 2, within(llc / 2, 12 << 20),
					  within(llc * 4, 384 << 20)};

	for (int level = 0; level < LEVEL_COUNT; level++)
		bench->bytes[level] = sets[level] / 3 / 1024 * 1024;
}

static int allocate(struct bench *bench)
{
	const size_t bytes = (3 * (bench->bytes[MEMORY] + STAGGER) + (2 << 20)) >> 21 << 21;
	char *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("check_kernels: mmap");
		return 1;
	}
	madvise(memory, bytes, MADV_HUGEPAGE);
	/* Ordinary numbers in every type: 0x3c3c is 1.06 in fp16, 0.0115 in bfloat16 and fp32. */
	memset(memory, 0x3c, bytes);
	bench->a = memory;
	return 0;
}

/* ---- printing ------------------------------------------------------------------------------- */

static int is_small_float(int dtype)
{
	return dtype == RF_FLOAT16 || dtype == RF_BFLOAT16;
}

/* Elements per second, as a multiple of fp32's. */
static double to_float32(const struct bench *bench, int level, int dtype)
{
	return bench->rate[level][dtype] / (double)rf_dtype_size((rf_dtype)dtype) /
	       (bench->rate[level][RF_FLOAT32] / 4);
}

static void print_text(const struct bench *bench)
{
	printf("kernels: %s; sum of two sources; GB/s, in brackets the part of the limit\n",
	       rf_kernels_active()->name);
	printf("%-12s", "");
	for (int level = 0; level < LEVEL_COUNT; level++)
		printf("%16s", level_names[level]);
	printf("\n%-12s", "KiB");
	for (int level = 0; level < LEVEL_COUNT; level++)
		printf("%16zu", 3 * bench->bytes[level] / 1024);
	printf("\n%-12s", "limit");
	for (int level = 0; level < LEVEL_COUNT; level++)
		printf("%16.1f", bench->limit[level] * 1e-9);
	for (int dtype = 0; dtype < RF_DTYPE_COUNT; dtype++) {
		printf("\n%-12s", rf_dtype_name((rf_dtype)dtype));
		for (int level = 0; level < LEVEL_COUNT; level++)
			printf("%9.1f (%4.2f)", bench->rate[level][dtype] * 1e-9,
			       bench->rate[level][dtype] / bench->limit[level]);
	}
	for (int dtype = 0; dtype < RF_DTYPE_COUNT; dtype++) {
		if (!is_small_float(dtype))
			continue;
		printf("\n%s: of its own rate from L1, and elements against float32\n%-12s",
		       rf_dtype_name((rf_dtype)dtype), "");
		for (int level = 0; level < LEVEL_COUNT; level++)
			printf("    %5.2f x %5.2f",
			       bench->rate[level][dtype] / bench->rate[L1][dtype],
			       to_float32(bench, level, dtype));
	}
	printf("\n");
}

static void print_json(const struct bench *bench)
{
	const char *separator = "";

	printf("{\"set\": \"%s\", \"op\": \"sum\", \"levels\": [", rf_kernels_active()->name);
	for (int level = 0; level < LEVEL_COUNT; level++)
		printf("%s\n {\"level\": \"%s\", \"working_set_bytes\": %zu, "
		       "\"limit_bytes_per_second\": %.0f}",
		       level ? "," : "", level_names[level], 3 * bench->bytes[level],
		       bench->limit[level]);
	printf("],\n\"results\": [");
	for (int dtype = 0; dtype < RF_DTYPE_COUNT; dtype++) {
		for (int level = 0; level < LEVEL_COUNT; level++) {
			printf("%s\n {\"dtype\": \"%s\", \"level\": \"%s\", "
			       "\"bytes_per_second\": %.0f, \"of_limit\": %.4f, "
			       "\"of_its_l1\": %.4f, \"elements_to_float32\": %.4f}",
			       separator, rf_dtype_name((rf_dtype)dtype), level_names[level],
			       bench->rate[level][dtype],
			       bench->rate[level][dtype] / bench->limit[level],
			       bench->rate[level][dtype] / bench->rate[L1][dtype],
			       to_float32(bench, level, dtype));
			separator = ",";
		}
	}
	printf("]}\n");
}

int bench_run(int json)
{
	static struct bench bench;

	choose_sizes(&bench);
	if (allocate(&bench) != 0)
		return 1;
	for (int level = 0; level < LEVEL_COUNT; level++)
		measure_level(&bench, (enum level)level);
	if (json)
		print_json(&bench);
	else
		print_text(&bench);
	return 0;
}
