/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernels of all instruction sets have in common; an ISA's file includes it after its
 * vector operations and after defining RF_TABLE, the name of the table to make. It provides, for
 * one vector each,
 *
 *   i8 i32 i64   _vec _load _store _add _mul;  s8_min s8_max u8_min u8_max and so on; i8_ones()
 *   f32 f64      _vec _load _store _add _mul _min _max _div _set _canonical
 *   f16 bf16     _load and _store as f32_vec, in order
 *   bf16x2       _vec (of two f32_vec, in any order), _load, _store, _fold of f32_fold, ...
 *
 * where min and max of floats are canonical when they are NaN and take -0 for less than +0, and
 * _canonical replaces a NaN. It defines RF_HAVE_PARTS if it has _load_part and _store_part too, and
 * RF_HAVE_ANY_NAN if it has bf16x2_any_nan.
 */
#include <stdbool.h>
#include <string.h>

#include "engine/kernels/table.h"

#define RF_PASTE_(a, b) a##_##b
#define RF_PASTE(a, b)  RF_PASTE_(a, b)

/* Vectors a round of the loop: enough to keep the load and store ports busy. */
#ifndef RF_UNROLLED
#define RF_UNROLLED 4
#endif
#define RF_UNROLL _Pragma("GCC unroll 8")
/* For any number of sources. A stack of this depth serves more of them than can be addressed. */
#define RF_LARGEST_ARITY 8
#define RF_MANY_DEPTH    60

enum {
	i8_bytes = 1,
	b8_bytes = 1,
	i32_bytes = 4,
	i64_bytes = 8,
	f16_bytes = 2,
	bf16_bytes = 2,
	bf16x2_bytes = 2,
	f32_bytes = 4,
	f64_bytes = 8
};

/* ---- integers ------------------------------------------------------------------------------- */

#define INTEGER_MATH(M, I)                                         \
	typedef I##_vec M##_vec;                                   \
	typedef char M##_divisor;                                  \
	enum { M##_lanes = sizeof(I##_vec) / I##_bytes };          \
	RF_INLINE M##_vec M##_fold(rf_op op, M##_vec a, M##_vec b) \
	{                                                          \
		switch (op) {                                      \
		case RF_PROD:                                      \
			return I##_mul(a, b);                      \
		case RF_MIN:                                       \
			return M##_min(a, b);                      \
		case RF_MAX:                                       \
			return M##_max(a, b);                      \
		default:                                           \
			return I##_add(a, b);                      \
		}                                                  \
	}                                                          \
	INTEGER_FINISH(M)

/* The table's integer functions do not divide. */
#define INTEGER_FINISH(M)                                                              \
	RF_INLINE M##_divisor M##_scale(uint64_t divisor)                              \
	{                                                                              \
		(void)divisor;                                                         \
		return 0;                                                              \
	}                                                                              \
	RF_INLINE M##_vec M##_finish(rf_op op, M##_vec v, bool divide, M##_divisor by) \
	{                                                                              \
		(void)op, (void)divide, (void)by;                                      \
		return v;                                                              \
	}

INTEGER_MATH(s8, i8)
INTEGER_MATH(u8, i8)
INTEGER_MATH(s32, i32)
INTEGER_MATH(u32, i32)
INTEGER_MATH(s64, i64)
INTEGER_MATH(u64, i64)

/* Booleans become 0 or 1 when they are loaded. */
typedef i8_vec b8_vec;
typedef char b8_divisor;
enum { b8_lanes = sizeof(b8_vec) };

RF_INLINE b8_vec b8_load(const char *from)
{
	return u8_min(i8_load(from), i8_ones());
}

RF_INLINE void b8_store(char *to, b8_vec value)
{
	i8_store(to, value);
}

RF_INLINE b8_vec b8_fold(rf_op op, b8_vec a, b8_vec b)
{
	return op == RF_PROD || op == RF_MIN ? u8_min(a, b) : u8_max(a, b);
}

INTEGER_FINISH(b8)

/* ---- floats --------------------------------------------------------------------------------- */

/*
 * Folds by min and max are canonical by themselves, all others are made so at the end, and so is a
 * single source, which is finished as a sum. A division by a finite number above 1 makes no new
 * NaN. The empty statement keeps compilers from dividing always and choosing afterwards, which
 * clang 14 does.
 */
#define FLOAT_MATH(M)                                                                  \
	typedef M##_vec M##_divisor;                                                   \
	enum { M##_lanes = sizeof(M##_vec) / M##_bytes };                              \
	RF_INLINE M##_vec M##_fold(rf_op op, M##_vec a, M##_vec b)                     \
	{                                                                              \
		switch (op) {                                                          \
		case RF_PROD:                                                          \
			return M##_mul(a, b);                                          \
		case RF_MIN:                                                           \
			return M##_min(a, b);                                          \
		case RF_MAX:                                                           \
			return M##_max(a, b);                                          \
		default:                                                               \
			return M##_add(a, b);                                          \
		}                                                                      \
	}                                                                              \
	RF_INLINE M##_divisor M##_scale(uint64_t divisor)                              \
	{                                                                              \
		return M##_set(divisor);                                               \
	}                                                                              \
	RF_INLINE M##_vec M##_finish(rf_op op, M##_vec v, bool divide, M##_divisor by) \
	{                                                                              \
		if (divide) {                                                          \
			__asm__ volatile("");                                          \
			v = M##_div(v, by);                                            \
		}                                                                      \
		if (op == RF_MIN || op == RF_MAX)                                      \
			return v;                                                      \
		return M##_canonical(v);                                               \
	}

FLOAT_MATH(f32)
FLOAT_MATH(f64)

/* Twice as many bfloat16 as there are floats in a vector, in whatever order is cheapest. */
typedef f32_divisor bf16x2_divisor;
enum { bf16x2_lanes = 2 * f32_lanes };

RF_INLINE bf16x2_vec bf16x2_fold(rf_op op, bf16x2_vec a, bf16x2_vec b)
{
	return (bf16x2_vec){f32_fold(op, a.first, b.first), f32_fold(op, a.second, b.second)};
}

RF_INLINE bf16x2_divisor bf16x2_scale(uint64_t divisor)
{
	return f32_scale(divisor);
}

RF_INLINE bf16x2_vec bf16x2_finish(rf_op op, bf16x2_vec v, bool divide, bf16x2_divisor by)
{
#ifdef RF_HAVE_ANY_NAN
	/* A look at both halves at once costs less than to replace what is rarely there. */
	if (op != RF_MIN && op != RF_MAX && !divide && __builtin_expect(!bf16x2_any_nan(v), 1))
		return v;
#endif
	return (bf16x2_vec){f32_finish(op, v.first, divide, by),
			    f32_finish(op, v.second, divide, by)};
}

/* ---- parts of a vector: at most one a call, so the code is not repeated for it --------------- */

#ifndef RF_HAVE_PARTS

#define PARTS(E, VEC, LANES)                                          \
	RF_OUTLINE VEC E##_load_part(const char *from, size_t n)      \
	{                                                             \
		char whole[LANES * E##_bytes] = {0};                  \
                                                                      \
		memcpy(whole, from, n *E##_bytes);                    \
		return E##_load(whole);                               \
	}                                                             \
	RF_OUTLINE void E##_store_part(char *to, VEC value, size_t n) \
	{                                                             \
		char whole[LANES * E##_bytes];                        \
                                                                      \
		E##_store(whole, value);                              \
		memcpy(to, whole, n *E##_bytes);                      \
	}

PARTS(i8, i8_vec, s8_lanes)
PARTS(i32, i32_vec, s32_lanes)
PARTS(i64, i64_vec, s64_lanes)
PARTS(f32, f32_vec, f32_lanes)
PARTS(f64, f64_vec, f64_lanes)
PARTS(f16, f32_vec, f32_lanes)
PARTS(bf16, f32_vec, f32_lanes)
PARTS(bf16x2, bf16x2_vec, bf16x2_lanes)

#endif

RF_INLINE b8_vec b8_load_part(const char *from, size_t n)
{
	return u8_min(i8_load_part(from, n), i8_ones());
}

RF_INLINE void b8_store_part(char *to, b8_vec value, size_t n)
{
	i8_store_part(to, value, n);
}

/* ---- the formats ---------------------------------------------------------------------------- */

#define NAME s8
#define MATH s8
#define DST  i8
#define SRC  i8
#include "engine/kernels/fold.h"

#define NAME u8
#define MATH u8
#define DST  i8
#define SRC  i8
#include "engine/kernels/fold.h"

#define NAME s32
#define MATH s32
#define DST  i32
#define SRC  i32
#include "engine/kernels/fold.h"

#define NAME u32
#define MATH u32
#define DST  i32
#define SRC  i32
#include "engine/kernels/fold.h"

#define NAME s64
#define MATH s64
#define DST  i64
#define SRC  i64
#include "engine/kernels/fold.h"

#define NAME u64
#define MATH u64
#define DST  i64
#define SRC  i64
#include "engine/kernels/fold.h"

#define NAME b8
#define MATH b8
#define DST  b8
#define SRC  b8
#include "engine/kernels/fold.h"

#define NAME f32
#define MATH f32
#define DST  f32
#define SRC  f32
#include "engine/kernels/fold.h"

#define NAME f64
#define MATH f64
#define DST  f64
#define SRC  f64
#include "engine/kernels/fold.h"

#define NAME f16
#define MATH f32
#define DST  f16
#define SRC  f16
#include "engine/kernels/fold.h"

#define NAME f32_from_f16
#define MATH f32
#define DST  f32
#define SRC  f16
#include "engine/kernels/fold.h"

#define NAME f16_from_f32
#define MATH f32
#define DST  f16
#define SRC  f32
#include "engine/kernels/fold.h"

#define NAME   f16_from_f16_f32
#define MATH   f32
#define DST    f16
#define SRC    f16
#define SECOND f32
#include "engine/kernels/fold.h"

#define NAME   f32_from_f16_f32
#define MATH   f32
#define DST    f32
#define SRC    f16
#define SECOND f32
#include "engine/kernels/fold.h"

#define NAME bf16
#define MATH bf16x2
#define DST  bf16x2
#define SRC  bf16x2
#include "engine/kernels/fold.h"

#define NAME f32_from_bf16
#define MATH f32
#define DST  f32
#define SRC  bf16
#include "engine/kernels/fold.h"

#define NAME bf16_from_f32
#define MATH f32
#define DST  bf16
#define SRC  f32
#include "engine/kernels/fold.h"

#define NAME   bf16_from_bf16_f32
#define MATH   f32
#define DST    bf16
#define SRC    bf16
#define SECOND f32
#include "engine/kernels/fold.h"

#define NAME   f32_from_bf16_f32
#define MATH   f32
#define DST    f32
#define SRC    bf16
#define SECOND f32
#include "engine/kernels/fold.h"

const struct rf_kernel_table RF_TABLE = {.formats = {
#define X(name, dst, src, second) [RF_FORMAT_##name] = &name##_kernels,
						 RF_FORMAT_LIST(X)
#undef X
					 }};
