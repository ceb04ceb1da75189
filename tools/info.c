/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold info: which part is asked for, and in which form. */
#include "tools/info.h"
#include "tools/tool.h"

#include <stdlib.h>

struct settings {
	int (*part)(enum tool_format format);
	enum tool_format format;
	int ranks; /* of info_scale(); 0: not asked for */
};

static bool set_config(void *settings, const char *argument)
{
	(void)argument;
	((struct settings *)settings)->part = info_config;
	return true;
}

static bool set_algorithms(void *settings, const char *argument)
{
	(void)argument;
	((struct settings *)settings)->part = info_algorithms;
	return true;
}

static bool set_scale(void *settings, const char *argument)
{
	char *end;
	const long ranks = strtol(argument, &end, 10);

	if (*end || end == argument || ranks < 1 || ranks > 1 << 24)
		return false;
	((struct settings *)settings)->ranks = (int)ranks;
	return true;
}

static bool set_json(void *settings, const char *argument)
{
	(void)argument;
	((struct settings *)settings)->format = TOOL_JSON;
	return true;
}

static const struct tool_option options[] = {
	{'c', "config", NULL,
	 "every RINGFOLD_* variable: its value here, its\n"
	 "default, where the value comes from, what it is",
	 set_config},
	{'a', "algorithms", NULL,
	 "the algorithms, and the table by which one is\n"
	 "selected, with the thresholds in force",
	 set_algorithms},
	{'s', "scale", "RANKS",
	 "connections and memory of one rank in a\n"
	 "communicator of so many",
	 set_scale},
	{'j', "json", NULL, "the same as JSON", set_json},
	{0},
};

static int run(const struct tool_verb *verb, int argc, char **argv)
{
	struct settings settings = {.part = info_overview, .format = TOOL_TEXT};
	int status;
	const int operand = tool_parse(verb, &settings, argc, argv, &status);

	if (operand < 0)
		return status;
	if (operand < argc)
		return tool_wrong(verb, "\"%s\" is not an option", argv[operand]);
	if (settings.ranks)
		return info_scale(settings.format, settings.ranks);
	return settings.part(settings.format);
}

const struct tool_verb tool_info = {
	.name = "info",
	.summary = "says what this build has, and what the environment makes of it",
	.synopsis = "[--config | --algorithms | --scale RANKS] [--json]",
	.description = "Without options: the version and build, the transports, the instruction "
		       "sets that\n"
		       "the kernels have been built for and the one in use, and which rank of "
		       "which job a\n"
		       "program would be if it were started here and now.\n",
	.options = options,
	.more = "Exit status: 0; 1 if a variable of the environment has a wrong value (it is "
		"named\n"
		"on stderr); 2 after a typing error.\n",
	.run = run,
};
