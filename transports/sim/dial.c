/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How simulated streams come about: listeners, and connects with the time that they take.
 */
#include "transports/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Until a silent address answers, a connect asks again and again. */
#define SYN_INTERVAL_NS UINT64_C(200000000)

struct rf_listener {
	struct sim_watched watched; /* first */
	uint16_t port;
	struct rf_list node;    /* in its host's listeners */
	struct rf_list pending; /* streams that wait to be accepted */
};

static struct sim_net *net_of(struct rf_net *base)
{
	return (struct sim_net *)base;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static unsigned addr_host(const struct rf_addr *addr)
{
	return addr->ip[0] | (unsigned)addr->ip[1] << 8 | (unsigned)addr->ip[2] << 16 |
	       (unsigned)addr->ip[3] << 24;
}

struct rf_addr rf_sim_addr(unsigned host, uint16_t port)
{
	struct rf_addr addr = {.family = RF_ADDR_SIM, .port = port};

	for (int i = 0; i < 4; i++)
		addr.ip[i] = (uint8_t)(host >> (8 * i));
	return addr;
}

static struct rf_listener *find_listener(struct rf_sim *sim, unsigned host_number, uint16_t port)
{
	struct sim_host *host = sim_host(sim, host_number);

	if (!host)
		return NULL;
	RF_LIST_EACH(node, &host->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->port == port)
			return listener;
	}
	return NULL;
}

static void establish(struct sim_stream *client, struct rf_listener *listener)
{
	struct sim_net *from = client->watched.net;
	struct sim_net *to = listener->watched.net;
	struct sim_connection *connection = sim_connection_new(from, to);
	struct sim_stream *server = sim_stream_new(to, &listener->pending);

	server->local = client->peer;
	server->peer = client->local;
	sim_stream_join(client, connection, 0);
	sim_stream_join(server, connection, 1);
	sim_trace(from->sim, "connect", from->id, to->id, listener->port);
	sim_update(&listener->watched);
}

static void attempt_failed(struct sim_stream *stream, int error)
{
	stream->state = SIM_FAILED;
	stream->error = error;
	sim_trace(stream->watched.net->sim, "refused", stream->watched.net->id,
		  addr_host(&stream->peer), (uint64_t)error);
}

/* Nobody on that host can answer, not even to refuse. */
static bool unreachable(const struct sim_net *net, unsigned host)
{
	bool blocked = false;

	for (unsigned i = 0; i < net->sim->process_count; i++) {
		const struct sim_net *other = net->sim->processes[i];

		if (other->host == host && !sim_blocked(net, other))
			return false;
		blocked = blocked || other->host == host;
	}
	return blocked;
}

static void attempt_fire(struct sim_event *event)
{
	struct sim_stream *stream = RF_CONTAINER(event, struct sim_stream, attempt);
	struct sim_net *net = stream->watched.net;
	struct rf_listener *listener =
		find_listener(net->sim, addr_host(&stream->peer), stream->peer.port);

	if (listener ? sim_blocked(net, listener->watched.net)
		     : unreachable(net, addr_host(&stream->peer))) {
		if (net->sim->now < stream->give_up) {
			sim_set(net->sim, &stream->attempt, net->sim->now + SYN_INTERVAL_NS);
			return;
		}
		attempt_failed(stream, ETIMEDOUT);
	} else if (listener) {
		establish(stream, listener);
	} else {
		attempt_failed(stream, ECONNREFUSED);
	}
	sim_update(&stream->watched);
}

int sim_connect(struct rf_net *base, const struct rf_addr *addr,
		const struct rf_stream_tuning *tuning, struct rf_stream **result)
{
	struct sim_net *net = net_of(base);
	struct rf_sim *sim = net->sim;
	struct sim_host *host = sim_host(sim, net->host);
	struct sim_stream *stream;

	(void)tuning;
	if (addr->family != RF_ADDR_SIM)
		return RF_ERR_INVALID;
	if (net->dead) {
		errno = ENETDOWN;
		return RF_ERR_NETWORK;
	}
	stream = sim_stream_new(net, &net->streams);
	stream->peer = *addr;
	stream->local = rf_sim_addr(net->host, host->next_port++);
	if (host->next_port < 32768)
		host->next_port = 32768;
	stream->attempt.fire = attempt_fire;
	stream->give_up = sim->now + sim->params.connect_timeout_ns;
	sim_set(sim, &stream->attempt,
		sim->now + 2 * sim->params.latency_ns + sim_up_to(sim, sim->params.jitter_ns));
	*result = &stream->base;
	return RF_OK;
}

/* ---- listeners ------------------------------------------------------------------------------ */

static unsigned listener_readiness(struct sim_watched *watched)
{
	struct rf_listener *listener = (struct rf_listener *)watched;

	return rf_list_empty(&listener->pending) ? 0 : RF_NET_IN;
}

int sim_listen(struct rf_net *base, uint16_t first_port, uint16_t last_port,
	       struct rf_listener **result, uint16_t *port)
{
	struct sim_net *net = net_of(base);
	unsigned first = first_port, last = last_port;
	struct rf_listener *listener;

	if (first > last)
		return RF_ERR_INVALID;
	if (last == 0)
		first = 20000, last = 32767;
	else if (first == 0)
		first = 1;
	while (first <= last && find_listener(net->sim, net->host, (uint16_t)first))
		first++;
	if (first > last || net->dead) {
		errno = EADDRINUSE;
		return RF_ERR_SYSTEM;
	}
	listener = sim_allocate(sizeof(*listener));
	listener->watched.net = net;
	listener->watched.readiness = listener_readiness;
	rf_list_init(&listener->watched.node);
	rf_list_init(&listener->pending);
	listener->port = (uint16_t)first;
	rf_list_append(&sim_host(net->sim, net->host)->listeners, &listener->node);
	*port = listener->port;
	*result = listener;
	return RF_OK;
}

int sim_watch_listener(struct rf_listener *listener, struct rf_watch *watch)
{
	sim_watch(&listener->watched, watch, RF_NET_CONTROL, watch ? RF_NET_IN : 0);
	return RF_OK;
}

int sim_accept(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
	       struct rf_stream **result)
{
	struct sim_net *net = listener->watched.net;
	struct sim_stream *stream;

	(void)tuning;
	if (rf_list_empty(&listener->pending) || net->dead)
		return RF_ERR_AGAIN;
	stream = RF_CONTAINER(listener->pending.next, struct sim_stream, node);
	rf_list_remove(&stream->node);
	rf_list_append(&net->streams, &stream->node);
	sim_update(&listener->watched);
	*result = &stream->base;
	return RF_OK;
}

void sim_close_listener(struct rf_listener *listener)
{
	sim_watch(&listener->watched, NULL, RF_NET_CONTROL, 0);
	RF_LIST_EACH(node, &listener->pending)
	{
		struct sim_stream *stream = RF_CONTAINER(node, struct sim_stream, node);

		sim_stream_reset(stream);
		sim_stream_free(stream);
	}
	rf_list_remove(&listener->node);
	free(listener);
}

void sim_listeners_die(struct sim_net *net)
{
	RF_LIST_EACH(node, &sim_host(net->sim, net->host)->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->watched.net != net)
			continue;
		RF_LIST_EACH(pending, &listener->pending)
		{
			sim_stream_reset(RF_CONTAINER(pending, struct sim_stream, node));
		}
		rf_list_remove(&listener->node);
	}
}

void sim_abandon_listener(struct rf_listener *listener)
{
	(void)listener;
}

void sim_listeners_close(struct sim_net *net)
{
	RF_LIST_EACH(node, &sim_host(net->sim, net->host)->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->watched.net == net)
			sim_close_listener(listener);
	}
}
