/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance suite: what every transport must do, whatever carries its bytes.
 *
 * A world is a few ends in one process, each with a net and a transport, all connected with all. A
 * model beside it knows every segment that was posted and plays the engine: it answers segments as
 * the case says, checks order, content, offsets and sizes, and gives payloads and buffers back to
 * the allocator as soon as the transport must not touch them any more, so that a sanitizer sees a
 * late touch. A transport is added as a row in harness.c.
 */
#ifndef RF_CONFORMANCE_WORLD_H
#define RF_CONFORMANCE_WORLD_H

#include "transports/transport.h"

#include <stdio.h>

enum { MAX_ENDS = 3, MAX_LANES = 4 };

#define PUT_COOKIE UINT64_MAX

/* What an end knows another by. */
struct rf_transport_peer {
	unsigned self, other;
};

/* How an arriving segment is answered. */
enum answer {
	ANSWER_INTO,
	ANSWER_PIECES,
	ANSWER_DISCARD,
	ANSWER_LATER, /* not now: the case does it with world_answer() */
};

enum message_state { MESSAGE_QUEUED, MESSAGE_POSTED, MESSAGE_SENT, MESSAGE_WITHDRAWN };

/* A segment on its way, from the sender's side. */
struct message {
	struct message *next; /* in its lane, oldest first */
	unsigned from, to, lane;
	uint64_t index; /* in its lane */
	size_t bytes;
	bool more;
	uint8_t *payload; /* freed when the transport has done with it */
	enum message_state state;
	bool arrived, delivered, discarded;
};

/* The same from the receiver's. */
struct arrival {
	struct arrival *next;
	struct rf_receive *receive; /* NULL: ended */
	struct message *message;
	enum answer answer;
	bool answered;
	uint8_t *memory;
	size_t got;        /* pieces: contiguous so far */
	const void *piece; /* borrowed now */
	size_t piece_bytes;
};

struct route {
	struct message *first, *last, *unposted;
	uint64_t count;
	uint64_t next_arrival;
	bool refused; /* the next post waits for WRITABLE or SENT */
};

struct end {
	struct rf_net *net;
	struct rf_transport *transport;
	struct rf_listener *listener;
	struct rf_addr addr;
	struct rf_transport_peer peers[MAX_ENDS];
	struct rf_endpoint *to[MAX_ENDS];
	struct route routes[MAX_ENDS][MAX_LANES]; /* to */
	struct arrival *arrivals;
	bool down[MAX_ENDS], gone[MAX_ENDS]; /* gone: closed or forgotten by this end itself */
	struct rf_transport_event down_event[MAX_ENDS];
	bool put_done; /* SENT of PUT_COOKIE has come */
};

struct world {
	const struct harness *harness;
	void *harness_state;
	unsigned end_count, lanes;
	struct end ends[MAX_ENDS];
	enum answer (*choose)(struct world *world, const struct arrival *arrival);
	bool borrows;     /* the transport lends pieces */
	bool hold_pieces; /* pieces are released by the case, with world_release() */
	bool hold_posts;  /* queued messages are posted by the case, with world_post() */
	uint64_t random;
};

/* A row: how ends of one transport come to be connected in one process. */
struct harness {
	const char *name;
	const struct rf_transport_ops *ops;
	/* Makes ends[0 .. end_count-1]: nets, transports, endpoints, connected. */
	void (*make)(struct world *world, size_t receive_buffer_bytes);
	/* Lets time pass when nothing happened. True: something is still to come by itself. */
	bool (*idle)(struct world *world);
	/* After the transports are gone. */
	void (*unmake)(struct world *world);
	/* A stream that arrives at an end as another's lane (NULL: no streams). */
	struct rf_stream *(*dial)(struct world *world, unsigned from, unsigned to, unsigned lane);
	size_t most_bytes; /* a larger payload would take too long */
};
extern const struct harness tcp_over_sim, sim_calm, sim_hostile;
extern const struct harness *const harnesses[];

/* harness.c */
void make_transports(struct world *world, size_t receive_buffer_bytes);
void unmake_nets(struct world *world);
void connect_by_streams(struct world *world);
struct rf_stream *dial_stream(struct world *world, unsigned from, unsigned to, unsigned lane);

/* Making and ending. */
struct world *world_make(const struct harness *harness, unsigned ends, unsigned lanes,
			 size_t receive_buffer_bytes);
void world_destroy(struct world *world);
/* Takes the world down, end after end, whatever is on its way. */
void world_kill(struct world *world, unsigned end);

/* Sending. Payloads are made from who, whom, lane and index; they are cut to what the transport and
 * the harness take. */
struct message *world_send(struct world *world, unsigned from, unsigned to, unsigned lane,
			   size_t bytes, bool more);
/* Posts what is queued, as far as the transport takes it. */
void world_post(struct world *world);
int world_withdraw(struct world *world, struct message *message);

/* Receiving, for cases that answer themselves. A transport that lends no pieces is asked for none:
 * ANSWER_PIECES is ANSWER_INTO then. */
bool world_borrows(const struct world *world);
struct arrival *world_find(struct world *world, unsigned end, const struct message *message);
void world_answer(struct world *world, struct arrival *arrival, enum answer answer);
void world_release(struct world *world, struct arrival *arrival);
/* Holds no piece any longer. */
void world_release_all(struct world *world);
void world_discard(struct world *world, struct arrival *arrival);

/* One round over all ends; true if anything happened. */
bool world_step(struct world *world);
void world_until(struct world *world, bool (*holds)(struct world *world), const char *what);
bool all_delivered(struct world *world);
bool all_sent(struct world *world);
/* Runs until nothing happens any more, and requires that every end may then sleep. */
void world_settle(struct world *world);
bool world_down(struct world *world, unsigned at, unsigned other);

enum answer always_into(struct world *world, const struct arrival *arrival);
enum answer always_pieces(struct world *world, const struct arrival *arrival);
enum answer always_later(struct world *world, const struct arrival *arrival);
enum answer any_answer(struct world *world, const struct arrival *arrival); /* not LATER */

uint64_t next_random(uint64_t *state);
uint64_t below(struct world *world, uint64_t bound);

void fail_at(const char *file, int line, const char *what);
#define REQUIRE(x)                                       \
	do {                                             \
		if (!(x))                                \
			fail_at(__FILE__, __LINE__, #x); \
	} while (0)

/* The cases: a name is the promise it keeps. */
struct conformance_case {
	const char *name;
	void (*run)(const struct harness *harness);
	bool streams_only;
};
extern const struct conformance_case data_cases[];
extern const struct conformance_case stall_cases[];
extern const struct conformance_case end_cases[];
extern const struct conformance_case memory_cases[];
extern uint64_t suite_seed;
extern uint64_t worlds_made; /* in this case */

#endif
