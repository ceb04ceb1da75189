/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole engines under the simulator: a world of ranks, each a context with a communicator of all,
 * and what tests need to run and judge calls on them.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "engine/call.h"
#include "transports/sim/sim.h"

struct world {
	struct rf_sim *sim;
	int size;
	rf_context **contexts;
	rf_comm **comms; /* of all ranks, by rank */
	bool *dead;
	char last_log[512];
	int log_level; /* printed from this level on; 0: nothing */
};

struct world_setup {
	uint64_t seed;
	int size;
	int ranks_per_host; /* at least 1 */
	const struct rf_sim_params *params;
	bool no_payload;
	int64_t deadline_ms;   /* of calls, virtual */
	const char *algorithm; /* NULL: by select */
	size_t chunk_bytes;    /* 0: by plan */
	size_t eager_bytes;    /* 0: default */
	size_t eager_budget_bytes;
};

/* Makes the world with its contexts, and the communicator of all ranks. Ends the test on failure.
 */
void world_create(struct world *world, const struct world_setup *setup);
/* Contexts only; comms are NULL. */
void world_create_contexts(struct world *world, const struct world_setup *setup);
void world_join_all(struct world *world);
/* Destroys the communicators of all ranks. */
void world_leave(struct world *world);
/* Keeps what a killed rank will never free. */
void world_bury(void *object);
/* Destroys all; violations of the simulator's contracts, and leaks, end the test. */
void world_destroy(struct world *world);

/* One step of the simulation. false: nothing more will happen. */
bool world_step(struct world *world);
/* Lets virtual time pass. */
void world_pass(struct world *world, uint64_t virtual_ns);
/* Runs until all requests that are not NULL have ended or the virtual time has passed; requests of
 * dead ranks are not waited for. false: it was the time, or a standstill. */
bool world_run(struct world *world, rf_request **requests, size_t count, uint64_t virtual_ns);
/* The status of an ended request, which is freed. */
int world_take(rf_request **request);

void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define WORLD_CHECK(condition, ...)              \
	do {                                     \
		if (!(condition))                \
			world_fail(__VA_ARGS__); \
	} while (0)

/* The seed of this run: RINGFOLD_TEST_SEED, or from the clock; printed. */
uint64_t world_seed(void);

/* A test's main: [COUNT [FIRST_SEED]], else seeds from world_seed() on for RINGFOLD_TEST_SECONDS
 * (20). Returns its exit status. */
int world_run_seeds(int argc, char **argv, void (*one)(uint64_t seed));

#endif
