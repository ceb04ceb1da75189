/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: the processes that this one talks with, one object each, shared by all communicators.
 * Made when first needed, not for every rank. Beneath a peer are its control stream (the lifeline;
 * control.c) and its data endpoint (data.c).
 */
#ifndef RF_PEER_H
#define RF_PEER_H

#include "engine/context.h"

/* The engine's side of struct rf_transport_peer. */
struct rf_transport_peer {
	struct rf_peer *peer;
};

enum { RF_PEER_ADDRS = 4 };

enum rf_peer_state {
	RF_PEER_ALIVE,
	RF_PEER_LEFT, /* said BYE: its streams end orderly */
	RF_PEER_DEAD,
};

struct rf_peer {
	struct rf_process_id id;
	rf_context *context;
	enum rf_peer_state state;
	unsigned references;  /* links (one a communicator), control dials, control streams */
	struct rf_list links; /* struct rf_link, by peer_node */
	struct rf_addr addrs[RF_PEER_ADDRS];
	unsigned addr_count;

	/* control.c */
	struct rf_control *control; /* NULL while no control stream is wanted */

	/* data.c */
	struct rf_transport_peer data;  /* what transports know it by */
	struct rf_transport *transport; /* of the endpoint */
	struct rf_endpoint *endpoint;   /* NULL until a call sends */
	struct rf_dial **dials;         /* of the endpoint's lanes, NULL where there is none */
	unsigned dial_count;
	uint32_t eager_sent;   /* bytes sent without credit, cumulative, wraps */
	uint32_t eager_acked;  /* of those, freed by the peer as far as it told */
	uint32_t eager_freed;  /* bytes of the peer's eager segments consumed here, cumulative */
	uint32_t eager_told;   /* the value of eager_freed that the peer was last told */
	uint32_t eager_staged; /* bytes of the peer's that are staged here now: bounded by the
				  budget */
	struct rf_list
		blocked_calls;   /* struct rf_block: to advance when the endpoint is writable */
	struct rf_list outgoing; /* struct rf_outgoing: posted to it, not completed */
	struct rf_list staging;  /* struct rf_staged: still arriving */
	struct rf_timer verdict; /* after a broken data connection: what became of the peer? */
	char down_reason[160];
};

/* Finds or makes a peer and takes a reference. Addresses are taken if the peer has none yet: when
 * it is made, or when it was only known from having dialled us. */
int rf_peer_get(rf_context *context, struct rf_process_id id, const struct rf_addr *addrs,
		unsigned addr_count, struct rf_peer **peer);
struct rf_peer *rf_peer_find(rf_context *context, struct rf_process_id id); /* no reference */
void rf_peer_put(struct rf_peer *peer); /* the last one frees it; control streams have their own */

/* ---- control streams: control.c ------------------------------------------------------------ */

struct rf_segment;

/* Queues a control segment; dials the peer if no stream stands. Never RF_ERR_AGAIN: what is sent
 * this way is bounded by what calls and communicators there are. RF_ERR_NOMEM, or RF_ERR_RANK_DEAD
 * if the peer is known to be dead. Fills segment->eager_freed, version and bytes; channel and chunk
 * belong to control streams (they number and acknowledge segments, so that none is lost or doubled
 * when a stream is). Segments arrive in the order in which they were sent. */
int rf_control_send(struct rf_peer *peer, struct rf_segment *segment, const void *payload,
		    size_t bytes);
/* Keeps a control stream up (a lifeline), and lets it go: counted. A lost stream of a peer with at
 * least one hold is dialled again for redial_ms, then rf_peer_died(). */
int rf_control_hold(struct rf_peer *peer, bool dial_now);
void rf_control_release(struct rf_peer *peer);
bool rf_control_is_up(const struct rf_peer *peer);
/* Both ends of the peer's control stream; RF_ERR_AGAIN while none stands. */
int rf_control_addrs(const struct rf_peer *peer, struct rf_addr *local, struct rf_addr *remote);
/* A data connection broke: is the peer dead? Looks at (dials if need be) its control stream. */
void rf_control_suspect(struct rf_peer *peer, const char *reason);
/* For a context's end: says BYE, ends streams orderly; rf_control_all_closed() when nothing is left
 * to send or the peers have closed. */
void rf_control_shutdown(rf_context *context);
bool rf_control_all_closed(rf_context *context);

/* The listener and what has been accepted but not yet said hello. */
int rf_server_start(rf_context *context);
void rf_server_stop(rf_context *context);
/* Accepts on a further port, next to context->port: rank 0's rendezvous port. RF_OK too if this
 * context listens there already. RF_ERR_SYSTEM (errno tells): somebody else does. Open until
 * rf_server_stop(). */
int rf_server_listen_also(rf_context *context, uint16_t port);
void rf_server_abandon(rf_context *context); /* for fork: descriptors only, async-signal-safe */

/* Dials a data lane: a stream to the peer that has passed hello. done() is called once, from
 * progress, unless rf_dial_cancel() came first. On RF_OK the stream is the callee's. Has no
 * reference to the peer: rf_data_close() cancels it. */
struct rf_dial;
typedef void rf_dial_done(void *user, unsigned lane, int status, struct rf_stream *stream,
			  const char *reason);
int rf_dial_data(struct rf_peer *peer, unsigned transport_index, unsigned lane, uint64_t deadline,
		 rf_dial_done *done, void *user, struct rf_dial **dial);
void rf_dial_cancel(struct rf_dial *dial);

/* Dials a control stream to whichever process listens at one of the addresses. RF_OK: the peer's
 * control stream stands, and its reference is the callee's (rf_control_hold() keeps the stream).
 * Tries until the deadline (context clock), except that another wire version ends it at once with
 * RF_ERR_VERSION. done() is called once, from progress, unless rf_dial_cancel() came first. */
enum { RF_DIAL_ADDRS = 16 };
typedef void rf_dial_rendezvous_done(void *user, int status, struct rf_peer *peer,
				     const char *reason);
int rf_dial_rendezvous(rf_context *context, const struct rf_addr *addrs, unsigned addr_count,
		       uint64_t deadline, rf_dial_rendezvous_done *done, void *user,
		       struct rf_dial **dial);

/* ---- what control.c calls: its events, each implemented in the room named ------------------- */

/* failure.c: the lifeline is lost for good (state DEAD), or the peer has left orderly (LEFT). Its
 * control streams are closed by then; what it has sent as data before may still come. */
void rf_peer_died(struct rf_peer *peer, const char *reason);
/* join.c: a control stream to the peer stands where none stood, for the first time or again. */
void rf_join_peer_up(struct rf_peer *peer);
/* data.c: a peer has dialled a data lane to us. Takes the stream over, also on error. Control.c
 * keeps the peer for a minute, and as long as there are links after that. */
int rf_data_accept(struct rf_peer *peer, unsigned transport_index, unsigned lane,
		   struct rf_stream *stream);
/* The table of handlers by segment type (control.c) calls these; payload is segment->bytes long. An
 * error other than RF_OK ends the stream as a protocol violation. */
int rf_call_on_credit(struct rf_peer *peer, const struct rf_segment *segment); /* CREDIT, WANT */
int rf_failure_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
			  const uint8_t *payload); /* DEATH .. ANSWER */
int rf_join_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
		       const uint8_t *payload);                          /* JOIN .. JOIN_FAILED */
void rf_data_on_eager_freed(struct rf_peer *peer, uint32_t eager_freed); /* every control header */

/* data.c: the fields above, before first use; and their end. */
void rf_data_init(struct rf_peer *peer);
void rf_data_close(struct rf_peer *peer); /* endpoint and receives; for rf_peer_put() and deaths */

#endif
