/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold run: the options of the launcher. */
#include "tools/launch.h"
#include "tools/tool.h"

#include <string.h>

static bool set_ranks(void *settings, const char *argument)
{
	struct launch *const launch = settings;
	long long number;

	if (!tool_number(argument, 1, 65536, &number))
		return false;
	launch->ranks = (int)number;
	return true;
}

static bool set_port(void *settings, const char *argument)
{
	struct launch *const launch = settings;
	long long number;

	if (!tool_number(argument, 1, 65535, &number))
		return false;
	launch->port = (int)number;
	return true;
}

static bool set_no_prefix(void *settings, const char *argument)
{
	struct launch *const launch = settings;

	(void)argument;
	launch->prefix = false;
	return true;
}

static bool set_stdin(void *settings, const char *argument)
{
	struct launch *const launch = settings;
	long long number;

	if (!tool_number(argument, 0, 65535, &number))
		return false;
	launch->stdin_rank = (int)number;
	return true;
}

static bool set_grace(void *settings, const char *argument)
{
	struct launch *const launch = settings;

	return tool_seconds(argument, &launch->grace_ms);
}

static const struct tool_option options[] = {
	{'n', "ranks", "N", "how many ranks, 1 to 65536 (default 1)", set_ranks},
	{'p', "port", "PORT",
	 "MASTER_PORT for the ranks, 1 to 65535 (default: one\n"
	 "that is free)",
	 set_port},
	{0, "no-prefix", NULL,
	 "lets the ranks write to this command's stdout and\n"
	 "stderr directly, instead of line by line behind\n"
	 "\"[rank] \"",
	 set_no_prefix},
	{0, "stdin", "RANK",
	 "the rank that reads this command's stdin, from 0\n"
	 "(default: none; the others read /dev/null)",
	 set_stdin},
	{0, "grace", "SECONDS",
	 "how long the others may take to end after a rank has\n"
	 "failed, before they are killed, 0.5 or 10 for instance\n"
	 "(default 5)",
	 set_grace},
	{0},
};

static int run(const struct tool_verb *verb, int argc, char **argv)
{
	struct launch launch = {.verb = "ringfold run",
				.ranks = 1,
				.prefix = true,
				.stdin_rank = -1,
				.grace_ms = 5000};
	int status;
	const int program = tool_parse(verb, &launch, argc, argv, &status);

	if (program < 0)
		return status;
	if (program >= argc)
		return tool_wrong(verb, "which program? Try: ringfold run -n 4 ./program");
	if (launch.stdin_rank >= launch.ranks)
		return tool_wrong(verb, "--stdin %d: the ranks are 0 to %d", launch.stdin_rank,
				  launch.ranks - 1);
	return launch_ranks(&launch, argv + program);
}

const struct tool_verb tool_run = {
	.name = "run",
	.summary = "starts the ranks of a program on this machine",
	.synopsis = "-n N [options] [--] PROGRAM [ARGUMENTS]",
	.description =
		"Starts PROGRAM N times on this machine, as ranks 0 to N-1 of one job, and stays\n"
		"until the last has ended. Each rank finds in its environment:\n"
		"\n"
		"  RINGFOLD_RANK, RANK, LOCAL_RANK, rank                    0 to N-1\n"
		"  RINGFOLD_WORLD_SIZE, WORLD_SIZE, LOCAL_WORLD_SIZE, world N\n"
		"  MASTER_ADDR, MASTER_PORT                                 127.0.0.1, and the "
		"port\n"
		"\n"
		"SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to every "
		"rank\n"
		"and to the processes that it has started; a second SIGINT kills them all. When a\n"
		"rank fails, the others get SIGTERM and, after the grace time, SIGKILL. What "
		"ranks\n"
		"leave running in the background ends with the last of them. If this command "
		"itself\n"
		"is killed, all of them are killed too.\n",
	.options = options,
	.more = "Exit status:\n"
		"  0        every rank exited with 0\n"
		"  1        likewise, but their output could not be written (141 if nobody reads "
		"it\n"
		"           any more); or a rank's own status\n"
		"  2        a typing error in the options (or a rank's own status)\n"
		"  126      the ranks could not be started\n"
		"  127      there is no such program\n"
		"  other    that of the rank that failed first: what it exited with, or 128 + the\n"
		"           signal that ended it. A line on stderr names it.\n"
		"\n"
		"Examples:\n"
		"  ringfold run -n 4 ./four_rank_sum\n"
		"  ringfold run -n 2 --grace 1 -- python3 train.py --epochs 3\n",
	.run = run,
};
