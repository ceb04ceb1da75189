/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments: what crosses the wire. A fixed little-endian header of RF_SEGMENT_HEADER_BYTES, then
 * the payload. The layout is drawn in docs/wire.md; segment.c is the only place that encodes and
 * decodes (and is fuzzed). A leaf: transports may include it.
 */
#ifndef RF_SEGMENT_H
#define RF_SEGMENT_H

#include "ringfold.h"

#include <stdbool.h>

enum {
	RF_WIRE_VERSION = 1,
	RF_SEGMENT_HEADER_BYTES = 64,
	RF_SEGMENT_PAYLOAD_MAX =
		64 << 20, /* of a data segment; control payloads have limits of their own */
};

/* X(NAME, name, lane, largest payload): the one list of segment types. */
#define RF_SEGMENT_LIST(X)                                                                         \
	X(HELLO, hello, CONTROL, 256)     /* first on a stream: version, process, purpose */       \
	X(WELCOME, welcome, CONTROL, 256) /* the answer to hello, with a challenge */              \
	X(PROOF, proof, CONTROL, 256)     /* the answer to the challenge */                        \
	X(REFUSE, refuse, CONTROL, 512)   /* why a hello is turned away */                         \
	X(JOIN, join, CONTROL, 4096)      /* a rank comes to the leader */                         \
	X(TABLE, table, CONTROL, 1 << 30) /* the leader's table of ranks */                        \
	X(READY, ready, CONTROL, 64)      /* my lifelines stand */                                 \
	X(GO, go, CONTROL, 64)            /* all lifelines stand */                                \
	X(JOIN_FAILED, join_failed, CONTROL, 4096)                                                 \
	X(ATTACH, attach, CONTROL, 4096) /* a transport's opaque blob for this peer */             \
	X(DATA, data, DATA, RF_SEGMENT_PAYLOAD_MAX)                                                \
	X(LANDING, landing, DATA, 256)       /* key and offset for writes to the final address */  \
	X(CREDIT, credit, CONTROL, 64)       /* I have started this call */                        \
	X(WANT, want, CONTROL, 64)           /* tell me when you start this call */                \
	X(DEATH, death, CONTROL, 1024)       /* flooded: a rank is dead */                         \
	X(MISMATCH, mismatch, CONTROL, 1024) /* flooded: two views of one call */                  \
	X(ABORT, abort, CONTROL, 1024)       /* flooded */                                         \
	X(REVOKE, revoke, CONTROL, 1 << 20) /* flooded: a deadline passed; these ranks are late */ \
	X(GOODBYE, goodbye, CONTROL, 64)    /* flooded: a rank leaves after its last call */       \
	X(QUERY, query, CONTROL, 64)        /* flooded: where are you in this call? */             \
	X(ANSWER, answer, CONTROL, 1 << 20) /* gossiped: who has answered, who is behind */        \
	X(BYE, bye, CONTROL, 64)            /* this process closes the stream, orderly */          \
	X(ACK, ack, CONTROL, 64)            /* how many control segments have come; a probe too */

enum rf_segment_type {
	RF_SEGMENT_NONE = 0,
#define X(NAME, name, lane, most) RF_SEGMENT_##NAME,
	RF_SEGMENT_LIST(X)
#undef X
		RF_SEGMENT_TYPE_COUNT
};

const char *rf_segment_name(enum rf_segment_type type);

/* What a call is: compared field by field by every partner. 24 bytes on the wire. */
struct rf_fingerprint {
	uint8_t collective;
	uint8_t dtype;
	uint8_t op;
	uint8_t order_wire; /* order | wire << 4 */
	uint32_t root;
	uint64_t count;  /* elements of the whole call */
	uint64_t digest; /* of the agreed configuration and, with uneven counts, of the counts */
};
bool rf_fingerprint_equal(const struct rf_fingerprint *a, const struct rf_fingerprint *b);
/* "allreduce of 12 float32, sum"; returns text. */
enum { RF_FINGERPRINT_TEXT = 160 };
const char *rf_fingerprint_format(const struct rf_fingerprint *f, char text[RF_FINGERPRINT_TEXT]);
void rf_fingerprint_encode(const struct rf_fingerprint *f, uint8_t bytes[24]);
void rf_fingerprint_decode(const uint8_t bytes[24], struct rf_fingerprint *f);

enum {
	RF_SEGMENT_EAGER = 1, /* sent without credit: counts against the eager budget */
};

/*
 *  0 version u8 | 1 type u8 | 2 header bytes u16 | 4 epoch u32
 *  8 communicator u64          | 16 sequence number u64
 * 24 stage u8 | 25 flags u8 | 26 channel u16 | 28 chunk u32
 * 32 payload bytes u32 | 36 eager bytes freed u32 (cumulative, wraps)
 * 40 fingerprint, 24 bytes
 */
struct rf_segment {
	uint8_t version;
	uint8_t type;
	uint8_t stage;
	uint8_t flags;
	uint16_t channel;
	uint32_t epoch;
	uint64_t comm;
	uint64_t seq;
	uint32_t chunk;
	uint32_t bytes;
	uint32_t eager_freed;
	struct rf_fingerprint fingerprint;
};

void rf_segment_encode(const struct rf_segment *segment, uint8_t header[RF_SEGMENT_HEADER_BYTES]);
/* RF_OK, RF_ERR_VERSION (only version is then written), or RF_ERR_PROTOCOL: unknown type, wrong
 * header length, too large a payload for its type. */
int rf_segment_decode(const uint8_t header[RF_SEGMENT_HEADER_BYTES], struct rf_segment *segment);

/* Bounded encoding of control payloads: every put and get checks the room, and after the first
 * failure all later ones fail too, so that one check at the end is enough. */
struct rf_cursor {
	uint8_t *at;
	uint8_t *end;
	bool failed;
};
void rf_put_u8(struct rf_cursor *c, uint8_t v);
void rf_put_u16(struct rf_cursor *c, uint16_t v);
void rf_put_u32(struct rf_cursor *c, uint32_t v);
void rf_put_u64(struct rf_cursor *c, uint64_t v);
void rf_put_bytes(struct rf_cursor *c, const void *bytes, size_t count);
void rf_put_string(struct rf_cursor *c, const char *text); /* u16 length, then the bytes */
uint8_t rf_get_u8(struct rf_cursor *c);
uint16_t rf_get_u16(struct rf_cursor *c);
uint32_t rf_get_u32(struct rf_cursor *c);
uint64_t rf_get_u64(struct rf_cursor *c);
void rf_get_bytes(struct rf_cursor *c, void *bytes, size_t count);
/* Terminated and cut to capacity - 1. */
void rf_get_string(struct rf_cursor *c, char *text, size_t capacity);

#endif
