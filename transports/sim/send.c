/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated transport's sending side. What is sent is copied at once; the caller's buffer is
 * looked at again when it is given back, and must be as it was.
 */
#include "transports/sim/world.h"

#include <stdlib.h>
#include <string.h>

static struct sim_endpoint *endpoint_of(struct rf_endpoint *base)
{
	return (struct sim_endpoint *)base;
}

static struct rf_sim *endpoint_sim(const struct sim_endpoint *endpoint)
{
	return endpoint->peer->transport->net->sim;
}

void sim_queue_writable(struct sim_endpoint *endpoint)
{
	const struct rf_transport_event event = {
		.kind = RF_EVENT_WRITABLE,
		.peer = endpoint->peer->peer,
		.endpoint = &endpoint->base,
	};

	endpoint->blocked = false;
	sim_queue(endpoint->peer->transport, &event);
}

void sim_writable_fire(struct sim_event *event)
{
	sim_queue_writable(RF_CONTAINER(event, struct sim_endpoint, writable));
}

static void schedule_writable(struct sim_endpoint *endpoint)
{
	struct sim_net *net = endpoint->peer->transport->net;

	if (endpoint->blocked && !endpoint->down && !sim_is_set(&endpoint->writable))
		sim_set(net->sim, &endpoint->writable,
			net->sim->now + sim_delay(net->sim, net, net));
}

static uint64_t checksum(const void *memory, size_t bytes)
{
	const uint8_t *at = memory;
	uint64_t h = bytes, word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	for (; bytes; bytes--)
		h = (h ^ *at++) * UINT64_C(0x100000001b3);
	return h;
}

/* The buffer goes back to the engine: it must be as it was handed in. */
void sim_send_check(struct sim_send *send)
{
	struct sim_endpoint *endpoint = send->endpoint;

	if (send->payload && checksum(send->payload, send->bytes) != send->checksum)
		sim_violation(endpoint_sim(endpoint),
			      "process %u changed %zu bytes before their send (cookie %llu) was "
			      "complete",
			      endpoint->peer->transport->net->id, send->bytes,
			      (unsigned long long)send->cookie);
}

void sim_send_free(struct sim_send *send)
{
	if (send->item)
		send->item->send = NULL;
	sim_clear(endpoint_sim(send->endpoint), &send->completion);
	rf_list_remove(&send->node);
	free(send);
}

static void completion_fire(struct sim_event *fired)
{
	struct sim_send *send = RF_CONTAINER(fired, struct sim_send, completion);
	struct sim_endpoint *endpoint = send->endpoint;
	const struct rf_transport_event event = {
		.kind = RF_EVENT_SENT,
		.peer = endpoint->peer->peer,
		.endpoint = &endpoint->base,
		.cookie = send->cookie,
	};

	sim_send_check(send);
	if (send->pays_debt)
		endpoint->blocked = false;
	sim_queue(endpoint->peer->transport, &event);
	sim_send_free(send);
}

static void schedule_completion(struct sim_send *send)
{
	struct rf_sim *sim = endpoint_sim(send->endpoint);
	struct sim_net *net = send->endpoint->peer->transport->net;
	uint64_t delay = sim_delay(sim, net, net);

	if (sim_chance(sim, sim->params.late))
		delay += sim_up_to(sim, sim->params.late_ns);
	sim_set(sim, &send->completion, sim->now + delay);
}

void sim_endpoint_room(struct sim_endpoint *endpoint, struct sim_send *send)
{
	struct rf_sim *sim = endpoint_sim(endpoint);

	if (endpoint->down)
		return;
	if (send && send->when_taken && !sim_is_set(&send->completion)) {
		/* A send that completes stands for the room that it leaves, by chance. */
		send->pays_debt = endpoint->blocked && !sim_is_set(&endpoint->writable) &&
				  sim_chance(sim, 500);
		schedule_completion(send);
		if (send->pays_debt)
			return;
	}
	schedule_writable(endpoint);
}

/* Whether a lane takes something more now. If not, WRITABLE or a SENT is owed. */
static int lane_offer(struct sim_endpoint *endpoint, unsigned number, struct sim_lane **lane)
{
	struct rf_sim *sim = endpoint_sim(endpoint);
	const struct rf_transport_caps *caps = &endpoint->peer->transport->base.caps;

	if (number >= caps->lanes)
		return RF_ERR_INVALID;
	if (endpoint->down || endpoint->peer->transport->net->dead)
		return RF_ERR_AGAIN;
	*lane = &endpoint->lanes[number];
	if (endpoint->attached < caps->lanes ||
	    (*lane)->stream->out->segments >= sim->params.queue_depth) {
		endpoint->blocked = true;
		return RF_ERR_AGAIN;
	}
	if (sim_chance(sim, sim->params.again)) {
		endpoint->blocked = true;
		schedule_writable(endpoint);
		return RF_ERR_AGAIN;
	}
	return RF_OK;
}

static struct sim_send *send_new(struct sim_endpoint *endpoint, struct sim_item *item,
				 const void *payload, size_t bytes, uint64_t cookie)
{
	struct sim_send *send = sim_allocate(sizeof(*send));
	struct rf_sim *sim = endpoint_sim(endpoint);

	send->endpoint = endpoint;
	send->cookie = cookie;
	send->payload = endpoint->peer->transport->no_payload ? NULL : payload;
	send->bytes = bytes;
	if (send->payload)
		send->checksum = checksum(payload, bytes);
	send->item = item;
	item->send = send;
	send->completion.fire = completion_fire;
	rf_list_append(&endpoint->pending, &send->node);
	send->when_taken = sim->params.send_done_is_delivered || sim_chance(sim, 500);
	if (!send->when_taken)
		schedule_completion(send);
	return send;
}

static int post(struct sim_endpoint *endpoint, struct sim_lane *lane, struct sim_item *item,
		const void *payload, uint64_t cookie)
{
	struct rf_sim *sim = endpoint_sim(endpoint);
	bool at_once =
		item->bytes <= sim->params.inline_bytes ||
		(!sim->params.send_done_is_delivered && sim_chance(sim, sim->params.at_once));

	if (!at_once)
		send_new(endpoint, item, payload, item->bytes, cookie);
	sim_link_push(lane->stream->out, item);
	return at_once ? RF_SENT_AT_ONCE : RF_OK;
}

int sim_send(struct rf_endpoint *base, const struct rf_transport_send *send)
{
	struct sim_endpoint *endpoint = endpoint_of(base);
	struct sim_transport *transport = endpoint->peer->transport;
	struct sim_item *item;
	struct sim_lane *lane;
	int rc;

	if (send->bytes > transport->base.caps.segment_max_bytes)
		return RF_ERR_INVALID;
	rc = lane_offer(endpoint, send->lane, &lane);
	if (rc != RF_OK)
		return rc;
	item = sim_item_new(SIM_SEGMENT, transport->no_payload ? NULL : send->payload, send->bytes);
	memcpy(item->header, send->header, sizeof(item->header));
	return post(endpoint, lane, item, send->payload, send->cookie);
}

int sim_put(struct rf_endpoint *base, const struct rf_transport_put *put)
{
	struct sim_endpoint *endpoint = endpoint_of(base);
	struct sim_transport *transport = endpoint->peer->transport;
	struct sim_item *item;
	struct sim_lane *lane;
	int rc;

	if (!transport->base.caps.put)
		return RF_ERR_UNSUPPORTED;
	rc = lane_offer(endpoint, put->lane, &lane);
	if (rc != RF_OK)
		return rc;
	item = sim_item_new(SIM_PUT, transport->no_payload ? NULL : put->local, put->bytes);
	item->key = put->key;
	item->offset = put->offset;
	return post(endpoint, lane, item, put->local, put->cookie);
}

int sim_withdraw(struct rf_endpoint *base, uint64_t cookie)
{
	struct sim_endpoint *endpoint = endpoint_of(base);
	struct rf_sim *sim = endpoint_sim(endpoint);

	RF_LIST_EACH(node, &endpoint->pending)
	{
		struct sim_send *send = RF_CONTAINER(node, struct sim_send, node);

		if (send->cookie != cookie)
			continue;
		if (sim_chance(sim, sim->params.withdraw_again)) {
			/* SENT must come, whether the peer takes it or not. */
			if (!sim_is_set(&send->completion))
				schedule_completion(send);
			return RF_ERR_AGAIN;
		}
		sim_send_check(send);
		if (send->pays_debt)
			schedule_writable(endpoint);
		sim_send_free(send);
		return RF_OK;
	}
	return RF_ERR_AGAIN; /* its SENT is queued */
}
