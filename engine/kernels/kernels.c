/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the room's calls to the function that serves them: which set of kernels this process uses,
 * and which function of it a call needs.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/fpenv.h"
#include "engine/kernels/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- the sets ------------------------------------------------------------------------------- */

static int reference_is_supported(void)
{
	return 1;
}

#if defined(__x86_64__)

/* The compiler's check covers the operating system's part; not every compiler knows of F16C. */
static int avx2_is_supported(void)
{
	unsigned a, b, c, d;

	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int avx512_is_supported(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#elif defined(__aarch64__)

static int neon_is_supported(void)
{
	return 1;
}

#endif

const struct rf_kernel_set rf_kernel_sets[] = {
	{"reference", reference_is_supported, &rf_kernels_reference},
#if defined(__x86_64__)
	{"avx2", avx2_is_supported, &rf_kernels_avx2},
	{"avx512", avx512_is_supported, &rf_kernels_avx512},
#elif defined(__aarch64__)
	{"neon", neon_is_supported, &rf_kernels_neon},
#endif
};

const size_t rf_kernel_set_count = sizeof(rf_kernel_sets) / sizeof(rf_kernel_sets[0]);

/*
 * Several threads may choose at once; they choose the same. Relaxed: what it points to is
 * constant.
 */
static _Atomic(const struct rf_kernel_set *) active_set;

static const struct rf_kernel_set *set_by_name(const char *name)
{
	for (size_t i = 0; name != NULL && i < rf_kernel_set_count; i++)
		if (strcmp(rf_kernel_sets[i].name, name) == 0)
			return &rf_kernel_sets[i];
	return NULL;
}

static const struct rf_kernel_set *choose(void)
{
	const struct rf_kernel_set *set = set_by_name(getenv("RINGFOLD_ISA"));

	if (set != NULL && set->is_supported())
		return set;
	set = &rf_kernel_sets[rf_kernel_set_count - 1];
	while (!set->is_supported()) /* the first always is */
		set--;
	return set;
}

const struct rf_kernel_set *rf_kernels_active(void)
{
	const struct rf_kernel_set *set = atomic_load_explicit(&active_set, memory_order_relaxed);

	if (set == NULL) {
		set = choose();
		atomic_store_explicit(&active_set, set, memory_order_relaxed);
	}
	return set;
}

int rf_kernels_force(const char *name)
{
	const struct rf_kernel_set *set = set_by_name(name);

	if (set == NULL)
		return RF_ERR_INVALID;
	if (!set->is_supported())
		return RF_ERR_UNSUPPORTED;
	atomic_store_explicit(&active_set, set, memory_order_relaxed);
	return RF_OK;
}

/* ---- from types to functions ---------------------------------------------------------------- */

/* The format of a destination and two sources. */
static enum rf_format format_of(rf_dtype dst_type, rf_dtype a_type, rf_dtype b_type)
{
	static const unsigned char formats[RF_DTYPE_COUNT][RF_DTYPE_COUNT][RF_DTYPE_COUNT] = {
#define X(name, dst, src, second) [RF_##dst][RF_##src][RF_##second] = RF_FORMAT_##name,
		RF_FORMAT_LIST(X)
#undef X
	};

	return (enum rf_format)formats[dst_type][a_type][b_type];
}

static enum rf_arity arity_of(size_t source_count)
{
	static const unsigned char arities[] = {
		RF_ARITY_MANY, RF_ARITY_1,    RF_ARITY_2,    RF_ARITY_3, RF_ARITY_4,
		RF_ARITY_MANY, RF_ARITY_MANY, RF_ARITY_MANY, RF_ARITY_8,
	};

	return source_count < sizeof(arities) ? (enum rf_arity)arities[source_count]
					      : RF_ARITY_MANY;
}

static rf_fold_fn *find(const struct rf_kernel_table *table, rf_op op, enum rf_format format,
			size_t source_count)
{
	return table->formats[format]->fold[arity_of(source_count)][op == RF_AVG ? RF_SUM : op];
}

static int is_integer(rf_dtype dtype)
{
	return dtype <= RF_UINT64;
}

/* Folds and divides a block at a time, so that the division finds its operands in the cache. */
static void fold_and_divide(rf_fold_fn *fold, rf_dtype dtype, void *dst, const void *const *sources,
			    size_t source_count, size_t count, uint64_t divisor)
{
	const size_t block = 16384 / rf_dtype_size(dtype);

	for (size_t begin = 0; begin < count; begin += block) {
		const size_t end = count - begin < block ? count : begin + block;

		fold(dst, sources, source_count, begin, end, 0);
		rf_divide_integers(dtype, dst, begin, end, divisor);
	}
}

void rf_table_foldp(const struct rf_kernel_table *table, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype source_type, const void *const *sources, size_t source_count,
		    size_t count, uint64_t divisor)
{
	rf_fold_fn *fold =
		find(table, op, format_of(dst_type, source_type, source_type), source_count);
	const rf_fpenv env = rf_fpenv_enter();

	if (divisor > 1 && is_integer(dst_type))
		fold_and_divide(fold, dst_type, dst, sources, source_count, count, divisor);
	else
		fold(dst, sources, source_count, 0, count, divisor);
	rf_fpenv_leave(env);
}

void rf_table_fold2(const struct rf_kernel_table *table, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype a_type, const void *a, rf_dtype b_type, const void *b, size_t count)
{
	/* The operators commute, to the bit; the table has the narrow source first. */
	const int swap = rf_dtype_size(a_type) > rf_dtype_size(b_type);
	const void *const sources[2] = {swap ? b : a, swap ? a : b};
	const enum rf_format format =
		format_of(dst_type, swap ? b_type : a_type, swap ? a_type : b_type);
	const rf_fpenv env = rf_fpenv_enter();

	find(table, op, format, 2)(dst, sources, 2, 0, count, 0);
	rf_fpenv_leave(env);
}

void rf_table_finish(const struct rf_kernel_table *table, rf_dtype dst_type, void *dst,
		     rf_dtype src_type, const void *src, size_t count, uint64_t divisor)
{
	rf_table_foldp(table, RF_SUM, dst_type, dst, src_type, &src, 1, count, divisor);
}

/* ---- the room's calls ----------------------------------------------------------------------- */

void rf_fold2(rf_op op, rf_dtype dst_type, void *dst, rf_dtype a_type, const void *a,
	      rf_dtype b_type, const void *b, size_t count)
{
	rf_table_fold2(rf_kernels_active()->table, op, dst_type, dst, a_type, a, b_type, b, count);
}

void rf_foldp(rf_op op, rf_dtype dst_type, void *dst, rf_dtype source_type,
	      const void *const *sources, size_t source_count, size_t count, uint64_t divisor)
{
	rf_table_foldp(rf_kernels_active()->table, op, dst_type, dst, source_type, sources,
		       source_count, count, divisor);
}

void rf_finish(rf_dtype dst_type, void *dst, rf_dtype src_type, const void *src, size_t count,
	       uint64_t divisor)
{
	rf_table_finish(rf_kernels_active()->table, dst_type, dst, src_type, src, count, divisor);
}

rf_dtype rf_partial_type(rf_dtype dtype)
{
	return dtype == RF_FLOAT16 || dtype == RF_BFLOAT16 ? RF_FLOAT32 : dtype;
}
