/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Process identity: which rank of how many this process is, and where rank 0 is, from explicit
 * options or from what the launcher has put into the environment. Pure functions of a getenv(); a
 * leaf of the engine.
 *
 * A new launcher is a row in the lists of identity.c.
 */
#ifndef RF_IDENTITY_H
#define RF_IDENTITY_H

#include "ringfold.h"

#include <stdbool.h>

enum {
	RF_IDENTITY_TEXT = 512,
	RF_IDENTITY_NAME = 256, /* of rank 0's host */
	RF_IDENTITY_MASTER_PORT = 7880,
};

typedef const char *rf_identity_getenv(void *user, const char *variable);

struct rf_identity {
	int rank, world_size;
	char source[96];                    /* "RANK, WORLD_SIZE", or "options" */
	char master_addr[RF_IDENTITY_NAME]; /* "" for a world of one and where none was asked for */
	uint16_t master_port;
	char master_source[96];         /* "MASTER_ADDR", "SLURM_STEP_NODELIST", or "options" */
	char warning[RF_IDENTITY_TEXT]; /* sources that contradict each other; or "" */
};

/* What the caller has set: -1, NULL or 0 for what the environment is to say. */
struct rf_identity_options {
	int rank, world_size;
	const char *master_addr;
	int master_port;
	bool needs_master; /* false: a store carries the rendezvous */
};

/* getenv_fn NULL: the process's environment. RF_ERR_CONFIG: message says which variable is wrong or
 * missing, its value, and what to set. */
int rf_identity_find(const struct rf_identity_options *options, rf_identity_getenv *getenv_fn,
		     void *user, struct rf_identity *identity, char message[RF_IDENTITY_TEXT]);

/* The first host of a list such as "node[03-05,9],login1": "node03". RF_ERR_CONFIG if it is none.
 */
int rf_identity_first_host(const char *list, char *host, size_t capacity);

/* The variables that are looked at, in the order of their precedence, for info and the manual. */
struct rf_identity_row {
	const char *rank, *size; /* size may be NULL: then a general one */
	bool node_level;
};
extern const struct rf_identity_row rf_identity_rows[];
extern const size_t rf_identity_row_count;

#endif
