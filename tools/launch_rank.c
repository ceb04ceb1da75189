/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts one rank: its environment, its group, its end with the launcher's. */
#include "engine/identity.h"
#include "tools/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum variable_value { RANK, RANKS, ADDRESS, PORT, NOTHING };

/* What a rank finds in its environment. */
static const struct {
	const char *name;
	enum variable_value value;
} variables[] = {
	{"RINGFOLD_RANK", RANK},
	{"RINGFOLD_WORLD_SIZE", RANKS},
	{"rank", RANK},
	{"world", RANKS},
	{"RANK", RANK},
	{"WORLD_SIZE", RANKS},
	{"LOCAL_RANK", RANK},
	{"LOCAL_WORLD_SIZE", RANKS},
	{"MASTER_ADDR", ADDRESS},
	{"MASTER_PORT", PORT},
	{"RINGFOLD_MASTER_ADDR", NOTHING},
	{"RINGFOLD_MASTER_PORT", NOTHING},
};

/* What an outer launcher has left there would contradict. */
static void forget_outer_launcher(void)
{
	for (size_t i = 0; i < rf_identity_row_count; i++) {
		if (rf_identity_rows[i].node_level)
			continue;
		unsetenv(rf_identity_rows[i].rank);
		if (rf_identity_rows[i].size)
			unsetenv(rf_identity_rows[i].size);
	}
}

static int set_environment(const struct launch_start *start, int rank)
{
	const int numbers[] = {[RANK] = rank, [RANKS] = start->launch->ranks, [PORT] = start->port};
	char text[16];

	forget_outer_launcher();
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *const name = variables[i].name;
		const enum variable_value value = variables[i].value;

		if (value == NOTHING) {
			unsetenv(name);
			continue;
		}
		if (value != ADDRESS)
			snprintf(text, sizeof(text), "%d", numbers[value]);
		if (setenv(name, value == ADDRESS ? "127.0.0.1" : text, 1))
			return -1;
	}
	return 0;
}

/* Dies with the launcher, also if that is dead already. */
static int bind_to(pid_t launcher)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return -1;
	if (getppid() != launcher)
		raise(SIGKILL);
	return 0;
}

/* The descriptors may be among 0 to 2 already, in any order. */
static int set_stdio(const int stdio[3])
{
	int copies[3];

	for (int i = 0; i < 3; i++) {
		copies[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3);
		if (copies[i] < 0)
			return -1;
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(copies[i], i) < 0)
			return -1;
	}
	return 0;
}

static void become_rank(const struct launch_start *start, int rank, pid_t launcher, int report)
{
	int error;

	setpgid(0, 0);
	if (bind_to(launcher) == 0 && set_environment(start, rank) == 0 &&
	    set_stdio(start->stdio) == 0) {
		setrlimit(RLIMIT_NOFILE, start->files);
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, start->signals, NULL);
		execvp(start->command[0], start->command);
	}
	error = errno;
	if (write(report, &error, sizeof(error)) < 0)
		_exit(LAUNCH_CANNOT_RUN);
	_exit(LAUNCH_NOT_FOUND);
}

/* The child's errno, or 0 if its end of the pipe was closed by execve(). */
static int read_report(int fd)
{
	int error = 0;
	ssize_t bytes;

	do {
		bytes = read(fd, &error, sizeof(error));
	} while (bytes < 0 && errno == EINTR);
	return bytes == sizeof(error) ? error : 0;
}

pid_t launch_start_rank(const struct launch_start *start, int rank)
{
	const pid_t launcher = getpid();
	int report[2], error;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC))
		return -1;
	pid = fork();
	if (pid == 0)
		become_rank(start, rank, launcher, report[1]);
	error = errno;
	close(report[1]);
	if (pid > 0) {
		error = read_report(report[0]);
		if (error)
			waitpid(pid, NULL, 0);
	}
	close(report[0]);
	errno = error;
	return pid > 0 && error ? -1 : pid;
}
