/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults that a test injects.
 */
#include "transports/sim/world.h"

static void unpark_all(struct rf_sim *sim)
{
	RF_LIST_EACH(node, &sim->connections)
	{
		struct sim_connection *connection = RF_CONTAINER(node, struct sim_connection, node);

		sim_link_unpark(&connection->way[0]);
		sim_link_unpark(&connection->way[1]);
	}
}

/* By chance what is under way is lost, or arrives before the reset. */
static void lose_under_way(struct sim_link *link)
{
	if (!sim_chance(link->sim, 500))
		return;
	RF_LIST_EACH(node, &link->under_way)
	{
		rf_list_remove(node);
		sim_item_free(RF_CONTAINER(node, struct sim_item, node));
	}
	sim_clear(link->sim, &link->arrival);
}

static void break_connection(struct sim_stream *stream)
{
	if (stream->state == SIM_CONNECTED)
		lose_under_way(stream->out);
	sim_stream_reset(stream);
}

void rf_sim_kill(struct rf_sim *sim, unsigned process)
{
	struct sim_net *net = sim->processes[process];

	if (net->dead || net->gone)
		return;
	sim_trace(sim, "kill", process, 0, 0);
	/* Links of a silent process would stay parked. */
	rf_sim_silence(sim, process, false);
	sim_listeners_die(net);
	RF_LIST_EACH(node, &net->transports)
	{
		sim_transport_silence(RF_CONTAINER(node, struct sim_transport, node));
	}
	RF_LIST_EACH(node, &net->streams)
	{
		break_connection(RF_CONTAINER(node, struct sim_stream, node));
	}
	sim_clear(sim, &net->timer);
	net->dead = true;
}

void rf_sim_silence(struct rf_sim *sim, unsigned process, bool silent)
{
	struct sim_net *net = sim->processes[process];

	if (net->silent == silent)
		return;
	sim_trace(sim, silent ? "silence" : "speak", process, 0, 0);
	net->silent = silent;
	if (!silent) {
		unpark_all(sim);
		sim_make_ready(net);
	}
}

void rf_sim_set_side(struct rf_sim *sim, unsigned process, unsigned side)
{
	if (sim->processes[process]->side == side)
		return;
	sim_trace(sim, "side", process, side, 0);
	sim->processes[process]->side = side;
	unpark_all(sim);
}

static bool between(const struct sim_stream *stream, const struct sim_net *other)
{
	return stream->state == SIM_CONNECTED && stream->out->to == other;
}

bool rf_sim_cut(struct rf_sim *sim, unsigned process, unsigned other)
{
	struct sim_net *net = sim->processes[process];
	struct sim_net *far = sim->processes[other];
	uint64_t count = 0, chosen;

	RF_LIST_EACH(node, &net->streams)
	{
		count += between(RF_CONTAINER(node, struct sim_stream, node), far);
	}
	if (!count)
		return false;
	chosen = sim_up_to(sim, count - 1);
	RF_LIST_EACH(node, &net->streams)
	{
		struct sim_stream *stream = RF_CONTAINER(node, struct sim_stream, node);

		if (!between(stream, far) || chosen--)
			continue;
		sim_trace(sim, "cut", process, other, 0);
		lose_under_way(stream->out);
		lose_under_way(stream->in);
		sim_link_push_mark(stream->in, SIM_RESET);
		sim_link_push_mark(stream->out, SIM_RESET);
		return true;
	}
	return false;
}
