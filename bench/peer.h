/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs that are compared have in common: each is one rank of one library, kept alive
 * and asleep while others are timed, and told by a line when it is its turn. So libraries are
 * interleaved round by round, and none pays for starting.
 *
 *   stdin    run BYTES CALLS [WORD...]  a round: CALLS blocking allreduces of BYTES, summed
 *   stdout   ready NAME PID             when connected
 *            SECONDS CPU WRONG CORE     the round's time, the process's CPU time, wrong elements,
 *                                       the core on which it ended
 *
 * WORDs: float32 (the default), bfloat16, float16; out (of place; without: in place); alloc (the
 * library's own memory); same (one set of buffers in every round; without: two in turn).
 *
 * A program that is given -n starts its own ranks and prints a table or JSON (peer_drive.c).
 */
#ifndef RF_BENCH_PEER_H
#define RF_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From the environment: RANK, WORLD_SIZE, and a folder in which ranks leave notes for each other.
 */
struct peer_place {
	int rank;
	int ranks;
	const char *folder; /* PEER_FOLDER */
};

enum peer_dtype { PEER_FLOAT32, PEER_BFLOAT16, PEER_FLOAT16 };

struct peer_call {
	const void *send;
	void *recv; /* the same as send: in place */
	size_t count;
	enum peer_dtype dtype;
};

/* What each program brings. Errors end the process with a message; what may be NULL says so. */
struct peer {
	const char *name;
	const char *help;                                 /* its settings, for --help */
	bool (*set)(const char *name, const char *value); /* NULL: has none; false: not this one */
	void (*open)(const struct peer_place *place);     /* connects */
	void (*allreduce)(const struct peer_call *call);
	void (*close)(void);
	/* Whose input a result is, for one that does not fold. NULL: results are sums of all. */
	int (*winner)(size_t index, size_t count);
	/* Memory that the library gives out (NULL: it has none). */
	void *(*memory)(size_t bytes);
	void (*memory_free)(void *memory);
	bool only_plain; /* float32 in place, and nothing else */
};
extern const struct peer peer;

/* ---- peer.c ---- */

void peer_die(const char *what) __attribute__((noreturn)); /* with errno's text */

/* ---- peer_drive.c ---- */

struct peer_plan {
	int ranks;
	const char *sizes; /* "8,4K,16M" */
	int rounds;
	int calls;         /* 0: by size */
	const char *words; /* of each round, as above */
	bool json;
	char *const *settings; /* passed on, NULL at the end */
};
int peer_drive(const struct peer_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
