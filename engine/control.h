/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to control*.c, server.c, dial.c, hello.c and peer.c: how streams begin,
 * and what stands between two processes once they have. docs/wire-hello.md draws what is said.
 */
#ifndef RF_CONTROL_H
#define RF_CONTROL_H

#include "engine/peer.h"
#include "engine/segment.h"

#define RF_MS 1000000ull /* in nanoseconds */

/* ---- hello: hello.c ------------------------------------------------------------------------- */

enum rf_purpose {
	RF_PURPOSE_CONTROL = 1,
	RF_PURPOSE_DATA = 2,
};

/* X(NAME, number, text): why a hello is turned away. */
#define RF_REFUSAL_LIST(X)                                          \
	X(MALFORMED, 1, "the hello was not understood")             \
	X(VERSION, 2, "another wire version is spoken there")       \
	X(OTHER_PROCESS, 3, "another process listens there")        \
	X(DEAD, 4, "this process counts as dead there")             \
	X(LEAVING, 5, "the process there is ending")                \
	X(UNSUPPORTED, 6, "what was asked for is not served there") \
	X(NO_MEMORY, 7, "the process there is out of memory")

enum rf_refusal {
	RF_REFUSAL_NONE = 0,
#define X(NAME, number, text) RF_REFUSAL_##NAME = number,
	RF_REFUSAL_LIST(X)
#undef X
};

enum {
	RF_HELLO_BYTES = 120,
	RF_CHALLENGE_BYTES = 16,
	RF_PROOF_BYTES = 32,
	RF_HANDSHAKE_PAYLOAD_MAX = 512,
	RF_REFUSAL_TEXT = 256,
};

/* Features: what a process must understand to go on with the handshake. */
enum {
	RF_FEATURE_PROOF = 1, /* the sender demands proof of the job's secret */
};

/* The payload of HELLO and WELCOME. */
struct rf_hello {
	struct rf_process_id from;
	struct rf_process_id to; /* zero: whoever listens there */
	uint8_t purpose;
	uint8_t transport; /* index and lane: DATA only */
	uint16_t lane;
	uint64_t features;
	/* The sender's numbering of control segments to this peer began with this session; greater
	 * ones are later; 0: the sender does not know yet whom it talks with, and says it by a
	 * second hello, the first segment of the stream. What it knows of the receiver's: session
	 * (0: none) and how many came. */
	uint64_t session;
	uint64_t known_session;
	uint64_t received;
	uint8_t challenge[RF_CHALLENGE_BYTES]; /* zero without a secret */
	uint8_t proof[RF_PROOF_BYTES];         /* zero without a secret */
};

/* One end's part of a handshake: at most one segment each way at a time. */
struct rf_handshake {
	uint8_t in[RF_SEGMENT_HEADER_BYTES + RF_HANDSHAKE_PAYLOAD_MAX];
	size_t in_bytes;
	uint8_t out[RF_SEGMENT_HEADER_BYTES + RF_HANDSHAKE_PAYLOAD_MAX];
	size_t out_bytes, out_sent;
	struct rf_segment segment; /* the received one's header */
	unsigned far_version;      /* with RF_ERR_VERSION */
};

/* Prepare what is to be sent. */
void rf_handshake_say(struct rf_handshake *h, enum rf_segment_type type,
		      const struct rf_hello *hello);
void rf_handshake_refuse(struct rf_handshake *h, enum rf_refusal refusal, const char *text);
/* RF_OK: all is sent. RF_ERR_AGAIN, RF_ERR_NETWORK. */
int rf_handshake_send(struct rf_handshake *h, struct rf_stream *stream);
/* RF_OK: a segment has come, and nothing after it was read. RF_ERR_AGAIN; RF_ERR_NETWORK (errno 0:
 * the stream has ended); RF_ERR_VERSION; RF_ERR_PROTOCOL: no handshake of ours. */
int rf_handshake_receive(struct rf_handshake *h, struct rf_stream *stream);
/* Decode what has come: RF_OK or RF_ERR_PROTOCOL. */
int rf_hello_decode(uint8_t *payload, size_t bytes, struct rf_hello *hello);
int rf_handshake_hello(struct rf_handshake *h, struct rf_hello *hello);
int rf_handshake_refusal(struct rf_handshake *h, enum rf_refusal *refusal,
			 char text[RF_REFUSAL_TEXT]);

static inline bool rf_process_id_zero(struct rf_process_id id)
{
	return id.hi == 0 && id.lo == 0;
}

/* ---- server: server.c ----------------------------------------------------------------------- */

enum {
	RF_STRANGERS_MAX = 256,
	RF_STRANGER_MS = 5000,
	RF_CONTROL_DEAD_AFTER_MS = 10000, /* a host that has vanished is found within this */
};

struct rf_server {
	rf_context *context;
	struct rf_watch watch;
	struct rf_list strangers; /* the oldest first */
	size_t stranger_count;
	struct rf_list dials;
	struct rf_list further_listeners; /* server_further.c */
	bool leaving;                     /* rf_control_shutdown() was called */
	uint64_t sessions;                /* handed out by rf_control_make() */
	uint64_t last_garbage_ns;         /* when strangers were last logged, and how many since */
	uint64_t unlogged;
};

void rf_server_accept(struct rf_server *server, struct rf_listener *listener);
/* server_further.c. abandon: for fork, descriptors only. */
void rf_server_close_further(struct rf_server *server, bool abandon);
/* A line about a stranger, at most one a second. */
void rf_server_log_stranger(struct rf_server *server, rf_log_level level, const char *reason,
			    struct rf_stream *stream);

/* ---- dials: dial.c -------------------------------------------------------------------------- */

/* A control stream to a known peer. patience_ns: how long refusals are taken for "not yet". The
 * done function gets the stream and the welcome, or the reason. */
typedef void rf_dial_control_done(void *user, int status, struct rf_stream *stream,
				  const struct rf_hello *welcome, const char *reason);
int rf_dial_control(struct rf_peer *peer, uint64_t deadline, uint64_t patience_ns,
		    rf_dial_control_done *done, void *user, struct rf_dial **dial);
void rf_dial_abandon_all(struct rf_server *server); /* for fork */
void rf_dial_cancel_all(struct rf_server *server);

/* ---- control streams ------------------------------------------------------------------------ */

/* A queued segment: kept until the peer has acknowledged it. */
struct rf_control_message {
	struct rf_list node;
	uint64_t number;
	struct rf_segment segment;
	uint8_t header[RF_SEGMENT_HEADER_BYTES]; /* encoded when its first byte is sent */
	uint8_t payload[];
};

enum rf_control_stream_state {
	RF_CONTROL_OPEN,
	RF_CONTROL_FAREWELL, /* what is queued and BYE are still to be sent */
	RF_CONTROL_SHUT,     /* BYE is sent: waits for the end of file */
};

struct rf_control_stream {
	struct rf_watch watch;
	struct rf_control *control;
	struct rf_list node; /* in control->streams */
	struct rf_stream *stream;
	enum rf_control_stream_state state;
	unsigned interest;
	bool broken;       /* found while sending: taken down by the timer */
	bool awaits_hello; /* not to be sent on yet */
	bool bye_came;
	uint64_t flushed; /* SHUT: all messages up to this went before the BYE */
	/* HELLO, ACK and BYE are outside the numbering and go between two messages. */
	uint8_t aside[RF_SEGMENT_HEADER_BYTES + RF_HELLO_BYTES];
	size_t aside_bytes, aside_sent;
	bool aside_is_bye;
	/* The segment that is arriving. */
	uint8_t header[RF_SEGMENT_HEADER_BYTES];
	size_t header_bytes;
	struct rf_segment segment;
	uint8_t *payload;
	size_t payload_bytes, payload_capacity;
};

struct rf_control {
	struct rf_peer *peer;
	unsigned holds;
	bool dial_now;          /* one of them wants the stream up */
	bool suspected;         /* verify that the peer lives even if nobody needs the stream */
	uint64_t guest_until;   /* has a reference because of an accepted data lane; 0: none */
	bool peer_left;         /* has said so; streams may still be open */
	struct rf_list streams; /* sent on is one of them, all are read */
	struct rf_control_stream *sending;
	struct rf_dial *dial;
	struct rf_timer timer;      /* for rf_control_look() */
	uint64_t redial_until;      /* 0: nothing is lost */
	uint64_t lost_at, stood_at; /* when the last stream last went, and one last came */
	bool heard;                 /* something since then */
	char lost_reason[160];

	/* Numbering: docs/wire-hello.md. */
	uint64_t session;
	uint64_t peer_session;   /* 0: not met */
	struct rf_list messages; /* unacknowledged; sent on the present stream before `next` */
	struct rf_list *next;    /* in messages, or the list itself: nothing is left to send */
	size_t next_sent;        /* bytes of it, header included, on the present stream */
	uint64_t next_number;    /* of the next message that is queued */
	uint64_t sent_number;    /* the highest that was ever begun to be sent */
	uint64_t acked;
	uint64_t received;     /* numbered segments that have come */
	uint64_t told;         /* the received count that the peer was last sent */
	uint64_t untold_bytes; /* payload received since */

	uint64_t last_use; /* when a numbered segment last went or came */
	bool idle_told;    /* said that this side has no need of the stream */
	bool peer_idle;    /* the peer has said so */
};

/* control.c: what stands between two processes, and its life */
int rf_control_make(struct rf_peer *peer); /* peer->control, if there is none */
void rf_control_free(struct rf_peer *peer);
/* What a hello or a welcome says of the numbering. RF_ERR_PROTOCOL: it is of the past, or lies. */
int rf_control_meet(struct rf_peer *peer, const struct rf_hello *hello);
void rf_control_describe(struct rf_peer *peer, struct rf_hello *hello); /* the same, to be sent */
/* Takes over a stream that has passed hello (on error it is closed). */
enum rf_adopt {
	RF_ADOPT_MET,
	RF_ADOPT_SAY_HELLO,   /* the far end has not been told this side's numbering */
	RF_ADOPT_AWAIT_HELLO, /* the reverse: nothing is sent before */
};
int rf_control_adopt(struct rf_peer *peer, struct rf_stream *stream, enum rf_adopt how);
/* Sets the timer for what is due. Does nothing else: may be called from anywhere. */
void rf_control_look(struct rf_control *control);
/* A stream has ended: closes it, and sees to what that means. */
void rf_control_stream_ended(struct rf_control_stream *stream, bool orderly, const char *reason);
/* The peer is dead, or has left. */
void rf_control_end(struct rf_peer *peer, enum rf_peer_state state, const char *reason);
bool rf_control_needed(const struct rf_control *control);  /* somebody here needs the stream */
void rf_control_farewell(struct rf_control *control);      /* closes all streams, orderly */
void rf_control_close_streams(struct rf_control *control); /* the caller has a reference */
void rf_control_call_off(struct rf_control *control);      /* its dial, and the wait for one */
/* An accepted data lane keeps a peer that nobody here has referred to yet. */
void rf_control_guest_begins(struct rf_peer *peer);
void rf_control_guest_ends(struct rf_control *control); /* the caller has a reference */

/* control_end.c */
void rf_control_release_all(rf_context *context, bool only_abandon);

/* control_send.c: the queue and its numbering */
void rf_control_pump(struct rf_control *control); /* sends what can be sent */
void rf_control_say_aside(struct rf_control_stream *stream, enum rf_segment_type type,
			  uint8_t stage);
void rf_control_acknowledged(struct rf_control *control, uint64_t upto);
/* From the first unacknowledged message on, over this stream (NULL: none). */
void rf_control_rewind(struct rf_control *control, struct rf_control_stream *stream);
void rf_control_renumber(struct rf_control *control);
void rf_control_drop_messages(struct rf_control *control);
static inline bool rf_control_has_unsent(const struct rf_control *control)
{
	return control->next != &control->messages;
}

/* control_receive.c */
void rf_control_stream_ready(struct rf_watch *watch, unsigned events);

/* ACK's stage: I do not need this stream. BYE's stage: this process is leaving. */
enum { RF_ACK_IDLE = 1, RF_BYE_LEAVING = 1 };

#endif
