/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bits of floating-point results: the same on all ranks and on every run, those of the fixed
 * tree where it is asked for, and rounded once where 16-bit floats have fp32 partials. Rank 0
 * prints digests of the results, which collective.sh compares between runs and settings.
 */
#include "tests/collective/cases.h"
#include "tests/collective/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 70001, RANKS_MAX = 64 };
static const size_t counts[] = {1, 7, 300, 4099, LARGEST};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

static float any_float(uint64_t call, int of_rank, size_t i)
{
	struct dice dice = {seed + call * 1000003u + (uint64_t)of_rank * 7919u + i * 104729u};
	float value = (float)dice_roll(&dice, 1 << 20) - (float)(1 << 19);

	return value / (float)(1 + dice_roll(&dice, 1000));
}

static uint16_t to_bfloat16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bfloat16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* A half, by its bits: the exponent stays among the normal ones. */
static uint16_t any_float16(uint64_t call, int of_rank, size_t i)
{
	struct dice dice = {seed + call * 31 + (uint64_t)of_rank * 7919u + i * 104729u};

	return (uint16_t)(dice_roll(&dice, 2) << 15 | (8 + dice_roll(&dice, 10)) << 10 |
			  dice_roll(&dice, 1024));
}

static void fill(rf_dtype dtype, uint64_t call, int of_rank, size_t count, void *buffer)
{
	for (size_t i = 0; i < count; i++) {
		float value = any_float(call, of_rank, i);

		if (dtype == RF_FLOAT64)
			((double *)buffer)[i] = (double)value / 3;
		else if (dtype == RF_FLOAT32)
			((float *)buffer)[i] = value;
		else if (dtype == RF_BFLOAT16)
			((uint16_t *)buffer)[i] = to_bfloat16(value);
		else
			((uint16_t *)buffer)[i] = any_float16(call, of_rank, i);
	}
}

static uint64_t digest(uint64_t hash, const void *memory, size_t bytes)
{
	const uint8_t *at = memory;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash;
}

static void check_agreed(uint64_t hash, const char *what)
{
	uint64_t all[RANKS_MAX];

	CHECK(size <= RANKS_MAX, "too many ranks for this case");
	CHECK_OK(rf_allgather(world, &hash, all, 1, RF_UINT64));
	for (int i = 0; i < size; i++)
		CHECK(all[i] == hash, "%s: other bits on rank %d", what, i);
}

static void sum(rf_dtype dtype, uint64_t call, size_t count, const rf_call_options *options,
		void *buffer)
{
	rf_request *request;

	fill(dtype, call, rank, count, buffer);
	CHECK_OK(rf_iallreduce(world, RF_IN_PLACE, buffer, count, dtype, call % 5 ? RF_SUM : RF_AVG,
			       options, &request));
	CHECK_OK(rf_wait(&request, RF_NO_TIMEOUT));
}

/* The results of all dtypes and sizes, each made twice. */
static uint64_t digest_of_sums(const rf_call_options *options)
{
	static const rf_dtype dtypes[] = {RF_FLOAT32, RF_FLOAT64, RF_BFLOAT16, RF_FLOAT16};
	double *first = malloc(LARGEST * sizeof(double)), *again = malloc(LARGEST * sizeof(double));
	uint64_t hash = 1469598103934665603u;

	CHECK(first && again, "out of memory");
	for (unsigned i = 0; i < 4 * COUNTS; i++) {
		size_t count = counts[i / 4];
		size_t bytes = count * rf_dtype_size(dtypes[i % 4]);

		sum(dtypes[i % 4], i, count, options, first);
		sum(dtypes[i % 4], i, count, options, again);
		CHECK(memcmp(first, again, bytes) == 0, "%zu %s: other bits the second time", count,
		      rf_dtype_name(dtypes[i % 4]));
		hash = digest(hash, first, bytes);
	}
	free(first);
	free(again);
	return hash;
}

void all_ranks_get_the_same_bits_on_every_run(void)
{
	uint64_t hash = digest_of_sums(NULL);

	check_agreed(hash, "any order");
	if (rank == 0)
		printf("digest of any order: %016llx\n", (unsigned long long)hash);
}

/* ---- the tree ------------------------------------------------------------------------------- */

/* ((0+1)+(2+3))+4: the left subtree is the largest perfect one that leaves something. */
static int left_of(int leaves)
{
	int left = 1;

	while (2 * left < leaves)
		left *= 2;
	return left;
}

static float tree_float(uint64_t call, bool half, int first, int leaves, size_t i)
{
	float left, value;

	if (leaves == 1) {
		value = any_float(call, first, i);
		return half ? from_bfloat16(to_bfloat16(value)) : value;
	}
	left = tree_float(call, half, first, left_of(leaves), i);
	return left + tree_float(call, half, first + left_of(leaves), leaves - left_of(leaves), i);
}

static double tree_double(uint64_t call, int first, int leaves, size_t i)
{
	double left;

	if (leaves == 1)
		return (double)any_float(call, first, i) / 3;
	left = tree_double(call, first, left_of(leaves), i);
	return left + tree_double(call, first + left_of(leaves), leaves - left_of(leaves), i);
}

static void check_tree(rf_dtype dtype, size_t count, const rf_call_options *options)
{
	const uint64_t call = 1001; /* a sum */
	void *buffer = malloc(count * sizeof(double));

	CHECK(buffer, "out of memory");
	sum(dtype, call, count, options, buffer);
	for (size_t i = 0; i < count; i++) {
		bool same;

		if (dtype == RF_FLOAT64)
			same = ((double *)buffer)[i] == tree_double(call, 0, size, i);
		else if (dtype == RF_FLOAT32)
			same = ((float *)buffer)[i] == tree_float(call, false, 0, size, i);
		else
			same = ((uint16_t *)buffer)[i] ==
			       to_bfloat16(tree_float(call, true, 0, size, i));
		CHECK(same, "%zu %s: element %zu is not that of the tree", count,
		      rf_dtype_name(dtype), i);
	}
	free(buffer);
}

void tree_order_follows_the_tree(void)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	uint64_t hash;

	options.order = RF_ORDER_TREE;
	for (unsigned i = 0; i < COUNTS; i++) {
		check_tree(RF_FLOAT32, counts[i], &options);
		check_tree(RF_FLOAT64, counts[i], &options);
		check_tree(RF_BFLOAT16, counts[i], &options);
	}
	hash = digest_of_sums(&options);
	check_agreed(hash, "tree order");
	if (rank == 0)
		printf("digest of tree order: %016llx\n", (unsigned long long)hash);
}

/* ---- rounding ------------------------------------------------------------------------------- */

/* To the nearest number of so many significant bits, ties to even. */
static uint32_t rounded(uint32_t value, int bits)
{
	uint32_t unit = 1;

	while (value / unit >> bits)
		unit *= 2;
	value += unit / 2;
	if (value % unit == 0 && unit > 1 && value / unit % 2)
		value -= unit; /* it was a tie */
	return value / unit * unit;
}

static uint32_t whole_of_bfloat16(uint16_t half)
{
	return (uint32_t)from_bfloat16(half);
}

static uint32_t whole_of_float16(uint16_t half)
{
	uint32_t significand = 1024u | (half & 1023u);
	int exponent = half >> 10 & 31;

	if (!exponent)
		return 0;
	return exponent >= 25 ? significand << (exponent - 25) : significand >> (25 - exponent);
}

static uint16_t float16_of_whole(uint32_t whole)
{
	int exponent = 25;

	if (!whole)
		return 0;
	while (whole < 1024) {
		whole *= 2;
		exponent--;
	}
	return (uint16_t)(exponent << 10 | (int)(whole & 1023));
}

static uint32_t whole(int of_rank, size_t i, uint32_t bound)
{
	struct dice dice = {seed + (uint64_t)of_rank * 7919u + i * 104729u};

	return (uint32_t)dice_roll(&dice, bound);
}

/* Whole numbers whose sum fp32 holds exactly and the half does not. */
static void check_rounding(rf_dtype dtype, size_t count, const rf_call_options *options)
{
	uint32_t bound = dtype == RF_BFLOAT16 ? 256 : 2048;
	int bits = dtype == RF_BFLOAT16 ? 8 : 11;
	uint16_t *values = malloc(count * sizeof(uint16_t));
	rf_request *request;

	CHECK(values, "out of memory");
	for (size_t i = 0; i < count; i++)
		values[i] = dtype == RF_BFLOAT16 ? to_bfloat16((float)whole(rank, i, bound))
						 : float16_of_whole(whole(rank, i, bound));
	CHECK_OK(
		rf_iallreduce(world, RF_IN_PLACE, values, count, dtype, RF_SUM, options, &request));
	CHECK_OK(rf_wait(&request, RF_NO_TIMEOUT));
	for (size_t i = 0; i < count; i++) {
		uint32_t got = dtype == RF_BFLOAT16 ? whole_of_bfloat16(values[i])
						    : whole_of_float16(values[i]);
		uint32_t exact = 0;

		for (int r = 0; r < size; r++)
			exact += whole(r, i, bound);
		CHECK(got == rounded(exact, bits), "%zu %s: element %zu is %u, and the sum is %u",
		      count, rf_dtype_name(dtype), i, got, exact);
	}
	free(values);
}

void half_floats_are_rounded_once_with_fp32_partials(void)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;

	options.wire = RF_WIRE_FLOAT32;
	for (int order = 0; order < 2; order++) {
		options.order = order ? RF_ORDER_TREE : RF_ORDER_ANY;
		for (unsigned i = 0; i < COUNTS; i++) {
			check_rounding(RF_BFLOAT16, counts[i], &options);
			check_rounding(RF_FLOAT16, counts[i], &options);
		}
	}
}
