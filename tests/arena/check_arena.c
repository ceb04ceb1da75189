/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives through an arena, without processes: random sequences of calls, once with all ranks
 * in one thread that advances them in any order, once with a thread a rank that sleeps when it
 * waits. Results are compared bit by bit with folds of the inputs, and bytes around the outputs
 * must stay. RINGFOLD_TEST_SEED repeats a run, RINGFOLD_TEST_CASES says how many.
 */
#include "engine/algo/algo.h"
#include "engine/arena/arena.h"
#include "engine/cpu.h"
#include "engine/kernels/kernels.h"
#include "engine/list.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 9, CALLS_MOST = 12, GUARD = 64, GUARD_BYTE = 0xa5, WATCHDOG_S = 240 };

#define CHECK(condition, ...)                                                      \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "%s:%d: case %#llx: ", __FILE__, __LINE__, \
				(unsigned long long)current_case);                 \
			fprintf(stderr, __VA_ARGS__);                              \
			fprintf(stderr, "\n");                                     \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

static uint64_t current_case;

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t limit)
{
	return (size_t)(next_random(state) % limit);
}

/* ---- a sequence of calls --------------------------------------------------------------------- */

struct buffers {
	uint8_t *send, *recv; /* within guards; equal in place */
	size_t send_bytes, recv_bytes;
	uint8_t *expected; /* of recv */
};

struct a_call {
	rf_collective collective;
	rf_dtype dtype;
	rf_op op;
	int root;
	bool in_place;
	bool uneven;
	size_t count;
	size_t counts[RANKS_MOST], offsets[RANKS_MOST + 1];
	struct buffers of[RANKS_MOST];
	uint8_t fingerprint[24];
};

struct rank {
	struct rf_arena arena;
	struct rf_group group;
	struct rf_traffic traffic;
	struct rf_task task;
	void *state;
	int call; /* its current one */
	pthread_t thread;
	struct world *world;
	pthread_mutex_t lock;
	pthread_cond_t rung;
	bool bell;
	uint64_t random;
};

struct world {
	int size, calls;
	struct a_call call[CALLS_MOST];
	struct rank ranks[RANKS_MOST];
	uint8_t *region;
	size_t region_bytes;
	int mismatches;
};

static const struct rf_algo *arena_algo;

static void on_mismatch(struct rf_group *group, int rank, const uint8_t fingerprint[24])
{
	struct rank *self = RF_CONTAINER(group, struct rank, group);
	const struct a_call *theirs = &self->world->call[1];

	CHECK(rank != group->rank, "a rank differs from itself");
	CHECK(!memcmp(fingerprint, theirs->fingerprint, 24) || self->group.rank == 1,
	      "the fingerprint is not the other's");
	self->world->mismatches++;
}

static const struct rf_group_ops ops = {.mismatch = on_mismatch};

static uint8_t *guarded(size_t bytes)
{
	uint8_t *block = malloc(bytes + 2 * GUARD);

	CHECK(block, "out of memory");
	memset(block, GUARD_BYTE, bytes + 2 * GUARD);
	return block + GUARD;
}

static void check_guards(const uint8_t *memory, size_t bytes)
{
	for (size_t i = 0; i < GUARD; i++)
		CHECK(memory[-1 - (ptrdiff_t)i] == GUARD_BYTE && memory[bytes + i] == GUARD_BYTE,
		      "a byte beside a buffer has changed");
}

static void fill(uint64_t *random, rf_dtype dtype, uint8_t *memory, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float value = (float)((int)below(random, 2001) - 1000) / 8;

		switch (dtype) {
		case RF_FLOAT32:
			memcpy(memory + 4 * i, &value, 4);
			break;
		case RF_BFLOAT16:
			rf_finish(RF_BFLOAT16, memory + 2 * i, RF_FLOAT32, &value, 1, 0);
			break;
		case RF_FLOAT64:
			memcpy(memory + 8 * i, &(double){(double)value}, 8);
			break;
		default:
			for (size_t b = 0; b < rf_dtype_size(dtype); b++)
				memory[rf_dtype_size(dtype) * i + b] = (uint8_t)next_random(random);
		}
	}
}

/* Where rank's input of the call is, and where its output goes. */
static void place(const struct world *world, struct a_call *call, int rank)
{
	struct buffers *b = &call->of[rank];
	size_t element = rf_dtype_size(call->dtype), all = call->count * element;
	size_t mine = call->counts[rank] * element;

	b->send_bytes = b->recv_bytes = all;
	if (call->collective == RF_ALLGATHER)
		b->send_bytes = mine;
	if (call->collective == RF_REDUCE_SCATTER && !call->in_place)
		b->recv_bytes = mine;
	if (call->collective == RF_BARRIER)
		b->send_bytes = b->recv_bytes = 0;
	b->recv = guarded(b->recv_bytes);
	b->expected = guarded(b->recv_bytes);
	if (call->collective == RF_BROADCAST)
		b->send = b->recv;
	else if (!call->in_place)
		b->send = guarded(b->send_bytes);
	else if (call->collective == RF_ALLGATHER)
		b->send = b->recv + call->offsets[rank] * element;
	else
		b->send = b->recv;
	(void)world;
}

static void expect_fold(const struct world *world, struct a_call *call, size_t from, size_t count,
			uint8_t *to)
{
	const void *sources[RANKS_MOST];
	size_t element = rf_dtype_size(call->dtype);

	for (int i = 0; i < world->size; i++)
		sources[i] = call->of[i].send + from * element;
	if (count)
		rf_foldp(call->op, call->dtype, to, call->dtype, sources, (size_t)world->size,
			 count, call->op == RF_AVG ? (uint64_t)world->size : 0);
}

/* From the inputs, before any call. */
static void expect(const struct world *world, struct a_call *call, int rank)
{
	struct buffers *b = &call->of[rank];
	size_t element = rf_dtype_size(call->dtype);

	memcpy(b->expected, b->recv, b->recv_bytes);
	switch (call->collective) {
	case RF_ALLREDUCE:
		expect_fold(world, call, 0, call->count, b->expected);
		break;
	case RF_REDUCE:
		if (rank == call->root)
			expect_fold(world, call, 0, call->count, b->expected);
		break;
	case RF_BROADCAST:
		memcpy(b->expected, call->of[call->root].send, b->recv_bytes);
		break;
	case RF_REDUCE_SCATTER:
		expect_fold(world, call, call->offsets[rank], call->counts[rank], b->expected);
		break;
	case RF_ALLGATHER:
		for (int i = 0; i < world->size; i++)
			memcpy(b->expected + call->offsets[i] * element, call->of[i].send,
			       call->counts[i] * element);
		break;
	default:
		break;
	}
}

static void make_call(struct world *world, struct a_call *call, uint64_t *random, size_t most)
{
	static const rf_dtype dtypes[] = {RF_FLOAT32, RF_INT32, RF_BFLOAT16, RF_UINT8, RF_FLOAT64};
	static const rf_op kinds[] = {RF_SUM, RF_MAX, RF_PROD, RF_AVG};

	call->collective = (rf_collective)below(random, RF_COLLECTIVE_COUNT);
	call->dtype = dtypes[below(random, 5)];
	call->op = kinds[below(random, 4)];
	call->root = (int)below(random, (size_t)world->size);
	call->in_place = below(random, 2);
	call->uneven = below(random, 2);
	call->count = below(random, 4) ? below(random, most) : below(random, 20);
	for (int i = 0; i < world->size; i++)
		call->counts[i] = call->uneven ? below(random, most / (size_t)world->size + 1)
					       : call->count / (size_t)world->size;
	if (call->collective == RF_REDUCE_SCATTER || call->collective == RF_ALLGATHER) {
		call->count = 0;
		for (int i = 0; i < world->size; i++)
			call->count += call->counts[i];
	}
	for (int i = 0; i < world->size; i++)
		call->offsets[i + 1] = call->offsets[i] + call->counts[i];
	for (int i = 0; i < world->size; i++) {
		place(world, call, i);
		fill(random, call->dtype, call->of[i].send,
		     call->of[i].send_bytes / rf_dtype_size(call->dtype));
	}
	for (int i = 0; i < world->size; i++)
		expect(world, call, i);
	for (size_t i = 0; i < sizeof(call->fingerprint); i++)
		call->fingerprint[i] = (uint8_t)next_random(random);
}

static void check_and_free(struct world *world)
{
	for (int c = 0; c < world->calls; c++) {
		for (int i = 0; i < world->size; i++) {
			struct a_call *call = &world->call[c];
			struct buffers *b = &call->of[i];
			/* Of an in-place reduce_scatter only the block is defined. */
			size_t bytes = call->collective == RF_REDUCE_SCATTER
					       ? call->counts[i] * rf_dtype_size(call->dtype)
					       : b->recv_bytes;
			bool counts = call->collective != RF_REDUCE || i == call->root;

			CHECK(!counts || !memcmp(b->recv, b->expected, bytes),
			      "call %d, %s of %zu %s, %d ranks%s: rank %d has a wrong result", c,
			      rf_collective_name(call->collective), call->count,
			      rf_dtype_name(call->dtype), world->size,
			      call->in_place ? ", in place" : "", i);
			check_guards(b->recv, b->recv_bytes);
			if (b->send < b->recv || b->send > b->recv + b->recv_bytes) {
				check_guards(b->send, b->send_bytes);
				free(b->send - GUARD);
			}
			free(b->expected - GUARD);
			free(b->recv - GUARD);
		}
	}
	for (int i = 0; i < world->size; i++)
		free(world->ranks[i].arena.sources);
	free(world->region);
}

static void ring(void *user, int rank)
{
	struct world *world = user;
	struct rank *other = &world->ranks[rank];

	pthread_mutex_lock(&other->lock);
	other->bell = true;
	pthread_cond_signal(&other->rung);
	pthread_mutex_unlock(&other->lock);
}

static void make_world(struct world *world, uint64_t *random, int size)
{
	static const uint8_t nonce[16] = {1};
	size_t part = 64 * (1 + below(random, 16)), fits, budget = 1;

	memset(world, 0, sizeof(*world));
	world->size = size;
	for (fits = 0; fits < part; budget *= 2)
		world->region_bytes = rf_arena_region_bytes(size, budget, &fits);
	CHECK(world->region_bytes <= budget, "the region is over its budget");
	world->region = aligned_alloc(4096, (world->region_bytes + 4095) / 4096 * 4096);
	CHECK(world->region, "out of memory");
	memset(world->region, 0, world->region_bytes);
	rf_arena_format(world->region, size, part, nonce);
	for (int i = 0; i < size; i++) {
		struct rank *rank = &world->ranks[i];

		CHECK(rf_arena_open(&rank->arena, world->region, world->region_bytes, i, size) ==
			      RF_OK,
		      "the region does not open");
		rank->arena.sources = calloc((size_t)size, sizeof(void *));
		rank->arena.ring = ring;
		rank->arena.ring_user = world;
		rank->world = world;
		rank->random = next_random(random);
		pthread_mutex_init(&rank->lock, NULL);
		pthread_cond_init(&rank->rung, NULL);
		rank->group = (struct rf_group){.ops = &ops,
						.rank = i,
						.size = size,
						.arena = &rank->arena,
						.traffic = &rank->traffic};
	}
}

static void begin_call(struct rank *rank)
{
	struct a_call *call = &rank->world->call[rank->call];
	struct buffers *b = &call->of[rank->group.rank];
	bool reads = call->collective != RF_REDUCE || rank->group.rank == call->root;
	struct rf_plan plan = {.algo = arena_algo, .chunk_bytes = 64, .channels = 1};

	rank->task = (struct rf_task){
		.collective = call->collective,
		.dtype = call->dtype,
		.op = call->op,
		.root = call->root,
		.divisor = call->op == RF_AVG ? (uint64_t)rank->group.size : 0,
		.count = call->collective == RF_BARRIER ? 0 : call->count,
		.counts = call->uneven && (call->collective == RF_REDUCE_SCATTER ||
					   call->collective == RF_ALLGATHER)
				  ? call->counts
				  : NULL,
		.send = b->send,
		.recv = reads ? b->recv : NULL,
		.in_place = call->in_place && reads,
	};
	rank->group.fingerprint = call->fingerprint;
	CHECK(arena_algo->create(&rank->group, &rank->task, &plan, &rank->state) == RF_OK,
	      "create() failed");
}

/* ---- all in one thread ----------------------------------------------------------------------- */

static void in_any_order(uint64_t seed)
{
	static struct world world;
	uint64_t random = current_case = seed;
	int left;

	make_world(&world, &random, 2 + (int)below(&random, RANKS_MOST - 1));
	world.calls = 1 + (int)below(&random, CALLS_MOST);
	for (int c = 0; c < world.calls; c++)
		make_call(&world, &world.call[c], &random, 1 + below(&random, 4000));
	left = world.size * world.calls;
	for (int i = 0; i < world.size; i++)
		begin_call(&world.ranks[i]);
	while (left) {
		struct rank *rank = &world.ranks[below(&random, (size_t)world.size)];
		int awaited, status;

		/* A favourite now and then gets as far as it can. */
		if (rank->call == world.calls)
			continue;
		status = arena_algo->advance(rank->state, &awaited);
		CHECK(status == RF_OK || status == RF_ERR_AGAIN, "advance() answers %d", status);
		CHECK(status == RF_OK || awaited != rank->group.rank, "it waits for itself");
		if (status != RF_OK)
			continue;
		arena_algo->destroy(rank->state);
		left--;
		if (++rank->call < world.calls)
			begin_call(rank);
	}
	check_and_free(&world);
}

/* ---- a thread a rank ------------------------------------------------------------------------- */

static void sleep_until_rung(struct rank *rank)
{
	rf_arena_arm(&rank->arena);
	if (!arena_algo->poll(rank->state)) {
		pthread_mutex_lock(&rank->lock);
		while (!rank->bell)
			pthread_cond_wait(&rank->rung, &rank->lock);
		rank->bell = false;
		pthread_mutex_unlock(&rank->lock);
	}
	rf_arena_disarm(&rank->arena);
}

static void *run_rank(void *argument)
{
	struct rank *rank = argument;
	int awaited;

	for (; rank->call < rank->world->calls; rank->call++) {
		begin_call(rank);
		while (arena_algo->advance(rank->state, &awaited) != RF_OK) {
			if (!below(&rank->random, 3))
				sleep_until_rung(rank);
			else if (!below(&rank->random, 4))
				sched_yield();
		}
		arena_algo->destroy(rank->state);
	}
	return NULL;
}

static void with_threads(uint64_t seed)
{
	static struct world world;
	uint64_t random = current_case = seed;

	make_world(&world, &random, 2 + (int)below(&random, RANKS_MOST - 1));
	world.calls = CALLS_MOST;
	for (int c = 0; c < world.calls; c++)
		make_call(&world, &world.call[c], &random, 1 + below(&random, 20000));
	for (int i = 0; i < world.size; i++)
		CHECK(!pthread_create(&world.ranks[i].thread, NULL, run_rank, &world.ranks[i]),
		      "no thread");
	for (int i = 0; i < world.size; i++)
		pthread_join(world.ranks[i].thread, NULL);
	check_and_free(&world);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Rank 1 makes another call than the others: each of them sees it, and none is done. */
static void another_call_is_seen(void)
{
	static struct world world;
	uint64_t random = current_case = 1;
	int awaited, seen = 0;

	make_world(&world, &random, 4);
	world.calls = 2;
	for (int c = 0; c < 2; c++) {
		make_call(&world, &world.call[c], &random, 100);
		world.call[c].collective = RF_BARRIER;
	}
	world.ranks[1].call = 1;
	for (int i = 0; i < 4; i++)
		begin_call(&world.ranks[i]);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++) {
			int status = arena_algo->advance(world.ranks[i].state, &awaited);

			CHECK(status != RF_OK, "a call that does not match has ended well");
			seen += status == RF_ERR_MISMATCH;
		}
	}
	CHECK(seen >= 4 && world.mismatches >= 4, "%d of 4 ranks have seen it", seen);
	for (int i = 0; i < 4; i++)
		arena_algo->destroy(world.ranks[i].state);
	world.calls = 0;
	check_and_free(&world);
}

/* After a failure no call ends well, though all have come. */
static void nothing_ends_after_a_failure(void)
{
	static struct world world;
	uint64_t random = current_case = 2;
	int awaited;

	make_world(&world, &random, 2);
	world.calls = 1;
	make_call(&world, &world.call[0], &random, 100);
	begin_call(&world.ranks[0]);
	begin_call(&world.ranks[1]);
	arena_algo->advance(world.ranks[1].state, &awaited);
	rf_arena_fail(&world.ranks[1].arena);
	CHECK(arena_algo->advance(world.ranks[0].state, &awaited) == RF_ERR_AGAIN,
	      "a call has ended well after the failure");
	CHECK(!arena_algo->poll(world.ranks[0].state), "it would spin");
	arena_algo->destroy(world.ranks[0].state);
	arena_algo->destroy(world.ranks[1].state);
	world.calls = 0;
	check_and_free(&world);
}

/* Of two ranks on one core the higher one is to leave; and leaving changes no affinity. */
static void the_higher_of_two_leaves(void)
{
	static struct world world;
	struct rf_arena *low = &world.ranks[0].arena, *high = &world.ranks[1].arena;
	uint64_t random = 4;
	cpu_set_t before, after;
	int moved = 0;

	make_world(&world, &random, 2);
	CHECK(!rf_arena_shares_core(high, 0, 3), "nobody has told where it is");
	CHECK(!rf_arena_shares_core(low, 1, 3), "the lower one stays");
	CHECK(rf_arena_shares_core(high, 0, 3), "the higher one stays too");
	CHECK(!rf_arena_shares_core(high, 0, 2), "it leaves another core");
	check_and_free(&world);
	CHECK(!sched_getaffinity(0, sizeof(before), &before), "no affinity");
	for (int i = 0; i < 100; i++) {
		int core = rf_cpu_here();

		rf_cpu_leave(core);
		moved += rf_cpu_here() != core;
	}
	CHECK(!sched_getaffinity(0, sizeof(after), &after) && CPU_EQUAL(&before, &after),
	      "the affinity has changed");
	CHECK(moved || CPU_COUNT(&before) == 1 || getenv("RINGFOLD_TEST_EMULATED"),
	      "it never moves");
}

/* What is no arena of these ranks does not open. */
static void damaged_regions_do_not_open(void)
{
	static struct world world;
	struct rf_arena arena;
	uint64_t random = 3;

	make_world(&world, &random, 3);
	CHECK(rf_arena_open(&arena, world.region, world.region_bytes, 0, 4) == RF_ERR_PROTOCOL,
	      "of another size");
	CHECK(rf_arena_open(&arena, world.region, world.region_bytes / 2, 0, 3) == RF_ERR_PROTOCOL,
	      "cut");
	CHECK(rf_arena_open(&arena, world.region, 64, 0, 3) == RF_ERR_PROTOCOL, "cut short");
	((struct rf_arena_base *)world.region)->part_bytes = SIZE_MAX / 64 * 64;
	CHECK(rf_arena_open(&arena, world.region, world.region_bytes, 0, 3) == RF_ERR_PROTOCOL,
	      "a part that is too large");
	((struct rf_arena_base *)world.region)->magic++;
	CHECK(rf_arena_open(&arena, world.region, world.region_bytes, 0, 3) == RF_ERR_PROTOCOL,
	      "no arena");
	check_and_free(&world);
}

static void sizes_stay_within_budget(void)
{
	for (int size = 2; size < 300; size = size * 3 / 2 + 1) {
		for (size_t budget = 1000; budget < (size_t)1 << 32; budget = budget * 5 / 2) {
			size_t part = 1;
			size_t bytes = rf_arena_region_bytes(size, budget, &part);

			CHECK(bytes <= budget, "%d ranks: %zu of %zu bytes", size, bytes, budget);
			CHECK(!bytes == !part && part % 64 == 0, "%zu bytes a part", part);
		}
	}
}

int main(void)
{
	const char *seed_text = getenv("RINGFOLD_TEST_SEED"), *cases_text;
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) * 1000003;
	bool slow = getenv("RINGFOLD_SANITIZER") || getenv("RINGFOLD_TEST_EMULATED");
	unsigned long cases;

	cases_text = getenv("RINGFOLD_TEST_CASES");
	cases = cases_text ? strtoul(cases_text, NULL, 0) : slow ? 300 : 2000;
	printf("RINGFOLD_TEST_SEED=%llu, %lu cases\n", (unsigned long long)seed, cases);
	fflush(stdout);
	alarm(WATCHDOG_S);
	arena_algo = rf_algo_find("arena");
	sizes_stay_within_budget();
	damaged_regions_do_not_open();
	the_higher_of_two_leaves();
	another_call_is_seen();
	nothing_ends_after_a_failure();
	for (unsigned long i = 0; i < cases; i++) {
		in_any_order(next_random(&seed));
		if (i % 10 == 0)
			with_threads(next_random(&seed));
	}
	return 0;
}
