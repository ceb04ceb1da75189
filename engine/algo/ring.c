/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring: reduce-scatter, then allgather, each in size - 1 steps; a rank receives from the one before
 * it and sends to the one after it. Blocks are cut into chunks, and every chunk goes round on its
 * own: what was received in a step is folded with the own input and sent in the next. Chunk k uses
 * channel k % channels, where its steps are in order; chunks do not wait for each other.
 *
 * Partial results have one of two homes:
 * - at their place in recv (allreduce, and reduce_scatter in place): each block is folded once, so
 *   that whatever may arrive can be accepted at any time;
 * - in scratch (reduce_scatter out of place, and 16-bit floats with fp32 partials): two slots a
 *   chunk, used in turn, hence twice the longest block; with fp32 partials a third one holds the
 *   converted input of the first step. A slot is used again only after the rank before was told so
 *   by a segment of zero bytes: it holds back until then, so that here too all that arrives can be
 *   accepted. Rings of up to four ranks need no such segments.
 */
#include "engine/algo/ring.h"

#include <stdlib.h>

/* ---- what is to be done next ---------------------------------------------------------------- */

static bool ring_may_send(const struct ring *ring, const struct ring_chunk *chunk)
{
	uint32_t step = chunk->posted;

	if (step >= ring->steps || step > chunk->received)
		return false;
	if (step - chunk->done >= RING_SEND_WINDOW)
		return false;
	if (!ring->slots || step >= ring->slot_uses)
		return true;
	return step < chunk->freed_in + RING_SLOTS;
}

static bool ring_may_ack(const struct ring *ring, const struct ring_chunk *chunk)
{
	return chunk->freed_out < ring->frees && chunk->freed_out + 1 < chunk->done;
}

static void ring_mark_done(struct ring_chunk *chunk, uint32_t step)
{
	chunk->done_mask |= UINT32_C(1) << (step - chunk->done);
	while (chunk->done_mask & 1) {
		chunk->done_mask >>= 1;
		chunk->done++;
	}
}

static void ring_push(struct ring *ring, uint32_t k, enum ring_work work)
{
	struct ring_queue *queue = &ring->queues[k % ring->channels * RING_WORKS + work];

	if (ring->chunks[k].queued[work])
		return;
	ring->chunks[k].queued[work] = true;
	ring->chunks[k].next[work] = RING_NONE;
	if (queue->head == RING_NONE)
		queue->head = k;
	else
		ring->chunks[queue->tail].next[work] = k;
	queue->tail = k;
}

static void ring_pop(struct ring *ring, struct ring_queue *queue, enum ring_work work)
{
	struct ring_chunk *chunk = &ring->chunks[queue->head];

	chunk->queued[work] = false;
	queue->head = chunk->next[work];
}

/* Passes over the steps in which a shorter block has no such chunk, and queues what can be done. */
static void ring_settle(struct ring *ring, uint32_t k)
{
	struct ring_chunk *chunk = &ring->chunks[k];

	for (;;) {
		if (chunk->received < ring->steps && !chunk->landing &&
		    !rf_cut_chunk_length(&ring->cut, ring_receive_block(ring, chunk->received), k))
			chunk->received++;
		else if (ring_may_send(ring, chunk) &&
			 !rf_cut_chunk_length(&ring->cut, ring_send_block(ring, chunk->posted), k))
			ring_mark_done(chunk, chunk->posted++);
		else
			break;
	}
	if (ring_may_send(ring, chunk))
		ring_push(ring, k, RING_SEND);
	if (ring_may_ack(ring, chunk))
		ring_push(ring, k, RING_ACK);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void ring_convert(struct ring *ring, uint32_t k)
{
	int block = ring_send_block(ring, 0);

	rf_group_finish(ring->group, ring->wire_type, ring_slot(ring, RING_SLOTS, k),
			ring->task->dtype, ring_input(ring, block, k),
			rf_cut_chunk_length(&ring->cut, block, k), 0);
	ring->chunks[k].converted = true;
}

static int ring_post_send(struct ring *ring, uint32_t k, bool more)
{
	struct ring_chunk *chunk = &ring->chunks[k];
	uint32_t step = chunk->posted;
	size_t length = rf_cut_chunk_length(&ring->cut, ring_send_block(ring, step), k);
	int status;

	if (step == 0 && ring_converts(ring) && !chunk->converted)
		ring_convert(ring, k);
	status = ring->group->ops->send(ring->group, ring->after, k % ring->channels,
					step * ring->cut.chunks + k, ring_payload(ring, step, k),
					length * ring_element_bytes(ring, step), more);
	if (status < 0)
		return status;
	chunk->posted++;
	if (status > 0) {
		ring->sends_left--;
		ring_mark_done(chunk, step);
	}
	if (step == 0 && !ring->fold_steps)
		rf_group_copy(ring->group, ring_output(ring, ring->group->rank, k),
			      ring_input(ring, ring->group->rank, k), length * ring->bytes);
	ring_settle(ring, k);
	return RF_OK;
}

static int ring_post_ack(struct ring *ring, uint32_t k, bool more)
{
	struct ring_chunk *chunk = &ring->chunks[k];
	int status = ring->group->ops->send(ring->group, ring->before, k % ring->channels,
					    chunk->freed_out * ring->cut.chunks + k, NULL, 0, more);

	if (status < 0)
		return status;
	chunk->freed_out++;
	if (status > 0)
		ring->sends_left--;
	return RF_OK;
}

/* Posts what a queue holds until the transport takes no more. */
static int ring_drain(struct ring *ring, struct ring_queue *queue, enum ring_work work)
{
	int status = RF_OK;

	while (queue->head != RING_NONE && status == RF_OK) {
		uint32_t k = queue->head;
		struct ring_chunk *chunk = &ring->chunks[k];
		bool more = chunk->next[work] != RING_NONE;

		if (work == RING_SEND && ring_may_send(ring, chunk))
			status = ring_post_send(ring, k, more);
		else if (work == RING_ACK && ring_may_ack(ring, chunk))
			status = ring_post_ack(ring, k, more);
		else
			ring_pop(ring, queue, work);
	}
	return status == RF_ERR_AGAIN ? RF_OK : status;
}

/* ---- the machine ---------------------------------------------------------------------------- */

static void ring_count(struct ring *ring, uint64_t *bytes)
{
	*bytes = 0;
	for (uint32_t step = 0; step < ring->steps; step++) {
		int in = ring_receive_block(ring, step);

		ring->receives_left += rf_cut_chunks(&ring->cut, in);
		ring->sends_left += rf_cut_chunks(&ring->cut, ring_send_block(ring, step));
		*bytes += rf_cut_length(&ring->cut, in) * ring_element_bytes(ring, step);
	}
	ring->receives_left += (uint64_t)ring->frees * ring->cut.chunks;
	ring->sends_left += (uint64_t)ring->frees * ring->cut.chunks;
}

static int ring_expect(struct ring *ring)
{
	struct rf_group *group = ring->group;
	uint64_t bytes;
	bool prompt;
	int status;

	ring_count(ring, &bytes);
	if (group->size == 1)
		return RF_OK;
	prompt = rf_cut_length(&ring->cut, ring_send_block(ring, 0)) > 0;
	status = group->ops->expect(group, ring->before, bytes, prompt && group->size == 2);
	if (status == RF_OK && ring->frees)
		status = group->ops->expect(group, ring->after, 0, prompt);
	return status;
}

static void ring_steps(struct ring *ring, const struct rf_plan *plan)
{
	const struct rf_task *task = ring->task;
	uint32_t round = (uint32_t)ring->group->size - 1;

	ring->fold_steps = task->collective == RF_ALLGATHER ? 0 : round;
	ring->steps = task->collective == RF_ALLREDUCE ? 2 * round : round;
	ring->bytes = rf_dtype_size(task->dtype);
	ring->wire_type = plan->wire_type;
	ring->wire_bytes = rf_dtype_size(plan->wire_type);
	ring->slots =
		ring_converts(ring) || (task->collective == RF_REDUCE_SCATTER && !task->in_place);
	/* The last fold has the own block: without conversion it goes to its place. */
	if (ring->slots && ring->fold_steps)
		ring->slot_uses = ring_converts(ring) ? round : round - 1;
	if (ring->slot_uses > RING_SLOTS)
		ring->frees = ring->slot_uses - RING_SLOTS;
}

static int ring_memory(struct ring *ring)
{
	size_t chunks = ring->cut.chunks;
	size_t queues = (size_t)ring->channels * RING_WORKS;
	size_t slots = RING_SLOTS + (ring_converts(ring) ? 1 : 0);

	ring->chunks = calloc(chunks ? chunks : 1, sizeof(*ring->chunks));
	ring->queues = malloc(queues * sizeof(*ring->queues));
	if (!ring->chunks || !ring->queues)
		return RF_ERR_NOMEM;
	for (size_t i = 0; i < queues; i++)
		ring->queues[i] = (struct ring_queue){RING_NONE, RING_NONE};
	if (!ring->slot_uses)
		return RF_OK;
	ring->slot_bytes = ring->cut.chunk * ring->wire_bytes;
	return rf_group_alloc(ring->group, slots * chunks * ring->slot_bytes, &ring->scratch);
}

static void ring_place_result(struct ring *ring)
{
	const struct rf_task *task = ring->task;

	if (task->collective == RF_REDUCE_SCATTER && !task->in_place)
		ring->result = task->recv;
	else
		ring->result = rf_at(task->recv,
				     rf_cut_offset(&ring->cut, ring->group->rank) * ring->bytes);
}

static void ring_destroy(void *state)
{
	struct ring *ring = state;

	if (ring->scratch)
		rf_group_free(ring->group, ring->scratch);
	rf_cut_free(&ring->cut);
	free(ring->queues);
	free(ring->chunks);
	free(ring);
}

static int ring_create(struct rf_group *group, const struct rf_task *task,
		       const struct rf_plan *plan, void **state)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	int status;

	if (!ring)
		return RF_ERR_NOMEM;
	ring->group = group;
	ring->task = task;
	ring->channels = plan->channels;
	ring->before = rf_group_wrap(group, group->rank - 1);
	ring->after = rf_group_wrap(group, group->rank + 1);
	ring_steps(ring, plan);
	status = rf_cut_init(&ring->cut, group->size, task->count,
			     task->collective == RF_ALLREDUCE ? NULL : task->counts, plan,
			     ring->fold_steps ? ring->wire_bytes : ring->bytes, ring->steps);
	if (status == RF_OK)
		status = ring_memory(ring);
	if (status == RF_OK) {
		ring_place_result(ring);
		status = ring_expect(ring);
	}
	if (status != RF_OK) {
		ring_destroy(ring);
		return status;
	}
	for (uint32_t k = 0; ring->steps && k < ring->cut.chunks; k++)
		ring_settle(ring, k);
	*state = ring;
	return RF_OK;
}

/* In place the block that was folded where its input was goes to the start, when all sends out of
 * that memory are done. */
static void ring_end(struct ring *ring)
{
	const struct rf_task *task = ring->task;

	ring->ended = true;
	if (ring->group->size == 1)
		rf_group_alone(ring->group, task);
	else if (task->collective == RF_REDUCE_SCATTER && task->in_place)
		rf_group_copy(ring->group, task->recv, ring->result,
			      rf_cut_length(&ring->cut, ring->group->rank) * ring->bytes);
}

static int ring_advance(void *state, int *awaited)
{
	struct ring *ring = state;
	bool put_off = false;

	for (unsigned i = 0; i < ring->channels * RING_WORKS; i++) {
		int status = ring_drain(ring, &ring->queues[i], i % RING_WORKS);

		if (status != RF_OK)
			return status;
		put_off |= ring->queues[i].head != RING_NONE;
	}
	if (!ring->receives_left && !ring->sends_left) {
		if (!ring->ended)
			ring_end(ring);
		return RF_OK;
	}
	*awaited = put_off || !ring->receives_left ? -1 : ring->before;
	return RF_ERR_AGAIN;
}

/* ---- arrivals ------------------------------------------------------------------------------- */

static bool ring_is_free_report(const struct ring *ring, int from)
{
	return ring->frees && from == ring->after;
}

/* The chunk and the step of an arrival, if it is the next one of its chunk. */
static struct ring_chunk *ring_find(struct ring *ring, const struct rf_arrival *arrival,
				    uint32_t *k)
{
	struct ring_chunk *chunk;
	uint32_t step;

	if (!ring->cut.chunks)
		return NULL;
	step = arrival->chunk / ring->cut.chunks;
	*k = arrival->chunk % ring->cut.chunks;
	chunk = &ring->chunks[*k];
	if (arrival->channel != *k % ring->channels)
		return NULL;
	if (ring_is_free_report(ring, arrival->from))
		return step < ring->frees && step == chunk->freed_in ? chunk : NULL;
	if (arrival->from != ring->before || step >= ring->steps || step != chunk->received)
		return NULL;
	return chunk;
}

static int ring_accept_free(struct ring_chunk *chunk, const struct rf_arrival *arrival,
			    struct rf_landing *landing)
{
	if (arrival->bytes || chunk->freeing)
		return RF_ERR_PROTOCOL;
	chunk->freeing = true;
	*landing = (struct rf_landing){.kind = RF_LAND_INTO};
	return RF_OK;
}

static void ring_land_fold(struct ring *ring, uint32_t step, uint32_t k, struct rf_landing *landing)
{
	const struct rf_task *task = ring->task;

	*landing = (struct rf_landing){
		.kind = RF_LAND_FOLD,
		.dst = ring_partial(ring, step, k),
		.dst_type = ring->wire_type,
		.other = ring_input(ring, ring_receive_block(ring, step), k),
		.other_type = task->dtype,
		.incoming_type = ring->wire_type,
		.op = task->op,
	};
}

/* A final block goes where this rank's own send of the reduce-scatter may still be read: that send
 * has reached its receiver long ago, but its completion may be late. */
static bool ring_is_in_use(const struct ring *ring, const struct ring_chunk *chunk, uint32_t step)
{
	uint32_t sent_in;

	if (!ring->fold_steps)
		return false;
	sent_in = step - ring->fold_steps;
	if (ring->slots || (sent_in == 0 && !ring->task->in_place))
		return sent_in >= chunk->posted;
	return !ring_send_done(chunk, sent_in);
}

static int ring_accept(void *state, const struct rf_arrival *arrival, struct rf_landing *landing)
{
	struct ring *ring = state;
	uint32_t k, step;
	struct ring_chunk *chunk = ring_find(ring, arrival, &k);
	int block;

	if (!chunk)
		return RF_ERR_PROTOCOL;
	if (ring_is_free_report(ring, arrival->from))
		return ring_accept_free(chunk, arrival, landing);
	step = chunk->received;
	block = ring_receive_block(ring, step);
	if (chunk->landing || arrival->bytes != rf_cut_chunk_length(&ring->cut, block, k) *
							ring_element_bytes(ring, step))
		return RF_ERR_PROTOCOL;
	if (ring->slots && step < ring->slot_uses && step >= chunk->freed_out + RING_SLOTS)
		return RF_ERR_PROTOCOL;
	if (step < ring->fold_steps) {
		ring_land_fold(ring, step, k, landing);
	} else if (ring_is_in_use(ring, chunk, step)) {
		landing->kind = RF_LAND_LATER;
		return RF_OK;
	} else {
		*landing = (struct rf_landing){
			.kind = RF_LAND_INTO,
			.dst = ring_output(ring, block, k),
			.dst_type = ring->task->dtype,
		};
	}
	chunk->landing = true;
	return RF_OK;
}

/* The own block is folded: round it, divide it. */
static void ring_finish(struct ring *ring, uint32_t k)
{
	const struct rf_task *task = ring->task;
	int rank = ring->group->rank;

	if (!ring_converts(ring) && task->divisor <= 1)
		return;
	rf_group_finish(ring->group, task->dtype, ring_output(ring, rank, k), ring->wire_type,
			ring_partial(ring, ring->fold_steps - 1, k),
			rf_cut_chunk_length(&ring->cut, rank, k), task->divisor);
}

static void ring_arrived(void *state, const struct rf_arrival *arrival)
{
	struct ring *ring = state;
	uint32_t k;
	struct ring_chunk *chunk = ring_find(ring, arrival, &k);

	if (!chunk)
		return;
	ring->receives_left--;
	if (ring_is_free_report(ring, arrival->from)) {
		chunk->freeing = false;
		chunk->freed_in++;
	} else {
		if (chunk->received + 1 == ring->fold_steps)
			ring_finish(ring, k);
		chunk->landing = false;
		chunk->received++;
	}
	ring_settle(ring, k);
}

static void ring_sent(void *state, int to, unsigned channel, uint32_t number)
{
	struct ring *ring = state;
	uint32_t k = number % ring->cut.chunks;

	(void)channel;
	ring->sends_left--;
	if (ring->frees && to == ring->before)
		return;
	ring_mark_done(&ring->chunks[k], number / ring->cut.chunks);
	ring_settle(ring, k);
}

const struct rf_algo rf_algo_ring = {
	.name = "ring",
	.collectives = 1u << RF_ALLREDUCE | 1u << RF_REDUCE_SCATTER | 1u << RF_ALLGATHER,
	.is_pipelined = true,
	.summary = "2(n-1) steps, 2(n-1)/n of the bytes each way; pipelined in chunks",
	.create = ring_create,
	.advance = ring_advance,
	.accept = ring_accept,
	.arrived = ring_arrived,
	.sent = ring_sent,
	.destroy = ring_destroy,
};
