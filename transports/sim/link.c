/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: one direction of a simulated connection, in which items travel in order. Both kinds of
 * users, byte streams and the transport's segments, share the time that a message takes.
 */
#include "transports/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_OVERHEAD_BYTES = 64 };

struct sim_item *sim_item_new(enum sim_item_kind kind, const void *payload, size_t bytes)
{
	struct sim_item *item = sim_allocate(sizeof(*item));

	item->kind = kind;
	item->bytes = bytes;
	if (payload && bytes) {
		item->payload = sim_allocate(bytes);
		memcpy(item->payload, payload, bytes);
	}
	return item;
}

void sim_item_free(struct sim_item *item)
{
	if (item->send)
		item->send->item = NULL;
	free(item->payload);
	free(item);
}

static uint64_t transfer_ns(const struct sim_link *link, size_t bytes)
{
	const struct rf_sim_params *params = &link->sim->params;
	uint64_t rate = params->bytes_per_second;

	if (link->from->host == link->to->host && params->local_bytes_per_second)
		rate = params->local_bytes_per_second;
	if (!rate)
		return 0;
	return (uint64_t)((double)(bytes + ITEM_OVERHEAD_BYTES) * 1e9 / (double)rate);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A message leaves when those before it have left its process, and is through when it is also
 * through the receiver's side: cut through where that is idle. */
static uint64_t arrival_time(struct sim_link *link, size_t bytes)
{
	uint64_t takes = transfer_ns(link, bytes);
	uint64_t sent = later(link->sim->now, link->from->egress_free) + takes;
	uint64_t latency = sim_delay(link->sim, link->from, link->to);
	uint64_t through = later(sent + latency, link->to->ingress_free + takes);

	link->from->egress_free = sent;
	link->to->ingress_free = through;
	return later(through, link->last_arrival + 1);
}

static void arm_arrival(struct sim_link *link)
{
	struct sim_item *first;

	if (rf_list_empty(&link->under_way))
		return;
	first = RF_CONTAINER(link->under_way.next, struct sim_item, node);
	sim_set(link->sim, &link->arrival, first->arrives);
}

void sim_link_push(struct sim_link *link, struct sim_item *item)
{
	bool idle = rf_list_empty(&link->under_way);

	if (item->kind == SIM_BYTES)
		link->bytes += item->bytes;
	else if (item->kind == SIM_SEGMENT || item->kind == SIM_PUT)
		link->segments++;
	item->arrives = link->last_arrival = arrival_time(link, item->bytes);
	rf_list_append(&link->under_way, &item->node);
	sim_trace(link->sim, "send", link->from->id, link->to->id, item->bytes);
	if (idle && !link->parked)
		arm_arrival(link);
}

void sim_link_push_mark(struct sim_link *link, enum sim_item_kind kind)
{
	if (link->ended && kind == SIM_END)
		return;
	link->ended = true;
	sim_link_push(link, sim_item_new(kind, NULL, 0));
}

struct sim_item *sim_link_first(struct sim_link *link)
{
	if (rf_list_empty(&link->arrived))
		return NULL;
	return RF_CONTAINER(link->arrived.next, struct sim_item, node);
}

/* What can never be received. The sender of bytes learns of it as TCP would tell. */
static void drop_arrived(struct sim_link *link, struct sim_item *item)
{
	struct sim_stream *other = link->sender;

	if (item->kind == SIM_BYTES && other && !other->in->ended)
		sim_link_push_mark(other->in, SIM_RESET);
	sim_item_free(item);
}

static void break_stream(struct sim_stream *stream, int error)
{
	if (stream->state == SIM_FAILED)
		return;
	stream->state = SIM_FAILED;
	stream->error = error;
}

static void arrival_fire(struct sim_event *event)
{
	struct sim_link *link = RF_CONTAINER(event, struct sim_link, arrival);
	struct sim_item *item = RF_CONTAINER(link->under_way.next, struct sim_item, node);

	if (sim_blocked(link->from, link->to)) {
		link->parked = true;
		return;
	}
	rf_list_remove(&item->node);
	arm_arrival(link);
	sim_trace(link->sim, "arrive", link->to->id, link->from->id, item->bytes);
	if (!link->receiver || link->to->dead) {
		drop_arrived(link, item);
		return;
	}
	rf_list_append(&link->arrived, &item->node);
	if (item->kind == SIM_RESET)
		break_stream(link->receiver, ECONNRESET);
	if (link->receiver->lane)
		sim_lane_arrived(link->receiver->lane);
	else
		sim_update(&link->receiver->watched);
}

void sim_link_unpark(struct sim_link *link)
{
	uint64_t delay;

	if (!link->parked || sim_blocked(link->from, link->to))
		return;
	link->parked = false;
	delay = sim_delay(link->sim, link->from, link->to);
	if (!rf_list_empty(&link->under_way))
		sim_set(link->sim, &link->arrival, link->sim->now + delay);
}

void sim_link_consume(struct sim_link *link)
{
	struct sim_item *item = sim_link_first(link);
	struct sim_send *send = item->send;
	enum sim_item_kind kind = item->kind;

	rf_list_remove(&item->node);
	if (kind == SIM_BYTES)
		link->bytes -= item->bytes - item->consumed;
	else if (kind == SIM_SEGMENT || kind == SIM_PUT)
		link->segments--;
	sim_item_free(item);
	if (!link->sender)
		return;
	if (kind == SIM_BYTES)
		sim_update(&link->sender->watched);
	else if (link->sender->lane && link->sender->lane->endpoint)
		sim_endpoint_room(link->sender->lane->endpoint, send);
}

struct sim_connection *sim_connection_new(struct sim_net *a, struct sim_net *b)
{
	struct sim_connection *connection = sim_allocate(sizeof(*connection));

	for (int i = 0; i < 2; i++) {
		struct sim_link *link = &connection->way[i];

		link->sim = a->sim;
		link->from = i ? b : a;
		link->to = i ? a : b;
		link->arrival.fire = arrival_fire;
		rf_list_init(&link->under_way);
		rf_list_init(&link->arrived);
	}
	rf_list_append(&a->sim->connections, &connection->node);
	return connection;
}
