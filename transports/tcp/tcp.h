/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the tcp transport share.
 *
 * A peer has an endpoint (its out lanes, one stream each, dialled by us) and in lanes (streams that
 * the peer dialled). Whatever has something to do or to report is in one queue of work, first come,
 * first served: so a poll costs what is ready, not what is connected, and nobody starves.
 *
 *      send() -> out lane's queue -> stream          tcp_send.c
 *      stream -> buffer or final address -> events   tcp_receive.c
 *      peers, failure, poll()                        tcp.c
 */
#ifndef RF_TRANSPORTS_TCP_H
#define RF_TRANSPORTS_TCP_H

#include "transports/transport.h"

#include <stddef.h>

#define TCP_CONTAINER(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

enum {
	TCP_LANES_MAX = 16,
	TCP_SEND_SLOTS = 16,      /* segments queued in a lane */
	TCP_SEND_BYTES = 8 << 20, /* payload queued in a lane; one segment may be larger */
	TCP_INLINE_BYTES = 4096,  /* copied by send() where they cannot be written at once */
	/* Folded from while it is in L2. From 64 KiB to 512 KiB the ring of bench_tcp -r costs the
	 * same within 3 %; at 1 MiB, all of the L2, 3 % more. */
	TCP_BUFFER_BYTES = 256 << 10,
	TCP_BUFFER_BYTES_MIN = 8 << 10,
	TCP_PEEK_BYTES = 4 << 10,   /* read beyond a payload that lands: the next header and some */
	TCP_PIECE_SMALL = 32 << 10, /* a smaller piece is not handed out while more can be read */
	TCP_LAND_BYTES = 1 << 20,   /* read to a final address in one call */
	TCP_POLL_BYTES = 4 << 20,   /* read by one poll() before it lets the engine look around */
	TCP_PEER_BUCKETS = 256,
};

/* Something to do or to report. */
struct tcp_work {
	struct tcp_work *next, *previous; /* NULL: not queued */
	/* Called when it is not queued any more; queues itself again if there is more to do.
	 * RF_OK and an event, or RF_ERR_AGAIN. */
	int (*run)(struct tcp_work *work, struct rf_transport_event *event);
};

/* A receive buffer that nobody uses. */
struct tcp_buffer {
	struct tcp_buffer *next;
};

struct tcp {
	struct rf_transport base;
	struct tcp_work queue;      /* ring of what is ready; itself the sentinel */
	struct tcp_buffer *buffers; /* last in, first out: the one that is in the cache */
	size_t buffer_bytes;
	size_t poll_bytes; /* read by the current poll() */
	struct tcp_out *lingering;
	struct tcp_peer *peers[TCP_PEER_BUCKETS];
};

struct tcp_peer {
	struct tcp_work work; /* reports DOWN */
	struct tcp_peer *next;
	struct tcp *tcp;
	struct rf_transport_peer *name; /* the engine's */
	struct tcp_endpoint *endpoint;  /* NULL: none is open */
	struct tcp_in *in[TCP_LANES_MAX];
	unsigned in_attached, in_ended;
	bool dead; /* DOWN is queued or was fetched */
	bool out_broken;
	int status;
	char reason[160];
};

struct tcp_endpoint {
	struct rf_endpoint base;
	struct tcp_work work; /* reports WRITABLE */
	struct tcp_peer *peer;
	unsigned attached;
	struct tcp_out *out[]; /* caps.lanes */
};

/* A segment that is being sent. */
struct tcp_slot {
	uint8_t header[RF_SEGMENT_HEADER_BYTES];
	const uint8_t *payload; /* its bytes [from, bytes) */
	size_t from;
	void *copy; /* the same, if it is our own memory */
	size_t bytes;
	uint64_t cookie;
	bool silent;    /* nobody waits for SENT */
	bool withdrawn; /* not to be sent at all */
};

struct tcp_out {
	struct tcp_work work;
	struct rf_watch watch;
	struct tcp *tcp;
	struct tcp_endpoint *endpoint; /* NULL: closed, and lingering until all is sent */
	struct tcp_out *next;          /* of those that linger */
	struct rf_stream *stream;
	unsigned interest;
	bool blocked; /* the stream is full */
	bool readable;
	bool refused; /* send() has answered RF_ERR_AGAIN, for refused_bytes of payload */
	size_t refused_bytes;
	/* Slots [first, sent) wait to be reported, [sent, last) to be sent; they count on, and
	 * wrap by the mask. */
	unsigned first, sent, last;
	size_t sent_bytes;   /* of the slot `sent`, header included */
	size_t queued_bytes; /* of payload in [sent, last) */
	struct tcp_slot slots[TCP_SEND_SLOTS];
};

enum tcp_in_state {
	TCP_IN_HEADER,   /* reading a header */
	TCP_IN_ASKED,    /* SEGMENT is out: stands still until it is answered */
	TCP_IN_LANDING,  /* reading to the final address */
	TCP_IN_PIECES,   /* reading into a buffer */
	TCP_IN_BORROWED, /* PIECE is out: stands still until it is released */
	TCP_IN_DISCARD,  /* dropping the rest of a segment */
	TCP_IN_ENDED,    /* an end of file between two segments */
};

struct tcp_in {
	struct tcp_work work;
	struct rf_watch watch;
	struct rf_receive receive;
	struct tcp_peer *peer;
	struct rf_stream *stream;
	enum tcp_in_state state;
	bool readable;   /* the last read did not drain the stream */
	bool interested; /* in RF_NET_IN */
	bool lands;      /* the last large payload landed: the next one is not to be buffered */
	uint8_t *memory; /* LANDING: the final address of the rest */
	size_t rest;     /* payload that has neither landed nor been handed out */
	size_t piece;    /* BORROWED: its bytes */
	/* What has been read and not been used lies in [at, end): in the buffer, or in the stash
	 * while the lane has no buffer. */
	uint8_t *buffer, *at, *end;
	uint8_t stash[RF_SEGMENT_HEADER_BYTES] __attribute__((aligned(64)));
};

/* tcp.c */
void tcp_work_add(struct tcp *tcp, struct tcp_work *work);
void tcp_work_remove(struct tcp_work *work);
void tcp_peer_fail(struct tcp_peer *peer, int status, const char *reason);
/* The way to the peer is broken; what comes from it is still worth reading. */
void tcp_peer_out_broken(struct tcp_peer *peer, int status, const char *reason);
/* Whether by now the peer counts as down. */
void tcp_peer_settle(struct tcp_peer *peer);
/* "what: why", with errno if there is one. */
const char *tcp_reason(char text[160], const char *what);

/* tcp_send.c */
int tcp_out_create(struct tcp_endpoint *endpoint, struct rf_stream *stream, struct tcp_out **out);
void tcp_out_destroy(struct tcp_out *out);
void tcp_out_stop(struct tcp_out *out); /* closes the stream; nothing is sent any more */
/* Sends what is left from memory of its own, then closes and frees itself. */
void tcp_out_linger(struct tcp_out *out);
bool tcp_out_idle(const struct tcp_out *out);
int tcp_send(struct rf_endpoint *endpoint, const struct rf_transport_send *send);
int tcp_withdraw(struct rf_endpoint *endpoint, uint64_t cookie);

/* tcp_receive.c */
int tcp_in_create(struct tcp_peer *peer, unsigned lane, struct rf_stream *stream,
		  struct tcp_in **in);
void tcp_in_destroy(struct tcp_in *in);
void tcp_in_stop(struct tcp_in *in); /* closes the stream; buffers stay */
int tcp_receive_into(struct rf_receive *receive, void *memory);
int tcp_receive_pieces(struct rf_receive *receive);
void tcp_release(struct rf_receive *receive);
void tcp_discard(struct rf_receive *receive);

#endif
