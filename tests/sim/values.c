/* SPDX-License-Identifier: BSD-3-Clause */
/* Exact inputs and their reductions from the definition: see values.h. */
#include "tests/sim/values.h"

#include <string.h>

enum { VOCAL_RANKS = 24 }; /* 24 * 4 stays exact in bfloat16, whose integers end at 256 */

static uint64_t scramble(uint64_t x)
{
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
	return x ^ (x >> 33);
}

static int64_t number(uint64_t call, int rank, rf_dtype dtype, rf_op op, size_t index)
{
	uint64_t hash = scramble(call * 1000003u + (uint64_t)rank * 8191u + index);

	if (dtype == RF_BOOL)
		return op == RF_PROD || op == RF_MIN ? hash % 16 != 0 : hash % 16 == 0;
	if (op == RF_PROD) /* at most 2^6 in all */
		return rank < 6 ? 1 + (int64_t)(hash & 1) : 1;
	if (op == RF_MIN || op == RF_MAX)
		return (int64_t)(hash % 100);
	return rank < VOCAL_RANKS ? (int64_t)(hash % 5) : 0;
}

/* A whole number below 2^11, or a quotient of such, in single precision's bits. */
static uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static uint16_t to_bfloat16(float value)
{
	uint32_t bits = float_bits(value);

	return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* For normal numbers and zero, which is all that there is here. */
static uint16_t to_float16(float value)
{
	uint32_t bits = float_bits(value);
	uint32_t rounded = bits + 0xfff + ((bits >> 13) & 1);

	return bits ? (uint16_t)((rounded >> 13) - (112 << 10)) : 0;
}

static void store(rf_dtype dtype, void *buffer, size_t at, double value)
{
	int64_t whole = (int64_t)value;

	switch (dtype) {
	case RF_INT8:
	case RF_UINT8:
	case RF_BOOL:
		((uint8_t *)buffer)[at] = (uint8_t)whole;
		break;
	case RF_INT32:
	case RF_UINT32: {
		uint32_t word = (uint32_t)whole;

		memcpy((char *)buffer + 4 * at, &word, 4);
		break;
	}
	case RF_INT64:
	case RF_UINT64:
		memcpy((char *)buffer + 8 * at, &whole, 8);
		break;
	case RF_FLOAT16: {
		uint16_t half = to_float16((float)value);

		memcpy((char *)buffer + 2 * at, &half, 2);
		break;
	}
	case RF_BFLOAT16: {
		uint16_t half = to_bfloat16((float)value);

		memcpy((char *)buffer + 2 * at, &half, 2);
		break;
	}
	case RF_FLOAT32: {
		float single = (float)value;

		memcpy((char *)buffer + 4 * at, &single, 4);
		break;
	}
	default:
		memcpy((char *)buffer + 8 * at, &value, 8);
		break;
	}
}

void values_input(uint64_t call, int rank, rf_dtype dtype, rf_op op, size_t first, size_t count,
		  void *buffer)
{
	for (size_t i = 0; i < count; i++)
		store(dtype, buffer, i, (double)number(call, rank, dtype, op, first + i));
}

static int64_t combine(rf_dtype dtype, rf_op op, int64_t a, int64_t b)
{
	switch (op) {
	case RF_PROD:
		return a * b;
	case RF_MIN:
		return a < b ? a : b;
	case RF_MAX:
		return a > b ? a : b;
	default:
		return dtype == RF_BOOL ? a | b : a + b;
	}
}

/* Divided once: in the integers with truncation, in floats in the type of the partials. */
static double average(rf_dtype dtype, int64_t sum, int size)
{
	switch (dtype) {
	case RF_FLOAT16:
	case RF_BFLOAT16:
	case RF_FLOAT32:
		return (double)((float)sum / (float)size);
	case RF_FLOAT64:
		return (double)sum / (double)size;
	default:
		return (double)(sum / size);
	}
}

void values_expected(uint64_t call, int size, rf_dtype dtype, rf_op op, size_t first, size_t count,
		     void *buffer)
{
	for (size_t i = 0; i < count; i++) {
		int64_t folded = number(call, 0, dtype, op, first + i);

		for (int rank = 1; rank < size; rank++)
			folded = combine(dtype, op, folded,
					 number(call, rank, dtype, op, first + i));
		store(dtype, buffer, i,
		      op == RF_AVG ? average(dtype, folded, size) : (double)folded);
	}
}
