/* SPDX-License-Identifier: BSD-3-Clause */
/* The binary heap of timer.h. Each timer knows its position, so that it can be moved or removed. */
#include "engine/timer.h"
#include "ringfold.h"

#include <stdlib.h>

static void place(struct rf_timers *timers, size_t position, struct rf_timer *timer)
{
	timers->heap[position] = timer;
	timer->position = position;
}

static void sift_up(struct rf_timers *timers, struct rf_timer *timer)
{
	size_t at = timer->position;

	while (at > 1 && timers->heap[at / 2]->at > timer->at) {
		place(timers, at, timers->heap[at / 2]);
		at /= 2;
	}
	place(timers, at, timer);
}

static void sift_down(struct rf_timers *timers, struct rf_timer *timer)
{
	size_t at = timer->position;

	for (size_t child; (child = 2 * at) <= timers->count; at = child) {
		if (child < timers->count && timers->heap[child + 1]->at < timers->heap[child]->at)
			child++;
		if (timers->heap[child]->at >= timer->at)
			break;
		place(timers, at, timers->heap[child]);
	}
	place(timers, at, timer);
}

int rf_timer_set(struct rf_timers *timers, struct rf_timer *timer, uint64_t at)
{
	if (!timer->position) {
		if (timers->count + 1 >= timers->capacity) {
			size_t capacity = timers->capacity ? timers->capacity * 2 : 16;
			struct rf_timer **heap =
				realloc(timers->heap, capacity * sizeof(struct rf_timer *));

			if (!heap)
				return RF_ERR_NOMEM;
			timers->heap = heap;
			timers->capacity = capacity;
		}
		timer->position = ++timers->count;
		timers->heap[timer->position] = timer;
	}
	timer->at = at;
	sift_up(timers, timer);
	sift_down(timers, timer);
	return RF_OK;
}

void rf_timer_clear(struct rf_timers *timers, struct rf_timer *timer)
{
	size_t position = timer->position;
	struct rf_timer *last;

	if (!position)
		return;
	timer->position = 0;
	last = timers->heap[timers->count--];
	if (last == timer)
		return;
	last->position = position;
	timers->heap[position] = last;
	sift_up(timers, last);
	sift_down(timers, last);
}

int rf_timers_run(struct rf_timers *timers, uint64_t now)
{
	int fired = 0;

	while (timers->count && timers->heap[1]->at <= now) {
		struct rf_timer *timer = timers->heap[1];

		rf_timer_clear(timers, timer);
		timer->fire(timer);
		fired++;
	}
	return fired;
}

uint64_t rf_timers_next(const struct rf_timers *timers)
{
	return timers->count ? timers->heap[1]->at : UINT64_MAX;
}

void rf_timers_free(struct rf_timers *timers)
{
	free(timers->heap);
	*timers = (struct rf_timers){0};
}
