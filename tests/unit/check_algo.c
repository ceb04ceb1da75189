/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm gives every rank the right result, in a hostile world: random collective, types,
 * operator, counts, ranks, chunks. RINGFOLD_TEST_SEED repeats a run; RINGFOLD_TEST_CASES and
 * RINGFOLD_TEST_ALGORITHM choose how many cases and of which algorithm.
 */
#include "tests/unit/check_algo_world.h"
#include "engine/kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 64, SKEW = 16 };

/* How the values are chosen. */
enum values {
	VALUES_EXACT,   /* small integers: any order of folding gives the same */
	VALUES_PLAIN,   /* around 1, of both signs */
	VALUES_SPECIAL, /* with NaN, infinities, zeros of both signs among them */
};

struct buffer {
	unsigned char *block;
	unsigned char *at;
	size_t bytes;
};

static struct world_case current;
static enum values current_values;
static size_t *counts;

static const char *describe(void)
{
	static char text[512];
	const struct world_case *c = &current;

	snprintf(text, sizeof(text),
		 "case %#llx: %s %s of %zu %s, %s, %d ranks%s%s, order %d, root %d, chunk %zu, "
		 "%u channels, wire %s, values %d, late rank %d, divisor %llu",
		 (unsigned long long)c->seed, c->plan.algo->name,
		 rf_collective_name(c->task.collective), c->task.count,
		 rf_dtype_name(c->task.dtype), rf_op_name(c->task.op), c->ranks,
		 c->in_place ? ", in place" : "", c->task.counts ? ", uneven" : "", c->task.order,
		 c->task.root, c->plan.chunk_bytes, c->plan.channels,
		 rf_dtype_name(c->plan.wire_type), current_values, c->late_rank,
		 (unsigned long long)c->task.divisor);
	return text;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static void buffer_make(struct buffer *buffer, size_t bytes, uint64_t *random)
{
	size_t skew = check_below(random, SKEW);

	buffer->bytes = bytes;
	buffer->block = malloc(bytes + 2 * CANARY + SKEW);
	memset(buffer->block, 0xc5, bytes + 2 * CANARY + SKEW);
	buffer->at = buffer->block + CANARY + skew;
}

static bool buffer_is_sound(const struct buffer *buffer)
{
	const unsigned char *end = buffer->block + buffer->bytes + 2 * CANARY + SKEW;

	for (const unsigned char *p = buffer->block; p < buffer->at; p++)
		if (*p != 0xc5)
			return false;
	for (const unsigned char *p = buffer->at + buffer->bytes; p < end; p++)
		if (*p != 0xc5)
			return false;
	return true;
}

/* ---- values --------------------------------------------------------------------------------- */

static bool is_float(rf_dtype dtype)
{
	return dtype == RF_FLOAT16 || dtype == RF_BFLOAT16 || dtype == RF_FLOAT32 ||
	       dtype == RF_FLOAT64;
}

static double one_value(uint64_t *random)
{
	static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, -NAN};
	double plain = 0.75 + (double)check_below(random, 1 << 20) / (1 << 21);

	if (current_values == VALUES_EXACT && current.task.op != RF_PROD)
		return (double)check_below(random, 9) - 4;
	if (current_values == VALUES_SPECIAL && !check_below(random, 20))
		return special[check_below(random, 6)];
	return check_below(random, 2) ? plain : -plain;
}

static void put_value(rf_dtype dtype, unsigned char *at, double value)
{
	float single = (float)value;

	if (dtype == RF_FLOAT64)
		memcpy(at, &value, sizeof(value));
	else if (dtype == RF_FLOAT32)
		memcpy(at, &single, sizeof(single));
	else
		rf_finish(dtype, at, RF_FLOAT32, &single, 1, 0);
}

static double get_value(rf_dtype dtype, const unsigned char *at)
{
	double value;
	float single;

	if (dtype == RF_FLOAT64) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	if (dtype == RF_FLOAT32)
		memcpy(&single, at, sizeof(single));
	else
		rf_finish(RF_FLOAT32, &single, dtype, at, 1, 0);
	return (double)single;
}

static void fill(unsigned char *at, size_t count, rf_dtype dtype, uint64_t *random)
{
	size_t bytes = rf_dtype_size(dtype);

	for (size_t i = 0; i < count; i++) {
		uint64_t bits = check_random(random);

		if (is_float(dtype))
			put_value(dtype, at + i * bytes, one_value(random));
		else
			memcpy(at + i * bytes, &bits, bytes);
	}
}

/* ---- what the result should be -------------------------------------------------------------- */

static bool folds(rf_collective collective)
{
	return collective == RF_ALLREDUCE || collective == RF_REDUCE ||
	       collective == RF_REDUCE_SCATTER;
}

static size_t offset_of(int rank)
{
	size_t offset = 0;

	for (int i = 0; i < rank; i++)
		offset += counts[i];
	return offset;
}

/* The whole result: the tree's fold, the parts in a row, or root's buffer. */
static void make_expected(unsigned char *expected, struct buffer *inputs)
{
	const struct world_case *c = &current;
	size_t bytes = rf_dtype_size(c->task.dtype);
	const void **sources = malloc((size_t)c->ranks * sizeof(*sources));

	for (int i = 0; i < c->ranks; i++)
		sources[i] = inputs[i].at;
	if (folds(c->task.collective) && c->task.count)
		rf_foldp(c->task.op, c->task.dtype, expected, c->task.dtype, sources,
			 (size_t)c->ranks, c->task.count, c->task.divisor);
	for (int i = 0; i < c->ranks && c->task.collective == RF_ALLGATHER; i++)
		memcpy(expected + offset_of(i) * bytes, inputs[i].at, counts[i] * bytes);
	if (c->task.collective == RF_BROADCAST)
		memcpy(expected, inputs[c->task.root].at, c->task.count * bytes);
	free(sources);
}

static double epsilon(rf_dtype dtype)
{
	switch (dtype) {
	case RF_FLOAT16:
		return 0x1p-10;
	case RF_BFLOAT16:
		return 0x1p-7;
	case RF_FLOAT32:
		return FLT_EPSILON;
	default:
		return DBL_EPSILON;
	}
}

/* How far rounding may take a sum or product from the tree's. */
static double tolerance(struct buffer *inputs, size_t index, double expected)
{
	const struct world_case *c = &current;
	rf_dtype dtype = c->task.dtype;
	size_t bytes = rf_dtype_size(dtype);
	double sum = 0, ranks = c->ranks;

	if (c->task.op == RF_PROD)
		return fabs(expected) * (epsilon(dtype) + ranks * epsilon(c->plan.wire_type)) +
		       (dtype == RF_FLOAT16 ? 0x1p-24 * ranks : 0);
	for (int i = 0; i < c->ranks; i++)
		sum += fabs(get_value(dtype, inputs[i].at + index * bytes));
	if (c->task.divisor > 1)
		sum /= ranks;
	return fabs(expected) * epsilon(dtype) + sum * ranks * epsilon(c->plan.wire_type);
}

static void check_element(struct buffer *inputs, size_t index, const unsigned char *got,
			  const unsigned char *expected, int rank)
{
	const struct world_case *c = &current;
	size_t bytes = rf_dtype_size(c->task.dtype);
	double a, b;

	if (!memcmp(got, expected, bytes))
		return;
	WORLD_CHECK(is_float(c->task.dtype) && folds(c->task.collective) &&
			    !c->plan.algo->tree_order,
		    "rank %d has other bits at %zu", rank, index);
	a = get_value(c->task.dtype, got);
	b = get_value(c->task.dtype, expected);
	WORLD_CHECK(c->task.op != RF_MIN && c->task.op != RF_MAX, "rank %d: %g, not %g at %zu",
		    rank, a, b, index);
	WORLD_CHECK(current_values != VALUES_EXACT || c->task.op != RF_SUM ||
			    (c->ranks > 60 && c->task.dtype == RF_BFLOAT16),
		    "rank %d: %g, not %g at %zu", rank, a, b, index);
	WORLD_CHECK(!isnan(a) && !isnan(b), "rank %d: %g, not %g at %zu", rank, a, b, index);
	WORLD_CHECK(fabs(a - b) <= tolerance(inputs, index, b) || (isinf(a) && !isinf(b)),
		    "rank %d: %.9g, not %.9g at %zu", rank, a, b, index);
}

/* ---- one case ------------------------------------------------------------------------------- */

static size_t result_count(int rank)
{
	switch (current.task.collective) {
	case RF_BARRIER:
		return 0;
	case RF_REDUCE:
		return rank == current.task.root ? current.task.count : 0;
	case RF_REDUCE_SCATTER:
		return counts[rank];
	default:
		return current.task.count;
	}
}

static size_t input_count(int rank)
{
	if (current.task.collective == RF_BARRIER)
		return 0;
	return current.task.collective == RF_ALLGATHER ? counts[rank] : current.task.count;
}

static void check_results(struct buffer *inputs, struct buffer *outputs, const unsigned char *whole,
			  unsigned char *first)
{
	size_t bytes = rf_dtype_size(current.task.dtype);
	bool has_first = false;

	for (int rank = 0; rank < current.ranks; rank++) {
		size_t start = current.task.collective == RF_REDUCE_SCATTER ? offset_of(rank) : 0;
		size_t count = result_count(rank);
		const unsigned char *got = outputs[rank].at;

		for (size_t i = 0; i < count; i++)
			check_element(inputs, start + i, got + i * bytes,
				      whole + (start + i) * bytes, rank);
		if (current.task.collective != RF_ALLREDUCE)
			continue;
		WORLD_CHECK(!has_first || !memcmp(first, got, count * bytes),
			    "ranks %d and 0 differ", rank);
		memcpy(first, got, count * bytes);
		has_first = true;
	}
}

/* Where the call finds its input in place, in the receive buffer. */
static size_t in_place_offset(int rank)
{
	return current.task.collective == RF_ALLGATHER ? offset_of(rank) : 0;
}

static size_t output_bytes(int rank)
{
	size_t count = result_count(rank);

	if (current.in_place && current.task.collective == RF_REDUCE_SCATTER)
		count = current.task.count;
	return count * rf_dtype_size(current.task.dtype);
}

static void check_untouched(struct buffer *inputs, struct buffer *copies, struct buffer *outputs)
{
	for (int i = 0; i < current.ranks; i++) {
		WORLD_CHECK(buffer_is_sound(&copies[i]) && buffer_is_sound(&outputs[i]),
			    "rank %d: written outside of a buffer", i);
		WORLD_CHECK(!memcmp(inputs[i].at, copies[i].at, inputs[i].bytes),
			    "rank %d: the send buffer has changed", i);
	}
}

struct buffers {
	struct buffer *inputs;  /* what each rank contributes; never handed in */
	struct buffer *sends;   /* its copy, the send buffer */
	struct buffer *outputs; /* the receive buffer */
	const void **send;      /* as handed in */
	void **recv;
};

static void make_inputs(struct buffers *all, uint64_t *random)
{
	size_t ranks = (size_t)current.ranks, bytes = rf_dtype_size(current.task.dtype);

	all->inputs = calloc(3 * ranks, sizeof(*all->inputs));
	all->sends = all->inputs + ranks;
	all->outputs = all->sends + ranks;
	all->send = calloc(ranks, sizeof(*all->send));
	all->recv = calloc(ranks, sizeof(*all->recv));
	for (int i = 0; i < current.ranks; i++) {
		buffer_make(&all->inputs[i], input_count(i) * bytes, random);
		buffer_make(&all->sends[i], input_count(i) * bytes, random);
		buffer_make(&all->outputs[i], output_bytes(i), random);
		fill(all->inputs[i].at, input_count(i), current.task.dtype, random);
		memcpy(all->sends[i].at, all->inputs[i].at, all->inputs[i].bytes);
	}
}

/* What rank i hands in. */
static void hand_in(struct buffers *all, int i)
{
	size_t bytes = rf_dtype_size(current.task.dtype);
	bool is_reduce = current.task.collective == RF_REDUCE;

	all->send[i] = all->sends[i].at;
	all->recv[i] = all->outputs[i].at;
	if (current.task.collective == RF_BARRIER)
		all->send[i] = all->recv[i] = NULL;
	if (is_reduce && i != current.task.root)
		all->recv[i] = NULL;
	else if (current.in_place)
		all->send[i] = all->outputs[i].at + in_place_offset(i) * bytes;
	if (current.in_place && all->recv[i])
		memcpy(all->outputs[i].at + in_place_offset(i) * bytes, all->inputs[i].at,
		       all->inputs[i].bytes);
}

static uint64_t run_once(struct buffers *all)
{
	for (int i = 0; i < current.ranks; i++)
		hand_in(all, i);
	return world_run(&current, all->send, all->recv);
}

/* The same call, with everything happening in another order, has the same bits. */
static void run_again(struct buffers *all)
{
	struct world_case first = current;
	unsigned char **before = calloc((unsigned)current.ranks, sizeof(*before));

	for (int i = 0; i < current.ranks; i++) {
		before[i] = malloc(all->outputs[i].bytes + 1);
		memcpy(before[i], all->outputs[i].at, all->outputs[i].bytes);
		memset(all->outputs[i].at, 0x5a, all->outputs[i].bytes);
	}
	current.seed ^= 1;
	current.garbage = 0;
	current.stop_early = false;
	run_once(all);
	for (int i = 0; i < current.ranks; i++) {
		WORLD_CHECK(!memcmp(before[i], all->outputs[i].at,
				    result_count(i) * rf_dtype_size(current.task.dtype)),
			    "rank %d has other bits in a second run", i);
		free(before[i]);
	}
	free(before);
	current = first;
}

static void run_case(uint64_t *random)
{
	size_t bytes = rf_dtype_size(current.task.dtype), count = current.task.count;
	unsigned char *whole = malloc(2 * count * bytes + 1);
	bool again = !check_below(random, 4);
	struct buffers all;
	uint64_t segments;

	make_inputs(&all, random);
	make_expected(whole, all.inputs);
	segments = run_once(&all);
	if (segments || current.ranks == 1) {
		check_results(all.inputs, all.outputs, whole, whole + count * bytes);
		if (again)
			run_again(&all);
	}
	check_untouched(all.inputs, all.sends, all.outputs);
	for (int i = 0; i < 3 * current.ranks; i++)
		free(all.inputs[i].block);
	free(all.inputs);
	free(all.send);
	free(all.recv);
	free(whole);
}

/* ---- random cases --------------------------------------------------------------------------- */

static int random_ranks(uint64_t *random)
{
	static const int some[] = {37, 61, 64, 97, 100, 127, 128};

	switch (check_below(random, 16)) {
	case 0:
		return some[check_below(random, 7)];
	case 1:
	case 2:
	case 3:
		return 1 + (int)check_below(random, 33);
	default:
		return 1 + (int)check_below(random, 9);
	}
}

static size_t random_count(uint64_t *random)
{
	switch (check_below(random, 8)) {
	case 0:
		return check_below(random, 4);
	case 1:
		return check_below(random, 3000);
	default:
		return check_below(random, 400);
	}
}

static void random_counts(uint64_t *random)
{
	struct rf_task *task = &current.task;
	bool needs = task->collective == RF_REDUCE_SCATTER || task->collective == RF_ALLGATHER;
	bool even = check_below(random, 2);
	size_t each = task->count / (size_t)current.ranks;

	counts = realloc(counts, (size_t)current.ranks * sizeof(*counts));
	task->count = needs ? 0 : task->count;
	for (int i = 0; i < current.ranks; i++) {
		counts[i] = even ? each : check_below(random, 2 * each + 2);
		if (!even && !check_below(random, 4))
			counts[i] = 0;
		if (needs)
			task->count += counts[i];
	}
	task->counts = needs && !(even && check_below(random, 2)) ? counts : NULL;
}

static void random_types(uint64_t *random)
{
	struct rf_task *task = &current.task;

	task->dtype = (rf_dtype)check_below(random, RF_DTYPE_COUNT);
	do
		task->op = (rf_op)check_below(random, RF_OP_COUNT);
	while (task->op == RF_AVG && task->dtype == RF_BOOL);
	task->divisor = task->op == RF_AVG ? (uint64_t)current.ranks : 0;
	current.plan.wire_type = task->dtype;
	if ((task->dtype == RF_FLOAT16 || task->dtype == RF_BFLOAT16) && folds(task->collective) &&
	    check_below(random, 2))
		current.plan.wire_type = RF_FLOAT32;
	current_values = (enum values)check_below(random, 3);
}

static void random_hostility(uint64_t *random)
{
	static const unsigned often[] = {0, 0, 10, 50, 90};

	current.again = often[check_below(random, 5)];
	current.at_once = often[check_below(random, 5)] + (check_below(random, 4) ? 0 : 10);
	current.pieces = often[check_below(random, 5)];
	current.late = check_below(random, 3) ? often[check_below(random, 5)] : 100;
	current.garbage = check_below(random, 4) ? 0 : 20;
	current.stop_early = !check_below(random, 16);
	current.first_alone = check_below(random, 2);
	current.late_rank = -1;
	if (!check_below(random, 3))
		current.late_rank = (int)check_below(random, (uint64_t)current.ranks);
}

static void random_case(uint64_t seed, const struct rf_algo *algo)
{
	uint64_t random = seed;

	memset(&current, 0, sizeof(current));
	current.seed = seed;
	current.ranks = random_ranks(&random);
	current.plan.algo = algo;
	do
		current.task.collective = (rf_collective)check_below(&random, RF_COLLECTIVE_COUNT);
	while (!(algo->collectives & 1u << current.task.collective));
	current.task.count = random_count(&random);
	if (current.ranks > 33 && current.task.count > 600)
		current.task.count /= 8;
	if (current.task.collective == RF_BARRIER)
		current.task.count = 0;
	if (algo->tree_order && check_below(&random, 2))
		current.task.order = RF_ORDER_TREE;
	random_types(&random);
	random_counts(&random);
	current.task.root = (int)check_below(&random, (uint64_t)current.ranks);
	if (current.task.collective == RF_BROADCAST)
		current.in_place = true;
	else if (current.task.collective != RF_BARRIER)
		current.in_place = check_below(&random, 2);
	current.plan.chunk_bytes = 64 << check_below(&random, 6);
	current.plan.channels = 1 + (unsigned)check_below(&random, 4);
	if (current.ranks > 33)
		current.plan.channels = 1;
	random_hostility(&random);
	run_case(&random);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* Those that send messages come first; the arena has a test of its own. */
static size_t algo_count(void)
{
	size_t count = 0;

	while (rf_algos[count] && !rf_algos[count]->in_shared_memory)
		count++;
	return count;
}

int main(void)
{
	uint64_t seed = from_environment("RINGFOLD_TEST_SEED", 0);
	uint64_t cases = from_environment("RINGFOLD_TEST_CASES", 6000);
	uint64_t one = from_environment("RINGFOLD_TEST_CASE", 0);
	const char *name = getenv("RINGFOLD_TEST_ALGORITHM");
	uint64_t random;

	if (!seed) {
		FILE *file = fopen("/dev/urandom", "r");

		if (!file || fread(&seed, sizeof(seed), 1, file) != 1)
			seed = 1;
		if (file)
			fclose(file);
	}
	world_describe = describe;
	random = seed;
	printf("RINGFOLD_TEST_SEED=%#llx, %llu cases\n", (unsigned long long)seed,
	       (unsigned long long)cases);
	fflush(stdout);
	for (uint64_t i = 0; i < cases; i++) {
		const struct rf_algo *algo = rf_algos[i % algo_count()];
		uint64_t this_seed = check_random(&random);

		if (name && *name)
			algo = rf_algo_find(name);
		if (one && this_seed != one)
			continue;
		random_case(this_seed, algo);
	}
	free(counts);
	return 0;
}
