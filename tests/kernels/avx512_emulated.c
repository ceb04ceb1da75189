/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The AVX-512 kernels over an emulation of their intrinsics in plain C, so that their logic (which
 * instruction, which mask, which lane) is tested on machines without AVX-512, under any compiler.
 * Each is written from the instruction's definition, lane by lane.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMULATED static __attribute__((noinline, unused))

/* All vectors are the same bits: casts between them do nothing. */
#define LANE_ARRAYS(BYTES)         \
	int8_t s8[BYTES];          \
	uint8_t u8[BYTES];         \
	uint16_t u16[(BYTES) / 2]; \
	int32_t s32[(BYTES) / 4];  \
	uint32_t u32[(BYTES) / 4]; \
	int64_t s64[(BYTES) / 8];  \
	uint64_t u64[(BYTES) / 8]; \
	float ps[(BYTES) / 4];     \
	double pd[(BYTES) / 8]

typedef union emulated_256 {
	LANE_ARRAYS(32);
} emulated_256;

typedef union emulated_512 {
	LANE_ARRAYS(64);
} emulated_512;

#define __m256i   emulated_256
#define __m512i   emulated_512
#define __m512    emulated_512
#define __m512d   emulated_512
#define __mmask32 uint32_t
#define __mmask64 uint64_t

#define _mm512_castsi512_ps(v) (v)
#define _mm512_castsi512_pd(v) (v)
#define _mm512_castps_si512(v) (v)
#define _mm512_castpd_si512(v) (v)

/* ---- memory --------------------------------------------------------------------------------- */

#define MEMORY(VEC, LOAD, STORE)             \
	EMULATED VEC LOAD(const void *from)  \
	{                                    \
		VEC v;                       \
                                             \
		memcpy(&v, from, sizeof(v)); \
		return v;                    \
	}                                    \
	EMULATED void STORE(void *to, VEC v) \
	{                                    \
		memcpy(to, &v, sizeof(v));   \
	}

#define MASKED_MEMORY(VEC, LOAD, STORE)                               \
	EMULATED VEC LOAD(uint64_t mask, const void *from)            \
	{                                                             \
		VEC v = {.u8 = {0}};                                  \
                                                                      \
		for (size_t i = 0; i < sizeof(v); i++)                \
			if (mask >> i & 1)                            \
				v.u8[i] = ((const uint8_t *)from)[i]; \
		return v;                                             \
	}                                                             \
	EMULATED void STORE(void *to, uint64_t mask, VEC v)           \
	{                                                             \
		for (size_t i = 0; i < sizeof(v); i++)                \
			if (mask >> i & 1)                            \
				((uint8_t *)to)[i] = v.u8[i];         \
	}

MEMORY(__m256i, _mm256_loadu_si256, _mm256_storeu_si256)
MEMORY(__m512i, _mm512_loadu_si512, _mm512_storeu_si512)
MEMORY(__m512, _mm512_loadu_ps, _mm512_storeu_ps)
MEMORY(__m512d, _mm512_loadu_pd, _mm512_storeu_pd)
MASKED_MEMORY(__m256i, _mm256_maskz_loadu_epi8, _mm256_mask_storeu_epi8)
MASKED_MEMORY(__m512i, _mm512_maskz_loadu_epi8, _mm512_mask_storeu_epi8)

/* ---- lane by lane --------------------------------------------------------------------------- */

/* r of each lane from x and y; K is the field that holds the lanes. */
#define LANEWISE(NAME, K, EXPRESSION)                                       \
	EMULATED __m512i NAME(__m512i a, __m512i b)                         \
	{                                                                   \
		__m512i r = a;                                              \
                                                                            \
		for (size_t i = 0; i < sizeof(r.K) / sizeof(r.K[0]); i++) { \
			const __typeof__(r.K[0]) x = a.K[i], y = b.K[i];    \
                                                                            \
			r.K[i] = (__typeof__(r.K[0]))(EXPRESSION);          \
		}                                                           \
		return r;                                                   \
	}

LANEWISE(_mm512_add_epi8, u8, x + y)
LANEWISE(_mm512_add_epi32, u32, x + y)
LANEWISE(_mm512_add_epi64, u64, x + y)
LANEWISE(_mm512_mullo_epi16, u16, (uint32_t)x *y)
LANEWISE(_mm512_mullo_epi32, u32, x *y)
LANEWISE(_mm512_mullo_epi64, u64, x *y)
LANEWISE(_mm512_and_si512, u64, x &y)
LANEWISE(_mm512_min_epi8, s8, x < y ? x : y)
LANEWISE(_mm512_max_epi8, s8, x < y ? y : x)
LANEWISE(_mm512_min_epu8, u8, x < y ? x : y)
LANEWISE(_mm512_max_epu8, u8, x < y ? y : x)
LANEWISE(_mm512_min_epi32, s32, x < y ? x : y)
LANEWISE(_mm512_max_epi32, s32, x < y ? y : x)
LANEWISE(_mm512_min_epu32, u32, x < y ? x : y)
LANEWISE(_mm512_max_epu32, u32, x < y ? y : x)
LANEWISE(_mm512_min_epi64, s64, x < y ? x : y)
LANEWISE(_mm512_max_epi64, s64, x < y ? y : x)
LANEWISE(_mm512_min_epu64, u64, x < y ? x : y)
LANEWISE(_mm512_max_epu64, u64, x < y ? y : x)
LANEWISE(_mm512_add_ps, ps, x + y)
LANEWISE(_mm512_mul_ps, ps, x *y)
LANEWISE(_mm512_div_ps, ps, x / y)
LANEWISE(_mm512_add_pd, pd, x + y)
LANEWISE(_mm512_mul_pd, pd, x *y)
LANEWISE(_mm512_div_pd, pd, x / y)

#define SHIFT(NAME, K, OPERATOR)                                              \
	EMULATED __m512i NAME(__m512i a, unsigned count)                      \
	{                                                                     \
		for (size_t i = 0; i < sizeof(a.K) / sizeof(a.K[0]); i++)     \
			a.K[i] = (__typeof__(a.K[0]))(a.K[i] OPERATOR count); \
		return a;                                                     \
	}

SHIFT(_mm512_slli_epi16, u16, <<)
SHIFT(_mm512_srli_epi16, u16, >>)
SHIFT(_mm512_slli_epi32, u32, <<)
SHIFT(_mm512_srli_epi32, u32, >>)

#define SET(NAME, K, SCALAR)                                              \
	EMULATED __m512i NAME(SCALAR value)                               \
	{                                                                 \
		__m512i r;                                                \
                                                                          \
		for (size_t i = 0; i < sizeof(r.K) / sizeof(r.K[0]); i++) \
			r.K[i] = value;                                   \
		return r;                                                 \
	}

SET(_mm512_set1_epi8, s8, int8_t)
SET(_mm512_set1_epi32, s32, int32_t)
SET(_mm512_set1_epi64, s64, int64_t)
SET(_mm512_set1_ps, ps, float)
SET(_mm512_set1_pd, pd, double)

/* Where the mask is set, the second. */
#define BLEND(NAME, K)                                                    \
	EMULATED __m512i NAME(uint64_t mask, __m512i a, __m512i b)        \
	{                                                                 \
		for (size_t i = 0; i < sizeof(a.K) / sizeof(a.K[0]); i++) \
			if (mask >> i & 1)                                \
				a.K[i] = b.K[i];                          \
		return a;                                                 \
	}

BLEND(_mm512_mask_blend_epi8, u8)
BLEND(_mm512_mask_blend_epi16, u16)
BLEND(blend_epi32, u32)
BLEND(blend_epi64, u64)

#define _mm512_mask_mov_ps(a, mask, b) blend_epi32(mask, a, b)
#define _mm512_mask_mov_pd(a, mask, b) blend_epi64(mask, a, b)

/* ---- comparisons of floats ------------------------------------------------------------------ */

#define _CMP_UNORD_Q 3

#define UNORDERED(NAME, K)                                                                        \
	EMULATED uint64_t NAME(__m512 a, __m512 b, int predicate)                                 \
	{                                                                                         \
		uint64_t mask = 0;                                                                \
                                                                                                  \
		for (size_t i = 0; predicate == _CMP_UNORD_Q && i < sizeof(a.K) / sizeof(a.K[0]); \
		     i++)                                                                         \
			mask |= (uint64_t)(isnan(a.K[i]) || isnan(b.K[i])) << i;                  \
		return mask;                                                                      \
	}

UNORDERED(_mm512_cmp_ps_mask, ps)
UNORDERED(_mm512_cmp_pd_mask, pd)

/* The lesser (4) or the greater (5), by sign too if both are zero; a number rather than a NaN. */
#define RANGE(NAME, K)                                                      \
	EMULATED __m512 NAME(__m512 a, __m512 b, int selector)              \
	{                                                                   \
		__m512 r = a;                                               \
                                                                            \
		for (size_t i = 0; i < sizeof(r.K) / sizeof(r.K[0]); i++) { \
			const __typeof__(r.K[0]) x = a.K[i], y = b.K[i];    \
			const int less = x == y ? signbit(x) != 0 : x < y;  \
                                                                            \
			if (isnan(x) || isnan(y))                           \
				r.K[i] = isnan(x) ? y : x;                  \
			else                                                \
				r.K[i] = less == (selector == 4) ? x : y;   \
		}                                                           \
		return r;                                                   \
	}

RANGE(_mm512_range_ps, ps)
RANGE(_mm512_range_pd, pd)

/* ---- conversions ---------------------------------------------------------------------------- */

static float half_to_float(uint16_t half)
{
	const int exponent = half >> 10 & 31, mantissa = half & 1023;
	const float magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
				: exponent == 0 ? ldexpf((float)mantissa, -24)
						: ldexpf((float)(mantissa + 1024), exponent - 25);

	return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t float_to_half(float value)
{
	const int sign = signbit(value) ? 0x8000 : 0;
	const float magnitude = fabsf(value);
	int exponent;

	if (isnan(value))
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 65520)
		return (uint16_t)(sign | 0x7c00);
	exponent = magnitude < 0x1p-14f ? -14 : ilogbf(magnitude);
	return (uint16_t)(sign | (((exponent + 14) * 1024) +
				  (int)nearbyintf(ldexpf(magnitude, 10 - exponent))));
}

EMULATED __m512 _mm512_cvtph_ps(__m256i halves)
{
	__m512 r;

	for (int i = 0; i < 16; i++)
		r.ps[i] = half_to_float(halves.u16[i]);
	return r;
}

#define _MM_FROUND_TO_NEAREST_INT 0

EMULATED __m256i _mm512_cvtps_ph(__m512 floats, int rounding)
{
	__m256i r;

	for (int i = 0; i < 16; i++)
		r.u16[i] = rounding == 0 ? float_to_half(floats.ps[i]) : 0;
	return r;
}

EMULATED __m512i _mm512_cvtepu16_epi32(__m256i narrow)
{
	__m512i r;

	for (int i = 0; i < 16; i++)
		r.u32[i] = narrow.u16[i];
	return r;
}

EMULATED __m256i _mm512_cvtepi32_epi16(__m512i wide)
{
	__m256i r;

	for (int i = 0; i < 16; i++)
		r.u16[i] = (uint16_t)wide.u32[i];
	return r;
}

/* Nothing need be inlined here: that would make megabytes of code. */
#define RF_INLINE EMULATED
#define RF_AVX512_EMULATED
#define RF_TABLE rf_kernels_avx512_emulated
#include "engine/kernels/avx512.c"
