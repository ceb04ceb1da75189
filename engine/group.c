/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an algorithm asks of the engine: announcing partners and sending. Here credit is spent: a
 * segment goes out when the receiver has started the call, or, for small calls, within the eager
 * budget of that peer. Without either the call waits alone.
 */
#include "engine/call.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 50 };

static struct rf_stage *stage_of(struct rf_group *group)
{
	return RF_CONTAINER(group, struct rf_stage, group);
}

static int expect(struct rf_group *group, int from, uint64_t bytes, bool prompt)
{
	struct rf_call *call = stage_of(group)->call;

	(void)bytes;
	if (call->expected_count == call->expected_capacity) {
		size_t capacity = call->expected_capacity ? 2 * call->expected_capacity : 4;
		struct rf_expected *expected =
			realloc(call->expected, capacity * sizeof(*call->expected));

		if (!expected)
			return RF_ERR_NOMEM;
		call->expected = expected;
		call->expected_capacity = capacity;
	}
	call->expected[call->expected_count++] = (struct rf_expected){from, prompt};
	return RF_OK;
}

static struct rf_outgoing *new_outgoing(rf_context *context)
{
	struct rf_outgoing *outgoing;

	if (rf_list_empty(&context->free_outgoing))
		return malloc(sizeof(*outgoing));
	outgoing = RF_CONTAINER(context->free_outgoing.next, struct rf_outgoing, node);
	rf_list_remove(&outgoing->node);
	return outgoing;
}

/* The call is to be advanced when the peer's endpoint is writable again. */
static int block_on(struct rf_call *call, struct rf_peer *peer)
{
	rf_context *context = peer->context;
	struct rf_block *block;

	RF_LIST_EACH(node, &call->blocks)
	{
		if (RF_CONTAINER(node, struct rf_block, call_node)->peer == peer)
			return RF_ERR_AGAIN;
	}
	if (rf_list_empty(&context->free_blocks)) {
		block = malloc(sizeof(*block));
		if (!block)
			return RF_ERR_NOMEM;
	} else {
		block = RF_CONTAINER(context->free_blocks.next, struct rf_block, call_node);
		rf_list_remove(&block->call_node);
	}
	block->call = call;
	block->peer = peer;
	rf_list_append(&call->blocks, &block->call_node);
	rf_list_append(&peer->blocked_calls, &block->peer_node);
	return RF_ERR_AGAIN;
}

static void lose_patience(struct rf_timer *timer)
{
	struct rf_call *call = RF_CONTAINER(timer, struct rf_call, patience);

	call->impatient = true;
	rf_call_make_ready(call);
}

/*
 * A large call's receiver tells without being asked, if it expects anything of this rank. If it has
 * made another call and does not, only a question shows it the mismatch: put off, because it is
 * needed so rarely.
 */
static int await_credit(struct rf_call *call)
{
	struct rf_timers *timers = &call->request.context->timers;

	if (call->patience.fire)
		return RF_ERR_AGAIN;
	call->patience.fire = lose_patience;
	if (rf_timer_set(timers, &call->patience,
			 rf_now(call->request.context) + PATIENCE_MS * 1000000u) != RF_OK)
		call->impatient = true;
	return RF_ERR_AGAIN;
}

/* Asks the receiver to say when it starts the call: once a call and link. */
static int ask_for_credit(struct rf_call *call, struct rf_link *link)
{
	struct rf_segment segment = {.type = RF_SEGMENT_WANT};
	int status;

	call->request.comm->counters.credit_waits++;
	if (link->asked > call->seq)
		return RF_ERR_AGAIN;
	if (!call->eager && !call->impatient)
		return await_credit(call);
	segment.comm = call->request.comm->id;
	segment.epoch = call->request.comm->epoch;
	segment.seq = call->seq;
	segment.fingerprint = call->fingerprint;
	status = rf_control_send(link->peer, &segment, NULL, 0);
	if (status != RF_OK)
		return status;
	link->asked = call->seq + 1;
	return RF_ERR_AGAIN;
}

static bool eager_fits(const struct rf_call *call, const struct rf_peer *peer, size_t bytes)
{
	uint32_t under_way = peer->eager_sent - peer->eager_acked;

	return call->eager && (uint64_t)under_way + rf_eager_weight(bytes) <=
				      call->request.comm->agreed.eager_budget_bytes;
}

static void fill_header(const struct rf_stage *stage, struct rf_peer *peer, unsigned channel,
			uint32_t chunk, size_t bytes, bool eager,
			uint8_t header[RF_SEGMENT_HEADER_BYTES])
{
	const struct rf_call *call = stage->call;
	struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = RF_SEGMENT_DATA,
		.stage = (uint8_t)(stage - call->stages),
		.flags = eager ? RF_SEGMENT_EAGER : 0,
		.channel = (uint16_t)channel,
		.epoch = call->request.comm->epoch,
		.comm = call->request.comm->id,
		.seq = call->seq,
		.chunk = chunk,
		.bytes = (uint32_t)bytes,
		.eager_freed = peer->eager_freed,
		.fingerprint = call->fingerprint,
	};

	rf_segment_encode(&segment, header);
}

/* The transport took it: everything that counts on it. */
static void account(struct rf_call *call, struct rf_link *link, size_t bytes, bool eager)
{
	rf_counters *counters = &call->request.comm->counters;

	counters->segments_sent++;
	counters->payload_bytes_sent += bytes;
	if (eager)
		link->peer->eager_sent += rf_eager_weight(bytes);
	link->peer->eager_told = link->peer->eager_freed;
	if (link->told <= call->seq)
		link->told = call->seq + 1;
}

static int post(struct rf_stage *stage, struct rf_link *link, struct rf_outgoing *outgoing,
		const void *payload, bool more, bool eager)
{
	struct rf_call *call = stage->call;
	struct rf_peer *peer = link->peer;
	struct rf_transport_send send = {
		.payload = payload,
		.bytes = outgoing->bytes,
		.lane = outgoing->channel,
		.more = more,
		.cookie = (uintptr_t)outgoing,
	};
	int status;

	fill_header(stage, peer, outgoing->channel, outgoing->chunk, outgoing->bytes, eager,
		    send.header);
	status = rf_data_send(peer, &send);
	if (status == RF_ERR_AGAIN) {
		call->request.comm->counters.retries++;
		return block_on(call, peer);
	}
	if (status >= 0)
		account(call, link, outgoing->bytes, eager);
	return status;
}

static int group_send(struct rf_group *group, int to, unsigned channel, uint32_t chunk,
		      const void *payload, size_t bytes, bool more)
{
	struct rf_stage *stage = stage_of(group);
	struct rf_call *call = stage->call;
	rf_context *context = call->request.context;
	struct rf_outgoing *outgoing;
	struct rf_link *link;
	bool eager;
	int status;

	if (call->failed)
		return call->failed;
	status = rf_comm_link(call->request.comm, to, &link);
	if (status != RF_OK)
		return status;
	eager = link->granted <= call->seq;
	if (eager && !eager_fits(call, link->peer, bytes))
		return rf_call_partner_failed(call, link, ask_for_credit(call, link));
	outgoing = new_outgoing(context);
	if (!outgoing)
		return RF_ERR_NOMEM;
	*outgoing = (struct rf_outgoing){.call = call,
					 .peer = link->peer,
					 .stage = stage,
					 .to = to,
					 .channel = channel,
					 .chunk = chunk,
					 .bytes = bytes};
	rf_list_init(&outgoing->node);
	rf_list_init(&outgoing->peer_node);
	status = post(stage, link, outgoing, payload, more, eager);
	if (status == RF_OK) {
		rf_list_append(&call->outgoing, &outgoing->node);
		rf_list_append(&link->peer->outgoing, &outgoing->peer_node);
	} else {
		rf_list_append(&context->free_outgoing, &outgoing->node);
	}
	return rf_call_partner_failed(call, link, status);
}

static void group_mismatch(struct rf_group *group, int rank, const uint8_t encoded[24])
{
	const struct rf_call *call = stage_of(group)->call;
	struct rf_fingerprint theirs;

	rf_fingerprint_decode(encoded, &theirs);
	rf_call_mismatch(call->request.comm, call->seq, &call->fingerprint, rank, &theirs);
}

const struct rf_group_ops rf_engine_group_ops = {
	.expect = expect,
	.send = group_send,
	.mismatch = group_mismatch,
};
