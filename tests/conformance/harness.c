/* SPDX-License-Identifier: BSD-3-Clause */
/* The transports that are held to the suite, and how their ends come to be connected. */
#include "tests/conformance/world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams over a net ---- */

static struct rf_addr loopback(uint16_t port)
{
	struct rf_addr addr = {.family = 4, .port = port, .ip = {127, 0, 0, 1}};

	return addr;
}

/* Lets a connection come about that two ends of the world make with each other. */
static void pass_time(struct world *world)
{
	if (!world_step(world))
		world->harness->idle(world);
}

static void connect_pair(struct world *world, unsigned from, unsigned to,
			 struct rf_stream **dialled, struct rf_stream **accepted)
{
	struct rf_net *net = world->ends[from].net, *other = world->ends[to].net;
	int status;

	REQUIRE(net->ops->connect(net, &world->ends[to].addr, NULL, dialled) == RF_OK);
	while ((status = other->ops->accept(world->ends[to].listener, NULL, accepted)) ==
	       RF_ERR_AGAIN)
		pass_time(world);
	REQUIRE(status == RF_OK);
	while ((status = (*dialled)->ops->connected(*dialled)) == RF_ERR_AGAIN)
		pass_time(world);
	REQUIRE(status == RF_OK);
}

struct rf_stream *dial_stream(struct world *world, unsigned from, unsigned to, unsigned lane)
{
	struct end *end = &world->ends[to];
	struct rf_stream *dialled, *accepted;

	connect_pair(world, from, to, &dialled, &accepted);
	REQUIRE(end->transport->ops->accept(end->transport, &end->peers[from], lane, accepted) ==
		RF_OK);
	return dialled;
}

void connect_by_streams(struct world *world)
{
	for (unsigned i = 0; i < world->end_count; i++)
		for (unsigned to = 0; to < world->end_count; to++) {
			struct end *end = &world->ends[i];

			if (i == to)
				continue;
			REQUIRE(end->transport->ops->open(end->transport, &end->peers[to], NULL, 0,
							  &end->to[to]) == RF_OK);
			for (unsigned lane = 0; lane < world->lanes; lane++)
				REQUIRE(end->transport->ops->attach(
						end->to[to], lane,
						dial_stream(world, i, to, lane)) == RF_OK);
		}
}

void make_transports(struct world *world, size_t receive_buffer_bytes)
{
	for (unsigned i = 0; i < world->end_count; i++) {
		const struct rf_transport_env env = {
			.net = world->ends[i].net,
			.lanes = world->lanes,
			.receive_buffer_bytes = receive_buffer_bytes,
		};

		REQUIRE(world->harness->ops->create(&env, &world->ends[i].transport) == RF_OK);
		REQUIRE(world->ends[i].transport->caps.lanes == world->lanes);
	}
}

/* ---- tcp over sockets ---- */

static void make_posix(struct world *world, size_t receive_buffer_bytes)
{
	for (unsigned i = 0; i < world->end_count; i++) {
		struct end *end = &world->ends[i];
		uint16_t port;

		REQUIRE(rf_net_posix_create(&end->net) == RF_OK);
		REQUIRE(end->net->ops->listen(end->net, 0, 0, &end->listener, &port) == RF_OK);
		end->addr = loopback(port);
	}
	make_transports(world, receive_buffer_bytes);
	connect_by_streams(world);
}

static bool idle_posix(struct world *world)
{
	(void)world;
	sched_yield();
	return false;
}

void unmake_nets(struct world *world)
{
	for (unsigned i = 0; i < world->end_count; i++) {
		world->ends[i].net->ops->close_listener(world->ends[i].listener);
		world->ends[i].net->ops->destroy(world->ends[i].net);
	}
}

static const struct harness tcp_over_sockets = {
	.name = "tcp",
	.ops = &rf_transport_tcp,
	.make = make_posix,
	.idle = idle_posix,
	.unmake = unmake_nets,
	.dial = dial_stream,
	.most_bytes = RF_SEGMENT_PAYLOAD_MAX,
};

const struct harness *const harnesses[] = {
	&tcp_over_sockets, &tcp_over_sim, &sim_calm, &sim_hostile, NULL,
};
