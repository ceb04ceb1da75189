/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithm seam: what an algorithm sees of the engine, and the engine of an algorithm.
 *
 * An algorithm is a resumable state machine for one call (or one stage of one). It never sees a
 * socket, a transport or a communicator: only a group (its ranks, its own index), a task (buffers,
 * types, counts) and a plan (chunk size, channels). It runs under the context's lock and never
 * blocks. Every step may be repeated: state changes only after its action has succeeded.
 *
 * Life of a machine: create() allocates the state and declares with expect() from whom it will
 * receive; then advance() is called whenever something has changed: it posts what it can post.
 * Segments that arrive are offered to accept(), which says where their bytes belong; the engine
 * moves or folds them there, and tells with arrived(). advance() answers RF_OK when the call's
 * result is complete and no send of its own is pending, RF_ERR_AGAIN when it waits.
 */
#ifndef RF_ALGO_H
#define RF_ALGO_H

#include "ringfold.h"

#include <stdbool.h>

/* What the call asks for. Valid as long as the machine. */
struct rf_task {
	rf_collective collective;
	rf_dtype dtype;
	rf_op op; /* RF_AVG: fold as RF_SUM, divide by the group's size once (divisor) */
	rf_order order;
	uint64_t divisor; /* 0: none; else what rf_finish() and rf_foldp() are to divide by */
	int root;
	size_t count; /* elements of the whole: sum of the blocks */
	const size_t
		*counts; /* reduce_scatter, allgather: elements of each rank's block; NULL: equal */
	const void *send; /* the input; equal to recv (or its part of it) when in place */
	void *recv;       /* NULL where nothing is received (reduce, not root) */
	bool in_place;
};

/* How it is done: the same on all ranks. */
struct rf_algo;
struct rf_plan {
	const struct rf_algo *algo;
	size_t chunk_bytes;       /* wire bytes of a chunk, a multiple of 64 */
	size_t segment_max_bytes; /* what a chunk may grow to; 0: RF_SEGMENT_PAYLOAD_MAX */
	unsigned channels;        /* ordered lanes that chunks are spread over; at least 1 */
	rf_dtype wire_type;       /* of partials on the wire: dtype, or float32 (RF_WIRE_FLOAT32) */
};

/* Where an arriving segment's bytes belong. */
enum rf_landing_kind {
	/* Bytes go to dst. */
	RF_LAND_INTO,
	/* dst[i] = other[i] op incoming[i], each with its type (kernels.h: rf_fold2). */
	RF_LAND_FOLD,
	/* Not yet: ask again after the next advance(). Only for conditions that depend on this
	 * rank's own progress (a send that has not completed): the lane stands still meanwhile. */
	RF_LAND_LATER,
};
struct rf_landing {
	enum rf_landing_kind kind;
	void *dst;
	rf_dtype dst_type;
	const void *other; /* FOLD; may equal dst */
	rf_dtype other_type;
	rf_dtype incoming_type;
	rf_op op;
};

/* A segment, as the algorithm named it when it was sent. */
struct rf_arrival {
	int from; /* index in the group */
	unsigned channel;
	uint32_t chunk; /* the algorithm's own numbering of everything it sends */
	size_t bytes;
};

struct rf_group;
struct rf_group_ops {
	/* From create() only: `from` will send `bytes` in all. prompt: in this call this rank also
	 * sends to `from`, and does not wait for data of `from` before it does, so that a small
	 * call needs no separate credit. The engine sends credit and fingerprint to `from`
	 * otherwise. Each rank once at most. */
	int (*expect)(struct rf_group *group, int from, uint64_t bytes, bool prompt);
	/* RF_OK: posted, the payload must stay as it is until sent(). RF_SENT_AT_ONCE (1): posted
	 * and free already, no sent() follows. RF_ERR_AGAIN: nothing has changed; advance() will be
	 * called when it may succeed. Other errors end the call. bytes may be 0. more: another send
	 * to the same rank and channel follows in this advance(). */
	int (*send)(struct rf_group *group, int to, unsigned channel, uint32_t chunk,
		    const void *payload, size_t bytes, bool more);
	/* A rank is seen to have made another call: its fingerprint, encoded. Fails the call. */
	void (*mismatch)(struct rf_group *group, int rank, const uint8_t fingerprint[24]);
};
struct rf_arena;
struct rf_traffic {
	uint64_t sent, received; /* bytes written for other ranks, and read of theirs */
};
struct rf_group {
	const struct rf_group_ops *ops;
	int rank; /* my index */
	int size;
	struct rf_arena *arena;     /* memory that all of them share, or NULL */
	const uint8_t *fingerprint; /* this rank's of the call, encoded: for the arena */
	struct rf_traffic *traffic; /* likewise: what it moves through memory is added */
	bool no_payload; /* simulated sizes: no buffer may be touched (the helpers below know) */
};

struct rf_algo {
	const char *name;
	unsigned collectives;  /* bit (1 << rf_collective) for each that it can do */
	bool tree_order;       /* folds along RF_ORDER_TREE */
	bool is_pipelined;     /* chunks of a block overlap; else it sends all at once if it can */
	bool in_shared_memory; /* for groups with an arena */
	const char *summary;   /* for info: steps and bytes a rank */

	int (*create)(struct rf_group *group, const struct rf_task *task,
		      const struct rf_plan *plan, void **state);
	/* *awaited: on RF_ERR_AGAIN the index of the rank that is waited for, -1 if it is a send.
	 */
	int (*advance)(void *state, int *awaited);
	/* in_shared_memory: whether advance() could do something now. NULL for all others, which
	 * are told. */
	bool (*poll)(void *state);
	/* Decides about an arriving segment. Nothing in `arrival` is trusted: what does not fit is
	 * RF_ERR_PROTOCOL. Has no effect on RF_LAND_LATER. */
	int (*accept)(void *state, const struct rf_arrival *arrival, struct rf_landing *landing);
	/* An accepted segment is in place, all of it. */
	void (*arrived)(void *state, const struct rf_arrival *arrival);
	/* A send that was answered RF_OK has completed. */
	void (*sent)(void *state, int to, unsigned channel, uint32_t chunk);
	/* Frees the state. The engine has made sure that no send or landing of it is pending. */
	void (*destroy)(void *state);
};

/* X(name): rf_algo_<name> is in <name>.c. Those that send messages come first. */
#define RF_ALGO_LIST(X) \
	X(ring)         \
	X(direct)       \
	X(tree)         \
	X(chain)        \
	X(doubling)     \
	X(arena)

#define X(name) extern const struct rf_algo rf_algo_##name;
RF_ALGO_LIST(X)
#undef X

/* The algorithms of this build, NULL at the end; for info, tests and by name. */
extern const struct rf_algo *const rf_algos[];
const struct rf_algo *rf_algo_find(const char *name);

/* Helpers that honour no_payload. */
int rf_group_alloc(struct rf_group *group, size_t bytes, void **memory); /* 64-byte aligned */
void rf_group_free(struct rf_group *group, void *memory);
void rf_group_copy(struct rf_group *group, void *dst, const void *src, size_t bytes);
void rf_group_fold2(struct rf_group *group, rf_op op, rf_dtype dst_type, void *dst, rf_dtype a_type,
		    const void *a, rf_dtype b_type, const void *b, size_t count);
void rf_group_foldp(struct rf_group *group, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype source_type, const void *const *sources, size_t source_count,
		    size_t count, uint64_t divisor);
void rf_group_finish(struct rf_group *group, rf_dtype dst_type, void *dst, rf_dtype src_type,
		     const void *src, size_t count, uint64_t divisor);

#endif
