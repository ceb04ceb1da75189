/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels for AVX2 with F16C. */
#include <immintrin.h>
#include <stdint.h>

#include "engine/kernels/inline.h"

#define RF_TABLE rf_kernels_avx2

/* ---- integers ------------------------------------------------------------------------------- */

#define INTEGER(I)                                                \
	typedef __m256i I##_vec;                                  \
	RF_INLINE I##_vec I##_load(const char *from)              \
	{                                                         \
		return _mm256_loadu_si256((const __m256i *)from); \
	}                                                         \
	RF_INLINE void I##_store(char *to, I##_vec v)             \
	{                                                         \
		_mm256_storeu_si256((__m256i *)to, v);            \
	}

#define BINARY(VEC, NAME, EXPRESSION)    \
	RF_INLINE VEC NAME(VEC a, VEC b) \
	{                                \
		return EXPRESSION;       \
	}

INTEGER(i8)
INTEGER(i32)
INTEGER(i64)

RF_INLINE i8_vec i8_ones(void)
{
	return _mm256_set1_epi8(1);
}

/* Bytes are multiplied as the low halves of 16-bit products, even and odd ones apart. */
RF_INLINE i8_vec i8_mul(i8_vec a, i8_vec b)
{
	const __m256i even = _mm256_mullo_epi16(a, b);
	const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));

	return _mm256_or_si256(_mm256_and_si256(even, _mm256_set1_epi16(0xff)),
			       _mm256_slli_epi16(odd, 8));
}

BINARY(i8_vec, i8_add, _mm256_add_epi8(a, b))
BINARY(i8_vec, s8_min, _mm256_min_epi8(a, b))
BINARY(i8_vec, s8_max, _mm256_max_epi8(a, b))
BINARY(i8_vec, u8_min, _mm256_min_epu8(a, b))
BINARY(i8_vec, u8_max, _mm256_max_epu8(a, b))

BINARY(i32_vec, i32_add, _mm256_add_epi32(a, b))
BINARY(i32_vec, i32_mul, _mm256_mullo_epi32(a, b))
BINARY(i32_vec, s32_min, _mm256_min_epi32(a, b))
BINARY(i32_vec, s32_max, _mm256_max_epi32(a, b))
BINARY(i32_vec, u32_min, _mm256_min_epu32(a, b))
BINARY(i32_vec, u32_max, _mm256_max_epu32(a, b))

/* low * low + (low * high + high * low) * 2^32 */
RF_INLINE i64_vec i64_mul(i64_vec a, i64_vec b)
{
	const __m256i cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32(b, 0xb1));
	const __m256i middle = _mm256_add_epi32(cross, _mm256_srli_epi64(cross, 32));

	return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(middle, 32));
}

/* Unsigned order is signed order with the top bit flipped. */
RF_INLINE __m256i flip(__m256i v)
{
	return _mm256_xor_si256(v, _mm256_set1_epi64x(INT64_MIN));
}

BINARY(i64_vec, i64_add, _mm256_add_epi64(a, b))
BINARY(i64_vec, s64_min, _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)))
BINARY(i64_vec, s64_max, _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)))
BINARY(i64_vec, u64_min, _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(flip(a), flip(b))))
BINARY(i64_vec, u64_max, _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(flip(a), flip(b))))

/* ---- floats --------------------------------------------------------------------------------- */

/*
 * The instructions for min and max return the second operand when both are zero or one is NaN:
 * taken both ways round, or and and pick the right zero, and a comparison finds the NaN.
 */
#define FLOAT(M, VEC, S, SCALAR, NAN_BITS)                                                         \
	typedef VEC M##_vec;                                                                       \
	RF_INLINE M##_vec M##_load(const char *from)                                               \
	{                                                                                          \
		return _mm256_loadu_##S((const SCALAR *)from);                                     \
	}                                                                                          \
	RF_INLINE void M##_store(char *to, M##_vec v)                                              \
	{                                                                                          \
		_mm256_storeu_##S((SCALAR *)to, v);                                                \
	}                                                                                          \
	RF_INLINE M##_vec M##_set(uint64_t value)                                                  \
	{                                                                                          \
		return _mm256_set1_##S((SCALAR)value);                                             \
	}                                                                                          \
	RF_INLINE M##_vec M##_if_unordered(M##_vec a, M##_vec b, M##_vec otherwise)                \
	{                                                                                          \
		return _mm256_blendv_##S(otherwise, NAN_BITS, _mm256_cmp_##S(a, b, _CMP_UNORD_Q)); \
	}                                                                                          \
	RF_INLINE M##_vec M##_canonical(M##_vec v)                                                 \
	{                                                                                          \
		return M##_if_unordered(v, v, v);                                                  \
	}                                                                                          \
	BINARY(M##_vec, M##_add, _mm256_add_##S(a, b))                                             \
	BINARY(M##_vec, M##_mul, _mm256_mul_##S(a, b))                                             \
	BINARY(M##_vec, M##_div, _mm256_div_##S(a, b))                                             \
	BINARY(M##_vec, M##_min,                                                                   \
	       M##_if_unordered(a, b, _mm256_or_##S(_mm256_min_##S(a, b), _mm256_min_##S(b, a))))  \
	BINARY(M##_vec, M##_max,                                                                   \
	       M##_if_unordered(a, b, _mm256_and_##S(_mm256_max_##S(a, b), _mm256_max_##S(b, a))))

#define NAN_PS _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000))
#define NAN_PD _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000))

FLOAT(f32, __m256, ps, float, NAN_PS)
FLOAT(f64, __m256d, pd, double, NAN_PD)

/* ---- 16-bit floats: what is stored is canonical already ------------------------------------- */

RF_INLINE f32_vec f16_load(const char *from)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

RF_INLINE void f16_store(char *to, f32_vec v)
{
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

RF_INLINE f32_vec bf16_load(const char *from)
{
	const __m128i half = _mm_loadu_si128((const __m128i *)from);

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Rounded to nearest even: the bfloat16 is in the upper half. */
RF_INLINE __m256i bf16_round(f32_vec v)
{
	const __m256i bits = _mm256_castps_si256(v);
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

	return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

RF_INLINE void bf16_store(char *to, f32_vec v)
{
	const __m256i half = _mm256_srli_epi32(bf16_round(v), 16);

	_mm_storeu_si128((__m128i *)to, _mm_packus_epi32(_mm256_castsi256_si128(half),
							 _mm256_extracti128_si256(half, 1)));
}

/* Even and odd elements apart. */
typedef struct bf16x2_vec {
	f32_vec first, second;
} bf16x2_vec;

RF_INLINE bf16x2_vec bf16x2_load(const char *from)
{
	const __m256i v = i32_load(from);
	const __m256i odd = _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000));

	return (bf16x2_vec){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
			    _mm256_castsi256_ps(odd)};
}

RF_INLINE void bf16x2_store(char *to, bf16x2_vec v)
{
	i32_store(to, _mm256_blend_epi16(_mm256_srli_epi32(bf16_round(v.first), 16),
					 bf16_round(v.second), 0xaa));
}

/* One comparison serves both halves: unordered is a pair of which either is NaN. */
#define RF_HAVE_ANY_NAN
RF_INLINE int bf16x2_any_nan(bf16x2_vec v)
{
	return _mm256_movemask_ps(_mm256_cmp_ps(v.first, v.second, _CMP_UNORD_Q));
}

#include "engine/kernels/formats.h"
