/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives for a call: segments, which are checked against its fingerprint, placed where its
 * algorithm says, and folded or landed there; and credit.
 */
#include "engine/call.h"
#include "engine/early.h"
#include "engine/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rf_incoming *new_incoming(rf_context *context)
{
	struct rf_incoming *incoming;

	if (rf_list_empty(&context->free_incoming))
		return malloc(sizeof(*incoming));
	incoming = RF_CONTAINER(context->free_incoming.next, struct rf_incoming, node);
	rf_list_remove(&incoming->node);
	return incoming;
}

static void feed_staged(struct rf_incoming *incoming)
{
	struct rf_staged *staged = incoming->staged;

	if (incoming->arrival.bytes)
		rf_call_piece(incoming, 0, staged->bytes, incoming->arrival.bytes);
	rf_call_delivered(incoming);
}

static int answer(struct rf_incoming *incoming)
{
	struct rf_transport *transport;

	if (incoming->staged) {
		feed_staged(incoming);
		return RF_OK;
	}
	transport = incoming->transport;
	if (incoming->landing.kind == RF_LAND_INTO)
		return transport->ops->receive_into(incoming->receive, incoming->landing.dst);
	if (transport->caps.borrow)
		return transport->ops->receive_pieces(incoming->receive);
	if (incoming->arrival.bytes && !incoming->stage->group.no_payload) {
		incoming->bounce = malloc(incoming->arrival.bytes);
		if (!incoming->bounce)
			return RF_ERR_NOMEM;
	}
	return transport->ops->receive_into(incoming->receive, incoming->bounce);
}

static void bad_segment(struct rf_incoming *incoming, int error)
{
	struct rf_call *call = incoming->call;
	char what[200];

	if (error == RF_ERR_NOMEM) {
		rf_call_drop_incoming(incoming);
		rf_call_break(call, error, "out of memory for an arriving segment");
		return;
	}
	snprintf(what, sizeof(what),
		 "rank %d sent a segment that does not belong to it (channel %u, chunk %u, %zu "
		 "bytes)",
		 incoming->link->rank, incoming->arrival.channel, incoming->arrival.chunk,
		 incoming->arrival.bytes);
	rf_call_drop_incoming(incoming);
	rf_call_break(call, RF_ERR_PROTOCOL, what);
}

/* Asks the algorithm where a segment goes, and answers the transport. */
static void place(struct rf_incoming *incoming)
{
	struct rf_stage *stage = incoming->stage;
	int status;

	incoming->landing = (struct rf_landing){.kind = RF_LAND_LATER};
	status = stage->plan.algo->accept(stage->state, &incoming->arrival, &incoming->landing);
	if (status == RF_OK) {
		incoming->put_off = incoming->landing.kind == RF_LAND_LATER;
		if (!incoming->put_off)
			status = answer(incoming);
	}
	if (status != RF_OK)
		bad_segment(incoming, status);
}

void rf_call_retry_put_off(struct rf_call *call)
{
	RF_LIST_EACH(node, &call->incoming)
	{
		struct rf_incoming *incoming = RF_CONTAINER(node, struct rf_incoming, node);

		if (incoming->put_off)
			place(incoming);
		if (call->failed)
			return;
	}
}

void rf_call_segment(struct rf_call *call, struct rf_link *link, const struct rf_segment *segment,
		     struct rf_transport *transport, struct rf_receive *receive,
		     struct rf_staged *staged)
{
	rf_context *context = call->request.context;
	struct rf_incoming *incoming = new_incoming(context);
	struct rf_fingerprint theirs;

	if (!incoming) {
		rf_call_break(call, RF_ERR_NOMEM, "out of memory for an arriving segment");
		if (receive)
			transport->ops->discard(receive);
		if (receive && segment->flags & RF_SEGMENT_EAGER)
			rf_data_eager_consumed(link->peer, segment->bytes);
		if (staged)
			rf_staged_free(staged);
		return;
	}
	*incoming = (struct rf_incoming){
		.sink = RF_SINK_CALL,
		.call = call,
		.stage = &call->stages[0],
		.link = link,
		.transport = transport,
		.receive = receive,
		.staged = staged,
		.eager = segment->flags & RF_SEGMENT_EAGER,
		.arrival = {.from = link->rank,
			    .channel = segment->channel,
			    .chunk = segment->chunk,
			    .bytes = segment->bytes},
	};
	rf_list_append(&call->incoming, &incoming->node);
	if (receive)
		receive->user = incoming;
	if (call->failed) {
		rf_call_drop_incoming(incoming);
	} else if (!rf_fingerprint_equal(&call->fingerprint, &segment->fingerprint)) {
		theirs = segment->fingerprint; /* a staged one goes with what is dropped */
		rf_call_drop_incoming(incoming);
		rf_call_mismatch(link->comm, call->seq, &call->fingerprint, link->rank, &theirs);
	} else if (segment->stage != 0 || call->stages[0].done) {
		bad_segment(incoming, RF_ERR_PROTOCOL);
	} else {
		place(incoming);
	}
}

void rf_call_piece(struct rf_incoming *incoming, size_t offset, const void *piece, size_t bytes)
{
	const struct rf_landing *landing = &incoming->landing;
	size_t wire_size = rf_dtype_size(landing->incoming_type);
	size_t first, count;

	if (incoming->stage->group.no_payload)
		return;
	if (landing->kind == RF_LAND_INTO) {
		memcpy((char *)landing->dst + offset, piece, bytes);
		return;
	}
	first = offset / wire_size;
	count = bytes / wire_size;
	rf_fold2(landing->op, landing->dst_type,
		 (char *)landing->dst + first * rf_dtype_size(landing->dst_type),
		 landing->other_type,
		 (const char *)landing->other + first * rf_dtype_size(landing->other_type),
		 landing->incoming_type, piece, count);
}

void rf_call_delivered(struct rf_incoming *incoming)
{
	struct rf_call *call = incoming->call;
	struct rf_arrival arrival = incoming->arrival;
	rf_counters *counters = &call->request.comm->counters;

	if (incoming->bounce)
		rf_call_piece(incoming, 0, incoming->bounce, arrival.bytes);
	counters->segments_received++;
	counters->payload_bytes_received += arrival.bytes;
	if (incoming->staged)
		rf_staged_free(incoming->staged);
	else if (incoming->eager)
		rf_data_eager_consumed(incoming->link->peer, arrival.bytes);
	rf_call_free_incoming(incoming);
	call->stages[0].plan.algo->arrived(call->stages[0].state, &arrival);
	rf_call_make_ready(call);
}

/* ---- credit --------------------------------------------------------------------------------- */

/* The peer waits for a call of ours. If it has started already, the peer is told again; if it has
 * ended, what the peer had for it has come. */
static int on_want(struct rf_link *link, const struct rf_segment *segment)
{
	rf_comm *comm = link->comm;
	struct rf_segment reply = {
		.type = RF_SEGMENT_CREDIT, .epoch = comm->epoch, .comm = comm->id};
	const struct rf_call *call;

	reply.seq = segment->seq;
	if (segment->seq >= comm->next_seq) {
		if (link->wanted <= segment->seq)
			link->wanted = segment->seq + 1;
		/* An earlier call may wait as well, and may have to end before the later one
		 * starts. */
		if (!comm->next_seq || link->told >= comm->next_seq)
			return RF_OK;
		reply.seq = comm->next_seq - 1;
	}
	call = rf_map_get(&comm->calls, reply.seq + 1);
	if (!call)
		return RF_OK;
	reply.fingerprint = call->fingerprint;
	if (link->told <= reply.seq)
		link->told = reply.seq + 1;
	return rf_control_send(link->peer, &reply, NULL, 0) == RF_ERR_NOMEM ? RF_ERR_NOMEM : RF_OK;
}

int rf_call_on_credit(struct rf_peer *peer, const struct rf_segment *segment)
{
	rf_comm *comm = rf_map_get(&peer->context->comms, segment->comm);
	const struct rf_fingerprint *mine;
	struct rf_link *link;
	struct rf_call *call;

	if (!comm || comm->epoch != segment->epoch || comm->state == RF_COMM_FAILED)
		return RF_OK; /* of a communicator that is gone, or only tells of freed bytes */
	link = rf_peer_link(peer, comm);
	if (!link)
		return RF_ERR_PROTOCOL;
	if (link->granted <= segment->seq)
		link->granted = segment->seq + 1;
	call = rf_map_get(&comm->calls, segment->seq + 1);
	mine = call ? &call->fingerprint : rf_early_ended(comm, segment->seq);
	if (mine && !rf_fingerprint_equal(mine, &segment->fingerprint)) {
		rf_call_mismatch(comm, segment->seq, mine, link->rank, &segment->fingerprint);
		return RF_OK;
	}
	rf_early_note(comm, link->rank, segment);
	if (segment->type == RF_SEGMENT_WANT)
		return on_want(link, segment);
	if (call)
		rf_call_make_ready(call);
	return RF_OK;
}
