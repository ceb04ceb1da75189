/* SPDX-License-Identifier: BSD-3-Clause */
/* Options from a verb's table: the parser, --help, and what is answered to a typing error. */
#include "tools/tool.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tool_option help_option = {'h', "help", NULL, "shows this", NULL};

/* ---- help ---- */

static int option_label(const struct tool_option *option, char *text, size_t capacity)
{
	const char letter[] = {'-', option->letter, ',', ' ', '\0'};

	return snprintf(text, capacity, "  %s--%s%s%s", option->letter ? letter : "    ",
			option->name, option->argument ? " " : "",
			option->argument ? option->argument : "");
}

static void print_option(FILE *out, const struct tool_option *option)
{
	enum { COLUMN = 25 };
	const char *text = option->text;
	char label[80];
	const int width = option_label(option, label, sizeof(label));

	fputs(label, out);
	if (width >= COLUMN)
		fputc('\n', out);
	fprintf(out, "%*s", width >= COLUMN ? COLUMN : COLUMN - width, "");
	for (; *text; text++) {
		fputc(*text, out);
		if (*text == '\n')
			fprintf(out, "%*s", COLUMN, "");
	}
	fputc('\n', out);
}

static void print_options(FILE *out, const struct tool_verb *verb)
{
	fputs("Options:\n", out);
	for (const struct tool_option *option = verb->options; option->name; option++)
		print_option(out, option);
	print_option(out, &help_option);
}

static void print_help(const struct tool_verb *verb)
{
	printf("Usage: ringfold %s %s\n\n%s\n", verb->name, verb->synopsis, verb->description);
	print_options(stdout, verb);
	if (verb->more)
		printf("\n%s", verb->more);
}

/* ---- parsing ---- */

int tool_wrong(const struct tool_verb *verb, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "ringfold %s: ", verb->name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return TOOL_USAGE;
}

static const struct tool_option *find_option(const struct tool_verb *verb, char letter,
					     const char *name, size_t length)
{
	const struct tool_option *option = verb->options;

	for (;; option = option->name ? option + 1 : NULL) {
		const struct tool_option *const row =
			option && option->name ? option : &help_option;

		if (name ? strlen(row->name) == length && memcmp(row->name, name, length) == 0
			 : row->letter == letter)
			return row;
		if (row == &help_option)
			return NULL;
	}
}

static int unknown_option(const struct tool_verb *verb, const char *typed)
{
	tool_wrong(verb, "there is no option %s", typed);
	print_options(stderr, verb);
	return TOOL_USAGE;
}

/* One option; *used says how many words it was. */
static bool parse_option(const struct tool_verb *verb, void *settings, char **words, int *used,
			 int *status)
{
	const char *const word = words[0];
	const bool is_long = word[1] == '-';
	const char *const equals = is_long ? strchr(word, '=') : NULL;
	const size_t length = is_long ? (equals ? (size_t)(equals - word) : strlen(word)) - 2 : 0;
	const struct tool_option *const option =
		find_option(verb, word[1], is_long ? word + 2 : NULL, length);
	const char *argument = is_long ? (equals ? equals + 1 : NULL) : word[2] ? word + 2 : NULL;

	*used = 1;
	*status = TOOL_USAGE;
	if (!option) {
		unknown_option(verb, word);
		return false;
	}
	if (argument && !option->argument) {
		tool_wrong(verb, "--%s takes no argument", option->name);
		return false;
	}
	if (option == &help_option) {
		print_help(verb);
		*status = TOOL_OK;
		return false;
	}
	if (option->argument && !argument) {
		argument = words[1];
		*used = 2;
	}
	if (option->argument && !argument) {
		tool_wrong(verb, "--%s needs %s: %s", option->name, option->argument, option->text);
		return false;
	}
	if (!option->set(settings, argument)) {
		tool_wrong(verb, "--%s cannot be \"%s\". %s is: %s", option->name, argument,
			   option->argument, option->text);
		return false;
	}
	return true;
}

int tool_parse(const struct tool_verb *verb, void *settings, int argc, char **argv, int *status)
{
	int at = 1;

	while (at < argc && argv[at][0] == '-' && argv[at][1]) {
		int used;

		if (strcmp(argv[at], "--") == 0)
			return at + 1;
		if (!parse_option(verb, settings, argv + at, &used, status))
			return -1;
		at += used;
	}
	return at;
}

/* ---- arguments ---- */

bool tool_number(const char *text, long long least, long long most, long long *number)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end || errno || value < least || value > most)
		return false;
	*number = value;
	return true;
}

bool tool_seconds(const char *text, int64_t *milliseconds)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || value < 0 || value > 1e9)
		return false;
	*milliseconds = (int64_t)(value * 1000 + 0.5);
	return true;
}
