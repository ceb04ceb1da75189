/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the launcher know of each other. */
#ifndef RF_LAUNCH_PARTS_H
#define RF_LAUNCH_PARTS_H

#include "tools/launch.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Something in the epoll; the event's pointer leads to it. First member of what it belongs to. */
struct launch_source {
	void (*ready)(struct launch_source *source);
};
int launch_watch(int epoll, int fd, uint32_t events, struct launch_source *source);

/* ---- launch_port.c ---- */

/*
 * Finds a port that is free on all addresses and keeps it bound, without listening, until the
 * returned descriptor is closed: so nobody is given it by the system, and rank 0 can still bind it
 * (with SO_REUSEADDR, as servers do). -1: none, errno says why.
 */
int launch_hold_port(int *port);

/* ---- launch_guard.c ---- */

/* A process that does nothing but outlive this one if it is killed, and then kills the groups of
 * the ranks: those grandchildren included that the parent-death signal does not reach. */
struct launch_guard {
	pid_t pid;
	int pipe;
};
int launch_guard_start(struct launch_guard *guard);
void launch_guard_add(const struct launch_guard *guard, pid_t group);
void launch_guard_stop(const struct launch_guard *guard);

/* ---- launch_rank.c ---- */

/* What a rank starts with. */
struct launch_start {
	const struct launch *launch;
	char **command;
	int port;
	int stdio[3];            /* become its stdin, stdout, stderr */
	const sigset_t *signals; /* the mask and the limit that this process was started with */
	const struct rlimit *files;
};

/* Returns the process id, a group of its own, or -1 with errno; ENOENT and others of execve() if
 * there is no such program. */
pid_t launch_start_rank(const struct launch_start *start, int rank);

/* ---- launch_output.c ---- */

struct launch_output;

/* Where the ranks' lines go: stdout and stderr of this process. */
struct launch_output *launch_output_create(int epoll, int ranks);
/* Makes the two pipes of a rank; the ends to write to are the caller's to close. */
int launch_output_add(struct launch_output *output, int rank, int write_ends[2]);
/* A line of this command itself, to stderr. */
void launch_output_say(struct launch_output *output, const char *line);
/* Takes what is left in the pipes; nobody writes to them any more. */
void launch_output_finish(struct launch_output *output);
/* Nothing is left to write. */
bool launch_output_is_flushed(const struct launch_output *output);
/* The error because of which output was lost, and on what, or 0. */
int launch_output_error(const struct launch_output *output, const char **name);
void launch_output_destroy(struct launch_output *output);

/* ---- launch_input.c ---- */

/*
 * A terminal hands its input to the foreground group only, and the ranks are not in it: this
 * process reads and passes it on. Returns the end for the rank to read from, or -1 with errno.
 */
struct launch_input {
	struct launch_source from_terminal;
	struct launch_source to_rank;
	int epoll;
	int pipe;
	size_t used, sent;
	char bytes[4096];
};
int launch_input_start(struct launch_input *input, int epoll);

#endif
