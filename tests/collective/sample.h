/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective call of any kind with inputs whose result is known exactly: drawn by dice, started
 * in its blocking or its i form, and judged bit by bit, what lies around the buffers included.
 */
#ifndef TESTS_COLLECTIVE_SAMPLE_H
#define TESTS_COLLECTIVE_SAMPLE_H

#include "tests/collective/rank.h"

struct sample {
	/* The same on all ranks. */
	rf_collective collective;
	rf_dtype dtype;
	rf_op op;
	rf_order order;
	rf_wire wire;
	int root;
	size_t count;   /* elements of the whole */
	size_t *counts; /* by rank, or NULL: even */
	uint64_t number;
	/* This rank's affair. */
	bool in_place;
	bool blocking;                   /* only with neither order nor wire */
	unsigned send_shift, recv_shift; /* bytes off alignment */
	/* While it runs. */
	rf_comm *comm;
	uint8_t *send_memory, *recv_memory; /* guard, shift, buffer, guard */
	uint8_t *send, *recv;
	size_t send_bytes, recv_bytes;
	rf_request *request;
	int status; /* of a blocking call */
};

/* Draws the rest of a call whose collective, dtype and op are set. Of sizes up to `most` elements.
 * avg of bool becomes sum. */
void sample_draw(struct sample *sample, rf_comm *comm, size_t most);
/* All of it. */
void sample_draw_any(struct sample *sample, rf_comm *comm, size_t most);
/* Starts it; a blocking one has ended then. options may be NULL; order and wire are set in it. */
void sample_start(struct sample *sample, rf_call_options *options);
/* After its end, which was this status: judges the result and frees all. */
void sample_judge(struct sample *sample, int status);

#endif
