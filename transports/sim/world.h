/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to the simulator. world.c: time, chance, scheduling, findings. link.c: what is under way
 * between two ends of a connection. net.c, dial.c and stream.c: the network seam. transport.c,
 * send.c and receive.c: the transport seam, whose segments travel through the same links. fault.c:
 * faults.
 */
#ifndef RF_SIM_WORLD_H
#define RF_SIM_WORLD_H

#include "engine/list.h"
#include "engine/map.h"
#include "transports/sim/sim.h"

enum { SIM_NO_POSITION = 0 };

/* ---- time ----------------------------------------------------------------------------------- */

struct sim_event {
	uint64_t at;
	uint64_t order;  /* among those of one instant: first set, first fired */
	size_t position; /* in the heap, from 1; SIM_NO_POSITION: not set */
	void (*fire)(struct sim_event *event);
};

struct sim_host {
	struct rf_list listeners;
	uint16_t next_port;
	uint64_t name_at;
};

struct rf_sim {
	struct rf_sim_params params;
	uint64_t random;
	uint64_t now;
	uint64_t event_order;
	struct sim_event **heap; /* from 1 */
	size_t heap_count, heap_capacity;
	struct sim_net **processes;
	unsigned process_count, process_capacity;
	struct sim_net **ready; /* a place for every process */
	size_t ready_count;
	struct sim_host **hosts; /* by number; NULL: nobody lives there */
	unsigned host_count;
	struct rf_list connections;
	struct rf_list regions; /* exposed memory */
	uint64_t next_key;
	struct sim_event alarm;
	bool alarm_due;
	uint64_t rounds; /* at this instant */
	uint64_t trace_hash, trace_count;
	char violation[256];
};

/* Sets, or moves, an event. */
void sim_set(struct rf_sim *sim, struct sim_event *event, uint64_t at);
void sim_clear(struct rf_sim *sim, struct sim_event *event);
static inline bool sim_is_set(const struct sim_event *event)
{
	return event->position != SIM_NO_POSITION;
}

uint64_t sim_random(struct rf_sim *sim); /* all 64 bits */
static inline bool sim_chance(struct rf_sim *sim, unsigned thousandths)
{
	return thousandths && sim_random(sim) % 1000 < thousandths;
}
/* 0 to bound, both included. */
static inline uint64_t sim_up_to(struct rf_sim *sim, uint64_t bound)
{
	return bound ? sim_random(sim) % (bound + 1) : 0;
}
/* How long news takes from one process to another, without the size. */
uint64_t sim_delay(struct rf_sim *sim, const struct sim_net *from, const struct sim_net *to);

/* Never NULL. */
void *sim_allocate(size_t bytes);
void *sim_grow(void *memory, size_t bytes);

/* Part of the trace: what happened, to whom, and a number. */
void sim_trace(struct rf_sim *sim, const char *what, unsigned process, unsigned other,
	       uint64_t number);
void sim_violation(struct rf_sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- processes ------------------------------------------------------------------------------ */

/* Somebody that may be watched: the first member of streams and listeners. */
struct sim_watched {
	struct sim_net *net;
	unsigned (*readiness)(struct sim_watched *watched);
	struct rf_watch *watch;
	unsigned interest;
	enum rf_net_lane lane;
	uint32_t slot;       /* in the net's table, while watched */
	struct rf_list node; /* in net->watched_ready */
};
/* The token of an event is a slot and its generation, as in the posix net. */
struct sim_slot {
	struct sim_watched *watched;
	uint32_t generation;
	uint32_t next_free;
};

struct sim_net {
	struct rf_net base;
	struct rf_sim *sim;
	unsigned id;
	unsigned host;
	bool dead, silent, gone; /* gone: destroyed by its owner */
	unsigned side;
	bool woken;
	size_t ready_place; /* in sim->ready, from 1; 0: not there */
	struct rf_list watched_ready;
	struct sim_slot *slots;
	uint32_t slot_count, free_slot;
	struct rf_list streams;
	unsigned stream_count, stream_peak;
	struct rf_list transports;
	size_t queued; /* events of its transports that are not yet fetched */
	struct sim_event timer;
	uint64_t egress_free, ingress_free; /* when the last message is through */
};

/* The net's process should be run. */
void sim_make_ready(struct sim_net *net);
static inline bool sim_blocked(const struct sim_net *a, const struct sim_net *b)
{
	return a->silent || b->silent || a->side != b->side;
}
struct sim_host *sim_host(struct rf_sim *sim, unsigned number); /* NULL: there is none */
void sim_watch(struct sim_watched *watched, struct rf_watch *watch, enum rf_net_lane lane,
	       unsigned events);
/* Its readiness may have changed. */
void sim_update(struct sim_watched *watched);

/* ---- links ---------------------------------------------------------------------------------- */

enum sim_item_kind {
	SIM_BYTES,
	SIM_SEGMENT,
	SIM_PUT,
	SIM_END,   /* orderly */
	SIM_RESET, /* broken */
};

/* Something on its way, or arrived and not yet consumed. Owns a copy of what it carries: the
 * sender's memory is looked at when it is handed in and when it is given back. */
struct sim_item {
	struct rf_list node;
	enum sim_item_kind kind;
	uint64_t arrives;
	size_t bytes;
	size_t consumed;  /* BYTES */
	uint8_t *payload; /* NULL without payload */
	uint8_t header[RF_SEGMENT_HEADER_BYTES];
	uint64_t key, offset;  /* PUT */
	struct sim_send *send; /* SEGMENT, PUT: until the sender has its completion */
};

/* One direction of a connection. */
struct sim_link {
	struct rf_sim *sim;
	struct sim_net *from, *to;
	struct sim_stream *sender, *receiver; /* NULL: closed */
	struct rf_list under_way;             /* in order */
	struct rf_list arrived;
	struct sim_event arrival; /* of the first one under way */
	bool parked;              /* it cannot arrive: see sim_blocked() */
	uint64_t last_arrival;
	size_t bytes;      /* of BYTES that are not consumed */
	unsigned segments; /* SEGMENT and PUT not consumed */
	bool ended;        /* END or RESET was sent */
};
struct sim_connection {
	struct rf_list node;
	struct sim_link way[2];
	unsigned references; /* streams */
};

/* Takes the item over, also if nobody will ever receive it. */
void sim_link_push(struct sim_link *link, struct sim_item *item);
void sim_link_push_mark(struct sim_link *link, enum sim_item_kind kind);
/* The first that has arrived, or NULL. */
struct sim_item *sim_link_first(struct sim_link *link);
/* The first one is done with, and freed; the sender may send more. */
void sim_link_consume(struct sim_link *link);
/* A fault ended, perhaps: what was parked goes on. */
void sim_link_unpark(struct sim_link *link);
struct sim_item *sim_item_new(enum sim_item_kind kind, const void *payload, size_t bytes);
void sim_item_free(struct sim_item *item);

struct sim_connection *sim_connection_new(struct sim_net *a, struct sim_net *b);

/* ---- streams -------------------------------------------------------------------------------- */

enum sim_stream_state {
	SIM_CONNECTING,
	SIM_CONNECTED,
	SIM_FAILED, /* connect, or reset: see error */
};

/* What the transport hangs on a stream that it took over: its lane. */
struct sim_lane;

struct sim_stream {
	struct sim_watched watched; /* first */
	struct rf_stream base;
	enum sim_stream_state state;
	int error;                         /* as errno */
	struct sim_connection *connection; /* NULL while connecting */
	struct sim_link *out, *in;
	struct rf_addr local, peer;
	struct rf_list node;      /* in net->streams, or a listener's pending */
	struct sim_event attempt; /* CONNECTING */
	uint64_t give_up;
	struct sim_lane *lane; /* NULL: not the transport's */
};

struct sim_stream *sim_stream_from(struct rf_stream *stream);
/* Ends it at once, on both sides; the stream stays until it is closed. */
void sim_stream_reset(struct sim_stream *stream);
void sim_stream_free(struct sim_stream *stream);
/* Lists it with its net, or among those that wait to be accepted. */
struct sim_stream *sim_stream_new(struct sim_net *net, struct rf_list *list);
/* Makes it one end of a connection. */
void sim_stream_join(struct sim_stream *stream, struct sim_connection *connection, int way);

int sim_connect(struct rf_net *net, const struct rf_addr *addr,
		const struct rf_stream_tuning *tuning, struct rf_stream **stream);
int sim_listen(struct rf_net *net, uint16_t first_port, uint16_t last_port,
	       struct rf_listener **listener, uint16_t *port);
int sim_watch_listener(struct rf_listener *listener, struct rf_watch *watch);
int sim_accept(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
	       struct rf_stream **stream);
void sim_close_listener(struct rf_listener *listener);
void sim_abandon_listener(struct rf_listener *listener);
void sim_listeners_die(struct sim_net *net); /* their process did: their owner closes them */
void sim_listeners_close(struct sim_net *net);
extern const struct rf_net_ops sim_net_ops;

/* ---- the transport -------------------------------------------------------------------------- */

struct sim_transport {
	struct rf_transport base;
	struct sim_net *net;
	bool no_payload;
	size_t piece_max_bytes;
	struct rf_list node;   /* in net->transports */
	struct rf_list events; /* struct sim_queued */
	struct rf_list peers;
	struct rf_map peer_map;     /* by the engine's pointer */
	struct rf_list grave;       /* receives that end when the next event is fetched */
	struct rf_list grave_later; /* those of a DOWN that has not been fetched */
};

/* What this transport knows of one peer: at most one endpoint, and lanes on which it sends. */
struct sim_peer {
	struct rf_list node;
	struct rf_transport_peer *peer;
	struct sim_transport *transport;
	struct sim_endpoint *endpoint;
	struct rf_list lanes; /* receiving */
};

/* One lane of an endpoint, or one on which we receive. */
struct sim_lane {
	struct rf_list node; /* in peer->lanes: receiving only */
	struct sim_peer *peer;
	struct sim_endpoint *endpoint; /* NULL: receiving */
	struct sim_stream *stream;
	unsigned number;
	struct sim_receive *current;
};

enum { SIM_LANES_MAX = 8 };

struct sim_endpoint {
	struct rf_endpoint base;
	struct sim_peer *peer;
	struct sim_lane lanes[SIM_LANES_MAX];
	unsigned attached;
	bool down;
	bool blocked; /* a send got RF_ERR_AGAIN: WRITABLE or a SENT is owed */
	struct sim_event writable;
	struct rf_list pending; /* struct sim_send */
};

/* A send or put whose buffer is still the transport's. */
struct sim_send {
	struct rf_list node;
	struct sim_endpoint *endpoint;
	uint64_t cookie;
	const void *payload; /* NULL without payload */
	size_t bytes;
	uint64_t checksum;
	struct sim_item *item; /* NULL: taken by the peer, or nobody will */
	bool when_taken;       /* completes when the peer has taken it */
	bool pays_debt;        /* its SENT stands for a WRITABLE that is owed */
	struct sim_event completion;
};

enum sim_receive_mode { SIM_UNANSWERED, SIM_INTO, SIM_PIECES, SIM_DEAD };

struct sim_receive {
	struct rf_receive base;
	struct rf_list node; /* in a grave */
	struct sim_transport *transport;
	struct sim_lane *lane;
	struct sim_item *item;
	enum sim_receive_mode mode;
	uint8_t *memory; /* INTO */
	size_t done;
	uint8_t *piece; /* PIECES: the allocation, up to the piece's last byte */
	size_t piece_shift;
	size_t piece_bytes;
	bool lent;
	struct sim_event step;
};

struct sim_queued {
	struct rf_list node;
	struct rf_transport_event event;
};

/* Queues an event for the transport's owner. */
void sim_queue(struct sim_transport *transport, const struct rf_transport_event *event);
void sim_unqueue_receive(struct sim_transport *transport, const struct rf_receive *receive);
/* Something has arrived on a stream of the transport's, or it has broken. */
void sim_lane_arrived(struct sim_lane *lane);
void sim_lane_free(struct sim_lane *lane);
void sim_peer_forget_if_unused(struct sim_peer *peer);
void sim_peer_down(struct sim_peer *peer, int status, const char *reason);
/* A lane has room again, because the peer took something: that of `taken`, if it is pending. */
void sim_endpoint_room(struct sim_endpoint *endpoint, struct sim_send *taken);
void sim_queue_writable(struct sim_endpoint *endpoint);
void sim_writable_fire(struct sim_event *event);
void sim_send_check(struct sim_send *send); /* its buffer goes back to the engine */
void sim_send_free(struct sim_send *send);
/* Looks at what has arrived on a receiving lane. */
void sim_lane_receive(struct sim_lane *lane);
/* The receive is over: nothing is touched any more, its operations do nothing. */
void sim_receive_kill(struct sim_receive *receive);
void sim_receive_free(struct sim_receive *receive);
void sim_transport_silence(struct sim_transport *transport); /* its process died */

int sim_send(struct rf_endpoint *endpoint, const struct rf_transport_send *send);
int sim_put(struct rf_endpoint *endpoint, const struct rf_transport_put *put);
int sim_withdraw(struct rf_endpoint *endpoint, uint64_t cookie);

int sim_receive_into(struct rf_receive *receive, void *memory);
int sim_receive_pieces(struct rf_receive *receive);
void sim_release(struct rf_receive *receive);
void sim_discard(struct rf_receive *receive);

int sim_expose(struct rf_transport *transport, void *memory, size_t bytes, uint64_t *key);
void sim_unexpose(struct rf_transport *transport, uint64_t key);
void sim_unexpose_all(struct sim_transport *transport);
int sim_map(struct rf_endpoint *endpoint, uint64_t key, size_t bytes, void **memory);
void sim_unmap(struct rf_endpoint *endpoint, void *memory, size_t bytes);
int sim_doorbell(struct rf_endpoint *endpoint);
/* Carries out a put that has arrived at a process; false: no such memory. */
bool sim_put_arrived(struct sim_net *net, const struct sim_item *item);

#endif
