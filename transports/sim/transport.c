/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated transport: endpoints, peers and events. Streams that the engine dials serve as
 * lanes: segments travel through their links as they are, not as bytes.
 */
#include "transports/sim/world.h"

#include <stdlib.h>
#include <string.h>

static struct sim_transport *transport_of(struct rf_transport *base)
{
	return (struct sim_transport *)base;
}

static struct sim_endpoint *endpoint_of(struct rf_endpoint *base)
{
	return (struct sim_endpoint *)base;
}

static struct rf_sim *endpoint_sim(const struct sim_endpoint *endpoint)
{
	return endpoint->peer->transport->net->sim;
}

/* ---- events --------------------------------------------------------------------------------- */

void sim_queue(struct sim_transport *transport, const struct rf_transport_event *event)
{
	struct sim_net *net = transport->net;
	struct sim_queued *queued;

	if (net->dead)
		return;
	queued = sim_allocate(sizeof(*queued));
	queued->event = *event;
	rf_list_append(&transport->events, &queued->node);
	net->queued++;
	sim_make_ready(net);
}

static void unqueue_one(struct sim_transport *transport, struct sim_queued *queued)
{
	rf_list_remove(&queued->node);
	transport->net->queued--;
	free(queued);
}

void sim_unqueue_receive(struct sim_transport *transport, const struct rf_receive *receive)
{
	RF_LIST_EACH(node, &transport->events)
	{
		struct sim_queued *queued = RF_CONTAINER(node, struct sim_queued, node);

		if (queued->event.receive == receive)
			unqueue_one(transport, queued);
	}
}

/* All that comes from a peer. Receives that had their last event in the queue go to the grave. */
static void unqueue_receives(struct sim_transport *transport, const struct rf_transport_peer *peer,
			     struct rf_list *grave)
{
	RF_LIST_EACH(node, &transport->events)
	{
		struct sim_queued *queued = RF_CONTAINER(node, struct sim_queued, node);
		struct rf_receive *receive = queued->event.receive;

		if (!receive || queued->event.peer != peer)
			continue;
		if (queued->event.kind == RF_EVENT_DELIVERED)
			rf_list_append(grave,
				       &RF_CONTAINER(receive, struct sim_receive, base)->node);
		unqueue_one(transport, queued);
	}
}

/* What an endpoint has coming. A DOWN is for the receives too, and stays. */
static void unqueue_endpoint(struct sim_transport *transport, const struct rf_endpoint *endpoint)
{
	RF_LIST_EACH(node, &transport->events)
	{
		struct sim_queued *queued = RF_CONTAINER(node, struct sim_queued, node);

		if (queued->event.endpoint != endpoint)
			continue;
		if (queued->event.kind == RF_EVENT_DOWN)
			queued->event.endpoint = NULL;
		else
			unqueue_one(transport, queued);
	}
}

static void free_grave(struct rf_list *grave)
{
	RF_LIST_EACH(node, grave)
	{
		sim_receive_free(RF_CONTAINER(node, struct sim_receive, node));
	}
}

static void move_grave(struct rf_list *from, struct rf_list *to)
{
	RF_LIST_EACH(node, from)
	{
		rf_list_remove(node);
		rf_list_append(to, node);
	}
}

static int transport_poll(struct rf_transport *base, struct rf_transport_event *event)
{
	struct sim_transport *transport = transport_of(base);
	struct sim_queued *first;

	/* What ended with the event before has been seen by now. */
	free_grave(&transport->grave);
	if (rf_list_empty(&transport->events))
		return RF_ERR_AGAIN;
	first = RF_CONTAINER(transport->events.next, struct sim_queued, node);
	*event = first->event;
	unqueue_one(transport, first);
	if (event->kind == RF_EVENT_DELIVERED)
		rf_list_append(&transport->grave,
			       &RF_CONTAINER(event->receive, struct sim_receive, base)->node);
	else if (event->kind == RF_EVENT_DOWN)
		move_grave(&transport->grave_later, &transport->grave);
	sim_trace(transport->net->sim, "event", transport->net->id, event->kind, event->bytes);
	return RF_OK;
}

static int transport_arm(struct rf_transport *base)
{
	return rf_list_empty(&transport_of(base)->events) ? RF_OK : RF_ERR_AGAIN;
}

/* ---- peers ---------------------------------------------------------------------------------- */

static struct sim_peer *find_peer(struct sim_transport *transport, struct rf_transport_peer *peer)
{
	return rf_map_get(&transport->peer_map, (uintptr_t)peer);
}

static struct sim_peer *find_or_make_peer(struct sim_transport *transport,
					  struct rf_transport_peer *key)
{
	struct sim_peer *peer = find_peer(transport, key);

	if (peer)
		return peer;
	peer = sim_allocate(sizeof(*peer));
	if (rf_map_put(&transport->peer_map, (uintptr_t)key, peer) != RF_OK) {
		free(peer);
		return NULL;
	}
	peer->peer = key;
	peer->transport = transport;
	rf_list_init(&peer->lanes);
	rf_list_append(&transport->peers, &peer->node);
	return peer;
}

void sim_peer_forget_if_unused(struct sim_peer *peer)
{
	if (peer->endpoint || !rf_list_empty(&peer->lanes))
		return;
	rf_map_remove(&peer->transport->peer_map, (uintptr_t)peer->peer);
	rf_list_remove(&peer->node);
	free(peer);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static void lane_close(struct sim_lane *lane, bool orderly)
{
	struct sim_stream *stream = lane->stream;

	if (!stream)
		return;
	lane->stream = NULL;
	stream->lane = NULL;
	if (!orderly)
		sim_stream_reset(stream);
	stream->base.ops->close(&stream->base);
}

void sim_lane_free(struct sim_lane *lane)
{
	lane_close(lane, true);
	rf_list_remove(&lane->node);
	free(lane);
}

/* Ends all receives from a peer, and its lanes. */
static void receives_end(struct sim_peer *peer, struct rf_list *grave)
{
	RF_LIST_EACH(node, &peer->lanes)
	{
		struct sim_lane *lane = RF_CONTAINER(node, struct sim_lane, node);
		struct sim_receive *receive = lane->current;

		if (receive) {
			sim_receive_kill(receive);
			rf_list_append(grave, &receive->node);
		}
		lane_close(lane, false);
		sim_lane_free(lane);
	}
	unqueue_receives(peer->transport, peer->peer, grave);
}

void sim_lane_arrived(struct sim_lane *lane)
{
	struct sim_item *first;

	if (lane->stream->state == SIM_FAILED) {
		sim_peer_down(lane->peer, RF_ERR_NETWORK, "a connection was reset");
		return;
	}
	if (!lane->endpoint) {
		sim_lane_receive(lane);
		return;
	}
	first = sim_link_first(lane->stream->in);
	if (!first)
		return;
	if (first->kind == SIM_END)
		sim_peer_down(lane->peer, RF_ERR_NETWORK, "the peer has closed a connection");
	else
		sim_peer_down(lane->peer, RF_ERR_PROTOCOL, "the peer sent the wrong way");
}

static void lane_take(struct sim_lane *lane, struct sim_stream *stream, unsigned number)
{
	sim_watch(&stream->watched, NULL, RF_NET_DATA, 0);
	lane->stream = stream;
	lane->number = number;
	stream->lane = lane;
}

/* ---- endpoints ------------------------------------------------------------------------------ */

static int transport_open(struct rf_transport *base, struct rf_transport_peer *key,
			  const void *peer_blob, size_t blob_bytes, struct rf_endpoint **result)
{
	struct sim_transport *transport = transport_of(base);
	struct sim_peer *peer = find_or_make_peer(transport, key);
	struct sim_endpoint *endpoint;

	(void)peer_blob, (void)blob_bytes;
	if (!peer)
		return RF_ERR_NOMEM;
	if (peer->endpoint)
		return RF_ERR_BUSY;
	endpoint = sim_allocate(sizeof(*endpoint));
	endpoint->base.peer = key;
	endpoint->peer = peer;
	endpoint->blocked = true;
	endpoint->writable.fire = sim_writable_fire;
	rf_list_init(&endpoint->pending);
	for (unsigned i = 0; i < SIM_LANES_MAX; i++) {
		rf_list_init(&endpoint->lanes[i].node);
		endpoint->lanes[i].peer = peer;
		endpoint->lanes[i].endpoint = endpoint;
	}
	peer->endpoint = endpoint;
	*result = &endpoint->base;
	return RF_OK;
}

static int transport_attach(struct rf_endpoint *base, unsigned number, struct rf_stream *stream)
{
	struct sim_endpoint *endpoint = endpoint_of(base);
	unsigned lanes = endpoint->peer->transport->base.caps.lanes;

	if (endpoint->down || number >= lanes || endpoint->lanes[number].stream) {
		stream->ops->close(stream);
		return RF_ERR_INVALID;
	}
	lane_take(&endpoint->lanes[number], sim_stream_from(stream), number);
	if (++endpoint->attached == lanes)
		sim_queue_writable(endpoint);
	/* It may have broken before it came here. */
	sim_lane_arrived(&endpoint->lanes[number]);
	return RF_OK;
}

static int transport_accept(struct rf_transport *base, struct rf_transport_peer *key,
			    unsigned number, struct rf_stream *stream)
{
	struct sim_transport *transport = transport_of(base);
	struct sim_peer *peer = NULL;
	struct sim_lane *lane;

	if (number < SIM_LANES_MAX)
		peer = find_or_make_peer(transport, key);
	if (!peer) {
		stream->ops->close(stream);
		return number < SIM_LANES_MAX ? RF_ERR_NOMEM : RF_ERR_INVALID;
	}
	lane = sim_allocate(sizeof(*lane));
	lane->peer = peer;
	rf_list_append(&peer->lanes, &lane->node);
	lane_take(lane, sim_stream_from(stream), number);
	sim_lane_arrived(lane);
	return RF_OK;
}

/* ---- the end of endpoints and peers --------------------------------------------------------- */

static void endpoint_stop(struct sim_endpoint *endpoint, bool orderly)
{
	sim_clear(endpoint_sim(endpoint), &endpoint->writable);
	RF_LIST_EACH(node, &endpoint->pending)
	{
		sim_send_free(RF_CONTAINER(node, struct sim_send, node));
	}
	for (unsigned i = 0; i < SIM_LANES_MAX; i++)
		lane_close(&endpoint->lanes[i], orderly);
	unqueue_endpoint(endpoint->peer->transport, &endpoint->base);
}

static void transport_close(struct rf_endpoint *base)
{
	struct sim_endpoint *endpoint = endpoint_of(base);
	struct sim_peer *peer = endpoint->peer;

	RF_LIST_EACH(node, &endpoint->pending)
	{
		sim_send_check(RF_CONTAINER(node, struct sim_send, node));
	}
	endpoint_stop(endpoint, true);
	peer->endpoint = NULL;
	free(endpoint);
	sim_peer_forget_if_unused(peer);
}

static void transport_forget(struct rf_transport *base, struct rf_transport_peer *key)
{
	struct sim_peer *peer = find_peer(transport_of(base), key);

	if (!peer)
		return;
	receives_end(peer, &transport_of(base)->grave);
	sim_peer_forget_if_unused(peer);
}

void sim_peer_down(struct sim_peer *peer, int status, const char *reason)
{
	struct sim_transport *transport = peer->transport;
	struct sim_endpoint *endpoint = peer->endpoint;
	struct rf_transport_event event = {
		.kind = RF_EVENT_DOWN,
		.peer = peer->peer,
		.endpoint = endpoint && !endpoint->down ? &endpoint->base : NULL,
		.status = status,
	};

	snprintf(event.reason, sizeof(event.reason), "%s", reason);
	if (endpoint && !endpoint->down) {
		endpoint->down = true;
		endpoint_stop(endpoint, false);
	}
	receives_end(peer, &transport->grave_later);
	sim_queue(transport, &event);
	sim_peer_forget_if_unused(peer);
}

void sim_transport_silence(struct sim_transport *transport)
{
	struct rf_sim *sim = transport->net->sim;

	RF_LIST_EACH(node, &transport->peers)
	{
		struct sim_peer *peer = RF_CONTAINER(node, struct sim_peer, node);

		RF_LIST_EACH(lane_node, &peer->lanes)
		{
			struct sim_lane *lane = RF_CONTAINER(lane_node, struct sim_lane, node);

			if (lane->current)
				sim_clear(sim, &lane->current->step);
		}
		if (!peer->endpoint)
			continue;
		sim_clear(sim, &peer->endpoint->writable);
		RF_LIST_EACH(send_node, &peer->endpoint->pending)
		{
			struct sim_send *send = RF_CONTAINER(send_node, struct sim_send, node);

			sim_clear(sim, &send->completion);
			send->payload = NULL;
		}
	}
}

/* ---- the transport -------------------------------------------------------------------------- */

static void set_caps(struct sim_transport *transport, const struct rf_transport_env *env)
{
	const struct rf_sim_params *params = &transport->net->sim->params;
	unsigned lanes = env->lanes ? env->lanes : params->lanes;

	transport->base.caps = (struct rf_transport_caps){
		.borrow = params->borrow,
		.put = params->put,
		.load_store = params->load_store,
		.uses_streams = true,
		.send_done_is_delivered = params->send_done_is_delivered,
		.lanes = lanes < SIM_LANES_MAX ? lanes : SIM_LANES_MAX,
		.segment_max_bytes = params->segment_max_bytes,
		.inline_bytes = params->inline_bytes,
	};
	transport->piece_max_bytes = params->piece_max_bytes;
	if (env->receive_buffer_bytes &&
	    (!transport->piece_max_bytes || transport->piece_max_bytes > env->receive_buffer_bytes))
		transport->piece_max_bytes = env->receive_buffer_bytes;
}

static int transport_create(const struct rf_transport_env *env, struct rf_transport **result)
{
	struct sim_transport *transport;

	if (env->net->ops != &sim_net_ops)
		return RF_ERR_UNSUPPORTED;
	transport = sim_allocate(sizeof(*transport));
	transport->base.ops = &rf_transport_sim;
	transport->net = (struct sim_net *)env->net;
	transport->no_payload = env->no_payload;
	set_caps(transport, env);
	rf_list_init(&transport->events);
	rf_list_init(&transport->peers);
	rf_list_init(&transport->grave);
	rf_list_init(&transport->grave_later);
	rf_list_append(&transport->net->transports, &transport->node);
	*result = &transport->base;
	return RF_OK;
}

static void transport_destroy(struct rf_transport *base)
{
	struct sim_transport *transport = transport_of(base);

	RF_LIST_EACH(node, &transport->peers)
	{
		struct sim_peer *peer = RF_CONTAINER(node, struct sim_peer, node);

		receives_end(peer, &transport->grave);
		if (peer->endpoint) {
			endpoint_stop(peer->endpoint, true);
			free(peer->endpoint);
		}
		free(peer);
	}
	RF_LIST_EACH(node, &transport->events)
	{
		struct sim_queued *queued = RF_CONTAINER(node, struct sim_queued, node);

		if (queued->event.kind == RF_EVENT_DELIVERED)
			sim_receive_free(
				RF_CONTAINER(queued->event.receive, struct sim_receive, base));
		unqueue_one(transport, queued);
	}
	free_grave(&transport->grave);
	free_grave(&transport->grave_later);
	sim_unexpose_all(transport);
	rf_map_free(&transport->peer_map);
	rf_list_remove(&transport->node);
	free(transport);
}

static void transport_abandon(struct rf_transport *base)
{
	(void)base;
}

static int transport_blob(struct rf_transport *base, void *blob, size_t *bytes)
{
	(void)base, (void)blob;
	*bytes = 0;
	return RF_OK;
}

const struct rf_transport_ops rf_transport_sim = {
	.name = "sim",
	.create = transport_create,
	.destroy = transport_destroy,
	.abandon = transport_abandon,
	.blob = transport_blob,
	.open = transport_open,
	.attach = transport_attach,
	.accept = transport_accept,
	.close = transport_close,
	.forget = transport_forget,
	.send = sim_send,
	.put = sim_put,
	.withdraw = sim_withdraw,
	.receive_into = sim_receive_into,
	.receive_pieces = sim_receive_pieces,
	.release = sim_release,
	.discard = sim_discard,
	.expose = sim_expose,
	.unexpose = sim_unexpose,
	.map = sim_map,
	.unmap = sim_unmap,
	.doorbell = sim_doorbell,
	.poll = transport_poll,
	.arm = transport_arm,
};
