/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct: every rank owns a block. All others send it their part of the block (contributions), it
 * folds them all at once along the tree of RF_ORDER_TREE, and sends what each of them is to have
 * (responses). For allgather there are responses only.
 *
 * Memory is bounded by rounds: round k is chunk k of every block. Contributions are staged in two
 * slots that are used in turn, hence twice (size - 1) chunks. A contribution of round k goes out
 * after the response of round k - 2 has come, which says that the slot is free. Where nothing has
 * to come back (reduce_scatter, reduce other than at the root) the response is a segment of zero
 * bytes, and there is none for the last two rounds. So all that arrives can be accepted.
 *
 * 16-bit floats are folded in fp32 and rounded once. fp32 on the wire would change nothing, as what
 * travels is inputs and results; so the plan's wire type is not looked at.
 */
#include "engine/algo/direct.h"

#include <stdlib.h>

/* ---- what is to be done next ---------------------------------------------------------------- */

static bool direct_may_contribute(const struct direct *direct, int to)
{
	const struct direct_peer *peer = &direct->peers[to];
	uint32_t k = peer->contributed;

	if (k >= direct_contributions(direct, to) || k - peer->done >= DIRECT_SEND_WINDOW)
		return false;
	return k < DIRECT_SLOTS || direct_has_come(direct, to, DIRECT_RESPONSE, k - DIRECT_SLOTS);
}

static bool direct_may_respond(const struct direct *direct, int to)
{
	uint32_t k = direct->peers[to].responded;

	if (direct_folds(direct) && k >= direct->folded)
		return false;
	return k < direct_responses(direct, direct->group->rank, to);
}

static void direct_push(struct direct *direct, int to)
{
	if (direct->peers[to].queued)
		return;
	direct->peers[to].queued = true;
	direct->peers[to].next = DIRECT_NONE;
	if (direct->head == DIRECT_NONE)
		direct->head = to;
	else
		direct->peers[direct->tail].next = to;
	direct->tail = to;
}

static int direct_pop(struct direct *direct)
{
	int to = direct->head;

	direct->head = direct->peers[to].next;
	direct->peers[to].queued = false;
	return to;
}

static void direct_settle(struct direct *direct, int to)
{
	if (direct_may_contribute(direct, to) || direct_may_respond(direct, to))
		direct_push(direct, to);
}

static bool direct_is_done(const struct direct_peer *peer, uint32_t k)
{
	if (k < peer->done)
		return true;
	return k < peer->contributed && peer->done_mask >> (k - peer->done) & 1;
}

static void direct_mark_done(struct direct_peer *peer, uint32_t k)
{
	peer->done_mask |= UINT32_C(1) << (k - peer->done);
	while (peer->done_mask & 1) {
		peer->done_mask >>= 1;
		peer->done++;
	}
}

/* ---- folding -------------------------------------------------------------------------------- */

static void direct_fold_round(struct direct *direct, uint32_t k)
{
	const struct rf_task *task = direct->task;
	int rank = direct->group->rank;

	for (int i = 0; i < direct->group->size; i++) {
		if (i == rank)
			direct->sources[i] = direct_input(direct, rank, k);
		else
			direct->sources[i] = direct_staging(direct, k, i);
	}
	rf_group_foldp(direct->group, task->op, task->dtype, direct_result(direct, k), task->dtype,
		       direct->sources, (size_t)direct->group->size,
		       rf_cut_chunk_length(&direct->cut, rank, k), task->divisor);
}

/* Folds the rounds that are complete. In a reduce the scratch that takes the result may still be on
 * its way to the root: then later. */
static void direct_fold(struct direct *direct)
{
	int others = direct->group->size - 1;

	while (direct->folded < direct->rounds) {
		uint32_t k = direct->folded, slot = k % DIRECT_SLOTS;

		if (direct->staged[slot] < others || direct->result_pending[slot])
			return;
		direct_fold_round(direct, k);
		direct->result_pending[slot] = direct->results != NULL;
		direct->staged[slot] = 0;
		direct->awaited = 0;
		direct->folded++;
		for (int i = 1; i <= others; i++) {
			int to = rf_group_wrap(direct->group, (int64_t)direct->group->rank + i);

			direct->peers[to].staged[slot] = false;
			direct_settle(direct, to);
		}
	}
}

/* ---- sending -------------------------------------------------------------------------------- */

static int direct_send(struct direct *direct, int to, enum direct_kind kind, uint32_t k,
		       const void *payload, size_t bytes, bool more)
{
	return direct->group->ops->send(direct->group, to, k % direct->channels,
					(uint32_t)kind * direct->cut.chunks + k, payload, bytes,
					more);
}

static int direct_post_contribution(struct direct *direct, int to)
{
	struct direct_peer *peer = &direct->peers[to];
	uint32_t k = peer->contributed;
	size_t bytes = rf_cut_chunk_length(&direct->cut, to, k) * direct->bytes;
	bool more = direct->channels == 1 && k == 0 && direct_contributions(direct, to) > 1;
	int status = direct_send(direct, to, DIRECT_CONTRIBUTION, k, direct_input(direct, to, k),
				 bytes, more);

	if (status < 0)
		return status;
	peer->contributed++;
	if (status > 0) {
		direct->sends_left--;
		direct_mark_done(peer, k);
	}
	return RF_OK;
}

static void direct_response_done(struct direct *direct, int to, uint32_t k)
{
	direct->sends_left--;
	if (!direct->results || to != direct->task->root)
		return;
	direct->result_pending[k % DIRECT_SLOTS] = false;
	direct_fold(direct);
}

/* An allgather's chunk is read where it was given; its copy in recv may not be there yet. */
static const void *direct_response_payload(const struct direct *direct, uint32_t k)
{
	if (direct_folds(direct))
		return direct_result(direct, k);
	return rf_at(direct->task->send, k * direct->cut.chunk * direct->bytes);
}

static int direct_post_response(struct direct *direct, int to)
{
	struct direct_peer *peer = &direct->peers[to];
	uint32_t k = peer->responded;
	size_t bytes = direct_response_bytes(direct, direct->group->rank, to, k);
	const void *payload = bytes ? direct_response_payload(direct, k) : NULL;
	bool more = !direct_folds(direct) &&
		    k + direct->channels < direct_responses(direct, direct->group->rank, to);
	int status = direct_send(direct, to, DIRECT_RESPONSE, k, payload, bytes, more);

	if (status < 0)
		return status;
	peer->responded++;
	if (status > 0)
		direct_response_done(direct, to, k);
	return RF_OK;
}

/* Responses first: others wait for them. */
static int direct_post(struct direct *direct, int to)
{
	int status = RF_OK;

	while (status == RF_OK) {
		if (direct_may_respond(direct, to))
			status = direct_post_response(direct, to);
		else if (direct_may_contribute(direct, to))
			status = direct_post_contribution(direct, to);
		else
			break;
	}
	return status;
}

/* Until nothing can be sent; the ranks whose transport takes no more stay in the queue. */
static int direct_drain(struct direct *direct)
{
	int stay = DIRECT_NONE;
	int status = RF_OK;

	while (direct->head != DIRECT_NONE && status == RF_OK) {
		int to = direct_pop(direct);

		status = direct_post(direct, to);
		if (status != RF_ERR_AGAIN)
			continue;
		direct->peers[to].queued = true;
		direct->peers[to].next = stay;
		stay = to;
		status = RF_OK;
	}
	while (stay != DIRECT_NONE) {
		int to = stay;

		stay = direct->peers[to].next;
		direct->peers[to].queued = false;
		direct_push(direct, to);
	}
	return status;
}

/* ---- the machine ---------------------------------------------------------------------------- */

static bool direct_misses(const struct direct *direct, int from)
{
	if (from == direct->group->rank)
		return false;
	if (direct->folded < direct->rounds && direct_folds(direct))
		return !direct->peers[from].staged[direct->folded % DIRECT_SLOTS];
	return direct->peers[from].responses_left > 0;
}

static int direct_awaits(struct direct *direct)
{
	if (direct->head != DIRECT_NONE || !direct->receives_left)
		return -1;
	while (direct->awaited < direct->group->size && !direct_misses(direct, direct->awaited))
		direct->awaited++;
	return direct->awaited < direct->group->size ? direct->awaited : -1;
}

static void direct_copy_own(struct direct *direct)
{
	direct->copied = true;
	if (!direct_folds(direct))
		rf_group_copy(direct->group, direct->result, direct->task->send,
			      rf_cut_length(&direct->cut, direct->group->rank) * direct->bytes);
}

static void direct_end(struct direct *direct)
{
	const struct rf_task *task = direct->task;

	direct->ended = true;
	if (direct->group->size == 1)
		rf_group_alone(direct->group, task);
	else if (task->collective == RF_REDUCE_SCATTER && task->in_place)
		rf_group_copy(direct->group, task->recv, direct->result,
			      rf_cut_length(&direct->cut, direct->group->rank) * direct->bytes);
}

static int direct_advance(void *state, int *awaited)
{
	struct direct *direct = state;
	int status = direct_drain(direct);

	if (status != RF_OK)
		return status;
	if (!direct->copied)
		direct_copy_own(direct);
	if (!direct->receives_left && !direct->sends_left) {
		if (!direct->ended)
			direct_end(direct);
		return RF_OK;
	}
	*awaited = direct_awaits(direct);
	return RF_ERR_AGAIN;
}

static int direct_expect(struct direct *direct)
{
	struct rf_group *group = direct->group;
	int rank = group->rank;
	uint64_t own = rf_cut_length(&direct->cut, rank) * direct->bytes;

	for (int i = 0; i < group->size; i++) {
		uint64_t block = rf_cut_length(&direct->cut, i) * direct->bytes;
		uint64_t bytes = direct_folds(direct) ? own : 0;
		int status;

		if (i == rank)
			continue;
		if (direct_gets_all(direct, rank))
			bytes += block;
		status = group->ops->expect(group, i, bytes,
					    direct_folds(direct) ? block > 0 : own > 0);
		if (status != RF_OK)
			return status;
	}
	return RF_OK;
}

static void direct_count(struct direct *direct)
{
	int rank = direct->group->rank;

	for (int i = 0; i < direct->group->size; i++) {
		if (i == rank)
			continue;
		direct->peers[i].responses_left = direct_responses(direct, i, rank);
		direct->receives_left += direct_contributions(direct, rank);
		direct->receives_left += direct->peers[i].responses_left;
		direct->sends_left += direct_contributions(direct, i);
		direct->sends_left += direct_responses(direct, rank, i);
	}
}

static void direct_place_result(struct direct *direct)
{
	const struct rf_task *task = direct->task;

	if (task->collective == RF_REDUCE_SCATTER && !task->in_place)
		direct->result = task->recv;
	else
		direct->result = direct_output(direct, direct->group->rank, 0);
}

static int direct_memory(struct direct *direct)
{
	size_t size = (size_t)direct->group->size;
	bool keeps = direct_gets_all(direct, direct->group->rank) ||
		     direct->task->collective == RF_REDUCE_SCATTER;
	size_t slots = direct->rounds < DIRECT_SLOTS ? direct->rounds : DIRECT_SLOTS;
	int status = RF_OK;

	direct->peers = calloc(size, sizeof(*direct->peers));
	direct->lanes = calloc(size * direct->channels, sizeof(*direct->lanes));
	direct->sources = calloc(size, sizeof(*direct->sources));
	if (!direct->peers || !direct->lanes || !direct->sources)
		return RF_ERR_NOMEM;
	direct->slot_bytes = direct->cut.chunk * direct->bytes;
	if (direct_folds(direct) && slots)
		status = rf_group_alloc(direct->group, slots * (size - 1) * direct->slot_bytes,
					&direct->staging);
	if (status == RF_OK && !keeps)
		status = rf_group_alloc(direct->group, DIRECT_SLOTS * direct->slot_bytes,
					&direct->results);
	return status;
}

static void direct_destroy(void *state)
{
	struct direct *direct = state;

	if (direct->staging)
		rf_group_free(direct->group, direct->staging);
	if (direct->results)
		rf_group_free(direct->group, direct->results);
	rf_cut_free(&direct->cut);
	free(direct->sources);
	free(direct->lanes);
	free(direct->peers);
	free(direct);
}

static int direct_create(struct rf_group *group, const struct rf_task *task,
			 const struct rf_plan *plan, void **state)
{
	struct direct *direct = calloc(1, sizeof(*direct));
	bool even = task->collective == RF_ALLREDUCE || task->collective == RF_REDUCE;
	int status;

	if (!direct)
		return RF_ERR_NOMEM;
	direct->group = group;
	direct->task = task;
	direct->channels = plan->channels;
	direct->bytes = rf_dtype_size(task->dtype);
	direct->head = direct->tail = DIRECT_NONE;
	status = rf_cut_init(&direct->cut, group->size, task->count, even ? NULL : task->counts,
			     plan, direct->bytes, DIRECT_KINDS);
	if (status == RF_OK) {
		direct->rounds = direct_chunks(direct, group->rank);
		direct_place_result(direct);
		status = direct_memory(direct);
	}
	if (status == RF_OK)
		status = direct_expect(direct);
	if (status != RF_OK) {
		direct_destroy(direct);
		return status;
	}
	direct_count(direct);
	for (int i = 1; i < group->size; i++)
		direct_settle(direct, rf_group_wrap(group, (int64_t)group->rank + i));
	*state = direct;
	return RF_OK;
}

/* ---- arrivals ------------------------------------------------------------------------------- */

/* The lane of an arrival, if it is the next one of its kind there. */
static struct direct_lane *direct_find(struct direct *direct, const struct rf_arrival *arrival,
				       enum direct_kind *kind, uint32_t *k)
{
	int rank = direct->group->rank, from = arrival->from;
	struct direct_lane *lane;
	uint32_t count;

	if (from < 0 || from >= direct->group->size || from == rank || !direct->cut.chunks)
		return NULL;
	if (arrival->chunk / direct->cut.chunks >= DIRECT_KINDS)
		return NULL;
	*kind = (enum direct_kind)(arrival->chunk / direct->cut.chunks);
	*k = arrival->chunk % direct->cut.chunks;
	count = *kind == DIRECT_CONTRIBUTION ? direct_contributions(direct, rank)
					     : direct_responses(direct, from, rank);
	if (*k >= count || arrival->channel != *k % direct->channels)
		return NULL;
	lane = direct_lane(direct, from, *k);
	return *k / direct->channels == lane->next[*kind] ? lane : NULL;
}

/* Has this rank asked for it, so that there is room? */
static bool direct_is_due(const struct direct *direct, const struct rf_arrival *arrival,
			  enum direct_kind kind, uint32_t k)
{
	if (kind == DIRECT_CONTRIBUTION)
		return k >= direct->folded && k - direct->folded < DIRECT_SLOTS;
	/* A response answers a contribution, but that may just be about to be noted as posted. */
	return !direct_folds(direct) || k < direct->peers[arrival->from].contributed;
}

static int direct_accept(void *state, const struct rf_arrival *arrival, struct rf_landing *landing)
{
	struct direct *direct = state;
	int rank = direct->group->rank, from = arrival->from;
	enum direct_kind kind;
	uint32_t k;
	struct direct_lane *lane = direct_find(direct, arrival, &kind, &k);
	size_t bytes;

	if (!lane || lane->landing[kind] || !direct_is_due(direct, arrival, kind, k))
		return RF_ERR_PROTOCOL;
	bytes = kind == DIRECT_CONTRIBUTION
			? rf_cut_chunk_length(&direct->cut, rank, k) * direct->bytes
			: direct_response_bytes(direct, from, rank, k);
	if (arrival->bytes != bytes)
		return RF_ERR_PROTOCOL;
	*landing = (struct rf_landing){.kind = RF_LAND_INTO, .dst_type = direct->task->dtype};
	if (kind == DIRECT_CONTRIBUTION)
		landing->dst = direct_staging(direct, k, from);
	else if (bytes)
		landing->dst = direct_output(direct, from, k);
	/* In place the response goes where the contribution was read, whose completion may be late.
	 */
	if (kind == DIRECT_RESPONSE && bytes && direct_folds(direct) && direct->task->in_place &&
	    !direct_is_done(&direct->peers[from], k)) {
		landing->kind = RF_LAND_LATER;
		return RF_OK;
	}
	lane->landing[kind] = true;
	return RF_OK;
}

static void direct_arrived(void *state, const struct rf_arrival *arrival)
{
	struct direct *direct = state;
	enum direct_kind kind;
	uint32_t k;
	struct direct_lane *lane = direct_find(direct, arrival, &kind, &k);

	if (!lane)
		return;
	lane->landing[kind] = false;
	lane->next[kind]++;
	direct->receives_left--;
	if (kind == DIRECT_CONTRIBUTION) {
		direct->peers[arrival->from].staged[k % DIRECT_SLOTS] = true;
		direct->staged[k % DIRECT_SLOTS]++;
		direct_fold(direct);
	} else {
		direct->peers[arrival->from].responses_left--;
		direct_settle(direct, arrival->from);
	}
}

static void direct_sent(void *state, int to, unsigned channel, uint32_t chunk)
{
	struct direct *direct = state;
	uint32_t k = chunk % direct->cut.chunks;

	(void)channel;
	if (chunk / direct->cut.chunks == DIRECT_RESPONSE) {
		direct_response_done(direct, to, k);
		return;
	}
	direct->sends_left--;
	direct_mark_done(&direct->peers[to], k);
	direct_settle(direct, to);
}

const struct rf_algo rf_algo_direct = {
	.name = "direct",
	.collectives =
		1u << RF_ALLREDUCE | 1u << RF_REDUCE_SCATTER | 1u << RF_ALLGATHER | 1u << RF_REDUCE,
	.tree_order = true,
	.is_pipelined = true,
	.summary = "2 steps, 2(n-1)/n of the bytes each way, every rank with every other; one fold",
	.create = direct_create,
	.advance = direct_advance,
	.accept = direct_accept,
	.arrived = direct_arrived,
	.sent = direct_sent,
	.destroy = direct_destroy,
};
