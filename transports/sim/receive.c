/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated transport's receiving side, and remote memory. Memory that the engine should not
 * read yet, or no more, is filled with a pattern: a borrowed piece is an allocation of its exact
 * size, wiped and freed at release().
 */
#include "transports/sim/world.h"

#include <stdlib.h>
#include <string.h>

enum { WIPE_EARLY = 0xe5, WIPE_LATE = 0xa6, PIECE_UNIT = 64 };

static struct sim_receive *receive_of(struct rf_receive *base)
{
	return RF_CONTAINER(base, struct sim_receive, base);
}

static struct rf_sim *receive_sim(const struct sim_receive *receive)
{
	return receive->transport->net->sim;
}

static void queue_event(struct sim_receive *receive, enum rf_transport_event_kind kind)
{
	const struct rf_transport_event event = {
		.kind = kind,
		.peer = receive->base.peer,
		.receive = &receive->base,
		.piece = kind == RF_EVENT_PIECE && receive->piece
				 ? receive->piece + receive->piece_shift
				 : NULL,
		.offset = kind == RF_EVENT_PIECE ? receive->done : 0,
		.bytes = kind == RF_EVENT_PIECE ? receive->piece_bytes : 0,
	};

	sim_queue(receive->transport, &event);
}

/* ---- the life of a receive ------------------------------------------------------------------ */

static void piece_end(struct sim_receive *receive)
{
	if (receive->piece)
		memset(receive->piece + receive->piece_shift, WIPE_LATE, receive->piece_bytes);
	free(receive->piece);
	receive->piece = NULL;
	receive->lent = false;
}

void sim_receive_kill(struct sim_receive *receive)
{
	sim_clear(receive_sim(receive), &receive->step);
	receive->mode = SIM_DEAD;
	receive->memory = NULL;
	receive->item = NULL;
	receive->lane = NULL;
}

void sim_receive_free(struct sim_receive *receive)
{
	sim_receive_kill(receive);
	piece_end(receive);
	rf_list_remove(&receive->node);
	free(receive);
}

/* The lane goes on with what comes next. */
static void let_go_of_lane(struct sim_receive *receive)
{
	struct sim_lane *lane = receive->lane;

	sim_receive_kill(receive);
	lane->current = NULL;
	sim_link_consume(lane->stream->in);
	sim_lane_receive(lane);
}

static void finish(struct sim_receive *receive)
{
	/* Before the lane goes on, so that the next segment is told after it. */
	queue_event(receive, RF_EVENT_DELIVERED);
	let_go_of_lane(receive);
}

static size_t next_piece_bytes(struct sim_receive *receive)
{
	size_t rest = receive->item->bytes - receive->done;
	size_t most = receive->transport->piece_max_bytes / PIECE_UNIT;
	size_t bytes;

	if (!receive->transport->piece_max_bytes)
		return rest;
	bytes = PIECE_UNIT * (1 + sim_up_to(receive_sim(receive), most ? most - 1 : 0));
	return bytes < rest ? bytes : rest;
}

static void land_piece(struct sim_receive *receive, size_t bytes)
{
	if (receive->item->payload && receive->memory)
		memcpy(receive->memory + receive->done, receive->item->payload + receive->done,
		       bytes);
	receive->done += bytes;
}

static void lend_piece(struct sim_receive *receive, size_t bytes)
{
	struct rf_sim *sim = receive_sim(receive);

	receive->piece_bytes = bytes;
	if (receive->item->payload) {
		receive->piece_shift = sim_up_to(sim, sim->params.piece_shift);
		receive->piece = sim_allocate(receive->piece_shift + bytes);
		memcpy(receive->piece + receive->piece_shift,
		       receive->item->payload + receive->done, bytes);
	}
	receive->lent = true;
	queue_event(receive, RF_EVENT_PIECE);
}

static void receive_step(struct sim_receive *receive);

/* The next piece comes after a while. */
static void schedule_step(struct sim_receive *receive)
{
	struct rf_sim *sim = receive_sim(receive);
	uint64_t delay = sim_up_to(sim, sim->params.piece_delay_ns);

	if (receive->transport->net->dead)
		return;
	if (delay || receive->mode == SIM_INTO)
		sim_set(sim, &receive->step, sim->now + delay);
	else
		receive_step(receive);
}

static void receive_step(struct sim_receive *receive)
{
	if (receive->done == receive->item->bytes) {
		finish(receive);
	} else if (receive->mode == SIM_PIECES) {
		lend_piece(receive, next_piece_bytes(receive));
	} else {
		land_piece(receive, next_piece_bytes(receive));
		schedule_step(receive);
	}
}

static void step_fire(struct sim_event *event)
{
	receive_step(RF_CONTAINER(event, struct sim_receive, step));
}

/* ---- what arrives on a lane ----------------------------------------------------------------- */

static void segment_arrived(struct sim_lane *lane, struct sim_item *item)
{
	struct sim_receive *receive = sim_allocate(sizeof(*receive));

	receive->base.peer = lane->peer->peer;
	receive->base.lane = lane->number;
	receive->base.bytes = item->bytes;
	memcpy(receive->base.header, item->header, sizeof(item->header));
	receive->transport = lane->peer->transport;
	receive->lane = lane;
	receive->item = item;
	receive->step.fire = step_fire;
	rf_list_init(&receive->node);
	lane->current = receive;
	queue_event(receive, RF_EVENT_SEGMENT);
}

/* What the codec refuses never reaches the engine. */
static bool header_is_valid(const struct sim_item *item)
{
	struct rf_segment segment;

	return rf_segment_decode(item->header, &segment) == RF_OK && segment.bytes == item->bytes;
}

void sim_lane_receive(struct sim_lane *lane)
{
	struct sim_item *item;

	while (!lane->current && (item = sim_link_first(lane->stream->in))) {
		struct sim_peer *peer = lane->peer;

		if (item->kind == SIM_SEGMENT && header_is_valid(item)) {
			segment_arrived(lane, item);
		} else if (item->kind == SIM_PUT &&
			   sim_put_arrived(lane->peer->transport->net, item)) {
			sim_link_consume(lane->stream->in);
		} else if (item->kind == SIM_END) {
			sim_lane_free(lane);
			sim_peer_forget_if_unused(peer);
			return;
		} else {
			sim_peer_down(peer, RF_ERR_PROTOCOL, "the peer sent what is not allowed");
			return;
		}
	}
}

/* ---- the engine's answers ------------------------------------------------------------------- */

int sim_receive_into(struct rf_receive *base, void *memory)
{
	struct sim_receive *receive = receive_of(base);

	if (receive->mode == SIM_DEAD)
		return RF_OK;
	if (receive->mode != SIM_UNANSWERED)
		return RF_ERR_INVALID;
	receive->mode = SIM_INTO;
	receive->memory = memory;
	if (receive->item->payload)
		memset(memory, WIPE_EARLY, base->bytes);
	schedule_step(receive);
	return RF_OK;
}

int sim_receive_pieces(struct rf_receive *base)
{
	struct sim_receive *receive = receive_of(base);

	if (receive->mode == SIM_DEAD)
		return RF_OK;
	if (receive->mode != SIM_UNANSWERED)
		return RF_ERR_INVALID;
	if (!receive->transport->base.caps.borrow)
		return RF_ERR_UNSUPPORTED;
	receive->mode = SIM_PIECES;
	schedule_step(receive);
	return RF_OK;
}

void sim_release(struct rf_receive *base)
{
	struct sim_receive *receive = receive_of(base);
	size_t bytes = receive->piece_bytes;

	if (!receive->lent) {
		sim_violation(receive_sim(receive), "process %u released a piece that it had not",
			      receive->transport->net->id);
		return;
	}
	piece_end(receive);
	if (receive->mode == SIM_DEAD)
		return;
	receive->done += bytes;
	schedule_step(receive);
}

void sim_discard(struct rf_receive *base)
{
	struct sim_receive *receive = receive_of(base);

	sim_unqueue_receive(receive->transport, base);
	if (receive->mode != SIM_DEAD)
		let_go_of_lane(receive);
	sim_receive_free(receive);
}

/* ---- remote memory -------------------------------------------------------------------------- */

struct region {
	struct rf_list node;
	struct sim_transport *transport;
	uint64_t key;
	uint8_t *memory;
	size_t bytes;
};

static struct region *find_region(struct rf_sim *sim, uint64_t key)
{
	RF_LIST_EACH(node, &sim->regions)
	{
		struct region *region = RF_CONTAINER(node, struct region, node);

		if (region->key == key)
			return region;
	}
	return NULL;
}

static bool region_holds(const struct region *region, uint64_t offset, size_t bytes)
{
	return offset <= region->bytes && bytes <= region->bytes - offset;
}

int sim_expose(struct rf_transport *base, void *memory, size_t bytes, uint64_t *key)
{
	struct sim_transport *transport = (struct sim_transport *)base;
	struct rf_sim *sim = transport->net->sim;
	struct region *region;

	if (!base->caps.put && !base->caps.load_store)
		return RF_ERR_UNSUPPORTED;
	region = sim_allocate(sizeof(*region));
	region->transport = transport;
	region->key = sim->next_key++;
	region->memory = memory;
	region->bytes = bytes;
	rf_list_append(&sim->regions, &region->node);
	*key = region->key;
	return RF_OK;
}

static void region_free(struct region *region)
{
	rf_list_remove(&region->node);
	free(region);
}

void sim_unexpose(struct rf_transport *base, uint64_t key)
{
	struct sim_transport *transport = (struct sim_transport *)base;
	struct region *region = find_region(transport->net->sim, key);

	if (region && region->transport == transport)
		region_free(region);
}

void sim_unexpose_all(struct sim_transport *transport)
{
	RF_LIST_EACH(node, &transport->net->sim->regions)
	{
		struct region *region = RF_CONTAINER(node, struct region, node);

		if (region->transport == transport)
			region_free(region);
	}
}

bool sim_put_arrived(struct sim_net *net, const struct sim_item *item)
{
	struct region *region = find_region(net->sim, item->key);

	if (!region || region->transport->net != net ||
	    !region_holds(region, item->offset, item->bytes))
		return false;
	if (item->payload)
		memcpy(region->memory + item->offset, item->payload, item->bytes);
	return true;
}

int sim_map(struct rf_endpoint *base, uint64_t key, size_t bytes, void **memory)
{
	struct sim_transport *transport = ((struct sim_endpoint *)base)->peer->transport;
	struct region *region = find_region(transport->net->sim, key);

	if (!transport->base.caps.load_store)
		return RF_ERR_UNSUPPORTED;
	if (!region || !region_holds(region, 0, bytes))
		return RF_ERR_INVALID;
	if (region->transport->net->host != transport->net->host)
		return RF_ERR_UNSUPPORTED;
	*memory = region->memory;
	return RF_OK;
}

void sim_unmap(struct rf_endpoint *base, void *memory, size_t bytes)
{
	(void)base, (void)memory, (void)bytes;
}

/* The peer simply runs: a spurious round is allowed at any time. */
int sim_doorbell(struct rf_endpoint *base)
{
	struct sim_endpoint *endpoint = (struct sim_endpoint *)base;
	struct sim_net *far;

	if (!endpoint->peer->transport->base.caps.load_store)
		return RF_ERR_UNSUPPORTED;
	if (!endpoint->attached || endpoint->down)
		return RF_ERR_AGAIN;
	far = endpoint->lanes[0].stream->out->to;
	rf_sim_again(far->sim, far->id);
	return RF_OK;
}
