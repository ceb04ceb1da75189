/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driving: who runs progress, and how to wait.
 *
 * One driver at a time: a waiting caller if there is one, else the service thread. The thread
 * stands aside while callers drive, and comes back by itself when none has driven for PARK_NS, or
 * at once when calls are left that it must drive. A driver holds the lock, lets go of it between
 * rounds if somebody wants in, and sleeps without it: polls within its spin budget, arms the
 * transports, polls again, then waits in the network's poll().
 */
#include "engine/call.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

enum {
	EVENTS_A_ROUND = 64,
	PARK_NS = 100000000, /* how long the thread stands aside after a caller has driven */
	SPIN_NS = 50000,     /* a few wake-ups' worth: sleeping sooner costs more than it saves */
	/* Spinning in vain may take one part in SPIN_PART of the time, and SPIN_DEBT_NS ahead. Two
	 * ranks that share a core, because others are busy on the other one, pay the whole budget
	 * each time: 8 bytes took 100 us with it, 17 us without. With a core each it is the spin
	 * that pays, and that keeps them on a core each: a rank that sleeps is woken on the core
	 * of whoever wakes it if its own is taken, and then the two take turns. */
	SPIN_PART = 16,
	SPIN_DEBT_NS = 2 * SPIN_NS,
	SLEEP_MAX_NS = 1000000000, /* so that a far deadline needs no wake-up when it is set */
};

struct rf_ready_batch {
	struct rf_net_event events[EVENTS_A_ROUND];
	int count;
};

static int poll_network(rf_context *context)
{
	struct rf_ready_batch batch;

	batch.count = 0;
	if (context->net->ops->poll(context->net, false, 0, batch.events, EVENTS_A_ROUND,
				    &batch.count) != RF_OK)
		return 0;
	rf_net_dispatch(context->net, batch.events, batch.count);
	return batch.count > 0;
}

/* A round without asking the network. */
static int drive_ready(rf_context *context)
{
	int happened = rf_data_poll(context);

	rf_calls_poll(context);
	if (context->timers.count)
		happened |= rf_timers_run(&context->timers, rf_now(context)) > 0;
	happened |= rf_calls_advance(context);
	return happened;
}

int rf_drive(rf_context *context)
{
	int happened = poll_network(context);

	return happened | drive_ready(context);
}

/* Others wait for the lock: a mutex alone would let the spinner have it again and again. */
static void let_others_in(rf_context *context)
{
	if (!atomic_load_explicit(&context->entering, memory_order_relaxed))
		return;
	pthread_mutex_unlock(&context->lock);
	sched_yield();
	pthread_mutex_lock(&context->lock);
}

static int arm_transports(rf_context *context)
{
	for (unsigned i = 0; i < context->transport_count; i++) {
		struct rf_transport *transport = context->transports[i];

		if (transport->ops->arm && transport->ops->arm(transport) != RF_OK)
			return RF_ERR_AGAIN;
	}
	return rf_calls_arm(context);
}

/* Waits without the lock; returns with it. *sleeps_until: the sleeper's own field. */
static void sleep_in_poll(rf_context *context, bool control_only, uint64_t until,
			  uint64_t *sleeps_until, struct rf_ready_batch *batch)
{
	uint64_t now = rf_now(context);
	uint64_t wake_at = rf_timers_next(&context->timers);

	batch->count = 0;
	if (wake_at > until)
		wake_at = until;
	if (wake_at > now + SLEEP_MAX_NS)
		wake_at = now + SLEEP_MAX_NS;
	if (wake_at <= now)
		return;
	*sleeps_until = wake_at;
	pthread_mutex_unlock(&context->lock);
	if (context->net->ops->poll(context->net, control_only, wake_at - now, batch->events,
				    EVENTS_A_ROUND, &batch->count) != RF_OK)
		batch->count = 0;
	pthread_mutex_lock(&context->lock);
	*sleeps_until = UINT64_MAX;
}

static uint64_t spin_budget_ns(const rf_context *context)
{
	if (context->config.spin_us >= 0)
		return (uint64_t)context->config.spin_us * 1000;
	RF_LIST_EACH(node, &context->comm_list)
	{
		/* A spinner would keep the core from the rank that it waits for. */
		if (RF_CONTAINER(node, rf_comm, context_node)->local_ranks > context->cores)
			return 0;
	}
	return SPIN_NS;
}

/* What this wait may spin: nothing while there is too much debt. */
static uint64_t spin_now(rf_context *context, uint64_t budget, uint64_t now)
{
	uint64_t paid = (now - context->spin_debt_at) / SPIN_PART;

	context->spin_debt_ns -= paid < context->spin_debt_ns ? paid : context->spin_debt_ns;
	context->spin_debt_at = now;
	return context->spin_debt_ns < SPIN_DEBT_NS ? budget : 0;
}

uint64_t rf_drive_spin_ns(rf_context *context)
{
	return spin_now(context, spin_budget_ns(context), rf_now(context));
}

void rf_drive_has_spun(rf_context *context, uint64_t spent_ns, bool in_vain)
{
	context->spin_debt_ns = in_vain ? context->spin_debt_ns + spent_ns : 0;
}

/* Ranks that share a core, and wait for a word in shared memory: a yield gives the core away at
 * once, where a sleep costs a doorbell and two switches. */
static bool yields(const rf_context *context, uint64_t budget)
{
	return budget == 0 && context->config.spin_us < 0 && !rf_list_empty(&context->word_calls);
}

/* The caller in the driver's seat. */
static int drive_as_caller(rf_context *context, const bool *done, uint64_t until)
{
	uint64_t budget = spin_budget_ns(context), spin = 0;
	uint64_t idle_since = 0;
	struct rf_ready_batch batch = {.count = 0};

	while (!*done) {
		/* What a sleep has brought needs no second look. */
		int happened = batch.count ? drive_ready(context) : rf_drive(context);
		uint64_t now;

		batch.count = 0;

		if (*done)
			break;
		let_others_in(context);
		now = rf_now(context);
		if (now >= until)
			return RF_ERR_AGAIN;
		if (happened) {
			if (idle_since && spin)
				context->spin_debt_ns = 0;
			idle_since = 0;
			continue;
		}
		if (!idle_since) {
			idle_since = now;
			spin = spin_now(context, budget, now);
		}
		if (now - idle_since < spin)
			continue;
		if (yields(context, budget) && now - idle_since < RF_YIELD_NS) {
			sched_yield();
			continue;
		}
		if (arm_transports(context) != RF_OK)
			continue;
		context->spin_debt_ns += spin;
		context->caller_sleeps = true;
		sleep_in_poll(context, false, until, &context->caller_sleeps_until, &batch);
		context->caller_sleeps = false;
		rf_net_dispatch(context->net, batch.events, batch.count);
		idle_since = 0;
	}
	return RF_OK;
}

static void wait_for_seat(rf_context *context, uint64_t until)
{
	context->waiting_callers++;
	if (until == UINT64_MAX) {
		pthread_cond_wait(&context->seat_free, &context->lock);
	} else {
		struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

		pthread_cond_timedwait(&context->seat_free, &context->lock, &at);
	}
	context->waiting_callers--;
}

static void leave_seat(rf_context *context)
{
	context->caller_drives = false;
	context->last_caller_drive = rf_now(context);
	if (context->waiting_callers)
		pthread_cond_broadcast(&context->seat_free);
	else if (context->background_calls)
		pthread_cond_signal(&context->thread_wake);
}

int rf_drive_until(rf_context *context, const bool *done, uint64_t until)
{
	int status = RF_OK;

	if (context->simulated) {
		rf_drive(context);
		return *done ? RF_OK : RF_ERR_AGAIN;
	}
	while (!*done && status == RF_OK) {
		if (context->caller_drives) {
			if (rf_now(context) >= until)
				return RF_ERR_AGAIN;
			wait_for_seat(context, until);
			continue;
		}
		context->caller_drives = true;
		status = drive_as_caller(context, done, until);
		leave_seat(context);
	}
	return status;
}

int rf_context_drive(rf_context *context)
{
	int happened;

	pthread_mutex_lock(&context->lock);
	happened = rf_drive(context);
	pthread_mutex_unlock(&context->lock);
	return happened;
}

uint64_t rf_context_next_timer(rf_context *context)
{
	uint64_t next;

	pthread_mutex_lock(&context->lock);
	next = rf_timers_next(&context->timers);
	pthread_mutex_unlock(&context->lock);
	return next;
}

/* ---- the service thread --------------------------------------------------------------------- */

/* Stands aside while a caller drives; the lock is held before and after. */
static void stand_aside(rf_context *context)
{
	uint64_t until = rf_now(context) + PARK_NS;
	struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	pthread_cond_timedwait(&context->thread_wake, &context->lock, &at);
}

static bool callers_drive(rf_context *context)
{
	if (context->caller_drives)
		return true;
	return !context->background_calls && context->last_caller_drive &&
	       rf_now(context) - context->last_caller_drive < PARK_NS;
}

static void *service(void *argument)
{
	rf_context *context = argument;
	struct rf_ready_batch batch = {.count = 0};

	pthread_mutex_lock(&context->lock);
	while (!context->stopping) {
		int happened;

		if (callers_drive(context)) {
			batch.count = 0;
			stand_aside(context);
			continue;
		}
		happened = batch.count ? drive_ready(context) : rf_drive(context);
		batch.count = 0;
		if (happened) {
			let_others_in(context);
			continue;
		}
		context->thread_drives_data = context->background_calls > 0;
		if (context->thread_drives_data && arm_transports(context) != RF_OK)
			continue;
		context->thread_sleeps = true;
		sleep_in_poll(context, !context->thread_drives_data, UINT64_MAX,
			      &context->thread_sleeps_until, &batch);
		context->thread_sleeps = false;
		/* Readiness is level-triggered: the caller who took over sees it too. But a wake-up
		 * that was meant for that caller may have been eaten here. */
		if (!context->caller_drives)
			rf_net_dispatch(context->net, batch.events, batch.count);
		else if (context->caller_sleeps)
			context->net->ops->wake(context->net);
	}
	pthread_mutex_unlock(&context->lock);
	return NULL;
}

int rf_drive_start_thread(rf_context *context)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&context->thread, NULL, service, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		rf_log(&context->logger, RF_LOG_ERROR,
		       "cannot start the service thread: error %d (see ulimit -u and the pids "
		       "limit of "
		       "the cgroup)",
		       error);
		return RF_ERR_SYSTEM;
	}
	pthread_setname_np(context->thread, "ringfold");
	context->has_thread = true;
	return RF_OK;
}

void rf_drive_stop_thread(rf_context *context)
{
	if (!context->has_thread)
		return;
	pthread_mutex_lock(&context->lock);
	context->stopping = true;
	pthread_cond_signal(&context->thread_wake);
	pthread_mutex_unlock(&context->lock);
	context->net->ops->wake(context->net);
	pthread_join(context->thread, NULL);
	context->has_thread = false;
}

void rf_context_wake(rf_context *context)
{
	context->net->ops->wake(context->net);
}

int rf_enter(rf_context *context)
{
	if (atomic_load_explicit(&context->forked, memory_order_acquire))
		return RF_ERR_FORKED;
	atomic_fetch_add_explicit(&context->entering, 1, memory_order_relaxed);
	pthread_mutex_lock(&context->lock);
	atomic_fetch_sub_explicit(&context->entering, 1, memory_order_relaxed);
	return RF_OK;
}

/* Whoever sleeps must learn of an earlier timer, and the thread of calls that it is to drive. */
void rf_leave(rf_context *context)
{
	uint64_t next = rf_timers_next(&context->timers);
	bool wake = (context->thread_sleeps && next < context->thread_sleeps_until) ||
		    (context->caller_sleeps && next < context->caller_sleeps_until);

	/* What was sent or withdrawn here may have left the transports something to report. */
	if (context->caller_sleeps || (context->thread_sleeps && context->thread_drives_data))
		wake |= arm_transports(context) != RF_OK;

	if (context->background_calls && context->has_thread && !context->caller_drives) {
		if (context->thread_sleeps)
			wake |= !context->thread_drives_data;
		else
			pthread_cond_signal(&context->thread_wake);
	}
	pthread_mutex_unlock(&context->lock);
	if (wake)
		context->net->ops->wake(context->net);
}
