/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringfold bench: how long the collectives take. What its files know of each other. It uses the
 * library as any program does, through ringfold.h.
 */
#ifndef RF_BENCH_H
#define RF_BENCH_H

#include "ringfold.h"
#include "tools/table.h"
#include "tools/tool.h"

#include <stdbool.h>

enum { BENCH_LIST = 64, BENCH_TEXT = 256 };

struct bench_settings {
	int ranks;            /* to be started here; 0: a launcher has started us */
	unsigned collectives; /* bits, as dtypes and ops */
	unsigned dtypes;
	unsigned ops;
	size_t sizes[BENCH_LIST]; /* bytes; none: from begin to end by factor */
	size_t size_count;
	size_t begin, end, factor;
	size_t over[BENCH_LIST]; /* numbers of ranks to measure over; none: all */
	size_t over_count;
	char transports[BENCH_TEXT]; /* separated by commas */
	bool warm, cold;
	bool in_place;
	bool verify;
	rf_order order;
	rf_wire wire;
	int64_t time_ms; /* of measuring, a row */
	size_t samples;  /* instead of a time; 0: by time */
	size_t warmup;
	size_t batch; /* calls a sample; 0: by their duration */
	enum tool_format format;
};

/* One row of the result. */
struct bench_case {
	rf_collective collective;
	rf_dtype dtype;
	rf_op op;
	size_t bytes; /* as asked for */
	bool cold;
};

/* A communicator that is measured, and whose rank we are. */
struct bench {
	const struct bench_settings *settings;
	rf_comm *comm;
	int rank, ranks;
	size_t rotation_bytes; /* a rank, for cold buffers */
	void *sweep;           /* so many, to sweep the cache with; NULL: only warm ones */
};

struct bench_result {
	size_t samples, batch;
	double median_us, p99_us, least_us; /* of the slowest rank's time for a call */
	int64_t wrong;                      /* elements, of all ranks */
};

/* ---- bench_call.c: the collectives ---- */

/* What a case means for a rank. */
struct bench_shape {
	size_t count; /* what the call is given */
	size_t send_count, recv_count;
	size_t bytes;      /* the size by which it is known: all that is reduced or gathered */
	double bus_factor; /* bus bandwidth = algorithm bandwidth * this */
};
void bench_shape(const struct bench *bench, const struct bench_case *what,
		 struct bench_shape *shape);
int bench_call(const struct bench *bench, const struct bench_case *what,
	       const struct bench_shape *shape, int root, void *send, void *recv);

/* ---- bench_verify.c: inputs and expected results ---- */

/* Writes this rank's input of a round; root is that of the first call on these buffers. */
void bench_fill(const struct bench *bench, const struct bench_case *what,
		const struct bench_shape *shape, int root, uint64_t round, void *send, void *recv);
/* The number of wrong elements in this rank's result; roots of the first and the last call. */
int64_t bench_verify(const struct bench *bench, const struct bench_case *what,
		     const struct bench_shape *shape, int first_root, int last_root, uint64_t round,
		     const void *recv);

/* ---- bench_value.c: elements ---- */

/* A small whole number as an element, and an element as a number. */
void bench_encode(rf_dtype dtype, double value, void *element);
double bench_decode(rf_dtype dtype, const void *element);
/* What a rank brings at a position, and what all make of it. Whole numbers except for AVG. */
double bench_input(const struct bench_case *what, size_t position, int rank, int ranks,
		   uint64_t round);
double bench_expected(const struct bench_case *what, size_t position, int ranks, uint64_t round);
/* How far from the expected a right result may be, in parts of it; 0: not at all. */
double bench_tolerance(const struct bench_case *what, int ranks);

/* ---- bench_measure.c ---- */

/* RF_ERR_UNSUPPORTED or _INVALID: there is no such call, on any rank. */
int bench_measure(const struct bench *bench, const struct bench_case *what,
		  const struct bench_shape *shape, struct bench_result *result);
size_t bench_last_level_cache(void);

/* ---- bench_options.c ---- */

extern const struct tool_option bench_options[];
void bench_defaults(struct bench_settings *settings);
/* From what was given to the list that is measured. */
void bench_fill_sizes(struct bench_settings *settings);

#endif
