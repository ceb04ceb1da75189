/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data: a peer's endpoint, what the transports report, and the eager budget.
 *
 * A data connection that breaks is not yet a failure: the peer's control stream tells within a
 * moment whether the peer died or left orderly. If it did neither, segments are lost, and the
 * communicators that this process shares with the peer fail.
 */
#include "engine/call.h"
#include "engine/early.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	EVENTS_A_ROUND = 256,
	VERDICT_MARGIN_MS = 400, /* beyond the lifeline's own time: it has the first say */
};

static void verdict(struct rf_timer *timer);

void rf_data_init(struct rf_peer *peer)
{
	peer->data.peer = peer;
	rf_list_init(&peer->blocked_calls);
	rf_list_init(&peer->outgoing);
	rf_list_init(&peer->staging);
	peer->verdict.fire = verdict;
}

/* ---- the endpoint --------------------------------------------------------------------------- */

static void broken(struct rf_peer *peer, const char *reason);
static void wake_blocked(struct rf_peer *peer);

static bool has_left(const rf_comm *comm, int rank)
{
	for (size_t i = 0; i < comm->leaver_count; i++) {
		if (comm->leavers[i].rank == rank)
			return true;
	}
	return false;
}

/* Whether there is a communicator that a broken data connection harms, as far as is known by now:
 * not those that the peer has left, nor those that were made after. */
static bool has_suspects(const struct rf_peer *peer)
{
	RF_LIST_EACH(node, &peer->links)
	{
		const struct rf_link *link = RF_CONTAINER(node, struct rf_link, peer_node);

		if (link->suspect && link->comm->state == RF_COMM_READY &&
		    !has_left(link->comm, link->rank))
			return true;
	}
	return false;
}

static void cancel_dials(struct rf_peer *peer)
{
	for (unsigned i = 0; i < peer->dial_count; i++) {
		if (peer->dials[i])
			rf_dial_cancel(peer->dials[i]);
	}
	free(peer->dials);
	peer->dials = NULL;
	peer->dial_count = 0;
}

static void close_endpoint(struct rf_peer *peer)
{
	cancel_dials(peer);
	if (peer->endpoint)
		peer->transport->ops->close(peer->endpoint);
	peer->endpoint = NULL;
}

static void lane_dialled(void *user, unsigned lane, int status, struct rf_stream *stream,
			 const char *reason)
{
	struct rf_peer *peer = user;

	peer->dials[lane] = NULL;
	if (status == RF_OK) {
		status = peer->transport->ops->attach(peer->endpoint, lane, stream);
		reason = rf_strerror(status);
	}
	if (status == RF_OK)
		return;
	/* It has never been writable, so nothing was posted to it. The next send opens another. */
	close_endpoint(peer);
	broken(peer, reason);
}

static int dial_lanes(struct rf_peer *peer)
{
	unsigned lanes = peer->transport->caps.lanes;

	peer->dials = calloc(lanes, sizeof(struct rf_dial *));
	if (!peer->dials)
		return RF_ERR_NOMEM;
	peer->dial_count = lanes;
	for (unsigned lane = 0; lane < lanes; lane++) {
		int status = rf_dial_data(peer, 0, lane, UINT64_MAX, lane_dialled, peer,
					  &peer->dials[lane]);

		if (status != RF_OK)
			return status;
	}
	return RF_OK;
}

static int open_endpoint(struct rf_peer *peer)
{
	struct rf_transport *transport = peer->context->transports[0];
	int status;

	if (peer->state != RF_PEER_ALIVE)
		return peer->state == RF_PEER_DEAD ? RF_ERR_RANK_DEAD : RF_ERR_RANK_LEFT;
	if (peer->verdict.position && has_suspects(peer))
		return RF_OK; /* being looked into */
	if (peer->verdict.position) {
		rf_timer_clear(&peer->context->timers, &peer->verdict);
		verdict(&peer->verdict);
	}
	status = transport->ops->open(transport, &peer->data, NULL, 0, &peer->endpoint);
	if (status != RF_OK)
		return status;
	peer->transport = transport;
	peer->endpoint->user = peer;
	if (transport->caps.uses_streams)
		status = dial_lanes(peer);
	if (status != RF_OK)
		close_endpoint(peer);
	return status;
}

int rf_data_accept(struct rf_peer *peer, unsigned transport_index, unsigned lane,
		   struct rf_stream *stream)
{
	rf_context *context = peer->context;
	struct rf_transport *transport;

	if (transport_index >= context->transport_count) {
		stream->ops->close(stream);
		return RF_ERR_UNSUPPORTED;
	}
	transport = context->transports[transport_index];
	return transport->ops->accept(transport, &peer->data, lane, stream);
}

int rf_data_send(struct rf_peer *peer, const struct rf_transport_send *send)
{
	struct rf_transport_send laned = *send;

	if (!peer->endpoint) {
		int status = open_endpoint(peer);

		if (status != RF_OK || !peer->endpoint)
			return status == RF_OK ? RF_ERR_AGAIN : status;
	}
	laned.lane = send->lane % peer->transport->caps.lanes;
	return peer->transport->ops->send(peer->endpoint, &laned);
}

static void free_staging(struct rf_peer *peer)
{
	RF_LIST_EACH(node, &peer->staging)
	{
		struct rf_staged *staged = RF_CONTAINER(node, struct rf_staged, node);

		rf_list_remove(&staged->node);
		rf_staged_free(staged);
	}
}

void rf_data_close(struct rf_peer *peer)
{
	rf_context *context = peer->context;

	rf_timer_clear(&context->timers, &peer->verdict);
	for (unsigned i = 0; i < context->transport_count; i++)
		context->transports[i]->ops->forget(context->transports[i], &peer->data);
	RF_LIST_EACH(node, &peer->links)
	{
		rf_call_lose_receives(RF_CONTAINER(node, struct rf_link, peer_node)->comm, peer);
	}
	free_staging(peer);
	close_endpoint(peer);
}

/* ---- the eager budget ----------------------------------------------------------------------- */

void rf_data_on_eager_freed(struct rf_peer *peer, uint32_t eager_freed)
{
	/* Cumulative and wrapping: what does not lie between the two marks is old or a lie. */
	if (eager_freed - peer->eager_acked <= peer->eager_sent - peer->eager_acked)
		peer->eager_acked = eager_freed;
}

void rf_data_eager_consumed(struct rf_peer *peer, size_t bytes)
{
	struct rf_segment segment = {.type = RF_SEGMENT_CREDIT};

	peer->eager_freed += rf_eager_weight(bytes);
	if (peer->eager_freed - peer->eager_told < peer->context->config.eager_budget_bytes / 4)
		return;
	/* Nothing goes to that peer that could carry it. */
	if (rf_control_send(peer, &segment, NULL, 0) == RF_OK)
		peer->eager_told = peer->eager_freed;
}

void rf_staged_free(struct rf_staged *staged)
{
	staged->peer->eager_staged -= rf_eager_weight(staged->segment.bytes);
	rf_data_eager_consumed(staged->peer, staged->segment.bytes);
	free(staged->bytes);
	free(staged);
}

/* ---- breakage ------------------------------------------------------------------------------- */

static void broken(struct rf_peer *peer, const char *reason)
{
	rf_context *context = peer->context;
	uint64_t ms = (uint64_t)context->config.redial_ms + VERDICT_MARGIN_MS;

	if (peer->state != RF_PEER_ALIVE)
		return;
	RF_LIST_EACH(node, &peer->links)
	{
		struct rf_link *link = RF_CONTAINER(node, struct rf_link, peer_node);

		link->suspect |= link->comm->state == RF_COMM_READY;
	}
	if (peer->verdict.position)
		return;
	snprintf(peer->down_reason, sizeof(peer->down_reason), "%s", reason);
	if (!has_suspects(peer) ||
	    rf_timer_set(&context->timers, &peer->verdict, rf_now(context) + ms * 1000000) != RF_OK)
		verdict(&peer->verdict);
	else
		rf_control_suspect(peer, reason);
}

/* The lifeline had its say: the peer is alive, or it would not have come to this. */
static void verdict(struct rf_timer *timer)
{
	struct rf_peer *peer = RF_CONTAINER(timer, struct rf_peer, verdict);

	RF_LIST_EACH(node, &peer->outgoing)
	{
		struct rf_outgoing *outgoing = RF_CONTAINER(node, struct rf_outgoing, peer_node);

		/* Whoever left had all that it needed. */
		if (!peer->endpoint && has_left(outgoing->call->request.comm, outgoing->to))
			rf_call_sent(outgoing);
	}
	RF_LIST_EACH(node, &peer->links)
	{
		struct rf_link *link = RF_CONTAINER(node, struct rf_link, peer_node);
		rf_comm *comm = link->comm;
		char message[320];

		if (!link->suspect || comm->state != RF_COMM_READY || has_left(comm, link->rank))
			continue;
		snprintf(message, sizeof(message),
			 "the data connection between rank %d and rank %d broke: %s", comm->rank,
			 link->rank, peer->down_reason);
		rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_NETWORK, &link->rank, 1, message);
	}
	/* Calls of other communicators have waited for this to open an endpoint. */
	wake_blocked(peer);
}

/* ---- events --------------------------------------------------------------------------------- */

/* A segment that cannot be taken: nothing of it may be used. */
static void refuse(struct rf_transport *transport, struct rf_peer *peer, struct rf_receive *receive,
		   const struct rf_segment *segment)
{
	transport->ops->discard(receive);
	if (segment->flags & RF_SEGMENT_EAGER)
		rf_data_eager_consumed(peer, segment->bytes);
}

static void protocol_error(rf_comm *comm, const struct rf_link *link, const char *what)
{
	char message[256];

	snprintf(message, sizeof(message), "rank %d broke the protocol: %s", link->rank, what);
	rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_PROTOCOL, &link->rank, 1, message);
}

static void stage(struct rf_transport *transport, struct rf_link *link,
		  const struct rf_segment *segment, struct rf_receive *receive)
{
	struct rf_peer *peer = link->peer;
	uint32_t weight = rf_eager_weight(segment->bytes);
	struct rf_staged *staged;

	if (!(segment->flags & RF_SEGMENT_EAGER) ||
	    (uint64_t)peer->eager_staged + weight > link->comm->agreed.eager_budget_bytes) {
		protocol_error(link->comm, link,
			       "data of a call that this rank has not started, without credit");
		refuse(transport, peer, receive, segment);
		return;
	}
	staged = calloc(1, sizeof(*staged));
	if (staged && segment->bytes && !peer->context->no_payload) {
		staged->bytes = malloc(segment->bytes);
		if (!staged->bytes) {
			free(staged);
			staged = NULL;
		}
	}
	if (!staged) {
		rf_comm_fail(link->comm, RF_SEGMENT_ABORT, RF_ERR_NOMEM, &link->comm->rank, 1,
			     "out of memory for an early segment");
		refuse(transport, peer, receive, segment);
		return;
	}
	staged->sink = RF_SINK_STAGE;
	staged->peer = peer;
	staged->segment = *segment;
	peer->eager_staged += weight;
	rf_list_append(&peer->staging, &staged->node);
	receive->user = staged;
	transport->ops->receive_into(receive, staged->bytes);
}

static void on_segment(struct rf_transport *transport, const struct rf_transport_event *event)
{
	struct rf_peer *peer = event->peer->peer;
	struct rf_segment segment;
	struct rf_link *link;
	struct rf_call *call;
	rf_comm *comm;

	event->receive->user = NULL;
	if (rf_segment_decode(event->receive->header, &segment) != RF_OK)
		return; /* the transport has checked it */
	rf_data_on_eager_freed(peer, segment.eager_freed);
	comm = rf_map_get(&peer->context->comms, segment.comm);
	if (!comm || comm->epoch != segment.epoch || comm->state == RF_COMM_FAILED ||
	    comm->state == RF_COMM_LEFT || segment.type != RF_SEGMENT_DATA) {
		refuse(transport, peer, event->receive, &segment);
		return;
	}
	link = rf_peer_link(peer, comm);
	if (!link) {
		refuse(transport, peer, event->receive, &segment);
		return;
	}
	if (link->granted <= segment.seq)
		link->granted = segment.seq + 1;
	call = rf_map_get(&comm->calls, segment.seq + 1);
	if (call) {
		rf_call_segment(call, link, &segment, transport, event->receive, NULL);
		rf_call_make_ready(call); /* its credit may be news */
	} else if (segment.seq >= comm->next_seq) {
		stage(transport, link, &segment, event->receive);
	} else {
		/* Of a call that has ended here, and so of another one if it is data at all. */
		const struct rf_fingerprint *mine = rf_early_ended(comm, segment.seq);

		refuse(transport, peer, event->receive, &segment);
		if (mine && !rf_fingerprint_equal(mine, &segment.fingerprint))
			rf_call_mismatch(comm, segment.seq, mine, link->rank, &segment.fingerprint);
	}
}

static void staged_arrived(struct rf_staged *staged)
{
	const struct rf_segment *segment = &staged->segment;
	rf_comm *comm = rf_map_get(&staged->peer->context->comms, segment->comm);
	struct rf_link *link = comm ? rf_peer_link(staged->peer, comm) : NULL;
	struct rf_call *call = comm ? rf_map_get(&comm->calls, segment->seq + 1) : NULL;
	struct rf_staged *first;

	rf_list_remove(&staged->node);
	if (call && link) {
		rf_call_segment(call, link, segment, NULL, NULL, staged);
		return;
	}
	if (!link || segment->seq < comm->next_seq) {
		rf_staged_free(staged);
		return;
	}
	first = rf_map_get(&comm->staged, segment->seq + 1);
	if (!first) {
		if (rf_map_put(&comm->staged, segment->seq + 1, staged) != RF_OK) {
			rf_staged_free(staged);
			rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_NOMEM, &comm->rank, 1,
				     "out of memory for an early segment");
		}
		return;
	}
	while (first->next)
		first = first->next;
	first->next = staged;
}

static void on_delivered(struct rf_receive *receive)
{
	enum rf_sink *sink = receive->user;

	if (!sink)
		return;
	if (*sink == RF_SINK_CALL)
		rf_call_delivered(receive->user);
	else
		staged_arrived(receive->user);
}

static void wake_blocked(struct rf_peer *peer)
{
	RF_LIST_EACH(node, &peer->blocked_calls)
	{
		struct rf_block *block = RF_CONTAINER(node, struct rf_block, peer_node);

		rf_call_make_ready(block->call);
		rf_list_remove(&block->peer_node);
		rf_list_remove(&block->call_node);
		rf_list_append(&peer->context->free_blocks, &block->call_node);
	}
}

/* The transport has let go of everything to and from the peer. */
static void on_down(struct rf_transport *transport, const struct rf_transport_event *event)
{
	struct rf_peer *peer = event->peer->peer;

	if (peer->endpoint && peer->transport == transport && event->endpoint == peer->endpoint)
		close_endpoint(peer);
	RF_LIST_EACH(node, &peer->links)
	{
		rf_call_lose_receives(RF_CONTAINER(node, struct rf_link, peer_node)->comm, peer);
	}
	free_staging(peer);
	RF_LIST_EACH(node, &peer->outgoing)
	{
		struct rf_outgoing *outgoing = RF_CONTAINER(node, struct rf_outgoing, peer_node);

		if (outgoing->call->failed) /* waited only for the transport to let go */
			rf_call_sent(outgoing);
	}
	broken(peer, event->reason);
}

static void handle(struct rf_transport *transport, const struct rf_transport_event *event)
{
	switch (event->kind) {
	case RF_EVENT_SEGMENT:
		on_segment(transport, event);
		break;
	case RF_EVENT_PIECE:
		if (event->receive->user)
			rf_call_piece(event->receive->user, event->offset, event->piece,
				      event->bytes);
		transport->ops->release(event->receive);
		break;
	case RF_EVENT_DELIVERED:
		on_delivered(event->receive);
		break;
	case RF_EVENT_SENT: {
		struct rf_peer *peer = event->peer->peer;

		rf_call_sent((struct rf_outgoing *)(uintptr_t)event->cookie);
		wake_blocked(peer);
		break;
	}
	case RF_EVENT_WRITABLE:
		wake_blocked(event->peer->peer);
		break;
	case RF_EVENT_DOWN:
		on_down(transport, event);
		break;
	}
}

int rf_data_poll(rf_context *context)
{
	int happened = 0;

	for (unsigned i = 0; i < context->transport_count; i++) {
		struct rf_transport *transport = context->transports[i];
		struct rf_transport_event event;

		for (int n = 0; n < EVENTS_A_ROUND; n++) {
			if (transport->ops->poll(transport, &event) != RF_OK)
				break;
			handle(transport, &event);
			/* At once: what was just folded is still in cache, and can be sent on. */
			rf_calls_advance(context);
			happened = 1;
		}
	}
	return happened;
}
