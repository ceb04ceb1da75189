/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels for aarch64 with what every such processor has: Advanced SIMD, and conversions of half
 * precision but no arithmetic in it. Integers are held as unsigned vectors.
 */
#include <arm_neon.h>
#include <stdint.h>

#include "engine/kernels/inline.h"

#define RF_TABLE rf_kernels_neon

#define BINARY(VEC, NAME, EXPRESSION)    \
	RF_INLINE VEC NAME(VEC a, VEC b) \
	{                                \
		return EXPRESSION;       \
	}

/* ---- integers ------------------------------------------------------------------------------- */

#define INTEGER(BITS, VEC, FROM_BYTES, TO_BYTES)                    \
	typedef VEC i##BITS##_vec;                                  \
	RF_INLINE i##BITS##_vec i##BITS##_load(const char *from)    \
	{                                                           \
		return FROM_BYTES(vld1q_u8((const uint8_t *)from)); \
	}                                                           \
	RF_INLINE void i##BITS##_store(char *to, i##BITS##_vec v)   \
	{                                                           \
		vst1q_u8((uint8_t *)to, TO_BYTES(v));               \
	}                                                           \
	BINARY(i##BITS##_vec, i##BITS##_add, vaddq_u##BITS(a, b))

/* A signed operation on unsigned vectors. */
#define SIGNED(BITS, OPERATION)                                                                 \
	vreinterpretq_u##BITS##_s##BITS(OPERATION##_s##BITS(vreinterpretq_s##BITS##_u##BITS(a), \
							    vreinterpretq_s##BITS##_u##BITS(b)))

#define MIN_MAX(BITS)                                             \
	BINARY(i##BITS##_vec, i##BITS##_mul, vmulq_u##BITS(a, b)) \
	BINARY(i##BITS##_vec, u##BITS##_min, vminq_u##BITS(a, b)) \
	BINARY(i##BITS##_vec, u##BITS##_max, vmaxq_u##BITS(a, b)) \
	BINARY(i##BITS##_vec, s##BITS##_min, SIGNED(BITS, vminq)) \
	BINARY(i##BITS##_vec, s##BITS##_max, SIGNED(BITS, vmaxq))

INTEGER(8, uint8x16_t, , )
INTEGER(32, uint32x4_t, vreinterpretq_u32_u8, vreinterpretq_u8_u32)
INTEGER(64, uint64x2_t, vreinterpretq_u64_u8, vreinterpretq_u8_u64)
MIN_MAX(8)
MIN_MAX(32)

RF_INLINE i8_vec i8_ones(void)
{
	return vdupq_n_u8(1);
}

/* 64-bit lanes have no multiplication, minimum or maximum of their own. */
RF_INLINE i64_vec i64_mul(i64_vec a, i64_vec b)
{
	const uint64x1_t low = vcreate_u64(vgetq_lane_u64(a, 0) * vgetq_lane_u64(b, 0));
	const uint64x1_t high = vcreate_u64(vgetq_lane_u64(a, 1) * vgetq_lane_u64(b, 1));

	return vcombine_u64(low, high);
}

RF_INLINE uint64x2_t signed_less(i64_vec a, i64_vec b)
{
	return vcltq_s64(vreinterpretq_s64_u64(a), vreinterpretq_s64_u64(b));
}

BINARY(i64_vec, u64_min, vbslq_u64(vcltq_u64(a, b), a, b))
BINARY(i64_vec, u64_max, vbslq_u64(vcltq_u64(a, b), b, a))
BINARY(i64_vec, s64_min, vbslq_u64(signed_less(a, b), a, b))
BINARY(i64_vec, s64_max, vbslq_u64(signed_less(a, b), b, a))

/* ---- floats: min and max do all that is asked, but for the NaN's bits ------------------------ */

#define FLOAT(BITS, VEC, SCALAR, NAN_BITS)                                                        \
	typedef VEC f##BITS##_vec;                                                                \
	RF_INLINE f##BITS##_vec f##BITS##_load(const char *from)                                  \
	{                                                                                         \
		return vreinterpretq_f##BITS##_u##BITS(i##BITS##_load(from));                     \
	}                                                                                         \
	RF_INLINE void f##BITS##_store(char *to, f##BITS##_vec v)                                 \
	{                                                                                         \
		i##BITS##_store(to, vreinterpretq_u##BITS##_f##BITS(v));                          \
	}                                                                                         \
	RF_INLINE f##BITS##_vec f##BITS##_set(uint64_t value)                                     \
	{                                                                                         \
		return vdupq_n_f##BITS((SCALAR)value);                                            \
	}                                                                                         \
	RF_INLINE f##BITS##_vec f##BITS##_canonical(f##BITS##_vec v)                              \
	{                                                                                         \
		return vbslq_f##BITS(vceqq_f##BITS(v, v), v,                                      \
				     vreinterpretq_f##BITS##_u##BITS(vdupq_n_u##BITS(NAN_BITS))); \
	}                                                                                         \
	BINARY(f##BITS##_vec, f##BITS##_add, vaddq_f##BITS(a, b))                                 \
	BINARY(f##BITS##_vec, f##BITS##_mul, vmulq_f##BITS(a, b))                                 \
	BINARY(f##BITS##_vec, f##BITS##_div, vdivq_f##BITS(a, b))                                 \
	BINARY(f##BITS##_vec, f##BITS##_min, f##BITS##_canonical(vminq_f##BITS(a, b)))            \
	BINARY(f##BITS##_vec, f##BITS##_max, f##BITS##_canonical(vmaxq_f##BITS(a, b)))

FLOAT(32, float32x4_t, float, 0x7fc00000)
FLOAT(64, float64x2_t, double, 0x7ff8000000000000)

/* ---- 16-bit floats: what is stored is canonical already ------------------------------------- */

RF_INLINE uint16x4_t load_half(const char *from)
{
	return vreinterpret_u16_u8(vld1_u8((const uint8_t *)from));
}

RF_INLINE void store_half(char *to, uint16x4_t v)
{
	vst1_u8((uint8_t *)to, vreinterpret_u8_u16(v));
}

RF_INLINE f32_vec f16_load(const char *from)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(load_half(from)));
}

RF_INLINE void f16_store(char *to, f32_vec v)
{
	store_half(to, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

/* Rounded to nearest even: the bfloat16 is in the upper half. */
RF_INLINE uint32x4_t bf16_round(f32_vec v)
{
	const uint32x4_t bits = vreinterpretq_u32_f32(v);
	const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));

	return vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}

RF_INLINE f32_vec bf16_load(const char *from)
{
	return vreinterpretq_f32_u32(vshll_n_u16(load_half(from), 16));
}

RF_INLINE void bf16_store(char *to, f32_vec v)
{
	store_half(to, vshrn_n_u32(bf16_round(v), 16));
}

/* Lower and upper halves of a vector, in order. */
typedef struct bf16x2_vec {
	f32_vec first, second;
} bf16x2_vec;

RF_INLINE bf16x2_vec bf16x2_load(const char *from)
{
	const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)from));

	return (bf16x2_vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
			    vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16))};
}

RF_INLINE void bf16x2_store(char *to, bf16x2_vec v)
{
	const uint16x8_t joined = vuzp2q_u16(vreinterpretq_u16_u32(bf16_round(v.first)),
					     vreinterpretq_u16_u32(bf16_round(v.second)));

	vst1q_u8((uint8_t *)to, vreinterpretq_u8_u16(joined));
}

#include "engine/kernels/formats.h"
