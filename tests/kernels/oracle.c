/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/oracle.h"

#include <math.h>
#include <string.h>

/* An element: integers and booleans are exact in one, floats in the other. */
struct value {
	__int128 integer;
	double real;
};

/* A binary format by its numbers: bits of the mantissa without the hidden one, smallest exponent.
 */
struct format {
	int mantissa_bits;
	int exponent_min;
	double largest;
};

static const struct format float16 = {10, -14, 65504.0};
static const struct format bfloat16 = {7, -126, 0x1.fep127};

static int is_float(rf_dtype dtype)
{
	return dtype == RF_FLOAT16 || dtype == RF_BFLOAT16 || dtype == RF_FLOAT32 ||
	       dtype == RF_FLOAT64;
}

static int is_signed(rf_dtype dtype)
{
	return dtype == RF_INT8 || dtype == RF_INT32 || dtype == RF_INT64;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static double decode_small(const struct format *format, unsigned bits)
{
	const unsigned mantissa = bits & ((1u << format->mantissa_bits) - 1);
	const unsigned exponent = (bits & 0x7fff) >> format->mantissa_bits;
	const unsigned exponent_all = 0x7fffu >> format->mantissa_bits;
	double magnitude;

	if (exponent == exponent_all)
		magnitude = mantissa != 0 ? NAN : INFINITY;
	else if (exponent == 0)
		magnitude = ldexp(mantissa, format->exponent_min - format->mantissa_bits);
	else
		magnitude = ldexp(mantissa + (1u << format->mantissa_bits),
				  (int)exponent - 1 + format->exponent_min - format->mantissa_bits);
	return bits & 0x8000 ? -magnitude : magnitude;
}

static uint64_t load_bits(const void *from, size_t bytes)
{
	const unsigned char *byte = from;
	uint64_t bits = 0;

	for (size_t i = 0; i < bytes; i++) /* little-endian machines only, as the library */
		bits |= (uint64_t)byte[i] << (8 * i);
	return bits;
}

static __int128 wrap(rf_dtype dtype, __int128 value)
{
	const int bits = (int)rf_dtype_size(dtype) * 8;
	const __int128 modulus = (__int128)1 << bits;
	__int128 rest = (__int128)((unsigned __int128)value & (unsigned __int128)(modulus - 1));

	if (is_signed(dtype) && rest >= modulus / 2)
		rest -= modulus;
	return rest;
}

static struct value load(rf_dtype dtype, const void *from)
{
	const uint64_t bits = load_bits(from, rf_dtype_size(dtype));
	const uint32_t low = (uint32_t)bits;
	struct value value = {0, 0};
	float single;

	switch (dtype) {
	case RF_FLOAT16:
		value.real = decode_small(&float16, low);
		break;
	case RF_BFLOAT16:
		value.real = decode_small(&bfloat16, low);
		break;
	case RF_FLOAT32:
		memcpy(&single, &low, sizeof(single));
		value.real = single;
		break;
	case RF_FLOAT64:
		memcpy(&value.real, &bits, sizeof(value.real));
		break;
	case RF_BOOL:
		value.integer = bits != 0;
		break;
	default:
		value.integer = wrap(dtype, bits);
	}
	return value;
}

/* ---- encoding ------------------------------------------------------------------------------- */

static unsigned encode_small(const struct format *format, double real)
{
	const unsigned sign = signbit(real) ? 0x8000 : 0;
	const unsigned infinite = (0x7fffu >> format->mantissa_bits) << format->mantissa_bits;
	double magnitude = fabs(real), quantum;
	int exponent;

	if (isnan(real))
		return infinite | 1u << (format->mantissa_bits - 1);
	if (isinf(real))
		return sign | infinite;
	(void)frexp(magnitude, &exponent);
	exponent = magnitude == 0 || exponent - 1 < format->exponent_min ? format->exponent_min
									 : exponent - 1;
	quantum = ldexp(1, exponent - format->mantissa_bits);
	magnitude = nearbyint(magnitude / quantum) * quantum; /* both exact; ties to even */
	if (magnitude > format->largest)
		return sign | infinite;
	/* The patterns of a sign ascend with the value, in steps of a quantum. */
	(void)frexp(magnitude, &exponent);
	if (magnitude == 0 || exponent - 1 < format->exponent_min)
		return sign |
		       (unsigned)ldexp(magnitude, format->mantissa_bits - format->exponent_min);
	return sign | (((unsigned)(exponent - 1 - format->exponent_min) << format->mantissa_bits) +
		       (unsigned)ldexp(magnitude, format->mantissa_bits - exponent + 1));
}

static uint64_t encode(rf_dtype dtype, struct value value)
{
	float single = (float)value.real;
	uint32_t low;
	uint64_t bits;

	switch (dtype) {
	case RF_FLOAT16:
		return encode_small(&float16, value.real);
	case RF_BFLOAT16:
		return encode_small(&bfloat16, value.real);
	case RF_FLOAT32:
		memcpy(&low, &single, sizeof(low));
		return isnan(value.real) ? 0x7fc00000 : low;
	case RF_FLOAT64:
		memcpy(&bits, &value.real, sizeof(bits));
		return isnan(value.real) ? 0x7ff8000000000000 : bits;
	default:
		return (uint64_t)value.integer;
	}
}

/* ---- folding -------------------------------------------------------------------------------- */

/* A result of two fp32 operands is rounded to fp32 once: double is wide enough for that. */
static double to_partial(rf_dtype partial, double real)
{
	return partial == RF_FLOAT32 ? (double)(float)real : real;
}

static double fold_reals(rf_op op, rf_dtype partial, double a, double b)
{
	if (isnan(a) || isnan(b))
		return NAN;
	switch (op) {
	case RF_PROD:
		return to_partial(partial, a * b);
	case RF_MIN:
		return a == b ? (signbit(a) ? a : b) : a < b ? a : b;
	case RF_MAX:
		return a == b ? (signbit(a) ? b : a) : a < b ? b : a;
	default:
		return to_partial(partial, a + b);
	}
}

static __int128 fold_integers(rf_op op, rf_dtype dtype, __int128 a, __int128 b)
{
	if (dtype == RF_BOOL)
		return op == RF_PROD || op == RF_MIN ? a && b : a || b;
	switch (op) {
	case RF_PROD:
		return wrap(dtype, (__int128)((unsigned __int128)a * (unsigned __int128)b));
	case RF_MIN:
		return a < b ? a : b;
	case RF_MAX:
		return a < b ? b : a;
	default:
		return wrap(dtype, a + b);
	}
}

/* The left subtree is the largest power of two that leaves something for the right one. */
static struct value fold_tree(rf_op op, rf_dtype partial, const rf_dtype *types,
			      const void *const *sources, size_t source_count, size_t i)
{
	struct value left, right;
	size_t half = 1;

	if (source_count == 1)
		return load(types[0], (const char *)sources[0] + i * rf_dtype_size(types[0]));
	while (half * 2 < source_count)
		half *= 2;
	left = fold_tree(op, partial, types, sources, half, i);
	right = fold_tree(op, partial, types + half, sources + half, source_count - half, i);
	left.integer = fold_integers(op, partial, left.integer, right.integer);
	left.real = fold_reals(op, partial, left.real, right.real);
	return left;
}

static struct value divide(rf_dtype partial, struct value value, uint64_t divisor)
{
	if (partial == RF_FLOAT32)
		value.real = to_partial(partial, value.real / (double)(float)divisor);
	else if (partial == RF_FLOAT64)
		value.real = value.real / (double)divisor;
	else if (partial != RF_BOOL)
		value.integer /= (__int128)divisor;
	return value;
}

void oracle_fold(rf_op op, rf_dtype dst_type, void *dst, const rf_dtype *source_types,
		 const void *const *sources, size_t source_count, size_t count, uint64_t divisor)
{
	const size_t bytes = rf_dtype_size(dst_type);
	const rf_dtype partial =
		is_float(dst_type) && dst_type != RF_FLOAT64 ? RF_FLOAT32 : dst_type;

	for (size_t i = 0; i < count; i++) {
		struct value value = fold_tree(op, partial, source_types, sources, source_count, i);
		uint64_t bits;

		if (divisor > 1)
			value = divide(partial, value, divisor);
		bits = encode(dst_type, value);
		for (size_t byte = 0; byte < bytes; byte++)
			((unsigned char *)dst)[i * bytes + byte] =
				(unsigned char)(bits >> (8 * byte));
	}
}
