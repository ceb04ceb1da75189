/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Division of integers by a number of ranks, truncating toward zero. There is nothing in the
 * instruction sets for it, so it is the same for all of them.
 */
#include <string.h>

#include "engine/kernels/table.h"

/* In magnitudes: neither the divisor nor the smallest integer's magnitude need fit the type. */
static inline uint64_t divide_signed(int64_t value, uint64_t divisor)
{
	const uint64_t wide = (uint64_t)value;

	return value < 0 ? -(-wide / divisor) : wide / divisor;
}

static inline uint64_t divide_unsigned(uint64_t value, uint64_t divisor)
{
	return value / divisor;
}

#define DIVIDE(TYPE, HOW)                                                                   \
	static void divide_##TYPE(char *buffer, size_t begin, size_t end, uint64_t divisor) \
	{                                                                                   \
		for (size_t i = begin; i < end; i++) {                                      \
			TYPE##_t value;                                                     \
                                                                                            \
			memcpy(&value, buffer + i * sizeof(value), sizeof(value));          \
			value = (TYPE##_t)HOW(value, divisor);                              \
			memcpy(buffer + i * sizeof(value), &value, sizeof(value));          \
		}                                                                           \
	}

DIVIDE(int8, divide_signed)
DIVIDE(uint8, divide_unsigned)
DIVIDE(int32, divide_signed)
DIVIDE(uint32, divide_unsigned)
DIVIDE(int64, divide_signed)
DIVIDE(uint64, divide_unsigned)

void rf_divide_integers(rf_dtype dtype, void *buffer, size_t begin, size_t end, uint64_t divisor)
{
	static void (*const divide[RF_DTYPE_COUNT])(char *, size_t, size_t, uint64_t) = {
		[RF_INT8] = divide_int8,     [RF_UINT8] = divide_uint8, [RF_INT32] = divide_int32,
		[RF_UINT32] = divide_uint32, [RF_INT64] = divide_int64, [RF_UINT64] = divide_uint64,
	};

	if (divide[dtype] != NULL)
		divide[dtype](buffer, begin, end, divisor);
}
