/* SPDX-License-Identifier: BSD-3-Clause */
/* The ringfold command: finds the verb and hands over to it. */
#include "ringfold.h"
#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct tool_verb *const tool_verbs[] = {&tool_run, &tool_bench, &tool_info, NULL};

static void print_verbs(FILE *out)
{
	fputs("Verbs:\n", out);
	for (size_t i = 0; tool_verbs[i]; i++)
		fprintf(out, "  %-8s  %s\n", tool_verbs[i]->name, tool_verbs[i]->summary);
}

static void print_help(void)
{
	puts("Usage: ringfold VERB [options]\n"
	     "\n"
	     "Reductions of gradient-sized buffers across processes and machines: this command\n"
	     "starts programs that are linked with the ringfold library, measures it, and says\n"
	     "what it would do here and why.\n");
	print_verbs(stdout);
	puts("\n"
	     "Options:\n"
	     "  -h, --help  shows this\n"
	     "  --version   shows the version\n"
	     "\n"
	     "`ringfold VERB --help` explains a verb, `man ringfold` the whole.\n"
	     "\n"
	     "Exit status: 0 success, 1 failure, 2 a typing error; run has more of its own.");
}

/* Output that could not be written is a failure, not a silence; errno is that of the last write. */
static int finish(int status)
{
	const bool lost_before = ferror(stdout);

	if (fflush(stdout) == 0 && !lost_before)
		return status;
	fprintf(stderr, "ringfold: cannot write to stdout: %s\n",
		lost_before ? "output is lost" : strerror(errno));
	return status ? status : TOOL_FAILED;
}

int main(int argc, char **argv)
{
	const char *const word = argc > 1 ? argv[1] : "--help";

	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
		print_help();
		return finish(argc > 1 ? TOOL_OK : TOOL_USAGE);
	}
	if (strcmp(word, "--version") == 0) {
		printf("ringfold %s\n", rf_version());
		return finish(TOOL_OK);
	}
	for (size_t i = 0; tool_verbs[i]; i++) {
		if (strcmp(word, tool_verbs[i]->name) == 0)
			return finish(tool_verbs[i]->run(tool_verbs[i], argc - 1, argv + 1));
	}
	fprintf(stderr, "ringfold: there is no %s %s\n", word[0] == '-' ? "option" : "verb", word);
	print_verbs(stderr);
	return TOOL_USAGE;
}
