/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of real processes when something goes wrong.
 *
 *   fault [CASE...]
 */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define X(name) {#name, name},
	FAULT_CASES(X)
#undef X
};

static const char *case_name = "the beginning";

const char *fault_case_name(void)
{
	return case_name;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], name) == 0)
			return true;
	}
	return argc == 1;
}

int main(int argc, char **argv)
{
	size_t done = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t since = now_ns();

		if (!is_wanted(cases[i].name, argc, argv))
			continue;
		case_name = cases[i].name;
		alarm(is_sanitized() ? 240 : 90);
		cases[i].run();
		printf("ok %6lld ms  %s\n", (long long)(now_ns() - since) / 1000000, case_name);
		done++;
	}
	return done ? 0 : 1;
}
