/* SPDX-License-Identifier: BSD-3-Clause */
/* The primitives that every call goes through, and a whole call of one rank alone. */
#include "bench/micro.h"
#include "engine/map.h"
#include "engine/segment.h"
#include "engine/timer.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- headers -------------------------------------------------------------------------------- */

struct header_state {
	struct rf_segment segment;
	uint8_t header[RF_SEGMENT_HEADER_BYTES];
};

static void *header_begin(const struct micro_case *one)
{
	struct header_state *state = calloc(1, sizeof(*state));

	(void)one;
	if (!state)
		return NULL;
	state->segment = (struct rf_segment){
		.version = RF_WIRE_VERSION, .type = RF_SEGMENT_DATA, .seq = 7, .bytes = 4096};
	rf_segment_encode(&state->segment, state->header);
	return state;
}

static void header_encode(void *state, size_t times)
{
	struct header_state *both = state;

	for (size_t i = 0; i < times; i++) {
		both->segment.seq++;
		rf_segment_encode(&both->segment, both->header);
	}
}

static void header_decode(void *state, size_t times)
{
	struct header_state *both = state;

	for (size_t i = 0; i < times; i++) {
		__asm__ volatile("" : : "r"(both->header) : "memory");
		if (rf_segment_decode(both->header, &both->segment) != RF_OK)
			abort();
	}
}

/* ---- map ------------------------------------------------------------------------------------ */

struct map_state {
	struct rf_map map;
	uint64_t next, oldest;
};

/* size: entries that are in it. */
static void *map_begin(const struct micro_case *one)
{
	struct map_state *state = calloc(1, sizeof(*state));

	while (state && state->next < one->size)
		if (rf_map_put(&state->map, ++state->next, state) != RF_OK)
			abort();
	return state;
}

/* What a call does to the map of calls: put, some look-ups, remove. */
static void map_repeat(void *state, size_t times)
{
	struct map_state *map = state;

	for (size_t i = 0; i < times; i++) {
		if (rf_map_put(&map->map, ++map->next, map) != RF_OK ||
		    rf_map_get(&map->map, map->next) != map ||
		    rf_map_get(&map->map, map->oldest + 1) != map)
			abort();
		rf_map_remove(&map->map, ++map->oldest);
	}
}

static void map_end(void *state)
{
	rf_map_free(&((struct map_state *)state)->map);
	free(state);
}

/* ---- timers --------------------------------------------------------------------------------- */

struct timer_state {
	struct rf_timers timers;
	struct rf_timer *others, one;
	uint64_t now;
};

static void fire(struct rf_timer *timer)
{
	(void)timer;
}

static void *timer_begin(const struct micro_case *one)
{
	struct timer_state *state = calloc(1, sizeof(*state));

	if (!state)
		return NULL;
	state->others = calloc(one->size, sizeof(*state->others));
	state->one.fire = fire;
	for (size_t i = 0; state->others && i < one->size; i++) {
		state->others[i].fire = fire;
		if (rf_timer_set(&state->timers, &state->others[i], 1000 + i * 7919 % 65536))
			abort();
	}
	return state;
}

/* A call's deadline: set far away, cleared. */
static void timer_repeat(void *state, size_t times)
{
	struct timer_state *timers = state;

	for (size_t i = 0; i < times; i++) {
		if (rf_timer_set(&timers->timers, &timers->one, (1u << 20) + ++timers->now))
			abort();
		rf_timer_clear(&timers->timers, &timers->one);
	}
}

static void timer_end(void *state)
{
	struct timer_state *timers = state;

	rf_timers_free(&timers->timers);
	free(timers->others);
	free(timers);
}

/* ---- a call --------------------------------------------------------------------------------- */

struct call_state {
	rf_comm *comm;
	float *values;
	size_t count;
};

/* size: bytes of the array. */
static void *call_begin(const struct micro_case *one)
{
	struct call_state *state = calloc(1, sizeof(*state));
	rf_comm_options options = RF_COMM_OPTIONS_INIT;

	if (!state)
		return NULL;
	options.rank = 0;
	options.world_size = 1;
	options.master_addr = "127.0.0.1";
	options.master_port = 20000 + (int)getpid() % 20000;
	state->count = one->size / sizeof(float);
	state->values = calloc(state->count, sizeof(float));
	if (!state->values || rf_comm_create(NULL, &options, &state->comm) != RF_OK) {
		free(state->values);
		free(state);
		return NULL;
	}
	return state;
}

static void call_allreduce(void *state, size_t times)
{
	struct call_state *call = state;

	for (size_t i = 0; i < times; i++)
		if (rf_allreduce(call->comm, RF_IN_PLACE, call->values, call->count, RF_FLOAT32,
				 RF_SUM) != RF_OK)
			abort();
}

static void call_barrier(void *state, size_t times)
{
	struct call_state *call = state;

	for (size_t i = 0; i < times; i++)
		if (rf_barrier(call->comm) != RF_OK)
			abort();
}

static void call_end(void *state)
{
	struct call_state *call = state;

	rf_comm_destroy(&call->comm);
	free(call->values);
	free(call);
}

const struct micro_case *micro_primitive_cases(void)
{
	static const struct micro_case cases[] = {
		{"header/encode", 0, 0, 0, 0, header_begin, header_encode, free},
		{"header/decode", 0, 0, 0, 0, header_begin, header_decode, free},
		{"map/4", 0, 4, 0, 0, map_begin, map_repeat, map_end},
		{"map/1000", 0, 1000, 0, 0, map_begin, map_repeat, map_end},
		{"timer/1", 0, 1, 0, 0, timer_begin, timer_repeat, timer_end},
		{"timer/1000", 0, 1000, 0, 0, timer_begin, timer_repeat, timer_end},
		{"call/allreduce/8", 0, 8, 0, 0, call_begin, call_allreduce, call_end},
		{"call/allreduce/4096", 0, 4096, 0, 0, call_begin, call_allreduce, call_end},
		{"call/barrier", 0, 8, 0, 0, call_begin, call_barrier, call_end},
		{NULL, 0, 0, 0, 0, NULL, NULL, NULL},
	};

	return cases;
}
