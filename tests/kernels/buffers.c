/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY_BYTES 128

static unsigned char canary[CANARY_BYTES];
static size_t page_bytes;
static char pool[RF_DTYPE_COUNT][POOL_ELEMENTS * 8];
static uint64_t random_state;

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- random --------------------------------------------------------------------------------- */

void random_seed(uint64_t seed)
{
	random_state = seed;
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t random_next(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static size_t accessible_bytes(void)
{
	return (BUFFER_PAYLOAD_MAX + 2 * CANARY_BYTES + page_bytes) / page_bytes * page_bytes;
}

void buffer_create(struct buffer *buffer)
{
	char *pages;

	if (page_bytes == 0) {
		page_bytes = (size_t)sysconf(_SC_PAGESIZE);
		for (size_t i = 0; i < CANARY_BYTES; i++)
			canary[i] = (unsigned char)(0xa5 ^ i * 7);
	}
	pages = mmap(NULL, accessible_bytes() + 2 * page_bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED ||
	    mprotect(pages + page_bytes, accessible_bytes(), PROT_READ | PROT_WRITE) != 0) {
		perror("check_kernels: mmap");
		exit(1);
	}
	buffer->pages = pages + page_bytes;
	buffer_place(buffer, 0, NULL, 0);
}

/* How many canary bytes there is room for on each side. */
static size_t room_before(const struct buffer *buffer)
{
	return smaller(CANARY_BYTES, (size_t)(buffer->payload - buffer->pages));
}

static size_t room_after(const struct buffer *buffer)
{
	const char *end = buffer->pages + accessible_bytes();

	return smaller(CANARY_BYTES, (size_t)(end - buffer->payload) - buffer->bytes);
}

void buffer_place(struct buffer *buffer, int at, const void *content, size_t bytes)
{
	buffer->payload = buffer->pages + (at >= 0 ? (size_t)at : accessible_bytes() - bytes);
	buffer->bytes = bytes;
	if (bytes > 0)
		memcpy(buffer->payload, content, bytes);
	memcpy(buffer->payload - room_before(buffer), canary, room_before(buffer));
	memcpy(buffer->payload + bytes, canary, room_after(buffer));
}

int buffer_is_intact(const struct buffer *buffer)
{
	return memcmp(buffer->payload - room_before(buffer), canary, room_before(buffer)) == 0 &&
	       memcmp(buffer->payload + buffer->bytes, canary, room_after(buffer)) == 0;
}

/* ---- element patterns ----------------------------------------------------------------------- */

/* The layout of the float types; 0 for others. */
static int mantissa_bits(rf_dtype dtype)
{
	switch (dtype) {
	case RF_FLOAT16:
		return 10;
	case RF_BFLOAT16:
		return 7;
	case RF_FLOAT32:
		return 23;
	case RF_FLOAT64:
		return 52;
	default:
		return 0;
	}
}

static uint64_t random_float(int bits, int mantissa)
{
	const uint64_t ones = ((uint64_t)1 << (bits - 1 - mantissa)) - 1; /* the exponent's */
	const uint64_t sign = (random_next() & 1) << (bits - 1);
	const uint64_t fraction = random_next() & (((uint64_t)1 << mantissa) - 1);
	const uint64_t near_one = ones / 2 - 4 + random_below(8);
	static const unsigned char small_fractions[] = {0, 1, 2, 3};

	switch (random_below(16)) {
	case 0: /* zero, infinity */
		return sign | (random_next() & 1 ? ones << mantissa : 0);
	case 1: /* NaN, quiet and signalling, any payload */
		return sign | ones << mantissa | fraction | 1;
	case 2: /* denormal */
		return sign | fraction;
	case 3: /* the smallest and the largest */
		return sign | (random_next() & 1 ? (ones << mantissa) - 1 - random_below(3)
						 : small_fractions[random_below(4)]);
	case 4: /* about the smallest normal */
		return sign | (((uint64_t)1 << mantissa) - 2 + random_below(4));
	case 5: /* any bits */
		return random_next() & (~(uint64_t)0 >> (64 - bits));
	case 6: /* powers of two */
		return sign | near_one << mantissa;
	default: /* of similar size, so that sums round and cancel */
		return sign | near_one << mantissa | fraction;
	}
}

static uint64_t random_integer(int bits)
{
	const uint64_t top = (uint64_t)1 << (bits - 1);

	switch (random_below(8)) {
	case 0:
		return top - 2 + random_below(4);
	case 1:
		return 0 - (uint64_t)random_below(4);
	case 2:
		return random_below(16);
	default:
		return random_next();
	}
}

void pool_fill(void)
{
	for (int type = 0; type < RF_DTYPE_COUNT; type++) {
		const size_t bytes = rf_dtype_size((rf_dtype)type);
		const int mantissa = mantissa_bits((rf_dtype)type);

		for (size_t i = 0; i < POOL_ELEMENTS; i++) {
			uint64_t element = mantissa ? random_float((int)bytes * 8, mantissa)
						    : random_integer((int)bytes * 8);

			if (type == RF_BOOL && random_below(2))
				element = 0;
			memcpy(pool[type] + i * bytes, &element, bytes);
		}
	}
}

const void *pool_window(rf_dtype dtype, size_t count)
{
	return pool[dtype] + random_below(POOL_ELEMENTS - count) * rf_dtype_size(dtype);
}
