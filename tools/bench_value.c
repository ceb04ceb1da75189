/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elements that bench reduces: small whole numbers, so that every order of folding gives the
 * same and every type holds them; different at every position, rank and round, so that a stale or
 * misplaced piece is found.
 */
#include "tools/bench.h"

#include <math.h>
#include <string.h>

/* ---- elements ---- */

static uint16_t encode_half(double value)
{
	int exponent;
	const double fraction = frexp(fabs(value), &exponent); /* 0.5 to 1, or 0 */
	const uint16_t sign = value < 0 ? 0x8000 : 0;

	if (fraction == 0)
		return sign;
	return (uint16_t)(sign + ((exponent + 14) << 10) + lrint((fraction * 2 - 1) * 1024));
}

static double decode_half(uint16_t bits)
{
	const int exponent = bits >> 10 & 31;
	const double fraction = bits & 1023;
	const double value = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
			     : exponent == 0 ? ldexp(fraction, -24)
					     : ldexp(fraction + 1024, exponent - 25);

	return bits & 0x8000 ? -value : value;
}

static uint16_t encode_bfloat(double value)
{
	const float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double decode_bfloat(uint16_t element)
{
	const uint32_t bits = (uint32_t)element << 16;
	float single;

	memcpy(&single, &bits, sizeof(single));
	return single;
}

#define ENCODE(type)                                    \
	do {                                            \
		const type typed = (type)value;         \
		memcpy(element, &typed, sizeof(typed)); \
	} while (0)
#define ENCODE_WRAPPED(type)                             \
	do {                                             \
		const type typed = (type)(int64_t)value; \
		memcpy(element, &typed, sizeof(typed));  \
	} while (0)

void bench_encode(rf_dtype dtype, double value, void *element)
{
	const uint16_t half = dtype == RF_FLOAT16 ? encode_half(value) : encode_bfloat(value);

	switch (dtype) {
	case RF_INT8:
	case RF_UINT8:
		ENCODE_WRAPPED(uint8_t);
		break;
	case RF_BOOL:
		*(uint8_t *)element = value != 0;
		break;
	case RF_INT32:
	case RF_UINT32:
		ENCODE_WRAPPED(uint32_t);
		break;
	case RF_INT64:
	case RF_UINT64:
		ENCODE_WRAPPED(uint64_t);
		break;
	case RF_FLOAT16:
	case RF_BFLOAT16:
		memcpy(element, &half, sizeof(half));
		break;
	case RF_FLOAT32:
		ENCODE(float);
		break;
	case RF_FLOAT64:
	default:
		ENCODE(double);
		break;
	}
}

#define DECODE(type)                                    \
	do {                                            \
		type typed;                             \
		memcpy(&typed, element, sizeof(typed)); \
		return (double)typed;                   \
	} while (0)

double bench_decode(rf_dtype dtype, const void *element)
{
	uint16_t half;

	switch (dtype) {
	case RF_INT8:
		DECODE(int8_t);
	case RF_UINT8:
	case RF_BOOL:
		DECODE(uint8_t);
	case RF_INT32:
		DECODE(int32_t);
	case RF_UINT32:
		DECODE(uint32_t);
	case RF_INT64:
		DECODE(int64_t);
	case RF_UINT64:
		DECODE(uint64_t);
	case RF_FLOAT16:
		memcpy(&half, element, sizeof(half));
		return decode_half(half);
	case RF_BFLOAT16:
		memcpy(&half, element, sizeof(half));
		return decode_bfloat(half);
	case RF_FLOAT32:
		DECODE(float);
	case RF_FLOAT64:
	default:
		DECODE(double);
	}
}

/* ---- inputs and results ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185u;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44du;
	return x ^ x >> 33;
}

static bool folds(const struct bench_case *what)
{
	return what->collective == RF_ALLREDUCE || what->collective == RF_REDUCE ||
	       what->collective == RF_REDUCE_SCATTER;
}

double bench_input(const struct bench_case *what, size_t position, int rank, int ranks,
		   uint64_t round)
{
	const uint64_t place = mix(position + (round << 16));
	const uint64_t own = mix(place + (uint64_t)rank + 1);

	if (what->dtype == RF_BOOL)
		return own & 1;
	if (!folds(what))
		return (double)(own % 100);
	switch (what->op) {
	case RF_PROD: /* 2 on one rank: no type overflows */
		return (uint64_t)rank == place % (uint64_t)ranks ? 2 : 1;
	case RF_MIN:
	case RF_MAX:
		return (double)(own % 100);
	default:
		return (double)(own % 4);
	}
}

/* The sum as the type holds it. */
static double wrapped(rf_dtype dtype, double value)
{
	unsigned char element[8];

	bench_encode(dtype, value, element);
	return bench_decode(dtype, element);
}

static bool is_integer(rf_dtype dtype)
{
	return dtype != RF_FLOAT16 && dtype != RF_BFLOAT16 && dtype != RF_FLOAT32 &&
	       dtype != RF_FLOAT64;
}

double bench_expected(const struct bench_case *what, size_t position, int ranks, uint64_t round)
{
	double value = bench_input(what, position, 0, ranks, round);

	for (int rank = 1; rank < ranks; rank++) {
		const double next = bench_input(what, position, rank, ranks, round);

		switch (what->op) {
		case RF_PROD:
			value *= next;
			break;
		case RF_MIN:
			value = next < value ? next : value;
			break;
		case RF_MAX:
			value = next > value ? next : value;
			break;
		default:
			value += next;
			break;
		}
	}
	if (what->op != RF_AVG)
		return value;
	return is_integer(what->dtype) ? trunc(wrapped(what->dtype, value) / ranks) : value / ranks;
}

double bench_tolerance(const struct bench_case *what, int ranks)
{
	const bool sums = folds(what) && (what->op == RF_SUM || what->op == RF_AVG);
	const double largest = 3.0 * ranks;

	if (!sums || is_integer(what->dtype))
		return 0;
	/* Sums are exact up to 2 to the number of significant bits; above, a ring may round at
	 * every hop. */
	if (what->dtype == RF_BFLOAT16)
		return largest > 256 ? ranks / 256.0 : what->op == RF_AVG ? 1 / 128.0 : 0;
	if (what->dtype == RF_FLOAT16)
		return largest > 2048 ? ranks / 2048.0 : what->op == RF_AVG ? 1 / 1024.0 : 0;
	if (what->op == RF_AVG)
		return what->dtype == RF_FLOAT32 ? 0x1p-22 : 0x1p-51;
	return 0;
}
