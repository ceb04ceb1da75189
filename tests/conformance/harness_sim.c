/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator's rows: its own transport, calm and hostile, and tcp over its hostile streams. */
#include "tests/conformance/world.h"
#include "transports/sim/sim.h"

#include <stdlib.h>

/* A world of virtual time lives in its ends' nets. */
static struct rf_sim *sim_of(struct world *world)
{
	return world->harness_state;
}

static void make_sim(struct world *world, const struct rf_sim_params *params, uint64_t seed,
		     size_t receive_buffer_bytes)
{
	struct rf_sim *sim;

	REQUIRE(rf_sim_create(seed, params, &sim) == RF_OK);
	world->harness_state = sim;
	for (unsigned i = 0; i < world->end_count; i++) {
		struct end *end = &world->ends[i];
		uint16_t port;

		REQUIRE(rf_sim_net_create(sim, i, &end->net) == RF_OK);
		REQUIRE(end->net->ops->listen(end->net, 0, 0, &end->listener, &port) == RF_OK);
		end->addr = rf_sim_addr(i, port);
	}
	make_transports(world, receive_buffer_bytes);
	connect_by_streams(world);
}

static void make_calm(struct world *world, size_t receive_buffer_bytes)
{
	struct rf_sim_params params;

	rf_sim_params_calm(&params);
	make_sim(world, &params, world->random, receive_buffer_bytes);
}

static void make_hostile(struct world *world, size_t receive_buffer_bytes)
{
	struct rf_sim_params params;

	rf_sim_params_hostile(&params, world->random);
	make_sim(world, &params, world->random, receive_buffer_bytes);
}

static bool idle_sim(struct world *world)
{
	unsigned process;
	enum rf_sim_state state = rf_sim_next(sim_of(world), &process);

	REQUIRE(state != RF_SIM_LIVELOCK);
	return state == RF_SIM_RUN;
}

static void unmake_sim(struct world *world)
{
	const char *violation = rf_sim_violation(sim_of(world));

	if (violation)
		fail_at(__FILE__, __LINE__, violation);
	unmake_nets(world);
	rf_sim_destroy(sim_of(world));
}

const struct harness sim_calm = {
	.name = "sim",
	.ops = &rf_transport_sim,
	.make = make_calm,
	.idle = idle_sim,
	.unmake = unmake_sim,
	.most_bytes = 1 << 20,
};

const struct harness sim_hostile = {
	.name = "sim-hostile",
	.ops = &rf_transport_sim,
	.make = make_hostile,
	.idle = idle_sim,
	.unmake = unmake_sim,
	.most_bytes = 1 << 20,
};

const struct harness tcp_over_sim = {
	.name = "tcp-over-sim",
	.ops = &rf_transport_tcp,
	.make = make_hostile,
	.idle = idle_sim,
	.unmake = unmake_sim,
	.dial = dial_stream,
	.most_bytes = 100000,
};
