/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reference: vectors of one element in plain C. It defines the bits that all other sets must
 * give, and serves the machines for which there is none.
 */
#include <stdint.h>
#include <string.h>

#include "engine/kernels/inline.h"

#define RF_TABLE    rf_kernels_reference
#define RF_UNROLLED 1

/* ---- integers: unsigned, so that they wrap -------------------------------------------------- */

/* Narrow integers are widened to WIDE, in which nothing overflows. */
#define INTEGER(BITS, WIDE)                                                     \
	typedef uint##BITS##_t i##BITS##_vec;                                   \
	RF_INLINE i##BITS##_vec i##BITS##_load(const char *from)                \
	{                                                                       \
		i##BITS##_vec v;                                                \
                                                                                \
		memcpy(&v, from, sizeof(v));                                    \
		return v;                                                       \
	}                                                                       \
	RF_INLINE void i##BITS##_store(char *to, i##BITS##_vec v)               \
	{                                                                       \
		memcpy(to, &v, sizeof(v));                                      \
	}                                                                       \
	RF_INLINE i##BITS##_vec i##BITS##_add(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return (i##BITS##_vec)((WIDE)a + b);                            \
	}                                                                       \
	RF_INLINE i##BITS##_vec i##BITS##_mul(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return (i##BITS##_vec)((WIDE)a * b);                            \
	}                                                                       \
	RF_INLINE i##BITS##_vec u##BITS##_min(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return a < b ? a : b;                                           \
	}                                                                       \
	RF_INLINE i##BITS##_vec u##BITS##_max(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return a < b ? b : a;                                           \
	}                                                                       \
	RF_INLINE i##BITS##_vec s##BITS##_min(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return (int##BITS##_t)a < (int##BITS##_t)b ? a : b;             \
	}                                                                       \
	RF_INLINE i##BITS##_vec s##BITS##_max(i##BITS##_vec a, i##BITS##_vec b) \
	{                                                                       \
		return (int##BITS##_t)a < (int##BITS##_t)b ? b : a;             \
	}

INTEGER(8, unsigned)
INTEGER(32, uint64_t)
INTEGER(64, uint64_t)

RF_INLINE i8_vec i8_ones(void)
{
	return 1;
}

/* ---- floats --------------------------------------------------------------------------------- */

#define FLOAT(BITS, TYPE, NAN_BITS)                                                              \
	typedef TYPE f##BITS##_vec;                                                              \
	RF_INLINE f##BITS##_vec f##BITS##_from_bits(uint##BITS##_t bits)                         \
	{                                                                                        \
		f##BITS##_vec v;                                                                 \
                                                                                                 \
		memcpy(&v, &bits, sizeof(v));                                                    \
		return v;                                                                        \
	}                                                                                        \
	RF_INLINE uint##BITS##_t f##BITS##_to_bits(f##BITS##_vec v)                              \
	{                                                                                        \
		uint##BITS##_t bits;                                                             \
                                                                                                 \
		memcpy(&bits, &v, sizeof(v));                                                    \
		return bits;                                                                     \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_load(const char *from)                                 \
	{                                                                                        \
		return f##BITS##_from_bits(i##BITS##_load(from));                                \
	}                                                                                        \
	RF_INLINE void f##BITS##_store(char *to, f##BITS##_vec v)                                \
	{                                                                                        \
		i##BITS##_store(to, f##BITS##_to_bits(v));                                       \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_set(uint64_t value)                                    \
	{                                                                                        \
		return (f##BITS##_vec)value;                                                     \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_canonical(f##BITS##_vec v)                             \
	{                                                                                        \
		return v == v ? v : f##BITS##_from_bits(NAN_BITS);                               \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_add(f##BITS##_vec a, f##BITS##_vec b)                  \
	{                                                                                        \
		return a + b;                                                                    \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_mul(f##BITS##_vec a, f##BITS##_vec b)                  \
	{                                                                                        \
		return a * b;                                                                    \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_div(f##BITS##_vec a, f##BITS##_vec b)                  \
	{                                                                                        \
		return a / b;                                                                    \
	}                                                                                        \
	/* Equal values differ in nothing but the sign of zero. */                               \
	RF_INLINE f##BITS##_vec f##BITS##_min(f##BITS##_vec a, f##BITS##_vec b)                  \
	{                                                                                        \
		if (a != a || b != b)                                                            \
			return f##BITS##_from_bits(NAN_BITS);                                    \
		if (a == b)                                                                      \
			return f##BITS##_from_bits(f##BITS##_to_bits(a) | f##BITS##_to_bits(b)); \
		return a < b ? a : b;                                                            \
	}                                                                                        \
	RF_INLINE f##BITS##_vec f##BITS##_max(f##BITS##_vec a, f##BITS##_vec b)                  \
	{                                                                                        \
		if (a != a || b != b)                                                            \
			return f##BITS##_from_bits(NAN_BITS);                                    \
		if (a == b)                                                                      \
			return f##BITS##_from_bits(f##BITS##_to_bits(a) & f##BITS##_to_bits(b)); \
		return a < b ? b : a;                                                            \
	}

FLOAT(32, float, 0x7fc00000)
FLOAT(64, double, 0x7ff8000000000000)

/* ---- 16-bit floats -------------------------------------------------------------------------- */

RF_INLINE uint16_t load16(const char *from)
{
	uint16_t bits;

	memcpy(&bits, from, sizeof(bits));
	return bits;
}

RF_INLINE void store16(char *to, uint32_t bits)
{
	uint16_t low = (uint16_t)bits;

	memcpy(to, &low, sizeof(low));
}

RF_INLINE f32_vec f16_load(const char *from)
{
	const uint32_t bits = load16(from);
	const uint32_t sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;

	if (magnitude >= 0x7c00) /* infinity and NaN */
		return f32_from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
	if (magnitude >= 0x0400) /* normal: the exponent's bias differs by 112 */
		return f32_from_bits(sign | ((magnitude << 13) + (112u << 23)));
	return f32_from_bits(sign | f32_to_bits((float)magnitude * 0x1p-24f));
}

RF_INLINE void f16_store(char *to, f32_vec value)
{
	const uint32_t bits = f32_to_bits(value);
	const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000)
		store16(to, 0x7e00);
	else if (magnitude >= f32_to_bits(0x1p16f))
		store16(to, sign | 0x7c00);
	else if (magnitude >= f32_to_bits(0x1p-14f)) /* a carry out of the mantissa is right */
		store16(to,
			sign | (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
	else /* the sum's last place is that of a denormal, so the addition rounds */
		store16(to,
			sign | (f32_to_bits(f32_from_bits(magnitude) + 0.5f) - f32_to_bits(0.5f)));
}

RF_INLINE f32_vec bf16_load(const char *from)
{
	return f32_from_bits((uint32_t)load16(from) << 16);
}

RF_INLINE void bf16_store(char *to, f32_vec value)
{
	const uint32_t bits = f32_to_bits(value);

	store16(to, value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
}

typedef struct bf16x2_vec {
	f32_vec first, second;
} bf16x2_vec;

RF_INLINE bf16x2_vec bf16x2_load(const char *from)
{
	return (bf16x2_vec){bf16_load(from), bf16_load(from + 2)};
}

RF_INLINE void bf16x2_store(char *to, bf16x2_vec value)
{
	bf16_store(to, value.first);
	bf16_store(to + 2, value.second);
}

#include "engine/kernels/formats.h"
