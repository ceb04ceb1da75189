/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport seam: one small table of operations that move segments between two processes and
 * say when they have. A transport knows nothing of datatypes, communicators or calls.
 *
 * All operations are called under the context's lock, never block, and never call the engine: what
 * happens is fetched with poll(), one event at a time.
 *
 * An endpoint is one direction: from this process to one peer. What comes from a peer appears as
 * receives. A lane (0 .. lanes-1) is a sequence of segments that arrive in the order in which they
 * were sent; between lanes there is no order.
 */
#ifndef RF_TRANSPORT_H
#define RF_TRANSPORT_H

#include "engine/net.h"
#include "engine/segment.h"

/* What a transport can do; data, not code. */
struct rf_transport_caps {
	bool borrow;       /* pieces point into the transport's own buffers */
	bool put;          /* put() works */
	bool load_store;   /* expose() and map() give memory that both ends can load and store */
	bool uses_streams; /* the engine dials `lanes` streams an endpoint and attaches them */
	bool send_done_is_delivered; /* SENT means that the peer has it (not only: buffer is free)
				      */
	unsigned lanes;              /* for one endpoint */
	size_t segment_max_bytes;    /* largest payload of a segment */
	size_t inline_bytes;         /* payloads up to this are copied by send(): done at once */
};

/* One process that this transport talks with; made by the engine, and opaque to the transport. */
struct rf_transport_peer;

struct rf_endpoint {
	struct rf_transport_peer *peer;
	void *user; /* the engine's */
};

/* A segment that is arriving. Valid until DELIVERED has been fetched, discard(), or DOWN. */
struct rf_receive {
	struct rf_transport_peer *peer;
	unsigned lane;
	uint8_t header[RF_SEGMENT_HEADER_BYTES]; /* has passed rf_segment_decode() */
	size_t bytes;                            /* of payload */
	void *user;                              /* the engine's */
};

struct rf_transport_send {
	uint8_t header[RF_SEGMENT_HEADER_BYTES]; /* copied by send() */
	const void *payload; /* untouched by the caller until SENT (or withdraw) */
	size_t bytes;
	unsigned lane;
	bool more; /* another send on this lane follows at once: the transport may wait with a push
		    */
	uint64_t cookie; /* for SENT and withdraw(); unique among the endpoint's pending sends */
};

struct rf_transport_put {
	const void *local;
	size_t bytes;
	uint64_t key; /* from the peer's expose() */
	uint64_t offset;
	unsigned lane;
	uint64_t cookie;
};

enum rf_transport_event_kind {
	/* A header has arrived. The engine answers with receive_into(), receive_pieces() or
	 * discard(), now or later; until then this lane (and no other) stands still. */
	RF_EVENT_SEGMENT,
	/* A piece of a segment taken by receive_pieces(): a multiple of 64 bytes except the last of
	 * the segment. Borrowed until release(); until then this lane stands still. */
	RF_EVENT_PIECE,
	/* All of the payload is in place, or its last piece was released. The receive ends.
	 * Segments without payload: DELIVERED follows the answer as well. */
	RF_EVENT_DELIVERED,
	/* The send's or put's buffer is free. */
	RF_EVENT_SENT,
	/* The endpoint is ready to send (its streams are attached); sends that got RF_ERR_AGAIN may
	 * be tried again. Also after a queue that was full has room. */
	RF_EVENT_WRITABLE,
	/* The way to or from the peer is broken. Its sends, receives and endpoint are dead: the
	 * transport touches none of their memory any more, and no event follows for them. The
	 * engine closes the endpoint. */
	RF_EVENT_DOWN,
};

struct rf_transport_event {
	enum rf_transport_event_kind kind;
	struct rf_transport_peer *peer;
	struct rf_endpoint *endpoint; /* SENT, WRITABLE; DOWN: if one is open */
	struct rf_receive *receive;   /* SEGMENT, PIECE, DELIVERED */
	const void *piece;            /* PIECE */
	size_t offset;                /* PIECE: of the piece in the payload */
	size_t bytes;                 /* PIECE */
	uint64_t cookie;              /* SENT */
	int status;                   /* DOWN: RF_ERR_NETWORK, RF_ERR_PROTOCOL, ... */
	char reason[160];             /* DOWN: for a person */
};

/* What the engine lends to a transport. */
struct rf_transport_env {
	struct rf_net *net;
	unsigned lanes;              /* asked for by the configuration; 0: the transport's choice */
	size_t receive_buffer_bytes; /* likewise, for borrowed pieces */
	bool no_payload;             /* sim: payload pointers are not memory */
	void (*log)(void *user, rf_log_level level, const char *line);
	void *log_user;
};

enum { RF_SENT_AT_ONCE = 1 };

struct rf_transport;
struct rf_transport_ops {
	const char *name;

	int (*create)(const struct rf_transport_env *env, struct rf_transport **transport);
	/* Ends everything at once; memory handed in is no longer touched. */
	void (*destroy)(struct rf_transport *transport);
	void (*abandon)(struct rf_transport *transport); /* for fork: closes descriptors only */

	/* The opaque blob that peers get by ATTACH. *bytes: in the room, out the length (0: none).
	 */
	int (*blob)(struct rf_transport *transport, void *blob, size_t *bytes);

	/* Opens the way to a peer. send() answers RF_ERR_AGAIN until it is ready (WRITABLE). */
	int (*open)(struct rf_transport *transport, struct rf_transport_peer *peer,
		    const void *peer_blob, size_t blob_bytes, struct rf_endpoint **endpoint);
	/* Gives the endpoint a stream that was dialled for it (caps.uses_streams). Takes it over.
	 */
	int (*attach)(struct rf_endpoint *endpoint, unsigned lane, struct rf_stream *stream);
	/* A stream that a peer has dialled for its endpoint to us. Takes it over. */
	int (*accept)(struct rf_transport *transport, struct rf_transport_peer *peer, unsigned lane,
		      struct rf_stream *stream);
	/* Closes the way to a peer. Orderly: what was sent still arrives. */
	void (*close)(struct rf_endpoint *endpoint);
	/* Forgets what comes from a peer: receives end as by discard(), streams are closed. */
	void (*forget)(struct rf_transport *transport, struct rf_transport_peer *peer);

	/* RF_OK: posted, SENT follows. RF_SENT_AT_ONCE: posted, the buffer is free already, no
	 * event follows. RF_ERR_AGAIN: nothing has changed, WRITABLE or a SENT of this endpoint
	 * will come. */
	int (*send)(struct rf_endpoint *endpoint, const struct rf_transport_send *send);
	int (*put)(struct rf_endpoint *endpoint, const struct rf_transport_put *put); /* as send */
	/* Takes a pending send back. RF_OK: its payload is not touched any more (the transport has
	 * copied what it must still send), no SENT follows. RF_ERR_AGAIN: SENT will come. */
	int (*withdraw)(struct rf_endpoint *endpoint, uint64_t cookie);

	int (*receive_into)(struct rf_receive *receive, void *memory);
	int (*receive_pieces)(struct rf_receive *receive);
	void (*release)(struct rf_receive *receive); /* the borrowed piece */
	/* Drops the rest of the segment; no event follows and no memory of it is touched. Any time.
	 */
	void (*discard)(struct rf_receive *receive);

	/* Registration, for those that need it (NULL: nothing to do). */
	int (*memory_register)(struct rf_transport *transport, void *memory, size_t bytes,
			       void **handle);
	void (*memory_unregister)(struct rf_transport *transport, void *handle);
	/* Remote access (caps.put, caps.load_store); NULL otherwise. */
	int (*expose)(struct rf_transport *transport, void *memory, size_t bytes, uint64_t *key);
	void (*unexpose)(struct rf_transport *transport, uint64_t key);
	int (*map)(struct rf_endpoint *endpoint, uint64_t key, size_t bytes, void **memory);
	void (*unmap)(struct rf_endpoint *endpoint, void *memory, size_t bytes);
	/* Wakes the peer if it sleeps armed (caps.load_store). */
	int (*doorbell)(struct rf_endpoint *endpoint);

	/* RF_OK and one event, or RF_ERR_AGAIN. */
	int (*poll)(struct rf_transport *transport, struct rf_transport_event *event);
	/* Before a sleep: RF_OK: the net's poll() will wake for all that may come. RF_ERR_AGAIN:
	 * poll again first. */
	int (*arm)(struct rf_transport *transport);
};

struct rf_transport {
	const struct rf_transport_ops *ops;
	struct rf_transport_caps caps;
};

extern const struct rf_transport_ops rf_transport_tcp;
extern const struct rf_transport_ops rf_transport_sim;

#endif
