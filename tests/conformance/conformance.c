/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs all cases over all transports.
 *   conformance [HARNESS [CASE]]
 * RINGFOLD_TEST_SEED repeats a run.
 */
#include "tests/conformance/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CASE_SECONDS = 400 };

static const struct conformance_case *const groups[] = {data_cases, stall_cases, end_cases,
							memory_cases};

static unsigned run_group(const struct harness *harness, const struct conformance_case *cases,
			  const char *only)
{
	unsigned count = 0;

	for (; cases->name; cases++) {
		if (only && strcmp(only, cases->name) != 0)
			continue;
		if (cases->streams_only && !harness->dial)
			continue;
		printf("%s: %s\n", harness->name, cases->name);
		fflush(stdout);
		alarm(CASE_SECONDS);
		worlds_made = 0;
		cases->run(harness);
		count++;
	}
	return count;
}

int main(int argc, char **argv)
{
	const char *given = getenv("RINGFOLD_TEST_SEED");
	unsigned count = 0;

	suite_seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)suite_seed);
	for (const struct harness *const *harness = harnesses; *harness; harness++) {
		if (argc > 1 && strcmp(argv[1], (*harness)->name) != 0)
			continue;
		for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
			count += run_group(*harness, groups[i], argc > 2 ? argv[2] : NULL);
	}
	printf("%u cases\n", count);
	return count ? 0 : 1;
}
