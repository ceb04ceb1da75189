/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All collectives in real processes over loopback. Run under the launcher:
 *
 *   ringfold run -n 4 -- collective [CASE...]
 *
 * collective.sh does, for several numbers of ranks and settings.
 */
#include "tests/collective/cases.h"
#include "tests/collective/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define X(name) {#name, name},
	COLLECTIVE_CASES(X)
#undef X
};

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
	double begin, since;
	size_t done = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	rank_begin(120);
	begin = seconds_now();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!is_wanted(cases[i].name, argc, argv))
			continue;
		rank_case(cases[i].name);
		since = seconds_now();
		cases[i].run();
		CHECK_OK(rf_barrier(world));
		if (rank == 0 && getenv("RINGFOLD_TEST_VERBOSE"))
			printf("%6.2f s %s\n", seconds_now() - since, cases[i].name);
		done++;
	}
	rank_end();
	if (rank == 0)
		printf("%zu cases on %d ranks in %.1f s\n", done, size, seconds_now() - begin);
	return done ? 0 : 1;
}
