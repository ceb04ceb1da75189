/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers on the context's clock: a binary heap, so that thousands of deadlines cost log n each.
 */
#ifndef RF_TIMER_H
#define RF_TIMER_H

#include <stddef.h>
#include <stdint.h>

struct rf_timer {
	uint64_t at; /* nanoseconds of the context's clock */
	void (*fire)(struct rf_timer *timer);
	size_t position; /* in the heap, from 1; 0: not set */
};
struct rf_timers {
	struct rf_timer **heap; /* heap[1] is the earliest */
	size_t count;
	size_t capacity;
};

/* Sets, or moves, a timer. RF_ERR_NOMEM leaves it as it was. */
int rf_timer_set(struct rf_timers *timers, struct rf_timer *timer, uint64_t at);
void rf_timer_clear(struct rf_timers *timers, struct rf_timer *timer);
/* Fires all that are due (each is cleared before it fires); returns how many. */
int rf_timers_run(struct rf_timers *timers, uint64_t now);
/* When the earliest is due; UINT64_MAX: none is set. */
uint64_t rf_timers_next(const struct rf_timers *timers);
void rf_timers_free(struct rf_timers *timers);

#endif
