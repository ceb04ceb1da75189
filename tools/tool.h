/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ringfold command: a table of verbs (main.c), each in a file of its own, and the table of
 * options that each verb has. The tables make the parser, --help and the answer to a typing error.
 */
#ifndef RF_TOOL_H
#define RF_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of the command itself; run adds those of the ranks. */
enum {
	TOOL_OK = 0,
	TOOL_FAILED = 1,
	TOOL_USAGE = 2,
};

struct tool_option {
	char letter; /* 0: none */
	const char *name;
	const char *argument; /* what --help calls it; NULL: takes none */
	const char *text;
	/* Puts it into the verb's settings. False: the argument is none that the text allows. */
	bool (*set)(void *settings, const char *argument);
};

struct tool_verb {
	const char *name;
	const char *summary;  /* a line of `ringfold --help` */
	const char *synopsis; /* what follows the verb */
	const char *description;
	const struct tool_option *options; /* the last has no name */
	const char *more;                  /* exit statuses, examples */
	int (*run)(const struct tool_verb *verb, int argc, char **argv); /* argv[0]: the verb */
};

extern const struct tool_verb *const tool_verbs[]; /* NULL at the end */
extern const struct tool_verb tool_run;
extern const struct tool_verb tool_info;
extern const struct tool_verb tool_bench;

/*
 * Reads the options of argv[1..] into settings. RF_OK-like: the index of the first operand (after
 * "--", if that is there), or -1: it is over (--help, or a typing error, both answered), and the
 * verb returns *status.
 */
int tool_parse(const struct tool_verb *verb, void *settings, int argc, char **argv, int *status);

/* "ringfold run: ...\n" on stderr; returns TOOL_USAGE. */
int tool_wrong(const struct tool_verb *verb, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Arguments. False if the text is anything but a number within the limits. */
bool tool_number(const char *text, long long least, long long most, long long *number);
bool tool_seconds(const char *text, int64_t *milliseconds); /* "5", "0.5" */

#endif
