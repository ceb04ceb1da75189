/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a call that has been started: advanced whenever something it waits for has happened,
 * fed with the segments that carry its number, and ended, well or with an error, when nothing of
 * its buffers is in the transports' hands any more.
 */
#include "engine/arena/arena.h"
#include "engine/call.h"
#include "engine/early.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- ending --------------------------------------------------------------------------------- */

void rf_call_free(struct rf_call *call)
{
	free(call);
}

static void drop_blocks(struct rf_call *call)
{
	RF_LIST_EACH(node, &call->blocks)
	{
		struct rf_block *block = RF_CONTAINER(node, struct rf_block, call_node);

		rf_list_remove(&block->peer_node);
		rf_list_remove(&block->call_node);
		rf_list_append(&call->request.context->free_blocks, &block->call_node);
	}
}

static void end_call(struct rf_call *call, int status)
{
	rf_comm *comm = call->request.comm;
	rf_context *context = call->request.context;
	struct rf_stage *stage = &call->stages[0];

	drop_blocks(call);
	rf_early_end(comm, call->seq, &call->fingerprint);
	rf_timer_clear(&context->timers, &call->patience);
	rf_timer_clear(&context->timers, &call->request.deadline);
	rf_map_remove(&comm->calls, call->seq + 1);
	rf_list_remove(&call->node);
	rf_list_remove(&call->ready_node);
	rf_list_remove(&call->word_node);
	stage->plan.algo->destroy(stage->state);
	free(call->expected);
	free(call->counts);
	call->expected = NULL;
	call->counts = NULL;
	comm->open_calls--;
	comm->counters.calls_ended++;
	if (context->config.progress[0] == 't')
		context->background_calls--;
	rf_request_end(&call->request, status);
}

void rf_call_end_if_drained(struct rf_call *call)
{
	if (!rf_list_empty(&call->outgoing) || !rf_list_empty(&call->incoming))
		return;
	if (call->failed)
		end_call(call, call->failed);
	else if (call->stages[0].done)
		end_call(call, RF_OK);
}

void rf_call_free_incoming(struct rf_incoming *incoming)
{
	free(incoming->bounce);
	rf_list_remove(&incoming->node);
	rf_list_append(&incoming->call->request.context->free_incoming, &incoming->node);
}

static void free_outgoing(struct rf_outgoing *outgoing)
{
	rf_list_remove(&outgoing->peer_node);
	rf_list_remove(&outgoing->node);
	rf_list_append(&outgoing->call->request.context->free_outgoing, &outgoing->node);
}

/* Lets go of a segment that has not been used (entirely). */
void rf_call_drop_incoming(struct rf_incoming *incoming)
{
	if (incoming->receive) {
		incoming->receive->user = NULL;
		incoming->transport->ops->discard(incoming->receive);
		if (incoming->eager)
			rf_data_eager_consumed(incoming->link->peer, incoming->arrival.bytes);
	}
	if (incoming->staged)
		rf_staged_free(incoming->staged);
	rf_call_free_incoming(incoming);
}

void rf_call_lose_receives(rf_comm *comm, const struct rf_peer *peer)
{
	RF_LIST_EACH(node, &comm->call_list)
	{
		struct rf_call *call = RF_CONTAINER(node, struct rf_call, node);

		RF_LIST_EACH(in, &call->incoming)
		{
			struct rf_incoming *incoming = RF_CONTAINER(in, struct rf_incoming, node);

			if (incoming->receive && incoming->link->peer == peer)
				rf_call_free_incoming(incoming);
		}
	}
}

/* Takes everything back from the transports that they let go of now. */
static void withdraw_all(struct rf_call *call)
{
	RF_LIST_EACH(node, &call->incoming)
	{
		rf_call_drop_incoming(RF_CONTAINER(node, struct rf_incoming, node));
	}
	RF_LIST_EACH(node, &call->outgoing)
	{
		struct rf_outgoing *outgoing = RF_CONTAINER(node, struct rf_outgoing, node);
		struct rf_peer *peer = outgoing->peer;

		if (!peer->endpoint ||
		    peer->transport->ops->withdraw(peer->endpoint, (uintptr_t)outgoing) == RF_OK)
			free_outgoing(outgoing);
	}
}

void rf_call_fail(struct rf_call *call, int status)
{
	if (call->failed)
		return;
	call->failed = status;
	drop_blocks(call);
	withdraw_all(call);
	/* Ended from the ready list, never under the feet of whoever noticed the failure. */
	rf_call_make_ready(call);
}

void rf_comm_revoke_calls(rf_comm *comm, int error)
{
	RF_LIST_EACH(node, &comm->call_list)
	{
		rf_call_fail(RF_CONTAINER(node, struct rf_call, node), error);
	}
}

/* ---- advancing ------------------------------------------------------------------------------ */

void rf_call_make_ready(struct rf_call *call)
{
	if (call->is_ready)
		return;
	call->is_ready = true;
	rf_list_append(&call->request.context->ready_calls, &call->ready_node);
}

/* Time spent waiting is booked on the rank that was waited for. */
static void book_wait(struct rf_stage *stage, int awaited)
{
	rf_comm *comm = stage->call->request.comm;
	uint64_t now;

	if (awaited == stage->awaited)
		return;
	now = rf_now(comm->context);
	if (stage->awaited >= 0)
		comm->counters.wait_ns += now - stage->awaited_since;
	if (stage->awaited >= 0 && comm->ranks[stage->awaited].link)
		comm->ranks[stage->awaited].link->wait_ns += now - stage->awaited_since;
	stage->awaited = awaited;
	stage->awaited_since = now;
}

void rf_call_break(struct rf_call *call, int error, const char *what)
{
	rf_comm *comm = call->request.comm;
	char message[256];

	snprintf(message, sizeof(message), "rank %d: call %llu: %s", comm->rank,
		 (unsigned long long)call->seq, what);
	rf_comm_fail(comm, RF_SEGMENT_ABORT, error, &comm->rank, 1, message);
	rf_call_fail(call, error);
}

int rf_call_partner_failed(struct rf_call *call, const struct rf_link *link, int status)
{
	rf_comm *comm = call->request.comm;
	bool dead = status == RF_ERR_RANK_DEAD;
	char message[128];

	if (!dead && status != RF_ERR_RANK_LEFT)
		return status;
	snprintf(message, sizeof(message), "rank %d %s, and call %llu of rank %d needs it",
		 link->rank, dead ? "is dead" : "has left", (unsigned long long)call->seq,
		 comm->rank);
	rf_comm_fail(comm, dead ? RF_SEGMENT_DEATH : RF_SEGMENT_REVOKE, status, &link->rank, 1,
		     message);
	return status;
}

static void advance(struct rf_call *call)
{
	struct rf_stage *stage = &call->stages[0];
	int awaited = -1;
	int status;

	if (!call->failed && !stage->done) {
		status = stage->plan.algo->advance(stage->state, &awaited);
		book_wait(stage, status == RF_ERR_AGAIN ? awaited : -1);
		if (status == RF_OK)
			stage->done = true;
		else if (status != RF_ERR_AGAIN && !call->failed)
			rf_call_break(call, status, rf_strerror(status));
		else if (!call->failed)
			rf_call_retry_put_off(call);
	}
	rf_call_end_if_drained(call);
}

void rf_calls_poll(rf_context *context)
{
	RF_LIST_EACH(node, &context->word_calls)
	{
		struct rf_call *call = RF_CONTAINER(node, struct rf_call, word_node);
		struct rf_stage *stage = &call->stages[0];

		if (stage->group.arena->armed)
			rf_arena_disarm(stage->group.arena);
		if (!call->failed && stage->plan.algo->poll(stage->state))
			rf_call_make_ready(call);
	}
}

int rf_calls_arm(rf_context *context)
{
	RF_LIST_EACH(node, &context->word_calls)
	{
		struct rf_call *call = RF_CONTAINER(node, struct rf_call, word_node);
		struct rf_stage *stage = &call->stages[0];

		if (!stage->group.arena->armed)
			rf_arena_arm(stage->group.arena);
		if (!call->failed && stage->plan.algo->poll(stage->state))
			return RF_ERR_AGAIN;
	}
	return RF_OK;
}

int rf_calls_advance(rf_context *context)
{
	int happened = 0;

	while (!rf_list_empty(&context->ready_calls)) {
		struct rf_call *call =
			RF_CONTAINER(context->ready_calls.next, struct rf_call, ready_node);

		rf_list_remove(&call->ready_node);
		call->is_ready = false;
		advance(call);
		happened = 1;
	}
	return happened;
}

void rf_call_sent(struct rf_outgoing *outgoing)
{
	struct rf_call *call = outgoing->call;
	struct rf_stage *stage = outgoing->stage;
	int to = outgoing->to;
	unsigned channel = outgoing->channel;
	uint32_t chunk = outgoing->chunk;

	free_outgoing(outgoing);
	if (!call->failed)
		stage->plan.algo->sent(stage->state, to, channel, chunk);
	rf_call_make_ready(call);
}
