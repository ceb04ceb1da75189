/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels for AVX-512: F, BW, DQ and VL. The conversions of avx512_bf16 are of no use here,
 * because they flush denormals.
 *
 * The tests also include this file after an emulation of the intrinsics, so that it is tested on
 * machines without them.
 */
#ifndef RF_AVX512_EMULATED
#include <immintrin.h>
#define RF_TABLE rf_kernels_avx512
#endif
#include <stdint.h>

#include "engine/kernels/inline.h"

/* Parts of vectors are loaded and stored under a mask of their bytes; there are fewer than 64. */
#define RF_HAVE_PARTS

RF_INLINE __mmask64 byte_mask(size_t bytes)
{
	return ((__mmask64)1 << bytes) - 1;
}

RF_INLINE __m512i load_bytes(const char *from, size_t bytes)
{
	return _mm512_maskz_loadu_epi8(byte_mask(bytes), from);
}

RF_INLINE void store_bytes(char *to, __m512i v, size_t bytes)
{
	_mm512_mask_storeu_epi8(to, byte_mask(bytes), v);
}

RF_INLINE __m256i load_half_bytes(const char *from, size_t bytes)
{
	return _mm256_maskz_loadu_epi8((__mmask32)byte_mask(bytes), from);
}

RF_INLINE void store_half_bytes(char *to, __m256i v, size_t bytes)
{
	_mm256_mask_storeu_epi8(to, (__mmask32)byte_mask(bytes), v);
}

/* ---- integers ------------------------------------------------------------------------------- */

#define INTEGER(I, BYTES)                                            \
	typedef __m512i I##_vec;                                     \
	RF_INLINE I##_vec I##_load(const char *from)                 \
	{                                                            \
		return _mm512_loadu_si512(from);                     \
	}                                                            \
	RF_INLINE void I##_store(char *to, I##_vec v)                \
	{                                                            \
		_mm512_storeu_si512(to, v);                          \
	}                                                            \
	RF_INLINE I##_vec I##_load_part(const char *from, size_t n)  \
	{                                                            \
		return load_bytes(from, n * BYTES);                  \
	}                                                            \
	RF_INLINE void I##_store_part(char *to, I##_vec v, size_t n) \
	{                                                            \
		store_bytes(to, v, n *BYTES);                        \
	}

#define BINARY(VEC, NAME, EXPRESSION)    \
	RF_INLINE VEC NAME(VEC a, VEC b) \
	{                                \
		return EXPRESSION;       \
	}

INTEGER(i8, 1)
INTEGER(i32, 4)
INTEGER(i64, 8)

RF_INLINE i8_vec i8_ones(void)
{
	return _mm512_set1_epi8(1);
}

/* Bytes are multiplied as the low halves of 16-bit products, even and odd ones apart. */
RF_INLINE i8_vec i8_mul(i8_vec a, i8_vec b)
{
	const __m512i even = _mm512_mullo_epi16(a, b);
	const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));

	return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8));
}

BINARY(i8_vec, i8_add, _mm512_add_epi8(a, b))
BINARY(i8_vec, s8_min, _mm512_min_epi8(a, b))
BINARY(i8_vec, s8_max, _mm512_max_epi8(a, b))
BINARY(i8_vec, u8_min, _mm512_min_epu8(a, b))
BINARY(i8_vec, u8_max, _mm512_max_epu8(a, b))

BINARY(i32_vec, i32_add, _mm512_add_epi32(a, b))
BINARY(i32_vec, i32_mul, _mm512_mullo_epi32(a, b))
BINARY(i32_vec, s32_min, _mm512_min_epi32(a, b))
BINARY(i32_vec, s32_max, _mm512_max_epi32(a, b))
BINARY(i32_vec, u32_min, _mm512_min_epu32(a, b))
BINARY(i32_vec, u32_max, _mm512_max_epu32(a, b))

BINARY(i64_vec, i64_add, _mm512_add_epi64(a, b))
BINARY(i64_vec, i64_mul, _mm512_mullo_epi64(a, b))
BINARY(i64_vec, s64_min, _mm512_min_epi64(a, b))
BINARY(i64_vec, s64_max, _mm512_max_epi64(a, b))
BINARY(i64_vec, u64_min, _mm512_min_epu64(a, b))
BINARY(i64_vec, u64_max, _mm512_max_epu64(a, b))

/* ---- floats --------------------------------------------------------------------------------- */

/* The range instruction takes -0 for less than +0, but prefers a number to a quiet NaN. */
#define RANGE_MIN 4
#define RANGE_MAX 5

#define FLOAT(M, VEC, S, SCALAR, BYTES, NAN_BITS)                                                \
	typedef VEC M##_vec;                                                                     \
	RF_INLINE M##_vec M##_load(const char *from)                                             \
	{                                                                                        \
		return _mm512_loadu_##S(from);                                                   \
	}                                                                                        \
	RF_INLINE void M##_store(char *to, M##_vec v)                                            \
	{                                                                                        \
		_mm512_storeu_##S(to, v);                                                        \
	}                                                                                        \
	RF_INLINE M##_vec M##_load_part(const char *from, size_t n)                              \
	{                                                                                        \
		return _mm512_castsi512_##S(load_bytes(from, n * BYTES));                        \
	}                                                                                        \
	RF_INLINE void M##_store_part(char *to, M##_vec v, size_t n)                             \
	{                                                                                        \
		store_bytes(to, _mm512_cast##S##_si512(v), n *BYTES);                            \
	}                                                                                        \
	RF_INLINE M##_vec M##_set(uint64_t value)                                                \
	{                                                                                        \
		return _mm512_set1_##S((SCALAR)value);                                           \
	}                                                                                        \
	RF_INLINE M##_vec M##_if_unordered(M##_vec a, M##_vec b, M##_vec otherwise)              \
	{                                                                                        \
		return _mm512_mask_mov_##S(otherwise, _mm512_cmp_##S##_mask(a, b, _CMP_UNORD_Q), \
					   NAN_BITS);                                            \
	}                                                                                        \
	RF_INLINE M##_vec M##_canonical(M##_vec v)                                               \
	{                                                                                        \
		return M##_if_unordered(v, v, v);                                                \
	}                                                                                        \
	BINARY(M##_vec, M##_add, _mm512_add_##S(a, b))                                           \
	BINARY(M##_vec, M##_mul, _mm512_mul_##S(a, b))                                           \
	BINARY(M##_vec, M##_div, _mm512_div_##S(a, b))                                           \
	BINARY(M##_vec, M##_min, M##_if_unordered(a, b, _mm512_range_##S(a, b, RANGE_MIN)))      \
	BINARY(M##_vec, M##_max, M##_if_unordered(a, b, _mm512_range_##S(a, b, RANGE_MAX)))

#define NAN_PS _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000))
#define NAN_PD _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000))

FLOAT(f32, __m512, ps, float, 4, NAN_PS)
FLOAT(f64, __m512d, pd, double, 8, NAN_PD)

/* ---- 16-bit floats: what is stored is canonical already ------------------------------------- */

RF_INLINE f32_vec f16_load(const char *from)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

RF_INLINE f32_vec f16_load_part(const char *from, size_t n)
{
	return _mm512_cvtph_ps(load_half_bytes(from, n * 2));
}

RF_INLINE void f16_store(char *to, f32_vec v)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

RF_INLINE void f16_store_part(char *to, f32_vec v, size_t n)
{
	store_half_bytes(to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), n * 2);
}

RF_INLINE f32_vec bf16_widen(__m256i half)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Rounded to nearest even: the bfloat16 is in the upper half. */
RF_INLINE __m512i bf16_round(f32_vec v)
{
	const __m512i bits = _mm512_castps_si512(v);
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

	return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

RF_INLINE __m256i bf16_narrow(f32_vec v)
{
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_round(v), 16));
}

RF_INLINE f32_vec bf16_load(const char *from)
{
	return bf16_widen(_mm256_loadu_si256((const __m256i *)from));
}

RF_INLINE f32_vec bf16_load_part(const char *from, size_t n)
{
	return bf16_widen(load_half_bytes(from, n * 2));
}

RF_INLINE void bf16_store(char *to, f32_vec v)
{
	_mm256_storeu_si256((__m256i *)to, bf16_narrow(v));
}

RF_INLINE void bf16_store_part(char *to, f32_vec v, size_t n)
{
	store_half_bytes(to, bf16_narrow(v), n * 2);
}

/* Even and odd elements apart. */
typedef struct bf16x2_vec {
	f32_vec first, second;
} bf16x2_vec;

RF_INLINE bf16x2_vec bf16x2_split(__m512i v)
{
	const __m512i odd = _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000));

	return (bf16x2_vec){_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
			    _mm512_castsi512_ps(odd)};
}

RF_INLINE __m512i bf16x2_join(bf16x2_vec v)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(bf16_round(v.first), 16),
				       bf16_round(v.second));
}

RF_INLINE bf16x2_vec bf16x2_load(const char *from)
{
	return bf16x2_split(i32_load(from));
}

RF_INLINE bf16x2_vec bf16x2_load_part(const char *from, size_t n)
{
	return bf16x2_split(load_bytes(from, n * 2));
}

RF_INLINE void bf16x2_store(char *to, bf16x2_vec v)
{
	i32_store(to, bf16x2_join(v));
}

RF_INLINE void bf16x2_store_part(char *to, bf16x2_vec v, size_t n)
{
	store_bytes(to, bf16x2_join(v), n * 2);
}

#include "engine/kernels/formats.h"
