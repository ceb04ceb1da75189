/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels: elementwise folds and conversions over buffers.
 *
 * This is all that the rest of the library knows of them. Bits do not depend on the ISA, on the
 * alignment, on how a buffer is cut into calls, nor on the caller's floating-point environment
 * (rounding mode, flush-to-zero: fixed on entry, restored on exit). NaN results are canonical.
 * Thread-safe. Any alignment, any count. A destination may be exactly one of the sources of the
 * same element size; otherwise it overlaps none.
 *
 * Types. T is the element type, P its partial type (float32 for float16 and bfloat16, T itself for
 * all others). Booleans are not divided. Where a call takes a type for each operand, each is T, or
 * P if T is a 16-bit float. 16-bit floats are computed in fp32 and rounded to nearest even, once,
 * on the way to a T output.
 */
#ifndef RF_KERNELS_H
#define RF_KERNELS_H

#include "ringfold.h"

/* dst[i] = a[i] op b[i]. RF_AVG folds as RF_SUM. */
void rf_fold2(rf_op op, rf_dtype dst_type, void *dst, rf_dtype a_type, const void *a,
	      rf_dtype b_type, const void *b, size_t count);

/*
 * dst[i] = the fold of sources[0][i] ... sources[source_count-1][i] along the tree of
 * RF_ORDER_TREE (the left subtree is the largest perfect one), then divided by divisor if that is
 * above 1 (RF_AVG), then rounded to dst_type. All intermediate values have type P. One pass:
 * source_count reads and one write an element. source_count is at least 1 and has no upper bound;
 * dst may be any one of the sources of the same element size.
 */
void rf_foldp(rf_op op, rf_dtype dst_type, void *dst, rf_dtype source_type,
	      const void *const *sources, size_t source_count, size_t count, uint64_t divisor);

/* dst[i] = src[i] / divisor (no division if it is 0 or 1), converted to dst_type. Integers truncate
 * toward zero. */
void rf_finish(rf_dtype dst_type, void *dst, rf_dtype src_type, const void *src, size_t count,
	       uint64_t divisor);

/* P of a type. */
rf_dtype rf_partial_type(rf_dtype dtype);

/* The instruction sets that this build has kernels for, best last; for info, tests and bench. */
struct rf_kernel_set {
	const char *name;                    /* "reference", "avx2", "avx512", "neon" */
	int (*is_supported)(void);           /* on this CPU */
	const struct rf_kernel_table *table; /* private to the room */
};
extern const struct rf_kernel_set rf_kernel_sets[];
extern const size_t rf_kernel_set_count;

/*
 * The set in use: the best supported one, or the one that RINGFOLD_ISA names. Chosen at the first
 * use, once for the process. A name that does not exist, or not on this CPU, is passed over in
 * silence here: the configuration refuses it (config.c).
 */
const struct rf_kernel_set *rf_kernels_active(void);
/* Forces a set, for tests and for configuration. RF_ERR_INVALID: no such name; RF_ERR_UNSUPPORTED:
 * not on this CPU. */
int rf_kernels_force(const char *name);

#endif
