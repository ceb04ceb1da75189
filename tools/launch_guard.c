/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guard: reads the ranks' process groups from a pipe whose other end only the launcher holds.
 * When that ends without the launcher having stopped the guard, the launcher is dead.
 */
#include "tools/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPE_AT = 3 };

/* Lets go of everything of the launcher's, its output and its terminal included. */
static void detach(int read_end)
{
	sigset_t all;
	const int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_NAME, "ringfold-guard");
	setsid();
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int fd = 0; fd < PIPE_AT; fd++)
		dup2(null, fd);
	dup2(read_end, PIPE_AT);
	close_range(PIPE_AT + 1, ~0u, 0);
}

static void guard_main(int read_end)
{
	pid_t *groups = NULL, *more, group;
	size_t count = 0;
	ssize_t bytes;

	detach(read_end);
	for (;;) {
		bytes = read(PIPE_AT, &group, sizeof(group));
		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes != sizeof(group))
			break;
		more = realloc(groups, (count + 1) * sizeof(*groups));
		if (!more)
			break;
		groups = more;
		groups[count++] = group;
	}
	for (size_t i = 0; i < count; i++)
		kill(-groups[i], SIGKILL);
	_exit(0);
}

int launch_guard_start(struct launch_guard *guard)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	guard->pid = fork();
	if (guard->pid == 0) {
		/* The write end must be closed, also if it stands where the read end goes. */
		close(ends[1]);
		guard_main(ends[0]);
	}
	close(ends[0]);
	if (guard->pid < 0) {
		close(ends[1]);
		return -1;
	}
	guard->pipe = ends[1];
	return 0;
}

void launch_guard_add(const struct launch_guard *guard, pid_t group)
{
	ssize_t bytes;

	do {
		bytes = write(guard->pipe, &group, sizeof(group));
	} while (bytes < 0 && errno == EINTR);
}

void launch_guard_stop(const struct launch_guard *guard)
{
	kill(guard->pid, SIGKILL);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(guard->pipe);
}
