/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The room's own view of its kernels: which element formats exist, and the table of functions that
 * each instruction set fills. To add an element type: a row here, its vector operations in each
 * ISA's file, and a block in formats.h. To add an ISA: one file like avx2.c, and a row in
 * kernels.c.
 */
#ifndef RF_KERNELS_TABLE_H
#define RF_KERNELS_TABLE_H

#include "engine/kernels/kernels.h"

/*
 * Formats: X(name, type of the destination, of the sources, of the second source). Where the last
 * two differ the format has two sources only.
 */
#define RF_FORMAT_LIST(X)                                  \
	X(s8, INT8, INT8, INT8)                            \
	X(u8, UINT8, UINT8, UINT8)                         \
	X(s32, INT32, INT32, INT32)                        \
	X(u32, UINT32, UINT32, UINT32)                     \
	X(s64, INT64, INT64, INT64)                        \
	X(u64, UINT64, UINT64, UINT64)                     \
	X(b8, BOOL, BOOL, BOOL)                            \
	X(f32, FLOAT32, FLOAT32, FLOAT32)                  \
	X(f64, FLOAT64, FLOAT64, FLOAT64)                  \
	X(f16, FLOAT16, FLOAT16, FLOAT16)                  \
	X(f32_from_f16, FLOAT32, FLOAT16, FLOAT16)         \
	X(f16_from_f32, FLOAT16, FLOAT32, FLOAT32)         \
	X(f16_from_f16_f32, FLOAT16, FLOAT16, FLOAT32)     \
	X(f32_from_f16_f32, FLOAT32, FLOAT16, FLOAT32)     \
	X(bf16, BFLOAT16, BFLOAT16, BFLOAT16)              \
	X(f32_from_bf16, FLOAT32, BFLOAT16, BFLOAT16)      \
	X(bf16_from_f32, BFLOAT16, FLOAT32, FLOAT32)       \
	X(bf16_from_bf16_f32, BFLOAT16, BFLOAT16, FLOAT32) \
	X(f32_from_bf16_f32, FLOAT32, BFLOAT16, FLOAT32)

enum rf_format {
#define X(name, dst, src, second) RF_FORMAT_##name,
	RF_FORMAT_LIST(X)
#undef X
		RF_FORMAT_COUNT
};

/* How many sources a function folds; RF_ARITY_MANY is any number. */
enum rf_arity {
	RF_ARITY_1,
	RF_ARITY_2,
	RF_ARITY_3,
	RF_ARITY_4,
	RF_ARITY_8,
	RF_ARITY_MANY,
	RF_ARITY_COUNT
};

/*
 * Folds the elements [begin, end) of the sources into the same elements of dst. Floats are divided
 * by divisor if it is above 1; integers are not (the caller does that).
 */
typedef void rf_fold_fn(void *dst, const void *const *sources, size_t source_count, size_t begin,
			size_t end, uint64_t divisor);

/* RF_AVG is RF_SUM by now. */
#define RF_KERNEL_OP_COUNT 4

struct rf_format_kernels {
	rf_fold_fn *fold[RF_ARITY_COUNT][RF_KERNEL_OP_COUNT];
};

struct rf_kernel_table {
	const struct rf_format_kernels *formats[RF_FORMAT_COUNT];
};

extern const struct rf_kernel_table rf_kernels_reference;
extern const struct rf_kernel_table rf_kernels_avx2;
extern const struct rf_kernel_table rf_kernels_avx512;
extern const struct rf_kernel_table rf_kernels_neon;

/* The calls of kernels.h with a given table. */
void rf_table_fold2(const struct rf_kernel_table *table, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype a_type, const void *a, rf_dtype b_type, const void *b, size_t count);
void rf_table_foldp(const struct rf_kernel_table *table, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype source_type, const void *const *sources, size_t source_count,
		    size_t count, uint64_t divisor);
void rf_table_finish(const struct rf_kernel_table *table, rf_dtype dst_type, void *dst,
		     rf_dtype src_type, const void *src, size_t count, uint64_t divisor);

/* Divides the elements [begin, end) of an integer buffer, truncating toward zero. Other types are
 * left alone. */
void rf_divide_integers(rf_dtype dtype, void *buffer, size_t begin, size_t end, uint64_t divisor);

#endif
