/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context: owns everything mutable, and has no rank. One lock (context->lock) guards all of it
 * and all objects below it; whoever drives progress holds it, and lets go of it only to sleep.
 */
#ifndef RF_CONTEXT_H
#define RF_CONTEXT_H

#include "engine/config.h"
#include "engine/list.h"
#include "engine/log.h"
#include "engine/map.h"
#include "engine/net.h"
#include "engine/timer.h"
#include "transports/transport.h"

#include <pthread.h>
#include <stdatomic.h>

/* A process, for as long as it lives: random. Compared as a whole; hi alone is the map's key. */
struct rf_process_id {
	uint64_t hi, lo;
};
static inline bool rf_process_id_equal(struct rf_process_id a, struct rf_process_id b)
{
	return a.hi == b.hi && a.lo == b.lo;
}

enum { RF_TRANSPORTS_MAX = 4 };

struct rf_context {
	/* Fixed after creation. */
	struct rf_process_id id;
	struct rf_config config; /* this process's own; a communicator has the agreed ones */
	struct rf_logger logger;
	struct rf_net *net;
	struct rf_transport *transports[RF_TRANSPORTS_MAX];
	unsigned transport_count;
	bool simulated; /* no threads, never sleeps */
	bool no_payload;
	int cores; /* that this process may use: affinity and cgroup quota */

	pthread_mutex_t lock;
	atomic_int
		entering; /* callers that wait for the lock: a spinning driver then lets go of it */
	/* Under the lock from here on. */
	struct rf_timers timers;
	struct rf_map peers; /* by process id (hi): struct rf_peer */
	struct rf_map comms; /* by communicator id: struct rf_comm, forming ones too */
	struct rf_list comm_list;
	struct rf_list cqs;           /* struct rf_cq */
	struct rf_list regions;       /* memory handed out or registered: memory.c */
	struct rf_list ready_calls;   /* to be advanced */
	struct rf_list word_calls;    /* open calls through shared memory: call.c */
	struct rf_doorbell *doorbell; /* or NULL: arena/doorbell.c */
	struct rf_list free_incoming, free_outgoing,
		free_blocks; /* records kept for reuse: call.c */
	uint64_t random;     /* state of rf_context_random() */

	/* Listener and control streams: control.c, join.c. */
	struct rf_listener *listener;
	uint16_t port;
	struct rf_server *server;
	struct rf_list joins; /* communicators being made: struct rf_join */

	/* Driving: drive.c. */
	bool has_thread;
	pthread_t thread;
	bool stopping;
	bool caller_drives; /* a waiting caller is in the driver's seat */
	bool thread_sleeps; /* in poll(), for control only if !thread_drives_data */
	bool thread_drives_data;
	bool caller_sleeps;           /* the driving caller is in poll() */
	uint64_t thread_sleeps_until; /* by itself; UINT64_MAX when it does not sleep */
	uint64_t caller_sleeps_until;
	uint64_t last_caller_drive; /* when a caller last drove */
	uint64_t spin_debt_ns;      /* spun in vain, less what time has paid off */
	uint64_t spin_debt_at;      /* when it was last reckoned */
	uint64_t moved_at;          /* when a waiting caller last left a core to another rank */
	size_t waiting_callers;     /* callers that sleep until they may drive or are done */
	size_t background_calls;    /* calls that the thread must drive (RF_PROGRESS_THREAD) */
	pthread_cond_t seat_free;   /* waiters: the driver's seat, or a completion */
	pthread_cond_t thread_wake;

	/* Written by any thread. */
	atomic_bool forked; /* set in a forked child; pairs with the check in rf_enter() */

	struct rf_list registry; /* in the process's list of contexts, for fork */
	size_t open_requests;    /* not handed out yet */
};

/* A context over a given network: what rf_context_create() uses with posix and the simulator's
 * tests use with theirs. Takes the net over. transport_ops: NULL-terminated. */
struct rf_context_setup {
	struct rf_net *net;
	const struct rf_transport_ops *const *transport_ops;
	bool simulated;
	bool no_payload;
	uint64_t random_seed; /* 0: from the system */
};
int rf_context_create_with(const rf_context_options *options, const struct rf_context_setup *setup,
			   rf_context **context);

/* One non-blocking round: readiness, transports, timers, calls. Lock held. 1 if anything happened,
 * else 0. */
int rf_drive(rf_context *context);
/* The same for tests under sim, taking the lock. */
int rf_context_drive(rf_context *context);
/* When the next timer is due (context clock, ns), UINT64_MAX: none. */
uint64_t rf_context_next_timer(rf_context *context);

/* Drives or waits until *done or the time (context clock; UINT64_MAX: none) is over. Lock held;
 * let go of while sleeping. Returns RF_OK or RF_ERR_AGAIN. */
int rf_drive_until(rf_context *context, const bool *done, uint64_t until);

/* How long a wait may spin now, 0: not at all; and what became of it. */
uint64_t rf_drive_spin_ns(rf_context *context);
void rf_drive_has_spun(rf_context *context, uint64_t spent_ns, bool in_vain);

/* Where ranks share cores they yield for so long before they sleep. */
enum { RF_YIELD_NS = 100000 };

int rf_drive_start_thread(rf_context *context);
void rf_drive_stop_thread(rf_context *context);

/* Wakes whoever sleeps, after something was posted from outside the driver. Lock held or not. */
void rf_context_wake(rf_context *context);

static inline uint64_t rf_now(rf_context *context)
{
	return context->net->ops->now(context->net);
}

uint64_t rf_context_random(rf_context *context); /* not for secrets; ids are from the system */

/* Public calls begin with it: locks the context, or answers RF_ERR_FORKED without locking. */
int rf_enter(rf_context *context);
void rf_leave(rf_context *context);

#endif
