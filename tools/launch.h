/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts the ranks of a job on this machine and stays with them until the last has ended. One
 * thread, one epoll, however many ranks.
 */
#ifndef RF_LAUNCH_H
#define RF_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

struct launch {
	const char *verb; /* in front of its own lines: "ringfold run" */
	int ranks;
	int port;         /* MASTER_PORT; 0: a free one, held for the ranks while they run */
	bool prefix;      /* false: the ranks inherit stdout and stderr */
	int stdin_rank;   /* gets this process's stdin, the others /dev/null; -1: none does */
	int64_t grace_ms; /* from SIGTERM to SIGKILL */
};

/* Statuses as a shell has them: the ranks' own, 128 + signal, and these. */
enum { LAUNCH_OUTPUT_LOST = 1, LAUNCH_CANNOT_RUN = 126, LAUNCH_NOT_FOUND = 127 };

/* Runs command (argv, NULL at the end) on every rank; returns the exit status of the whole. */
int launch_ranks(const struct launch *launch, char **command);

#endif
