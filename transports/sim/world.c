/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated world: time, chance, scheduling, and what is found out.
 */
#include "transports/sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LIVELOCK_ROUNDS = 1000000 };

/* ---- memory --------------------------------------------------------------------------------- */

static void *must(void *memory)
{
	if (!memory) {
		fputs("ringfold simulator: out of memory\n", stderr);
		abort();
	}
	return memory;
}

void *sim_allocate(size_t bytes)
{
	return must(calloc(1, bytes ? bytes : 1));
}

void *sim_grow(void *memory, size_t bytes)
{
	return must(realloc(memory, bytes));
}

/* ---- chance --------------------------------------------------------------------------------- */

/* SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t split_mix(uint64_t *state)
{
	return mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t sim_random(struct rf_sim *sim)
{
	return split_mix(&sim->random);
}

uint64_t rf_sim_random(struct rf_sim *sim, uint64_t bound)
{
	return sim_random(sim) % bound;
}

uint64_t sim_delay(struct rf_sim *sim, const struct sim_net *from, const struct sim_net *to)
{
	uint64_t latency = sim->params.latency_ns;

	if (from->host == to->host && sim->params.local_latency_ns)
		latency = sim->params.local_latency_ns;
	return latency + sim_up_to(sim, sim->params.jitter_ns);
}

/* ---- findings ------------------------------------------------------------------------------- */

void sim_trace(struct rf_sim *sim, const char *what, unsigned process, unsigned other,
	       uint64_t number)
{
	uint64_t h = sim->trace_hash;

	for (const char *c = what; *c; c++)
		h = (h ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
	h = mix(h ^ sim->now);
	h = mix(h ^ ((uint64_t)process << 32 | other));
	sim->trace_hash = mix(h ^ number);
	sim->trace_count++;
	if (sim->params.trace)
		fprintf(sim->params.trace, "%12" PRIu64 " %-9s %u %u %" PRIu64 "\n", sim->now, what,
			process, other, number);
}

void sim_violation(struct rf_sim *sim, const char *format, ...)
{
	va_list arguments;

	if (sim->violation[0])
		return;
	va_start(arguments, format);
	vsnprintf(sim->violation, sizeof(sim->violation), format, arguments);
	va_end(arguments);
	sim_trace(sim, "violation", 0, 0, 0);
}

const char *rf_sim_violation(const struct rf_sim *sim)
{
	return sim->violation[0] ? sim->violation : NULL;
}

uint64_t rf_sim_trace_hash(const struct rf_sim *sim)
{
	return sim->trace_hash;
}

uint64_t rf_sim_event_count(const struct rf_sim *sim)
{
	return sim->trace_count;
}

uint64_t rf_sim_now(const struct rf_sim *sim)
{
	return sim->now;
}

unsigned rf_sim_stream_count(const struct rf_sim *sim, unsigned process)
{
	return sim->processes[process]->stream_count;
}

unsigned rf_sim_stream_peak(const struct rf_sim *sim, unsigned process)
{
	return sim->processes[process]->stream_peak;
}

/* ---- the heap of events --------------------------------------------------------------------- */

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_place(struct rf_sim *sim, struct sim_event *event, size_t position)
{
	sim->heap[position] = event;
	event->position = position;
}

static void heap_up(struct rf_sim *sim, struct sim_event *event)
{
	size_t at = event->position;

	while (at > 1 && event_before(event, sim->heap[at / 2])) {
		heap_place(sim, sim->heap[at / 2], at);
		at /= 2;
	}
	heap_place(sim, event, at);
}

static void heap_down(struct rf_sim *sim, struct sim_event *event)
{
	size_t at = event->position;

	for (;;) {
		size_t child = at * 2;

		if (child < sim->heap_count && event_before(sim->heap[child + 1], sim->heap[child]))
			child++;
		if (child > sim->heap_count || !event_before(sim->heap[child], event))
			break;
		heap_place(sim, sim->heap[child], at);
		at = child;
	}
	heap_place(sim, event, at);
}

void sim_clear(struct rf_sim *sim, struct sim_event *event)
{
	size_t at = event->position;
	struct sim_event *last;

	if (at == SIM_NO_POSITION)
		return;
	event->position = SIM_NO_POSITION;
	last = sim->heap[sim->heap_count--];
	if (last == event)
		return;
	heap_place(sim, last, at);
	heap_up(sim, last);
	heap_down(sim, last);
}

void sim_set(struct rf_sim *sim, struct sim_event *event, uint64_t at)
{
	sim_clear(sim, event);
	if (sim->heap_count + 2 > sim->heap_capacity) {
		sim->heap_capacity = sim->heap_capacity ? sim->heap_capacity * 2 : 256;
		sim->heap = sim_grow(sim->heap, sim->heap_capacity * sizeof(struct sim_event *));
	}
	event->at = at > sim->now ? at : sim->now;
	event->order = sim->event_order++;
	event->position = ++sim->heap_count;
	heap_up(sim, event);
}

/* ---- scheduling ----------------------------------------------------------------------------- */

static bool has_work(const struct sim_net *net)
{
	return !net->dead && !net->silent && !net->gone &&
	       (net->woken || net->queued || !rf_list_empty(&net->watched_ready));
}

void sim_make_ready(struct sim_net *net)
{
	struct rf_sim *sim = net->sim;

	if (net->ready_place || !has_work(net))
		return;
	sim->ready[sim->ready_count++] = net;
	net->ready_place = sim->ready_count;
}

static void leave_ready(struct sim_net *net)
{
	struct rf_sim *sim = net->sim;
	struct sim_net *last = sim->ready[--sim->ready_count];

	sim->ready[net->ready_place - 1] = last;
	last->ready_place = net->ready_place;
	net->ready_place = 0;
}

/* One of those that have something to do, any; NULL: nobody has. */
static struct sim_net *pick_ready(struct rf_sim *sim)
{
	while (sim->ready_count) {
		struct sim_net *net = sim->ready[sim_up_to(sim, sim->ready_count - 1)];

		if (has_work(net))
			return net;
		leave_ready(net);
	}
	return NULL;
}

enum rf_sim_state rf_sim_next(struct rf_sim *sim, unsigned *process)
{
	struct sim_net *net;

	while (!(net = pick_ready(sim)) && !sim->alarm_due) {
		struct sim_event *event;

		if (!sim->heap_count)
			return RF_SIM_IDLE;
		event = sim->heap[1];
		if (event->at > sim->now) {
			sim->now = event->at;
			sim->rounds = 0;
		}
		sim_clear(sim, event);
		event->fire(event);
	}
	if (sim->alarm_due) {
		sim->alarm_due = false;
		return RF_SIM_ALARM;
	}
	net->woken = false;
	*process = net->id;
	sim_trace(sim, "run", net->id, 0, 0);
	return ++sim->rounds > sim->params.livelock_rounds ? RF_SIM_LIVELOCK : RF_SIM_RUN;
}

void rf_sim_again(struct rf_sim *sim, unsigned process)
{
	sim->processes[process]->woken = true;
	sim_make_ready(sim->processes[process]);
}

static void timer_fire(struct sim_event *event)
{
	struct sim_net *net = RF_CONTAINER(event, struct sim_net, timer);

	net->woken = true;
	sim_make_ready(net);
}

void rf_sim_set_timer(struct rf_sim *sim, unsigned process, uint64_t at_ns)
{
	struct sim_net *net = sim->processes[process];

	if (at_ns == UINT64_MAX)
		sim_clear(sim, &net->timer);
	else if (!sim_is_set(&net->timer) || net->timer.at != at_ns)
		sim_set(sim, &net->timer, at_ns);
}

static void alarm_fire(struct sim_event *event)
{
	RF_CONTAINER(event, struct rf_sim, alarm)->alarm_due = true;
}

void rf_sim_set_alarm(struct rf_sim *sim, uint64_t at_ns)
{
	if (at_ns == UINT64_MAX)
		sim_clear(sim, &sim->alarm);
	else
		sim_set(sim, &sim->alarm, at_ns);
}

/* ---- making --------------------------------------------------------------------------------- */

void rf_sim_params_calm(struct rf_sim_params *params)
{
	*params = (struct rf_sim_params){
		.latency_ns = 10000,
		.bytes_per_second = UINT64_C(1250000000),
		.stream_window_bytes = 256 << 10,
		.resolve_ns = 100000,
		.connect_timeout_ns = UINT64_C(20000000000),
		.lanes = 1,
		.segment_max_bytes = RF_SEGMENT_PAYLOAD_MAX,
		.borrow = true,
		.queue_depth = 16,
	};
}

void rf_sim_params_hostile(struct rf_sim_params *params, uint64_t seed)
{
	/* Apart from the world's own numbers with the same seed. */
	uint64_t state = seed ^ UINT64_C(0x686f7374696c6521);

#define BELOW(bound) (split_mix(&state) % (bound))
	rf_sim_params_calm(params);
	params->latency_ns = 1 + BELOW(50000);
	params->jitter_ns = BELOW(4) ? BELOW(200000) : 0;
	params->bytes_per_second = BELOW(4) ? 10000000 + BELOW(UINT64_C(10000000000)) : 0;
	params->local_latency_ns = BELOW(2) ? 1 + BELOW(1000) : 0;
	params->stream_window_bytes = 64 + BELOW(64 << 10);
	params->partial = BELOW(2) ? (unsigned)BELOW(600) : 0;
	params->stream_again = BELOW(2) ? (unsigned)BELOW(300) : 0;
	params->resolve_ns = BELOW(1000000);
	params->lanes = 1 + (unsigned)BELOW(4);
	params->segment_max_bytes = BELOW(2) ? 64u << BELOW(11) : RF_SEGMENT_PAYLOAD_MAX;
	params->inline_bytes = BELOW(2) ? 64 : 0;
	params->borrow = BELOW(2);
	params->put = BELOW(2);
	params->send_done_is_delivered = BELOW(4) == 0;
	params->queue_depth = 1 + (unsigned)BELOW(8);
	params->piece_max_bytes = BELOW(4) ? 64u << BELOW(8) : 0;
	params->piece_delay_ns = BELOW(2) ? BELOW(20000) : 0;
	params->piece_shift = BELOW(2) ? 63 : 0;
	params->again = BELOW(2) ? (unsigned)BELOW(300) : 0;
	params->at_once = (unsigned)BELOW(300);
	params->late = (unsigned)BELOW(200);
	params->late_ns = BELOW(1000000);
	params->withdraw_again = (unsigned)BELOW(700);
#undef BELOW
}

int rf_sim_create(uint64_t seed, const struct rf_sim_params *params, struct rf_sim **result)
{
	struct rf_sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		return RF_ERR_NOMEM;
	if (params->latency_ns < 1 || params->lanes < 1 || params->lanes > SIM_LANES_MAX ||
	    params->queue_depth < 1 || params->stream_window_bytes < 1 ||
	    params->segment_max_bytes < 1 || params->segment_max_bytes > RF_SEGMENT_PAYLOAD_MAX) {
		free(sim);
		return RF_ERR_INVALID;
	}
	sim->params = *params;
	if (!sim->params.livelock_rounds)
		sim->params.livelock_rounds = LIVELOCK_ROUNDS;
	sim->random = mix(seed);
	/* Nobody should take a time for "none". */
	sim->now = UINT64_C(1000000000);
	sim->next_key = 1;
	sim->alarm.fire = alarm_fire;
	rf_list_init(&sim->connections);
	rf_list_init(&sim->regions);
	*result = sim;
	return RF_OK;
}

struct sim_host *sim_host(struct rf_sim *sim, unsigned number)
{
	return number < sim->host_count ? sim->hosts[number] : NULL;
}

static void make_host(struct rf_sim *sim, unsigned number)
{
	struct sim_host *host;

	if (number >= sim->host_count) {
		unsigned count = 2 * number + 1;

		sim->hosts = sim_grow(sim->hosts, count * sizeof(struct sim_host *));
		while (sim->host_count < count)
			sim->hosts[sim->host_count++] = NULL;
	}
	if (sim->hosts[number])
		return;
	host = sim_allocate(sizeof(*host));
	host->next_port = 32768;
	rf_list_init(&host->listeners);
	sim->hosts[number] = host;
}

void rf_sim_set_name_time(struct rf_sim *sim, unsigned host, uint64_t at_ns)
{
	make_host(sim, host);
	sim->hosts[host]->name_at = at_ns;
}

int rf_sim_net_create(struct rf_sim *sim, unsigned host, struct rf_net **result)
{
	struct sim_net *net = sim_allocate(sizeof(*net));

	make_host(sim, host);
	if (sim->process_count == sim->process_capacity) {
		unsigned capacity = sim->process_capacity ? sim->process_capacity * 2 : 16;

		sim->processes = sim_grow(sim->processes, capacity * sizeof(struct sim_net *));
		sim->ready = sim_grow(sim->ready, capacity * sizeof(struct sim_net *));
		sim->process_capacity = capacity;
	}
	net->base.ops = &sim_net_ops;
	net->sim = sim;
	net->id = sim->process_count;
	net->host = host;
	net->free_slot = UINT32_MAX;
	net->timer.fire = timer_fire;
	rf_list_init(&net->watched_ready);
	rf_list_init(&net->streams);
	rf_list_init(&net->transports);
	sim->processes[sim->process_count++] = net;
	*result = &net->base;
	return RF_OK;
}

void rf_sim_destroy(struct rf_sim *sim)
{
	for (unsigned i = 0; i < sim->process_count; i++)
		if (!sim->processes[i]->gone)
			sim->processes[i]->base.ops->destroy(&sim->processes[i]->base);
	for (unsigned i = 0; i < sim->process_count; i++) {
		free(sim->processes[i]->slots);
		free(sim->processes[i]);
	}
	for (unsigned i = 0; i < sim->host_count; i++)
		free(sim->hosts[i]);
	free(sim->hosts);
	free(sim->processes);
	free(sim->ready);
	free(sim->heap);
	free(sim);
}
