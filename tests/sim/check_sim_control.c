/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control streams and dials in the simulator: parts of segments, late and reordered streams,
 * resets, one seed after the other. RINGFOLD_TEST_SEED runs that seed alone; RINGFOLD_TEST_SEEDS
 * says how many otherwise.
 */
#include "tests/unit/check_control_world.h"

enum { SEEDS = 40 };

int main(int argc, char **argv)
{
	const char *one = getenv("RINGFOLD_TEST_SEED"), *many = getenv("RINGFOLD_TEST_SEEDS");
	uint64_t first = one ? strtoull(one, NULL, 10) : 1;
	uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : SEEDS;

	for (uint64_t seed = first; seed < first + count; seed++) {
		printf("RINGFOLD_TEST_SEED=%llu\n", (unsigned long long)seed);
		fflush(stdout);
		for (size_t i = 0; i < stream_test_count; i++) {
			start_simulation(seed);
			run_tests(&stream_tests[i], 1, argc - 1, argv + 1);
			CHECK(!rf_sim_violation(sim));
			rf_sim_destroy(sim);
		}
	}
	return 0;
}
