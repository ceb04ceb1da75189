/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast and reduce over a tree, chunk by chunk. What passes between two neighbours is numbered
 * by chunk alone: data one way, and in a reduce the news that a slot is free the other way.
 *
 * Broadcast: what arrives is at its final address, and is sent on from there.
 *
 * Reduce: a rank folds its children's chunks one after the other, in the order of the children
 * whatever the order of arrival, so that the bits are the same on every run; a chunk that comes
 * before its turn waits in a slot. Elsewhere than at the root the partial result is in a slot too,
 * until it has been sent. There are FAN_WINDOW slots a kind: a child sends chunk k after it was
 * told, by a segment of zero bytes, that its parent is through with chunk k - FAN_WINDOW. So all
 * that arrives can be accepted. Memory: FAN_WINDOW chunks for the partial results and as many for
 * each child but the first.
 */
#include "engine/algo/fan.h"
#include "engine/algo/cut.h"
#include "engine/algo/group.h"
#include "engine/kernels/kernels.h"

#include <stdlib.h>

enum { FAN_WINDOW = 8 };

/* A chunk of a reduce that is under way; then the one FAN_WINDOW after it. */
struct fan_slot {
	uint32_t chunk;
	uint32_t arrived; /* bit of each child whose chunk is there */
	uint32_t folded;  /* and of those that were folded as they came */
	int level;        /* children that are folded */
	bool converted;   /* a leaf's input is in the slot, in the wire's type */
};

/* What comes from a neighbour on one channel, in order. */
struct fan_lane {
	uint32_t next;
	bool landing; /* the one after them has been accepted */
};

struct fan_peer {
	int rank;
	uint32_t send_count;
	uint32_t receive_count;
	uint32_t posted;
	uint32_t received;
};

struct fan {
	struct rf_group *group;
	const struct rf_task *task;
	struct rf_cut cut; /* one block */
	uint32_t chunks;
	unsigned channels;
	bool reduces;
	bool is_root;
	int children;
	size_t bytes; /* of an element of the call */
	rf_dtype wire_type;
	size_t wire_bytes; /* of an element as it is sent */
	rf_dtype fold_type;
	bool folds_in_recv;
	void *partials; /* a slot's worth each */
	size_t partial_bytes;
	void *staging; /* child - 1, slot */
	size_t staging_bytes;
	uint32_t pending; /* sends that have not completed */
	bool ended;
	struct fan_slot slots[FAN_WINDOW];
	struct fan_lane *lanes; /* peer * channels + channel */
	int peer_count;
	struct fan_peer peers[RF_FAN_CHILDREN_MAX + 1]; /* children first, then the parent */
};

/* ---- who, what, where ----------------------------------------------------------------------- */

static bool fan_is_child(const struct fan *fan, int peer)
{
	return peer < fan->children;
}

/* Data goes up in a reduce and down in a broadcast; the rest is reports of free slots. */
static bool fan_sends_data(const struct fan *fan, int peer)
{
	return fan_is_child(fan, peer) != fan->reduces;
}

static size_t fan_count(const struct fan *fan, uint32_t k)
{
	return rf_cut_chunk_length(&fan->cut, 0, k);
}

static void *fan_input(const struct fan *fan, uint32_t k)
{
	const void *base = fan->reduces ? fan->task->send : fan->task->recv;

	return rf_at(base, k * fan->cut.chunk * fan->bytes);
}

static void *fan_output(const struct fan *fan, uint32_t k)
{
	return rf_at(fan->task->recv, k * fan->cut.chunk * fan->bytes);
}

static void *fan_partial(const struct fan *fan, uint32_t k)
{
	if (fan->folds_in_recv)
		return fan_output(fan, k);
	return rf_at(fan->partials, k % FAN_WINDOW * fan->partial_bytes);
}

static void *fan_staging(const struct fan *fan, int child, uint32_t k)
{
	size_t index = (size_t)(child - 1) * FAN_WINDOW + k % FAN_WINDOW;

	return rf_at(fan->staging, index * fan->staging_bytes);
}

static struct fan_lane *fan_lane(const struct fan *fan, int peer, uint32_t k)
{
	return &fan->lanes[(size_t)peer * fan->channels + k % fan->channels];
}

static bool fan_has_come(const struct fan *fan, int peer, uint32_t k)
{
	return k / fan->channels < fan_lane(fan, peer, k)->next;
}

static struct fan_slot *fan_slot(struct fan *fan, uint32_t k)
{
	return &fan->slots[k % FAN_WINDOW];
}

static bool fan_sends_input(const struct fan *fan)
{
	return fan->children == 0 && fan->wire_type == fan->task->dtype;
}

/* ---- reduce: folding ------------------------------------------------------------------------ */

static void fan_place(struct fan *fan, uint32_t k, struct rf_landing *landing)
{
	int level = fan_slot(fan, k)->level;

	*landing = (struct rf_landing){
		.kind = RF_LAND_FOLD,
		.dst = fan_partial(fan, k),
		.dst_type = fan->fold_type,
		.other = level ? fan_partial(fan, k) : fan_input(fan, k),
		.other_type = level ? fan->fold_type : fan->task->dtype,
		.incoming_type = fan->wire_type,
		.op = fan->task->op,
	};
}

/* The chunk is through: its slot serves the one FAN_WINDOW later. */
static void fan_retire(struct fan_slot *slot)
{
	*slot = (struct fan_slot){.chunk = slot->chunk + FAN_WINDOW};
}

static void fan_finish(struct fan *fan, uint32_t k)
{
	if (!fan->folds_in_recv || fan->task->divisor > 1)
		rf_group_finish(fan->group, fan->task->dtype, fan_output(fan, k), fan->fold_type,
				fan_partial(fan, k), fan_count(fan, k), fan->task->divisor);
	fan_retire(fan_slot(fan, k));
}

static void fan_fold(struct fan *fan, uint32_t k)
{
	struct fan_slot *slot = fan_slot(fan, k);

	while (slot->level < fan->children && slot->arrived >> slot->level & 1) {
		struct rf_landing fold;

		if (!(slot->folded >> slot->level & 1)) {
			fan_place(fan, k, &fold);
			rf_group_fold2(fan->group, fold.op, fold.dst_type, fold.dst,
				       fold.other_type, fold.other, fold.incoming_type,
				       fan_staging(fan, slot->level, k), fan_count(fan, k));
		}
		slot->level++;
	}
	if (fan->is_root && slot->level == fan->children)
		fan_finish(fan, k);
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool fan_may_send(struct fan *fan, int peer)
{
	uint32_t k = fan->peers[peer].posted;

	if (k >= fan->peers[peer].send_count)
		return false;
	if (!fan->reduces)
		return fan->is_root || fan_has_come(fan, fan->children, k);
	if (fan_is_child(fan, peer))
		return fan_slot(fan, k)->chunk > k;
	if (fan_slot(fan, k)->chunk != k || fan_slot(fan, k)->level < fan->children)
		return false;
	return k < FAN_WINDOW || fan_has_come(fan, peer, k - FAN_WINDOW);
}

/* A leaf's input in the type of the wire. */
static void fan_convert(struct fan *fan, uint32_t k)
{
	if (!fan_slot(fan, k)->converted)
		rf_group_finish(fan->group, fan->wire_type, fan_partial(fan, k), fan->task->dtype,
				fan_input(fan, k), fan_count(fan, k), 0);
	fan_slot(fan, k)->converted = true;
}

static const void *fan_payload(struct fan *fan, uint32_t k)
{
	if (!fan->reduces || fan_sends_input(fan))
		return fan_input(fan, k);
	if (fan->children == 0)
		fan_convert(fan, k);
	return fan_partial(fan, k);
}

static int fan_post(struct fan *fan, int peer)
{
	uint32_t k = fan->peers[peer].posted;
	bool has_data = fan_sends_data(fan, peer);
	bool more = fan->is_root && has_data && k + fan->channels < fan->peers[peer].send_count;
	int status =
		fan->group->ops->send(fan->group, fan->peers[peer].rank, k % fan->channels, k,
				      has_data ? fan_payload(fan, k) : NULL,
				      has_data ? fan_count(fan, k) * fan->wire_bytes : 0, more);

	if (status < 0)
		return status;
	fan->peers[peer].posted++;
	if (status == RF_OK)
		fan->pending++;
	else if (fan->reduces && has_data)
		fan_retire(fan_slot(fan, k));
	return RF_OK;
}

/* All that can be sent to all neighbours; a report may become due by a send to the parent, which is
 * the last of them, and is sent in the next round. */
static int fan_drain(struct fan *fan, bool *put_off)
{
	bool again[RF_FAN_CHILDREN_MAX + 1] = {false};
	bool sent = true;

	while (sent) {
		sent = false;
		for (int peer = 0; peer < fan->peer_count; peer++) {
			while (!again[peer] && fan_may_send(fan, peer)) {
				int status = fan_post(fan, peer);

				if (status == RF_ERR_AGAIN)
					*put_off = again[peer] = true;
				else if (status != RF_OK)
					return status;
				sent |= status == RF_OK;
			}
		}
	}
	return RF_OK;
}

static bool fan_has_ended(const struct fan *fan)
{
	if (fan->pending)
		return false;
	for (int peer = 0; peer < fan->peer_count; peer++)
		if (fan->peers[peer].posted < fan->peers[peer].send_count ||
		    fan->peers[peer].received < fan->peers[peer].receive_count)
			return false;
	return true;
}

static int fan_awaits(const struct fan *fan)
{
	for (int peer = 0; peer < fan->peer_count; peer++)
		if (fan->peers[peer].received < fan->peers[peer].receive_count)
			return fan->peers[peer].rank;
	return -1;
}

int rf_fan_advance(void *state, int *awaited)
{
	struct fan *fan = state;
	bool put_off = false;
	int status = fan_drain(fan, &put_off);

	if (status != RF_OK)
		return status;
	if (fan_has_ended(fan)) {
		if (!fan->ended && fan->group->size == 1)
			rf_group_alone(fan->group, fan->task);
		fan->ended = true;
		return RF_OK;
	}
	*awaited = put_off ? -1 : fan_awaits(fan);
	return RF_ERR_AGAIN;
}

/* ---- arrivals ------------------------------------------------------------------------------- */

/* The neighbour that an arrival comes from, if it is the next one on its channel; or -1. */
static int fan_find(const struct fan *fan, const struct rf_arrival *arrival)
{
	uint32_t k = arrival->chunk;
	int peer = 0;

	while (peer < fan->peer_count && fan->peers[peer].rank != arrival->from)
		peer++;
	if (peer == fan->peer_count || k >= fan->peers[peer].receive_count)
		return -1;
	if (arrival->channel != k % fan->channels)
		return -1;
	return k / fan->channels == fan_lane(fan, peer, k)->next ? peer : -1;
}

int rf_fan_accept(void *state, const struct rf_arrival *arrival, struct rf_landing *landing)
{
	struct fan *fan = state;
	int peer = fan_find(fan, arrival);
	uint32_t k = arrival->chunk;
	bool has_data;

	if (peer < 0 || fan_lane(fan, peer, k)->landing)
		return RF_ERR_PROTOCOL;
	has_data = fan_is_child(fan, peer) == fan->reduces;
	if (arrival->bytes != (has_data ? fan_count(fan, k) * fan->wire_bytes : 0))
		return RF_ERR_PROTOCOL;
	if (has_data && fan->reduces && fan_slot(fan, k)->chunk != k)
		return RF_ERR_PROTOCOL;
	*landing = (struct rf_landing){.kind = RF_LAND_INTO, .dst_type = fan->wire_type};
	if (has_data && !fan->reduces) {
		landing->dst = fan_output(fan, k);
	} else if (has_data && fan_slot(fan, k)->level == peer) {
		fan_place(fan, k, landing);
		fan_slot(fan, k)->folded |= UINT32_C(1) << peer;
	} else if (has_data) {
		landing->dst = fan_staging(fan, peer, k);
	}
	fan_lane(fan, peer, k)->landing = true;
	return RF_OK;
}

void rf_fan_arrived(void *state, const struct rf_arrival *arrival)
{
	struct fan *fan = state;
	int peer = fan_find(fan, arrival);
	struct fan_lane *lane;

	if (peer < 0)
		return;
	lane = fan_lane(fan, peer, arrival->chunk);
	lane->landing = false;
	lane->next++;
	fan->peers[peer].received++;
	if (!fan->reduces || !fan_is_child(fan, peer))
		return;
	fan_slot(fan, arrival->chunk)->arrived |= UINT32_C(1) << peer;
	fan_fold(fan, arrival->chunk);
}

void rf_fan_sent(void *state, int to, unsigned channel, uint32_t chunk)
{
	struct fan *fan = state;

	(void)channel;
	fan->pending--;
	if (fan->reduces && !fan->is_root && to == fan->peers[fan->children].rank)
		fan_retire(fan_slot(fan, chunk));
}

/* ---- the machine ---------------------------------------------------------------------------- */

static void fan_shape(struct fan *fan, const struct rf_fan_shape *shape)
{
	uint32_t n = fan->chunks;
	uint32_t reports = fan->reduces && n > FAN_WINDOW ? n - FAN_WINDOW : 0;

	for (int i = 0; i < shape->child_count; i++)
		fan->peers[i] = (struct fan_peer){
			.rank = shape->children[i],
			.send_count = fan->reduces ? reports : n,
			.receive_count = fan->reduces ? n : 0,
		};
	fan->children = fan->peer_count = shape->child_count;
	fan->is_root = shape->parent < 0;
	if (fan->is_root)
		return;
	fan->peers[fan->peer_count++] = (struct fan_peer){
		.rank = shape->parent,
		.send_count = fan->reduces ? n : 0,
		.receive_count = fan->reduces ? reports : n,
	};
}

static void fan_types(struct fan *fan)
{
	const struct rf_task *task = fan->task;

	fan->fold_type = fan->wire_type;
	if (fan->is_root && task->divisor > 1)
		fan->fold_type = rf_partial_type(task->dtype);
	fan->folds_in_recv = fan->is_root && fan->fold_type == task->dtype;
	for (uint32_t i = 0; i < FAN_WINDOW; i++)
		fan->slots[i].chunk = i;
}

static int fan_memory(struct fan *fan)
{
	size_t window = fan->chunks < FAN_WINDOW ? fan->chunks : FAN_WINDOW;
	int status = RF_OK;

	fan->lanes = calloc((size_t)(fan->peer_count + 1) * fan->channels, sizeof(*fan->lanes));
	if (!fan->lanes)
		return RF_ERR_NOMEM;
	if (!fan->reduces || !window || fan->group->size == 1)
		return RF_OK;
	fan->partial_bytes = fan->cut.chunk * rf_dtype_size(fan->fold_type);
	fan->staging_bytes = fan->cut.chunk * fan->wire_bytes;
	if (!fan->folds_in_recv && !fan_sends_input(fan))
		status = rf_group_alloc(fan->group, window * fan->partial_bytes, &fan->partials);
	if (status == RF_OK && fan->children > 1)
		status = rf_group_alloc(
			fan->group, (size_t)(fan->children - 1) * FAN_WINDOW * fan->staging_bytes,
			&fan->staging);
	return status;
}

static int fan_expect(struct fan *fan)
{
	struct rf_group *group = fan->group;
	uint64_t bytes = (uint64_t)fan->task->count * fan->wire_bytes;
	int status = RF_OK;

	for (int peer = 0; peer < fan->peer_count && status == RF_OK; peer++) {
		bool has_data = fan_is_child(fan, peer) == fan->reduces;
		bool prompt = fan->reduces && !has_data && !fan->children && fan->chunks;

		if (has_data || fan->peers[peer].receive_count)
			status = group->ops->expect(group, fan->peers[peer].rank,
						    has_data ? bytes : 0, prompt);
	}
	return status;
}

void rf_fan_destroy(void *state)
{
	struct fan *fan = state;

	if (fan->partials)
		rf_group_free(fan->group, fan->partials);
	if (fan->staging)
		rf_group_free(fan->group, fan->staging);
	rf_cut_free(&fan->cut);
	free(fan->lanes);
	free(fan);
}

int rf_fan_create(struct rf_group *group, const struct rf_task *task, const struct rf_plan *plan,
		  const struct rf_fan_shape *shape, void **state)
{
	struct fan *fan = calloc(1, sizeof(*fan));
	int status;

	if (!fan)
		return RF_ERR_NOMEM;
	fan->group = group;
	fan->task = task;
	fan->channels = plan->channels;
	fan->reduces = task->collective == RF_REDUCE;
	fan->bytes = rf_dtype_size(task->dtype);
	fan->wire_type = fan->reduces ? plan->wire_type : task->dtype;
	fan->wire_bytes = rf_dtype_size(fan->wire_type);
	status = rf_cut_init(&fan->cut, 1, task->count, NULL, plan, fan->wire_bytes, 1);
	fan->chunks = fan->cut.chunks;
	if (status == RF_OK) {
		fan_shape(fan, shape);
		fan_types(fan);
		status = fan_memory(fan);
	}
	if (status == RF_OK)
		status = fan_expect(fan);
	if (status != RF_OK) {
		rf_fan_destroy(fan);
		return status;
	}
	*state = fan;
	return RF_OK;
}
