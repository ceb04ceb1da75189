/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs that are compared have in common: each is one rank of one library, kept alive
 * and asleep while others are timed, and told by a line when it is its turn. So libraries are
 * interleaved round by round, and none pays for starting.
 *
 *   stdin    run BYTES CALLS        a round: CALLS blocking allreduces of BYTES of fp32, summed
 *   stdout   ready NAME             when connected
 *            SECONDS CPU WRONG      the round's time, the process's CPU time, wrong elements
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

/* ---- what each program brings; errors end the process with a message ---- */

extern const char *const peer_name;
extern const char *const peer_help;                 /* its settings, for --help */
bool peer_set(const char *name, const char *value); /* a setting; false: there is none such */
void peer_open(const struct peer_place *place);     /* connects */
void peer_allreduce(float *values, size_t count);   /* in place */
void peer_close(void);
/* Whose input a result is, for one that does not fold; -1: the sum of all. */
int peer_winner(size_t index, size_t count);

/* ---- peer.c ---- */

void peer_die(const char *what) __attribute__((noreturn)); /* with errno's text */
/* What rank `rank` puts in at an index. */
float peer_input(int rank, size_t index, unsigned salt);

/* ---- peer_drive.c ---- */

struct peer_plan {
	int ranks;
	const char *sizes; /* "8,4K,16M" */
	int rounds;
	int calls; /* 0: by size */
	bool json;
	char *const *settings; /* passed on, NULL at the end */
};
int peer_drive(const struct peer_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
