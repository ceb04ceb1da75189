/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a call: started with a plan, advanced whenever something it waits for has happened,
 * fed with the segments that carry its number, and ended, well or with an error, when nothing of
 * its buffers is in the transports' hands any more.
 */
#include "engine/arena/arena.h"
#include "engine/call.h"
#include "engine/cpu.h"
#include "engine/cq.h"
#include "engine/early.h"
#include "engine/select.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS_BETWEEN_CLOCKS = 16 };

/* ---- starting ------------------------------------------------------------------------------- */

static uint64_t digest_counts(uint64_t digest, const size_t *counts, int size)
{
	for (int i = 0; counts && i < size; i++) {
		digest ^= (uint64_t)counts[i];
		digest *= 0x100000001b3u; /* FNV-1a's prime, a word at a time */
	}
	return digest;
}

static void fill_fingerprint(struct rf_call *call, rf_wire wire)
{
	const struct rf_task *task = &call->stages[0].task;
	const rf_comm *comm = call->request.comm;

	call->fingerprint = (struct rf_fingerprint){
		.collective = (uint8_t)task->collective,
		.dtype = (uint8_t)task->dtype,
		.op = (uint8_t)task->op,
		.order_wire = (uint8_t)((unsigned)task->order | (unsigned)wire << 4),
		.root = (uint32_t)task->root,
		.count = task->count,
		.digest = digest_counts(comm->agreed_digest, task->counts, comm->size),
	};
	rf_fingerprint_encode(&call->fingerprint, call->encoded_fingerprint);
}

static void deadline_passed(struct rf_timer *timer)
{
	struct rf_call *call = RF_CONTAINER(timer, struct rf_call, request.deadline);

	rf_query_start(call->request.comm, call->seq, call->stages[0].awaited);
}

static int set_deadline(struct rf_call *call, const rf_call_options *options)
{
	rf_context *context = call->request.context;
	int64_t ms = options && options->deadline_ms != RF_NO_TIMEOUT
			     ? options->deadline_ms
			     : call->request.comm->deadline_ms;

	call->request.deadline.fire = deadline_passed;
	return rf_timer_set(&context->timers, &call->request.deadline, rf_until(context, ms));
}

static struct rf_call *new_call(rf_comm *comm, const struct rf_call_setup *setup)
{
	struct rf_call *call = comm->spare_call;
	struct rf_stage *stage;

	comm->spare_call = NULL;
	if (!call)
		call = malloc(sizeof(*call));
	if (!call)
		return NULL;
	memset(call, 0, sizeof(*call));
	call->request.context = comm->context;
	call->request.comm = comm;
	call->request.kind = RF_REQUEST_CALL;
	rf_list_init(&call->request.cq_node);
	rf_list_init(&call->node);
	rf_list_init(&call->ready_node);
	rf_list_init(&call->word_node);
	rf_list_init(&call->outgoing);
	rf_list_init(&call->incoming);
	rf_list_init(&call->blocks);
	stage = &call->stages[0];
	stage->call = call;
	stage->task = setup->task;
	stage->awaited = -1;
	stage->group = (struct rf_group){.ops = &rf_engine_group_ops,
					 .rank = comm->rank,
					 .size = comm->size,
					 .arena = comm->arena,
					 .fingerprint = call->encoded_fingerprint,
					 .traffic = &comm->traffic,
					 .no_payload = comm->context->no_payload};
	return call;
}

static int copy_counts(struct rf_call *call)
{
	struct rf_task *task = &call->stages[0].task;
	size_t bytes = (size_t)call->request.comm->size * sizeof(size_t);

	if (!task->counts)
		return RF_OK;
	call->counts = malloc(bytes);
	if (!call->counts)
		return RF_ERR_NOMEM;
	memcpy(call->counts, task->counts, bytes);
	task->counts = call->counts;
	return RF_OK;
}

/* Tells a partner that this call has started here, by the control stream. */
static int send_credit(struct rf_call *call, struct rf_link *link)
{
	struct rf_segment segment = {
		.type = RF_SEGMENT_CREDIT,
		.epoch = call->request.comm->epoch,
		.comm = call->request.comm->id,
		.seq = call->seq,
		.fingerprint = call->fingerprint,
	};
	int status = rf_control_send(link->peer, &segment, NULL, 0);

	if (status != RF_OK)
		return status;
	link->told = call->seq + 1;
	return RF_OK;
}

static int grant_credits(struct rf_call *call)
{
	for (size_t i = 0; i < call->expected_count; i++) {
		const struct rf_expected *expected = &call->expected[i];
		struct rf_link *link;
		int status = rf_comm_link(call->request.comm, expected->rank, &link);

		if (status != RF_OK)
			return status;
		if (call->eager && expected->prompt && link->wanted <= call->seq)
			continue;
		if (link->wanted == call->seq + 1)
			link->wanted = 0;
		status = send_credit(call, link);
		/* Whoever has made this call and left needs no credit: its data is on the way, or
		 * here. */
		if (status != RF_OK && status != RF_ERR_RANK_LEFT)
			return rf_call_partner_failed(call, link, status);
	}
	return RF_OK;
}

void rf_call_mismatch(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine, int rank,
		      const struct rf_fingerprint *theirs)
{
	char mine_text[RF_FINGERPRINT_TEXT], theirs_text[RF_FINGERPRINT_TEXT];
	int ranks[2] = {comm->rank < rank ? comm->rank : rank,
			comm->rank < rank ? rank : comm->rank};
	bool mine_first = comm->rank < rank;
	char message[512];

	rf_fingerprint_format(mine, mine_text);
	rf_fingerprint_format(theirs, theirs_text);
	snprintf(message, sizeof(message),
		 "call %llu does not match: rank %d made %s, rank %d made %s",
		 (unsigned long long)seq, ranks[0], mine_first ? mine_text : theirs_text, ranks[1],
		 mine_first ? theirs_text : mine_text);
	rf_comm_fail(comm, RF_SEGMENT_MISMATCH, RF_ERR_MISMATCH, ranks, 2, message);
}

/* Segments that came before the call was started. */
static void take_staged(struct rf_call *call)
{
	rf_comm *comm = call->request.comm;
	struct rf_staged *staged = rf_map_get(&comm->staged, call->seq + 1);

	rf_map_remove(&comm->staged, call->seq + 1);
	while (staged) {
		struct rf_staged *next = staged->next;
		struct rf_link *link = rf_peer_link(staged->peer, comm);

		if (link)
			rf_call_segment(call, link, &staged->segment, NULL, NULL, staged);
		else
			rf_staged_free(staged);
		staged = next;
	}
}

static int comm_error(const rf_comm *comm)
{
	switch (comm->state) {
	case RF_COMM_READY:
		return RF_OK;
	case RF_COMM_FAILED:
		return comm->failure ? comm->failure->error : RF_ERR_RENDEZVOUS;
	case RF_COMM_FORMING:
	case RF_COMM_LEFT:
		break;
	}
	return RF_ERR_INVALID;
}

/* From here on the call has a number, and its failures are the communicator's. */
static void launch(struct rf_call *call)
{
	rf_comm *comm = call->request.comm;
	struct rf_fingerprint theirs;
	int status, rank;

	comm->next_seq = call->seq + 1;
	comm->open_calls++;
	comm->context->open_requests++;
	if (call->request.cq)
		rf_cq_expect(call->request.cq);
	comm->counters.calls[call->stages[0].task.collective]++;
	rf_list_append(&comm->call_list, &call->node);
	if (call->stages[0].plan.algo->in_shared_memory)
		rf_list_append(&comm->context->word_calls, &call->word_node);
	if (comm->context->config.progress[0] == 't')
		comm->context->background_calls++;
	/* It has found a mismatch before it was enrolled. */
	if (comm->state == RF_COMM_FAILED)
		rf_call_fail(call, comm_error(comm));
	status = rf_comm_check_leavers(comm, call->seq);
	if (status == RF_OK && !call->failed)
		status = grant_credits(call);
	if (status != RF_OK && !call->failed)
		rf_call_break(call, status, rf_strerror(status));
	if (rf_early_differs(comm, call->seq, &call->fingerprint, &rank, &theirs) && !call->failed)
		rf_call_mismatch(comm, call->seq, &call->fingerprint, rank, &theirs);
	take_staged(call);
	if (!call->failed)
		rf_call_make_ready(call);
	rf_calls_advance(comm->context);
}

/* Up to the moment in which others can learn of it. */
static int prepare(rf_comm *comm, const struct rf_call_setup *setup, struct rf_call **out)
{
	const rf_call_options *options = setup->options;
	struct rf_call *call;
	struct rf_stage *stage;
	int status = comm_error(comm);

	if (status != RF_OK)
		return status;
	call = new_call(comm, setup);
	if (!call)
		return RF_ERR_NOMEM;
	stage = &call->stages[0];
	call->seq = comm->next_seq;
	if (options) {
		call->request.cq = options->cq;
		call->request.user = options->user;
	}
	if (setup->then) {
		call->request.then = setup->then;
		call->request.user = setup->user;
	}
	status = copy_counts(call);
	if (status != RF_OK)
		goto fail;
	fill_fingerprint(call, setup->wire);
	rf_select(&comm->agreed, &stage->task, setup->wire, comm->size, comm->arena != NULL,
		  &stage->plan);
	call->eager =
		stage->task.count * rf_dtype_size(stage->task.dtype) <= comm->agreed.eager_bytes;
	status = stage->plan.algo->create(&stage->group, &stage->task, &stage->plan, &stage->state);
	if (status != RF_OK)
		goto fail;
	*out = call;
	return RF_OK;

fail:
	free(call->expected);
	free(call->counts);
	free(call);
	return status;
}

/* What prepare() has made. */
static void unprepare(struct rf_call *call)
{
	call->stages[0].plan.algo->destroy(call->stages[0].state);
	free(call->expected);
	free(call->counts);
	free(call);
}

static int enrol(struct rf_call *call, const rf_call_options *options)
{
	rf_comm *comm = call->request.comm;
	int status = rf_map_put(&comm->calls, call->seq + 1, call);

	if (status == RF_OK)
		status = set_deadline(call, options);
	if (status != RF_OK) {
		rf_map_remove(&comm->calls, call->seq + 1);
		unprepare(call);
		return status;
	}
	launch(call);
	return RF_OK;
}

int rf_call_start(rf_comm *comm, const struct rf_call_setup *setup, struct rf_call **call)
{
	int status = prepare(comm, setup, call);

	return status == RF_OK ? enrol(*call, setup->options) : status;
}

/* ---- the short way ------------------------------------------------------------------------- */

/* Words in shared memory change within a fraction of a microsecond: as long as nobody else needs
 * this thread, a call can be over before it would have been enrolled. True: it is. */
static bool spin_through(struct rf_call *call)
{
	rf_context *context = call->request.context;
	struct rf_stage *stage = &call->stages[0];
	uint64_t begin = 0, now = 0, budget = 0;
	bool yields = false;
	unsigned looks = 0;
	int awaited, status;

	for (;; looks++) {
		status = stage->plan.algo->advance(stage->state, &awaited);
		if (status != RF_ERR_AGAIN)
			break;
		if (atomic_load_explicit(&context->entering, memory_order_relaxed))
			break;
		if (!yields && looks % LOOKS_BETWEEN_CLOCKS != LOOKS_BETWEEN_CLOCKS - 1) {
			rf_pause();
			continue;
		}
		now = rf_now(context);
		if (!begin) {
			begin = now;
			budget = rf_drive_spin_ns(context);
			yields = budget == 0 && context->config.spin_us < 0;
			budget = yields ? RF_YIELD_NS : budget;
		}
		if (now - begin >= budget)
			break;
		/* The rank that is waited for may have no other core than this one. */
		if (yields)
			sched_yield();
	}
	/* A word that changes under a short look is written by another core: spinning pays. */
	if (status == RF_OK && looks && !begin)
		rf_drive_has_spun(context, 0, false);
	if (begin && !yields)
		rf_drive_has_spun(context, now - begin, status != RF_OK);
	/* Any other error is met again, and handled, when the call is enrolled. */
	return status == RF_OK;
}

static void end_short(struct rf_call *call)
{
	rf_comm *comm = call->request.comm;

	comm->next_seq = call->seq + 1;
	comm->counters.calls[call->stages[0].task.collective]++;
	comm->counters.calls_ended++;
	rf_early_end(comm, call->seq, &call->fingerprint);
	call->stages[0].plan.algo->destroy(call->stages[0].state);
	free(call->counts);
	if (comm->spare_call)
		free(call);
	else
		comm->spare_call = call;
}

int rf_call_run(rf_comm *comm, const struct rf_call_setup *setup, struct rf_call **out)
{
	struct rf_call *call;
	int status = prepare(comm, setup, &call);

	if (status != RF_OK)
		return status;
	if (call->stages[0].plan.algo->in_shared_memory && rf_list_empty(&comm->call_list) &&
	    !comm->leaver_count && spin_through(call)) {
		end_short(call);
		*out = NULL;
		return RF_OK;
	}
	*out = call;
	return enrol(call, setup->options);
}

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
