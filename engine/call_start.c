/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning of a call: its plan, its number, what others are told of it; and the short way, for
 * calls that are over before anybody would have had to know of them.
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

enum {
	LOOKS_BETWEEN_CLOCKS = 16,
	MOVE_NS = 1000000, /* at most so often does a thread leave its core */
};

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

/*
 * Two ranks that wait for each other on one core, while there are cores for all: a sleeper may have
 * been woken where its waker runs, and the system takes milliseconds to part them.
 */
static void part_from(struct rf_call *call, int awaited, uint64_t now)
{
	rf_context *context = call->request.context;
	struct rf_arena *arena = call->stages[0].group.arena;
	int core = rf_cpu_here();

	if (awaited < 0 || core < 0 || call->request.comm->local_ranks > context->cores)
		return;
	if (!rf_arena_shares_core(arena, awaited, core) || now - context->moved_at < MOVE_NS)
		return;
	context->moved_at = now;
	rf_cpu_leave(core);
}

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
			part_from(call, awaited, now);
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
