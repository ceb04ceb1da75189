/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator: many processes in one, under a virtual clock. This is the contract for those who
 * write tests on it.
 *
 * A world (struct rf_sim) has processes; each is an rf_net, on a host of the test's choice. What
 * runs on a net (a context, or a test's own code over the net and over rf_transport_sim) is its
 * owner. Nothing runs by itself: the test asks rf_sim_next() which process has something to do,
 * lets its owner do one round, tells when the owner's next timer is due, and asks again. Virtual
 * time passes only inside rf_sim_next(), and only while no process has anything to do.
 *
 *	while (!done) {
 *		switch (rf_sim_next(sim, &process)) {
 *		case RF_SIM_RUN:
 *			if (rf_context_drive(context[process]))
 *				rf_sim_again(sim, process);
 *			rf_sim_set_timer(sim, process, rf_context_next_timer(context[process]));
 *			break;
 *		case RF_SIM_ALARM: ... inject a fault, start a call
 *		case RF_SIM_IDLE: ... a deadlock, if anything is still awaited
 *		case RF_SIM_LIVELOCK: ... somebody turns in circles
 *		}
 *	}
 *
 * The world is hostile within the contracts of net.h and transport.h: partial sends and receives,
 * RF_ERR_AGAIN anywhere, late completions, payloads in pieces, another order between lanes and
 * between peers. All choices come from the seed: the same seed, parameters and owners give the same
 * events, and rf_sim_trace_hash() tells whether they did.
 *
 * Not thread-safe. Nets never block in poll(), whatever the timeout; wake() makes the process run.
 */
#ifndef RF_SIM_H
#define RF_SIM_H

#include "transports/transport.h"

#include <stdio.h>

struct rf_sim;

/* Chances are in thousandths. */
struct rf_sim_params {
	/* Links. A message takes its size over the bandwidth on the sender's and on the receiver's
	 * side, and the latency, and a random part of the jitter. */
	uint64_t latency_ns; /* at least 1 */
	uint64_t jitter_ns;
	uint64_t bytes_per_second; /* of each process, each way; 0: without end */
	/* Between processes of one host; 0: as above. */
	uint64_t local_latency_ns;
	uint64_t local_bytes_per_second;

	/* Streams. */
	size_t stream_window_bytes;  /* sent and not yet read by the peer */
	unsigned partial;            /* chance that a send or receive does only a part */
	unsigned stream_again;       /* chance of RF_ERR_AGAIN though it could do something */
	uint64_t resolve_ns;         /* what a name takes to resolve */
	uint64_t connect_timeout_ns; /* of a connect that nobody answers */

	/* The transport. */
	unsigned lanes; /* 1 to 8, unless env.lanes says otherwise */
	size_t segment_max_bytes;
	size_t inline_bytes;
	bool borrow;
	bool put;
	bool load_store; /* between processes of one host */
	bool send_done_is_delivered;
	unsigned queue_depth;    /* segments of a lane that the peer has not yet taken */
	size_t piece_max_bytes;  /* 0: a payload comes in one piece */
	uint64_t piece_delay_ns; /* at most, between two pieces */
	size_t piece_shift;      /* borrowed pieces begin up to so many bytes off alignment */
	unsigned again;          /* chance of RF_ERR_AGAIN from send() though there is room */
	unsigned at_once;        /* chance of RF_SENT_AT_ONCE for what is larger than inline */
	unsigned late;           /* chance of a late SENT, up to late_ns after its time */
	uint64_t late_ns;
	unsigned withdraw_again; /* chance of RF_ERR_AGAIN from withdraw() */

	uint64_t livelock_rounds; /* rounds at one instant that are too many; 0: a million */
	FILE *trace;              /* every event as a line; NULL: none */
};

/* A plain network: nothing fails, nothing is cut into parts. */
void rf_sim_params_calm(struct rf_sim_params *params);
/* Sampled from a seed, all of the hostility above. */
void rf_sim_params_hostile(struct rf_sim_params *params, uint64_t seed);

/* params are copied. RF_ERR_NOMEM. Memory that runs out later ends the program with a message: a
 * simulation cannot go on reproducibly without it. */
int rf_sim_create(uint64_t seed, const struct rf_sim_params *params, struct rf_sim **sim);
/* After the nets; those that are left are freed without more ado. */
void rf_sim_destroy(struct rf_sim *sim);

/* Makes a process; they are numbered from 0 in the order of creation. Ends with ops->destroy(). */
int rf_sim_net_create(struct rf_sim *sim, unsigned host, struct rf_net **net);
struct rf_addr rf_sim_addr(unsigned host, uint16_t port);

/* ---- running -------------------------------------------------------------------------------- */

enum rf_sim_state {
	RF_SIM_RUN,      /* *process has something to do */
	RF_SIM_ALARM,    /* the test's own alarm */
	RF_SIM_IDLE,     /* nobody has anything to do, nothing is under way, no timer is set */
	RF_SIM_LIVELOCK, /* livelock_rounds at one instant */
};
enum rf_sim_state rf_sim_next(struct rf_sim *sim, unsigned *process);
/* The owner has something to do though nothing happened: it made progress, or was given a call. */
void rf_sim_again(struct rf_sim *sim, unsigned process);
/* When the owner must run, whatever happens; UINT64_MAX: no timer. Cleared when it is due. */
void rf_sim_set_timer(struct rf_sim *sim, unsigned process, uint64_t at_ns);
/* When rf_sim_next() shall answer RF_SIM_ALARM; UINT64_MAX: never. */
void rf_sim_set_alarm(struct rf_sim *sim, uint64_t at_ns);
uint64_t rf_sim_now(const struct rf_sim *sim);
/* For the test's own choices, from the same seed: below `bound`, which is not 0. */
uint64_t rf_sim_random(struct rf_sim *sim, uint64_t bound);

/* ---- faults --------------------------------------------------------------------------------- */

/* The process dies: its streams are reset and it never runs again. Its owner may still be destroyed
 * by the test, which sees errors everywhere. */
void rf_sim_kill(struct rf_sim *sim, unsigned process);
/* The process stands still (and later goes on): nothing from or to it moves, streams stay. */
void rf_sim_silence(struct rf_sim *sim, unsigned process, bool silent);
/* Nothing moves between processes of different sides; streams stay. Processes begin on side 0. What
 * is under way waits until both are on one side again. */
void rf_sim_set_side(struct rf_sim *sim, unsigned process, unsigned side);
/* Resets one stream between two processes, chosen from the seed; false: there is none. */
bool rf_sim_cut(struct rf_sim *sim, unsigned process, unsigned other);
/* "sim-<host>" does not resolve before that time. From the start it does. */
void rf_sim_set_name_time(struct rf_sim *sim, unsigned host, uint64_t at_ns);

/* ---- findings ------------------------------------------------------------------------------- */

/* What an owner did against the contracts (a payload that changed before SENT, ...), the first
 * time; NULL: nothing. */
const char *rf_sim_violation(const struct rf_sim *sim);
uint64_t rf_sim_trace_hash(const struct rf_sim *sim);
uint64_t rf_sim_event_count(const struct rf_sim *sim);
/* Streams that a process holds now, accepted, dialled or handed to the transport. */
unsigned rf_sim_stream_count(const struct rf_sim *sim, unsigned process);
/* The most it ever held. */
unsigned rf_sim_stream_peak(const struct rf_sim *sim, unsigned process);

#endif
