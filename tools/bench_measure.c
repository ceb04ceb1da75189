/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures one case. A sample is the time of a batch of calls, one after the other, divided by
 * their number; small calls come in batches of up to a thousand, large ones alone. Before every
 * pass the inputs are written anew, and after it all results are verified; neither is timed.
 *
 * Warm: every call uses the same buffers. Cold: the calls go round as many buffers as exceed the
 * last-level cache, or, where the calls are small, the cache is swept by writing other memory.
 *
 * Each sample is that of the slowest rank. All ranks do the same number of passes: rank 0 decides.
 */
#include "tools/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	MOST_SAMPLES = 100000,
	FEWEST_SAMPLES = 5,
	MOST_BATCH = 1000,
	BATCH_US = 5000, /* a batch takes at most about this, and so much more than the clock and
			    the skew of the barrier before it */
	MOST_ROTATION = 32,
	PAGE = 4096,
};

struct measure {
	const struct bench *bench;
	const struct bench_case *what;
	const struct bench_shape *shape;
	unsigned char *memory;
	unsigned char *sweep; /* NULL: the buffers themselves exceed the cache */
	size_t sweep_bytes;
	size_t sets, set_bytes, recv_offset;
	size_t batch;
	double *samples; /* seconds a call */
	size_t sample_count;
	double timed; /* seconds in all */
	double begun;
	uint64_t round;
	int64_t wrong;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

size_t bench_last_level_cache(void)
{
	size_t kib, largest = 0;
	char path[96];
	FILE *file;

	for (int index = 0; index < 8; index++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size",
			 index);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%zuK", &kib) == 1 && kib > largest)
			largest = kib;
		fclose(file);
	}
	return largest ? largest << 10 : 32u << 20;
}

/* ---- memory ---- */

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* One set of buffers; a page apart, so that a call's lines are its own. */
static void lay_out(struct measure *m)
{
	const size_t element = rf_dtype_size(m->what->dtype);
	const bool in_place = m->bench->settings->in_place || m->what->collective == RF_BROADCAST;
	const size_t send = m->shape->send_count * element, recv = m->shape->recv_count * element;
	const size_t unit = m->what->bytes >= PAGE ? PAGE : 64;

	m->recv_offset = in_place ? 0 : round_up(send, unit);
	m->set_bytes = round_up(m->recv_offset + (send > recv ? send : recv), unit);
	if (m->set_bytes == 0)
		m->set_bytes = unit;
}

/* As many as a batch uses, or as exceed the cache, in at most half of the memory. */
static size_t cold_sets(const struct measure *m)
{
	const size_t rotation = m->bench->rotation_bytes / m->set_bytes + 1;
	const size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);
	const size_t room = pages / 2 / (size_t)m->bench->ranks * PAGE / m->set_bytes;
	size_t sets = rotation < MOST_ROTATION ? rotation : MOST_ROTATION;

	if (m->batch > 1)
		sets = m->batch;
	if (sets > room)
		sets = room;
	return sets ? sets : 1;
}

static int allocate(struct measure *m)
{
	const bool cold = m->what->cold;
	size_t held;

	m->sets = cold ? cold_sets(m) : 1;
	held = m->sets * m->set_bytes;
	m->memory = aligned_alloc(PAGE, round_up(held, PAGE));
	if (!m->memory)
		return RF_ERR_NOMEM;
	memset(m->memory, 0, held);
	if (!cold || held >= m->bench->rotation_bytes)
		return RF_OK;
	m->sweep = m->bench->sweep;
	m->sweep_bytes = m->bench->rotation_bytes - held;
	return RF_OK;
}

static void release(struct measure *m)
{
	free(m->memory);
	m->memory = m->sweep = NULL;
}

static unsigned char *send_of(const struct measure *m, size_t set)
{
	return m->memory + set * m->set_bytes;
}

static unsigned char *recv_of(const struct measure *m, size_t set)
{
	return send_of(m, set) + m->recv_offset;
}

/* ---- a pass over the sets ---- */

/* The root goes round, so that a call cannot start at its root before the one before it has
 * reached that: else the calls of a batch would overlap. */
static int root_of(const struct measure *m, size_t set, size_t call)
{
	return (int)((m->what->cold ? set : call) % (size_t)m->bench->ranks);
}

static void write_inputs(struct measure *m)
{
	m->round++;
	for (size_t set = 0; set < m->sets; set++)
		bench_fill(m->bench, m->what, m->shape, root_of(m, set, 0), m->round,
			   send_of(m, set), recv_of(m, set));
	if (m->sweep)
		memset(m->sweep, (int)m->round, m->sweep_bytes);
}

static void verify_results(struct measure *m, size_t sets)
{
	if (!m->bench->settings->verify)
		return;
	for (size_t set = 0; set < sets; set++)
		m->wrong += bench_verify(m->bench, m->what, m->shape, root_of(m, set, 0),
					 root_of(m, set, m->batch - 1), m->round, recv_of(m, set));
}

static int time_batch(struct measure *m, size_t first, double *seconds)
{
	int error = rf_barrier(m->bench->comm);
	const double start = now();

	for (size_t i = 0; i < m->batch && !error; i++) {
		const size_t set = (first + i) % m->sets;

		error = bench_call(m->bench, m->what, m->shape, root_of(m, set, i), send_of(m, set),
				   recv_of(m, set));
	}
	*seconds = now() - start;
	return error;
}

static int pass(struct measure *m)
{
	const size_t step = m->what->cold ? m->batch : 1;
	size_t used = 0;
	int error;

	write_inputs(m);
	for (; used < m->sets && m->sample_count < MOST_SAMPLES; used += step) {
		double seconds;

		error = time_batch(m, used, &seconds);
		if (error)
			return error;
		m->timed += seconds;
		m->samples[m->sample_count++] = seconds / (double)m->batch;
	}
	verify_results(m, used < m->sets ? used : m->sets);
	return RF_OK;
}

/* ---- how often ---- */

/* A power of ten, so that runs can be compared. */
static size_t batch_for(const struct bench_settings *settings, double seconds_a_call)
{
	size_t batch = MOST_BATCH;

	if (settings->in_place)
		return 1; /* the input is gone after one call */
	if (settings->batch)
		return settings->batch;
	while (batch > 1 && seconds_a_call * (double)batch > BATCH_US * 1e-6)
		batch /= 10;
	return batch;
}

/* All take rank 0's. */
static int agree(struct measure *m, uint64_t *value)
{
	if (m->bench->rank != 0)
		*value = 0;
	return rf_allreduce(m->bench->comm, RF_IN_PLACE, value, 1, RF_UINT64, RF_MAX);
}

/* The warm-up's duration decides the batch. */
static int warm_up(struct measure *m)
{
	const size_t calls = m->bench->settings->warmup;
	uint64_t batch;
	double seconds;
	int error;

	write_inputs(m);
	error = time_batch(m, 0, &seconds); /* one: connections are made, memory is touched */
	if (error)
		return error;
	m->batch = calls;
	error = time_batch(m, 0, &seconds);
	if (error)
		return error;
	batch = batch_for(m->bench->settings, seconds / (double)calls);
	error = agree(m, &batch);
	m->batch = (size_t)batch;
	return error;
}

static bool wants_more(const struct measure *m)
{
	const struct bench_settings *const settings = m->bench->settings;
	const double budget = (double)settings->time_ms * 1e-3;

	if (m->sample_count >= MOST_SAMPLES)
		return false;
	if (settings->samples)
		return m->sample_count < settings->samples;
	if (m->sample_count < FEWEST_SAMPLES)
		return true;
	return m->timed < budget && now() - m->begun < 3 * budget;
}

static int measure_all(struct measure *m)
{
	uint64_t more = 1;
	int error = RF_OK;

	m->begun = now();
	while (more && !error) {
		error = pass(m);
		more = wants_more(m);
		if (!error)
			error = agree(m, &more);
	}
	return error;
}

/* ---- the result ---- */

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int conclude(struct measure *m, struct bench_result *result)
{
	const size_t count = m->sample_count;
	int error =
		rf_allreduce(m->bench->comm, RF_IN_PLACE, m->samples, count, RF_FLOAT64, RF_MAX);

	if (!error)
		error = rf_allreduce(m->bench->comm, RF_IN_PLACE, &m->wrong, 1, RF_INT64, RF_SUM);
	if (error)
		return error;
	qsort(m->samples, count, sizeof(*m->samples), by_size);
	result->samples = count;
	result->batch = m->batch;
	result->least_us = m->samples[0] * 1e6;
	result->median_us = m->samples[count / 2] * 1e6;
	result->p99_us = m->samples[(count * 99 - 1) / 100] * 1e6;
	result->wrong = m->wrong;
	return RF_OK;
}

int bench_measure(const struct bench *bench, const struct bench_case *what,
		  const struct bench_shape *shape, struct bench_result *result)
{
	struct measure m = {.bench = bench, .what = what, .shape = shape, .batch = 1};
	int error = RF_ERR_NOMEM;

	lay_out(&m);
	m.samples = malloc(MOST_SAMPLES * sizeof(*m.samples));
	if (!m.samples)
		return error;
	error = allocate(&m);
	if (!error)
		error = warm_up(&m);
	if (!error && what->cold && m.batch > 1) {
		release(&m);
		error = allocate(&m);
	}
	if (!error)
		error = measure_all(&m);
	if (!error)
		error = conclude(&m, result);
	release(&m);
	free(m.samples);
	return error;
}
