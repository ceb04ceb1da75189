/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doubling: recursive doubling, for small allreduces and for the barrier. In step s each rank
 * exchanges its partial result with the one whose number differs in bit s. Of a number of ranks
 * that is no power of two, the first ones form pairs: the even one (the client) hands its input to
 * the odd one (the server) before the steps, and gets the result after them.
 *
 * Both ends of an exchange fold the same two values into the same type, and every operator is
 * commutative to the bit: so all ranks end with the same bits. Each step has a slot of its own, in
 * which what comes early waits; what comes in time is folded from where it arrives.
 *
 * Buffers above the plan's chunk are cut into segments which are reduced independently.
 */
#include "engine/algo/cut.h"
#include "engine/algo/group.h"
#include "engine/kernels/kernels.h"

#include <stdlib.h>

enum doubling_role {
	DOUBLING_PEER,   /* takes part in the steps, alone */
	DOUBLING_SERVER, /* takes part in the steps, for its client too */
	DOUBLING_CLIENT, /* only hands in and gets back */
};

/* One segment's way. Stages number what is sent: 0 from client to server, 1 + s in step s, 1 +
 * steps from server to client; masks have a bit for each. */
struct doubling_segment {
	int level;         /* folds that are done: slot `level` is final; a server starts at -1 */
	uint32_t landing;  /* accepted */
	uint32_t in_place; /* arrived */
	uint32_t folded;   /* accepted straight into the fold */
	uint32_t posted;
	uint32_t pending;   /* posted and not completed */
	bool last_in_recv;  /* the last fold went to recv */
	bool last_is_fixed; /* last_in_recv is decided */
	bool finished;      /* recv holds the result */
};

struct doubling {
	struct rf_group *group;
	const struct rf_task *task;
	struct rf_cut cut; /* one block; chunks are segments */
	uint32_t segments;
	unsigned channels;
	enum doubling_role role;
	int number; /* among those who take part in the steps */
	int extra;  /* clients */
	int steps;
	size_t bytes; /* of an element of the call */
	rf_dtype wire_type;
	size_t wire_bytes;
	rf_dtype last_type; /* of the last fold */
	bool converts;
	size_t slot_bytes; /* of one segment */
	void *slots;       /* steps + 1 a segment */
	void *wide;        /* fp32 of the last fold, where it is wider than what is sent */
	uint32_t first;    /* segments before it have ended */
	struct doubling_segment segment[];
};

#define BIT(stage) (UINT32_C(1) << (stage))

/* ---- who, what, where ----------------------------------------------------------------------- */

static int doubling_rank(const struct doubling *d, int number)
{
	return number < d->extra ? 2 * number + 1 : number + d->extra;
}

/* Whom a stage is exchanged with. */
static int doubling_partner(const struct doubling *d, int stage)
{
	int rank = d->group->rank;

	if (stage == 0 || stage == d->steps + 1)
		return d->role == DOUBLING_CLIENT ? rank + 1 : rank - 1;
	return doubling_rank(d, d->number ^ 1 << (stage - 1));
}

static size_t doubling_count(const struct doubling *d, uint32_t k)
{
	return rf_cut_chunk_length(&d->cut, 0, k);
}

static const void *doubling_input(const struct doubling *d, uint32_t k)
{
	return rf_at(d->task->send, k * d->cut.chunk * d->bytes);
}

static void *doubling_output(const struct doubling *d, uint32_t k)
{
	return rf_at(d->task->recv, k * d->cut.chunk * d->bytes);
}

static void *doubling_slot(const struct doubling *d, uint32_t k, int level)
{
	size_t index = (size_t)k * (size_t)(d->steps + 1) + (size_t)level;

	return rf_at(d->slots, index * d->slot_bytes);
}

static bool doubling_sends_input(const struct doubling *d)
{
	return d->role == DOUBLING_PEER && !d->converts;
}

/* The partial result after `level` folds, those before the last. */
static const void *doubling_value(const struct doubling *d, uint32_t k, int level)
{
	if (level == 0 && doubling_sends_input(d))
		return doubling_input(d, k);
	return doubling_slot(d, k, level);
}

static bool doubling_is_pending(const struct doubling_segment *segment, int stage)
{
	return !(segment->posted & BIT(stage)) || segment->pending & BIT(stage);
}

/* Is the input in recv still to be sent from there? */
static bool doubling_reads_recv(const struct doubling *d, const struct doubling_segment *segment)
{
	return d->task->in_place && doubling_sends_input(d) && doubling_is_pending(segment, 1);
}

/* Where the last fold goes: to recv if nothing has to be done with it afterwards and no send may
 * still read there. */
static void *doubling_last(struct doubling *d, uint32_t k)
{
	struct doubling_segment *segment = &d->segment[k];

	if (!segment->last_is_fixed) {
		segment->last_in_recv =
			d->last_type == d->task->dtype && !doubling_reads_recv(d, segment);
		segment->last_is_fixed = true;
	}
	if (segment->last_in_recv)
		return doubling_output(d, k);
	if (d->wide)
		return rf_at(d->wide, k * d->cut.chunk * rf_dtype_size(d->last_type));
	return doubling_slot(d, k, d->steps);
}

/* ---- folding -------------------------------------------------------------------------------- */

/* Where the fold of an arriving stage goes, with which type, and with what it is folded. */
static void doubling_place(struct doubling *d, uint32_t k, int stage, struct rf_landing *landing)
{
	landing->kind = RF_LAND_FOLD;
	landing->op = d->task->op;
	landing->dst_type = stage == d->steps ? d->last_type : d->wire_type;
	landing->dst = stage == d->steps ? doubling_last(d, k) : doubling_slot(d, k, stage);
	if (stage == 0) {
		landing->other = doubling_input(d, k);
		landing->other_type = d->task->dtype;
		landing->incoming_type = d->task->dtype;
	} else {
		landing->other = doubling_value(d, k, stage - 1);
		landing->other_type = d->wire_type;
		landing->incoming_type = d->wire_type;
	}
}

static void doubling_fold_early(struct doubling *d, uint32_t k, int stage)
{
	struct rf_landing fold;

	doubling_place(d, k, stage, &fold);
	rf_group_fold2(d->group, fold.op, fold.dst_type, fold.dst, fold.other_type, fold.other,
		       fold.incoming_type, doubling_slot(d, k, stage), doubling_count(d, k));
}

/* Takes in what has arrived, in order. */
static void doubling_fold(struct doubling *d, uint32_t k)
{
	struct doubling_segment *segment = &d->segment[k];

	while (segment->level < d->steps && segment->in_place & BIT(segment->level + 1)) {
		if (!(segment->folded & BIT(segment->level + 1)))
			doubling_fold_early(d, k, segment->level + 1);
		segment->level++;
	}
}

/* Rounds, divides and moves the last fold. */
static void doubling_finish(struct doubling *d, uint32_t k)
{
	struct doubling_segment *segment = &d->segment[k];

	if (segment->finished || segment->level < d->steps)
		return;
	if (doubling_reads_recv(d, segment))
		return;
	if (!segment->last_in_recv || d->task->divisor > 1)
		rf_group_finish(d->group, d->task->dtype, doubling_output(d, k), d->last_type,
				doubling_last(d, k), doubling_count(d, k), d->task->divisor);
	segment->finished = true;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* The stage to send next, or -1. */
static int doubling_next_stage(const struct doubling *d, const struct doubling_segment *segment)
{
	if (d->role == DOUBLING_CLIENT)
		return segment->posted & BIT(0) ? -1 : 0;
	for (int stage = 1; stage <= d->steps; stage++)
		if (!(segment->posted & BIT(stage)))
			return segment->level >= stage - 1 ? stage : -1;
	if (d->role == DOUBLING_SERVER && segment->finished &&
	    !(segment->posted & BIT(d->steps + 1)))
		return d->steps + 1;
	return -1;
}

static int doubling_post(struct doubling *d, uint32_t k, int stage, int *blocked)
{
	struct doubling_segment *segment = &d->segment[k];
	int to = doubling_partner(d, stage);
	bool more = stage <= 1 && d->role != DOUBLING_SERVER && k + d->channels < d->segments;
	size_t bytes = d->bytes;
	const void *payload;
	int status;

	if (to == *blocked)
		return RF_ERR_AGAIN;
	if (stage == 0) {
		payload = doubling_input(d, k);
	} else if (stage == d->steps + 1) {
		payload = doubling_output(d, k);
	} else {
		payload = doubling_value(d, k, stage - 1);
		bytes = d->wire_bytes;
	}
	status = d->group->ops->send(d->group, to, k % d->channels,
				     (uint32_t)stage * d->segments + k, payload,
				     doubling_count(d, k) * bytes, more);
	if (status == RF_ERR_AGAIN)
		*blocked = to;
	if (status < 0)
		return status;
	segment->posted |= BIT(stage);
	if (status == RF_OK)
		segment->pending |= BIT(stage);
	return RF_OK;
}

static bool doubling_has_ended(const struct doubling *d, const struct doubling_segment *segment)
{
	return segment->finished && !segment->pending && doubling_next_stage(d, segment) < 0;
}

/* All that a segment can do now. */
static int doubling_step(struct doubling *d, uint32_t k, int *blocked)
{
	int stage, status = RF_OK;

	if (d->role != DOUBLING_CLIENT)
		doubling_finish(d, k);
	while (status == RF_OK && (stage = doubling_next_stage(d, &d->segment[k])) >= 0) {
		status = doubling_post(d, k, stage, blocked);
		if (status == RF_OK && d->role != DOUBLING_CLIENT)
			doubling_finish(d, k);
	}
	return status == RF_ERR_AGAIN ? RF_OK : status;
}

static int doubling_awaited(const struct doubling *d, const struct doubling_segment *segment)
{
	if (segment->pending || doubling_next_stage(d, segment) >= 0)
		return -1;
	if (d->role == DOUBLING_CLIENT)
		return d->group->rank + 1;
	return doubling_partner(d, segment->level + 1);
}

static int doubling_advance(void *state, int *awaited)
{
	struct doubling *d = state;
	int blocked = -1;

	for (uint32_t k = d->first; k < d->segments; k++) {
		int status = doubling_step(d, k, &blocked);

		if (status != RF_OK)
			return status;
		if (k == d->first && doubling_has_ended(d, &d->segment[k]))
			d->first++;
	}
	if (d->first == d->segments)
		return RF_OK;
	*awaited = doubling_awaited(d, &d->segment[d->first]);
	return RF_ERR_AGAIN;
}

/* ---- arrivals ------------------------------------------------------------------------------- */

/* The segment and stage of an arrival, if this rank may receive it at all. */
static struct doubling_segment *doubling_find(struct doubling *d, const struct rf_arrival *arrival,
					      uint32_t *k, int *stage)
{
	uint32_t number;
	bool comes;

	if (!d->segments)
		return NULL;
	number = arrival->chunk / d->segments;
	*k = arrival->chunk % d->segments;
	*stage = (int)number;
	if (number > (uint32_t)d->steps + 1 || arrival->channel != *k % d->channels)
		return NULL;
	if (d->role == DOUBLING_CLIENT)
		comes = *stage == d->steps + 1;
	else
		comes = *stage <= d->steps && (*stage > 0 || d->role == DOUBLING_SERVER);
	if (!comes || arrival->from != doubling_partner(d, *stage))
		return NULL;
	return &d->segment[*k];
}

static void doubling_land(struct doubling *d, uint32_t k, int stage, struct rf_landing *landing)
{
	struct doubling_segment *segment = &d->segment[k];

	*landing = (struct rf_landing){.kind = RF_LAND_INTO, .dst_type = d->task->dtype};
	if (d->role == DOUBLING_CLIENT) {
		landing->dst = doubling_output(d, k);
		if (d->task->in_place && doubling_is_pending(segment, 0))
			landing->kind = RF_LAND_LATER;
	} else if (stage == segment->level + 1 && doubling_count(d, k)) {
		doubling_place(d, k, stage, landing);
		segment->folded |= BIT(stage);
	} else {
		landing->dst = doubling_slot(d, k, stage);
		landing->dst_type = d->wire_type;
	}
}

static int doubling_accept(void *state, const struct rf_arrival *arrival,
			   struct rf_landing *landing)
{
	struct doubling *d = state;
	struct doubling_segment *segment;
	size_t element;
	uint32_t k;
	int stage;

	segment = doubling_find(d, arrival, &k, &stage);
	if (!segment || segment->landing & BIT(stage))
		return RF_ERR_PROTOCOL;
	element = stage == 0 || stage == d->steps + 1 ? d->bytes : d->wire_bytes;
	if (arrival->bytes != doubling_count(d, k) * element)
		return RF_ERR_PROTOCOL;
	doubling_land(d, k, stage, landing);
	if (landing->kind != RF_LAND_LATER)
		segment->landing |= BIT(stage);
	return RF_OK;
}

static void doubling_arrived(void *state, const struct rf_arrival *arrival)
{
	struct doubling *d = state;
	struct doubling_segment *segment;
	uint32_t k;
	int stage;

	segment = doubling_find(d, arrival, &k, &stage);
	if (!segment)
		return;
	segment->in_place |= BIT(stage);
	if (d->role == DOUBLING_CLIENT)
		segment->finished = true;
	else
		doubling_fold(d, k);
}

static void doubling_sent(void *state, int to, unsigned channel, uint32_t number)
{
	struct doubling *d = state;

	(void)to;
	(void)channel;
	d->segment[number % d->segments].pending &= ~BIT(number / d->segments);
}

/* ---- the machine ---------------------------------------------------------------------------- */

static int doubling_expect(struct doubling *d)
{
	struct rf_group *group = d->group;
	uint64_t bytes = (uint64_t)d->task->count * d->bytes;
	uint64_t wire = (uint64_t)d->task->count * d->wire_bytes;
	int status = RF_OK;

	if (d->role == DOUBLING_CLIENT)
		return group->ops->expect(group, group->rank + 1, bytes, d->segments > 0);
	if (d->role == DOUBLING_SERVER)
		status = group->ops->expect(group, group->rank - 1, bytes, false);
	for (int stage = 1; stage <= d->steps && status == RF_OK; stage++) {
		/* A later step waits for an earlier one's partner, but never for its own. */
		status = group->ops->expect(group, doubling_partner(d, stage), wire,
					    d->segments > 0);
	}
	return status;
}

static void doubling_shape(struct doubling *d, const struct rf_plan *plan)
{
	const struct rf_task *task = d->task;
	int rank = d->group->rank;

	while (2 << d->steps <= d->group->size)
		d->steps++;
	d->extra = d->group->size - (1 << d->steps);
	if (rank >= 2 * d->extra)
		d->role = DOUBLING_PEER;
	else
		d->role = rank % 2 ? DOUBLING_SERVER : DOUBLING_CLIENT;
	d->number = rank < 2 * d->extra ? rank / 2 : rank - d->extra;
	d->channels = plan->channels;
	d->bytes = rf_dtype_size(task->dtype);
	d->wire_type = plan->wire_type;
	d->wire_bytes = rf_dtype_size(plan->wire_type);
	d->converts = plan->wire_type != task->dtype;
	d->last_type = task->divisor > 1 ? rf_partial_type(task->dtype) : plan->wire_type;
	d->slot_bytes = d->cut.chunk * d->wire_bytes;
}

/* State and slots are one piece of memory; where there is no payload only the state is. */
static size_t doubling_bytes(const struct doubling *shape)
{
	size_t slots = shape->segments * shape->slot_bytes;

	if (shape->group->no_payload || !slots)
		return 0;
	return slots * (size_t)(shape->steps + 1) +
	       shape->segments * shape->cut.chunk * rf_dtype_size(shape->last_type);
}

static void doubling_convert(struct doubling *d)
{
	if (!d->converts || d->role != DOUBLING_PEER)
		return;
	for (uint32_t k = 0; k < d->segments; k++)
		rf_group_finish(d->group, d->wire_type, doubling_slot(d, k, 0), d->task->dtype,
				doubling_input(d, k), doubling_count(d, k), 0);
}

static void doubling_destroy(void *state)
{
	struct doubling *d = state;

	rf_cut_free(&d->cut);
	free(d);
}

static int doubling_create(struct rf_group *group, const struct rf_task *task,
			   const struct rf_plan *plan, void **state)
{
	struct doubling shape = {.group = group, .task = task}, *d;
	size_t count = task->collective == RF_BARRIER ? 0 : task->count;
	size_t head;
	int status;

	status = rf_cut_init(&shape.cut, 1, count, NULL, plan, rf_dtype_size(plan->wire_type), 34);
	if (status != RF_OK)
		return status;
	doubling_shape(&shape, plan);
	shape.segments = task->collective == RF_BARRIER ? 1 : shape.cut.chunks;
	head = sizeof(*d) + shape.segments * sizeof(d->segment[0]);
	head = (head + 63) / 64 * 64;
	d = aligned_alloc(64, head + (doubling_bytes(&shape) + 63) / 64 * 64);
	if (!d)
		return RF_ERR_NOMEM;
	*d = shape;
	d->slots = rf_at(d, head);
	if (rf_dtype_size(d->last_type) > d->wire_bytes)
		d->wide = doubling_slot(d, d->segments, 0);
	for (uint32_t k = 0; k < d->segments; k++)
		d->segment[k] = (struct doubling_segment){
			.level = d->role == DOUBLING_SERVER ? -1 : 0,
		};
	if (group->size == 1) {
		rf_group_alone(group, task);
		d->segments = 0;
	} else {
		status = doubling_expect(d);
	}
	if (status != RF_OK) {
		doubling_destroy(d);
		return status;
	}
	doubling_convert(d);
	*state = d;
	return RF_OK;
}

const struct rf_algo rf_algo_doubling = {
	.name = "doubling",
	.collectives = 1u << RF_ALLREDUCE | 1u << RF_BARRIER,
	.summary = "log2(n) steps, each with all of the bytes; two more unless n is a power of two",
	.create = doubling_create,
	.advance = doubling_advance,
	.accept = doubling_accept,
	.arrived = doubling_arrived,
	.sent = doubling_sent,
	.destroy = doubling_destroy,
};
