/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls: one collective call in flight, its machine, and what it has under way. Private to the
 * engine's call.c (life of a call), group.c (what algorithms ask for), data.c (what transports
 * report) and api.c.
 */
#ifndef RF_CALL_H
#define RF_CALL_H

#include "engine/algo/algo.h"
#include "engine/request.h"

/* The machine of a call, over the group of all ranks. */
struct rf_stage {
	struct rf_group group; /* first: group_ops get a pointer to it */
	struct rf_call *call;
	struct rf_task task;
	struct rf_plan plan;
	void *state;
	bool done;
	int awaited; /* rank that it waits for; -1: none */
	uint64_t awaited_since;
};

/* A partner announced by expect(). */
struct rf_expected {
	int rank;
	bool prompt;
};

struct rf_call {
	struct rf_request request;
	uint64_t seq;
	struct rf_fingerprint fingerprint;
	uint8_t encoded_fingerprint[24];
	bool eager;    /* small enough to be sent before the receiver has started */
	bool is_ready; /* in context->ready_calls */
	int failed;    /* the error with which it ends when nothing is pending any more; 0: none */
	struct rf_list node;       /* in comm->call_list */
	struct rf_list ready_node; /* in context->ready_calls */
	struct rf_list word_node;  /* in context->word_calls, if it goes through shared memory */
	struct rf_list outgoing;   /* struct rf_outgoing: posted, not completed */
	struct rf_list incoming;   /* struct rf_incoming: landing, or put off */
	struct rf_list blocks;     /* struct rf_block: what it waits for before it can send */
	struct rf_timer patience;  /* for credit that comes unasked: group.c */
	bool impatient;
	size_t *counts; /* copy of the caller's uneven counts */
	struct rf_expected *expected;
	size_t expected_count, expected_capacity;
	struct rf_stage stages[1];
};

/* A send that the transport has not completed. Its address is the cookie. */
struct rf_outgoing {
	struct rf_list node;      /* in call->outgoing, or the free list */
	struct rf_list peer_node; /* in peer->outgoing */
	struct rf_call *call;
	struct rf_peer *peer;
	struct rf_stage *stage;
	int to;
	unsigned channel;
	uint32_t chunk;
	size_t bytes;
};

/* Where an arriving segment goes: what a receive's user pointer points to. */
enum rf_sink { RF_SINK_CALL, RF_SINK_STAGE };

/* A segment on its way into a call: in the transport (receive), or staged. */
struct rf_incoming {
	enum rf_sink sink;   /* first: RF_SINK_CALL */
	struct rf_list node; /* in call->incoming, or the free list */
	struct rf_call *call;
	struct rf_stage *stage;
	struct rf_link *link;
	struct rf_transport *transport;
	struct rf_receive *receive; /* NULL: the bytes are staged */
	struct rf_staged *staged;
	uint8_t *bounce; /* for a fold, where the transport lends no pieces; else NULL */
	bool put_off;    /* accept() said later */
	bool eager;
	struct rf_arrival arrival;
	struct rf_landing landing;
};

/* A call waits until a peer's endpoint is writable. */
struct rf_block {
	struct rf_list call_node; /* in call->blocks, or the free list */
	struct rf_list peer_node; /* in peer->blocked_calls */
	struct rf_call *call;
	struct rf_peer *peer;
};

/* An eager segment of a call that has not started here. */
struct rf_staged {
	enum rf_sink sink;      /* first: RF_SINK_STAGE */
	struct rf_list node;    /* in peer->staging while it arrives */
	struct rf_staged *next; /* in comm->staged, when it has arrived */
	struct rf_peer *peer;
	struct rf_segment segment;
	uint8_t *bytes;
};

/* ---- call.c --------------------------------------------------------------------------------- */

/* Starts a call on a communicator; lock held. description: task without its arrays' ownership. */
struct rf_call_setup {
	struct rf_task task;
	rf_wire wire;
	const rf_call_options *options;
	/* The library's own calls: called at the end instead of handing the request out; it must
	 * rf_request_finish() it. user is its request->user. */
	void (*then)(struct rf_request *request);
	void *user;
};
int rf_call_start(rf_comm *comm, const struct rf_call_setup *setup, struct rf_call **call);
/* The same for a caller that will wait, without a queue: *call is NULL if it has ended well. */
int rf_call_run(rf_comm *comm, const struct rf_call_setup *setup, struct rf_call **call);
void rf_call_free(struct rf_call *call); /* after its end was handed out */

void rf_call_make_ready(struct rf_call *call);
int rf_calls_advance(rf_context *context); /* all that are ready; 1 if there was one */
/* Looks at the words in shared memory that calls wait for, and makes those ready that can go on. */
void rf_calls_poll(rf_context *context);
/* Before a sleep: RF_OK: the doorbell will be rung. RF_ERR_AGAIN: poll first. */
int rf_calls_arm(rf_context *context);
void rf_call_fail(struct rf_call *call, int status); /* withdraws; ends when nothing is pending */
void rf_call_end_if_drained(struct rf_call *call);

/* The call cannot go on, for a reason of this rank's: fails the communicator. */
void rf_call_break(struct rf_call *call, int error, const char *what);
/* Another rank made another call under this number: fails the communicator with both views. */
void rf_call_mismatch(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine, int rank,
		      const struct rf_fingerprint *theirs);

/* Passes the status on; if it says that the partner is dead or has left, fails the communicator
 * first, so that the partner is the one that is named. */
int rf_call_partner_failed(struct rf_call *call, const struct rf_link *link, int status);

/* ---- call_segment.c ------------------------------------------------------------------------- */

/* Asks again for segments that were put off. */
void rf_call_retry_put_off(struct rf_call *call);

/* ---- between the two ------------------------------------------------------------------------ */

void rf_call_free_incoming(struct rf_incoming *incoming); /* the record only */
/* Lets go of a segment that has not been used (entirely). */
void rf_call_drop_incoming(struct rf_incoming *incoming);

/* ---- what data.c calls ---------------------------------------------------------------------- */

/* A segment for a started call, from a transport's receive or staged: decides where it goes.
 * Returns with the receive answered or put off, and the staged bytes used or kept. */
void rf_call_segment(struct rf_call *call, struct rf_link *link, const struct rf_segment *segment,
		     struct rf_transport *transport, struct rf_receive *receive,
		     struct rf_staged *staged);
void rf_call_piece(struct rf_incoming *incoming, size_t offset, const void *piece, size_t bytes);
void rf_call_delivered(struct rf_incoming *incoming);
void rf_call_sent(struct rf_outgoing *outgoing);
/* The transport has lost what was arriving from a peer: those segments will never be whole. */
void rf_call_lose_receives(rf_comm *comm, const struct rf_peer *peer);

/* ---- data.c --------------------------------------------------------------------------------- */

/* Drains the transports' events; 1 if there was one. */
int rf_data_poll(rf_context *context);
/* RF_OK, RF_SENT_AT_ONCE, or RF_ERR_AGAIN (the endpoint is being opened, or full). */
int rf_data_send(struct rf_peer *peer, const struct rf_transport_send *send);
void rf_staged_free(struct rf_staged *staged); /* consumed */
/* Counts a consumed eager segment, and tells the peer when it is time. */
void rf_data_eager_consumed(struct rf_peer *peer, size_t bytes);
/* What a segment counts against the eager budget. */
static inline uint32_t rf_eager_weight(size_t bytes)
{
	return (uint32_t)bytes + RF_SEGMENT_HEADER_BYTES;
}

extern const struct rf_group_ops rf_engine_group_ops; /* group.c */

#endif
