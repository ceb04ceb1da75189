/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The world's loop: at each turn one thing that can happen is picked at random.
 */
#include "tests/unit/check_algo_world.h"
#include "engine/kernels/kernels.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct message {
	struct rf_arrival arrival;
	int to;
	const void *payload;
	unsigned char *copy;
	bool delivered;
	bool completed;
	struct message *next;
};

/* Of one pair and channel. */
struct queue {
	struct message *head;
	struct message *tail;
	size_t position; /* in the list of those that can be picked */
	bool listed;
	bool accepted; /* the head's landing is known, and offset bytes are there */
	struct rf_landing landing;
	size_t offset;
};

struct rank {
	struct rf_group group;
	struct rf_task task;
	struct world *world;
	void *machine;
	bool started;
	bool advanced;
	bool dirty;
	bool ended;
	int arrivals;
	int pending; /* sends that have not completed */
	int put_off; /* sends answered with AGAIN in the last advance */
	bool wants_credit;
	uint64_t *expected;
	uint64_t *received;
	unsigned char *relation; /* RELATION_* by rank */
	size_t *later;           /* queues that stand still */
	size_t later_count;
};
enum {
	RELATION_EXPECTED = 1,
	RELATION_PROMPT = 2,
	RELATION_SENT = 4,
	RELATION_SENT_FIRST_BYTES = 8 /* in the first advance, with nothing received */
};

struct world {
	const struct world_case *c;
	uint64_t random;
	struct rank *ranks;
	struct queue *queues;
	size_t *ready; /* queues that can be picked */
	size_t ready_count;
	struct message **pending;
	size_t pending_count;
	size_t pending_room;
	int *dirty;
	size_t dirty_count;
	int ended;
	uint64_t segments;
	bool left;
};

uint64_t check_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t check_below(uint64_t *state, uint64_t bound)
{
	return check_random(state) % bound;
}

const char *(*world_describe)(void);

_Noreturn void world_fail(const char *file, int line, const char *condition, const char *format,
			  ...)
{
	va_list arguments;

	fprintf(stderr, "%s:%d: %s: ", file, line, condition);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n  %s\n", world_describe());
	exit(1);
}

static bool chance(struct world *world, unsigned percent)
{
	return check_below(&world->random, 100) < percent;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static size_t queue_id(const struct world *world, int from, int to, unsigned channel)
{
	size_t ranks = (size_t)world->c->ranks;

	return ((size_t)from * ranks + (size_t)to) * world->c->plan.channels + channel;
}

static void list_queue(struct world *world, size_t id)
{
	struct queue *queue = &world->queues[id];

	if (queue->listed)
		return;
	queue->listed = true;
	queue->position = world->ready_count;
	world->ready[world->ready_count++] = id;
}

static void unlist_queue(struct world *world, size_t id)
{
	struct queue *queue = &world->queues[id];
	size_t last = world->ready[--world->ready_count];

	world->ready[queue->position] = last;
	world->queues[last].position = queue->position;
	queue->listed = false;
}

static void mark_dirty(struct world *world, struct rank *rank)
{
	if (rank->dirty || rank->ended || !rank->started)
		return;
	rank->dirty = true;
	world->dirty[world->dirty_count++] = rank->group.rank;
}

static void free_message(struct message *message)
{
	if (!message->delivered || !message->completed)
		return;
	free(message->copy);
	free(message);
}

/* ---- what machines call --------------------------------------------------------------------- */

static int world_expect(struct rf_group *group, int from, uint64_t bytes, bool prompt)
{
	struct rank *rank = (struct rank *)group;

	WORLD_CHECK(from >= 0 && from < group->size && from != group->rank, "expect %d", from);
	WORLD_CHECK(!rank->relation[from], "expect %d twice", from);
	rank->relation[from] = RELATION_EXPECTED | (prompt ? RELATION_PROMPT : 0);
	rank->expected[from] = bytes;
	return RF_OK;
}

static void add_pending(struct world *world, struct message *message)
{
	if (world->pending_count == world->pending_room) {
		world->pending_room = 2 * world->pending_room + 64;
		world->pending =
			realloc(world->pending, world->pending_room * sizeof(struct message *));
	}
	world->pending[world->pending_count++] = message;
}

static void enqueue(struct world *world, struct message *message)
{
	const struct rf_arrival *arrival = &message->arrival;
	size_t id = queue_id(world, arrival->from, message->to, arrival->channel);
	struct queue *queue = &world->queues[id];

	world->segments++;
	if (queue->head) {
		queue->tail->next = message;
	} else {
		queue->head = message;
		list_queue(world, id);
	}
	queue->tail = message;
}

static int world_send(struct rf_group *group, int to, unsigned channel, uint32_t chunk,
		      const void *payload, size_t bytes, bool more)
{
	struct rank *rank = (struct rank *)group;
	struct world *world = rank->world;
	struct message *message;
	bool at_once;

	(void)more;
	WORLD_CHECK(to >= 0 && to < group->size && to != group->rank, "send to %d", to);
	WORLD_CHECK(channel < world->c->plan.channels, "channel %u", channel);
	rank->relation[to] |= RELATION_SENT;
	if (!rank->arrivals && world->c->first_alone && !rank->advanced && bytes)
		rank->relation[to] |= RELATION_SENT_FIRST_BYTES;
	if (!world->ranks[to].started) {
		rank->wants_credit = true;
		return RF_ERR_AGAIN;
	}
	WORLD_CHECK(world->ranks[to].relation[group->rank] & RELATION_EXPECTED,
		    "%d does not expect %d", to, group->rank);
	if (chance(world, world->c->again)) {
		rank->put_off++;
		return RF_ERR_AGAIN;
	}
	at_once = chance(world, world->c->at_once);
	message = calloc(1, sizeof(*message));
	message->arrival = (struct rf_arrival){group->rank, channel, chunk, bytes};
	message->to = to;
	message->payload = payload;
	message->completed = at_once;
	if (!group->no_payload && bytes) {
		message->copy = malloc(bytes);
		memcpy(message->copy, payload, bytes);
	}
	enqueue(world, message);
	if (at_once)
		return 1;
	rank->pending++;
	add_pending(world, message);
	return RF_OK;
}

static const struct rf_group_ops world_ops = {.expect = world_expect, .send = world_send};

/* ---- what can happen ------------------------------------------------------------------------ */

static void complete(struct world *world, size_t index)
{
	struct message *message = world->pending[index];
	struct rank *rank = &world->ranks[message->arrival.from];

	world->pending[index] = world->pending[--world->pending_count];
	if (message->copy)
		WORLD_CHECK(!memcmp(message->payload, message->copy, message->arrival.bytes),
			    "rank %d reused the payload of chunk %u to %d", message->arrival.from,
			    message->arrival.chunk, message->to);
	rank->pending--;
	WORLD_CHECK(!rank->ended, "rank %d ended with a send pending", rank->group.rank);
	world->c->plan.algo->sent(rank->machine, message->to, message->arrival.channel,
				  message->arrival.chunk);
	message->completed = true;
	free_message(message);
	mark_dirty(world, rank);
}

/* Offers what cannot be right. */
static void offer_garbage(struct world *world, struct rank *rank, struct rf_arrival arrival)
{
	struct rf_landing landing;
	uint64_t *random = &world->random;
	bool surely = true;
	int status;

	switch (check_below(random, 7)) {
	case 0:
		arrival.bytes += 1 + check_below(random, 70);
		break;
	case 1:
		arrival.bytes = arrival.bytes ? check_below(random, arrival.bytes) : 4;
		break;
	case 2:
		arrival.channel += 1 + (unsigned)check_below(random, 5);
		break;
	case 3:
		arrival.from = check_below(random, 2) ? -1 : world->c->ranks;
		break;
	case 4:
		arrival.chunk = UINT32_MAX - (uint32_t)check_below(random, 70);
		break;
	case 5:
		arrival.from = rank->group.rank;
		break;
	default:
		arrival.from = (int)check_below(random, (uint64_t)world->c->ranks);
		arrival.chunk = (uint32_t)check_below(random, 40);
		arrival.channel = (unsigned)check_below(random, world->c->plan.channels);
		if (check_below(random, 2))
			arrival.bytes = check_below(random, 2 * arrival.bytes + 4);
		surely = false;
		break;
	}
	status = world->c->plan.algo->accept(rank->machine, &arrival, &landing);
	if (status == RF_OK && !surely)
		world->left |= landing.kind != RF_LAND_LATER;
	else
		WORLD_CHECK(status == RF_ERR_PROTOCOL, "accept() answered %d", status);
}

static void check_landing(const struct world *world, const struct rank *rank,
			  const struct message *message, const struct rf_landing *landing)
{
	uintptr_t recv = (uintptr_t)rank->task.recv, dst = (uintptr_t)landing->dst;
	size_t whole = rank->task.count * rf_dtype_size(rank->task.dtype);

	if (!world->c->no_payload || !message->arrival.bytes || dst < recv)
		return;
	WORLD_CHECK(dst - recv <= whole && message->arrival.bytes <= whole - (dst - recv),
		    "landing outside of recv");
}

static void offer_again(struct world *world, struct rank *rank, const struct message *message)
{
	struct rf_landing landing;
	int status = world->c->plan.algo->accept(rank->machine, &message->arrival, &landing);

	WORLD_CHECK(status == RF_ERR_PROTOCOL, "a duplicate was accepted: %d", status);
}

static bool accept_head(struct world *world, size_t id)
{
	struct queue *queue = &world->queues[id];
	struct message *message = queue->head;
	struct rank *rank = &world->ranks[message->to];
	int status;

	WORLD_CHECK(!rank->ended, "rank %d has ended before all of its segments", rank->group.rank);
	if (chance(world, world->c->garbage))
		offer_garbage(world, rank, message->arrival);
	if (world->left)
		return false;
	memset(&queue->landing, 0xa5, sizeof(queue->landing));
	status = world->c->plan.algo->accept(rank->machine, &message->arrival, &queue->landing);
	WORLD_CHECK(status == RF_OK, "rank %d: accept() answered %d to chunk %u of %d",
		    rank->group.rank, status, message->arrival.chunk, message->arrival.from);
	if (queue->landing.kind == RF_LAND_LATER) {
		WORLD_CHECK(rank->pending || rank->put_off || !rank->advanced || rank->dirty,
			    "rank %d waits for others before it accepts", rank->group.rank);
		unlist_queue(world, id);
		rank->later[rank->later_count++] = id;
		return false;
	}
	check_landing(world, rank, message, &queue->landing);
	if (chance(world, world->c->garbage))
		offer_again(world, rank, message);
	queue->accepted = true;
	queue->offset = 0;
	return true;
}

/* bytes of the head's payload go where they belong. */
static void land(struct queue *queue, size_t bytes)
{
	const struct rf_landing *landing = &queue->landing;
	const unsigned char *from = queue->head->copy + queue->offset;
	size_t first, count;

	if (landing->kind == RF_LAND_INTO) {
		memcpy((char *)landing->dst + queue->offset, from, bytes);
		return;
	}
	first = queue->offset / rf_dtype_size(landing->incoming_type);
	count = bytes / rf_dtype_size(landing->incoming_type);
	rf_fold2(landing->op, landing->dst_type,
		 (char *)landing->dst + first * rf_dtype_size(landing->dst_type),
		 landing->other_type,
		 (const char *)landing->other + first * rf_dtype_size(landing->other_type),
		 landing->incoming_type, from, count);
}

static void deliver(struct world *world, size_t id)
{
	struct queue *queue = &world->queues[id];
	struct message *message = queue->head;
	struct rank *rank = &world->ranks[message->to];
	size_t bytes;

	if (!queue->accepted && !accept_head(world, id))
		return;
	bytes = message->arrival.bytes - queue->offset;
	if (bytes > 64 && chance(world, world->c->pieces))
		bytes = 64 * (1 + check_below(&world->random, (bytes - 1) / 64));
	if (bytes && message->copy)
		land(queue, bytes);
	queue->offset += bytes;
	if (queue->offset < message->arrival.bytes)
		return;
	rank->arrivals++;
	rank->received[message->arrival.from] += message->arrival.bytes;
	world->c->plan.algo->arrived(rank->machine, &message->arrival);
	queue->accepted = false;
	queue->head = message->next;
	if (!queue->head)
		unlist_queue(world, id);
	if (chance(world, world->c->garbage))
		offer_again(world, rank, message);
	message->delivered = true;
	free_message(message);
	mark_dirty(world, rank);
}

static void advance(struct world *world, struct rank *rank)
{
	int awaited = -2;
	int status;

	if (rank->ended)
		return;
	rank->put_off = 0;
	rank->wants_credit = false;
	status = world->c->plan.algo->advance(rank->machine, &awaited);
	rank->advanced = true;
	for (; rank->later_count; rank->later_count--)
		list_queue(world, rank->later[rank->later_count - 1]);
	if (status == RF_OK) {
		WORLD_CHECK(!rank->pending, "rank %d ended with sends pending", rank->group.rank);
		rank->ended = true;
		world->ended++;
		return;
	}
	WORLD_CHECK(status == RF_ERR_AGAIN, "advance() answered %d", status);
	WORLD_CHECK(awaited >= -1 && awaited < world->c->ranks && awaited != rank->group.rank,
		    "awaited %d", awaited);
	if (rank->put_off)
		mark_dirty(world, rank);
}

static void start(struct world *world, struct rank *rank)
{
	int status = world->c->plan.algo->create(&rank->group, &rank->task, &world->c->plan,
						 &rank->machine);

	WORLD_CHECK(status == RF_OK, "create() answered %d", status);
	rank->started = true;
	mark_dirty(world, rank);
	for (int i = 0; i < world->c->ranks; i++)
		if (world->ranks[i].wants_credit)
			mark_dirty(world, &world->ranks[i]);
}

/* One thing that can happen; false if nothing can. */
static bool turn(struct world *world)
{
	size_t pending = world->pending_count;
	size_t pick;

	if (chance(world, world->c->late) && (world->ready_count || world->dirty_count))
		pending = 0;
	if (!(world->ready_count + pending + world->dirty_count))
		return false;
	pick = check_below(&world->random, world->ready_count + pending + world->dirty_count);
	if (pick < world->ready_count) {
		deliver(world, world->ready[pick]);
	} else if (pick - world->ready_count < pending) {
		complete(world, pick - world->ready_count);
	} else {
		size_t index = pick - world->ready_count - pending;
		struct rank *rank = &world->ranks[world->dirty[index]];

		world->dirty[index] = world->dirty[--world->dirty_count];
		rank->dirty = false;
		advance(world, rank);
	}
	return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void make_ranks(struct world *world, const void *const *send, void *const *recv)
{
	size_t ranks = (size_t)world->c->ranks;

	for (size_t i = 0; i < ranks; i++) {
		struct rank *rank = &world->ranks[i];

		rank->group = (struct rf_group){.ops = &world_ops,
						.rank = (int)i,
						.size = world->c->ranks,
						.no_payload = world->c->no_payload};
		rank->world = world;
		rank->task = world->c->task;
		rank->task.send = send[i];
		rank->task.recv = recv[i];
		rank->task.in_place = world->c->in_place;
		if (rank->task.collective == RF_REDUCE && (int)i != rank->task.root)
			rank->task.in_place = false;
		rank->expected = calloc(ranks, sizeof(uint64_t));
		rank->received = calloc(ranks, sizeof(uint64_t));
		rank->relation = calloc(ranks, 1);
		rank->later = calloc(ranks * world->c->plan.channels, sizeof(size_t));
	}
}

static void start_all(struct world *world)
{
	for (int i = 0; i < world->c->ranks; i++)
		if (i != world->c->late_rank)
			start(world, &world->ranks[i]);
	for (int i = 0; world->c->first_alone && i < world->c->ranks; i++)
		if (world->ranks[i].started)
			advance(world, &world->ranks[i]);
}

static void start_late(struct world *world)
{
	for (int i = 0; i < world->c->ranks; i++)
		WORLD_CHECK(!world->ranks[i].later_count,
			    "rank %d accepts nothing while another has not started", i);
	start(world, &world->ranks[world->c->late_rank]);
	if (world->c->first_alone)
		advance(world, &world->ranks[world->c->late_rank]);
}

static void check_rank(const struct world *world, const struct rank *rank)
{
	for (int from = 0; from < world->c->ranks; from++) {
		unsigned char relation = rank->relation[from];

		WORLD_CHECK(rank->received[from] == rank->expected[from],
			    "rank %d expected %llu bytes of %d and got %llu", rank->group.rank,
			    (unsigned long long)rank->expected[from], from,
			    (unsigned long long)rank->received[from]);
		if (!world->c->first_alone || !(relation & RELATION_EXPECTED))
			continue;
		/* Two that are prompt to each other and wait for each other would not get here. */
		WORLD_CHECK(!(relation & RELATION_PROMPT) || relation & RELATION_SENT,
			    "rank %d is not prompt to %d", rank->group.rank, from);
		WORLD_CHECK(relation & RELATION_PROMPT || !(relation & RELATION_SENT_FIRST_BYTES),
			    "rank %d is prompt to %d", rank->group.rank, from);
	}
}

static void free_world(struct world *world)
{
	size_t ranks = (size_t)world->c->ranks;

	for (size_t i = 0; i < ranks * ranks * world->c->plan.channels; i++) {
		struct message *message, *next;

		for (message = world->queues[i].head; message; message = next) {
			next = message->next;
			message->delivered = true;
			free_message(message);
		}
	}
	for (size_t i = 0; i < world->pending_count; i++) {
		world->pending[i]->completed = true;
		free_message(world->pending[i]);
	}
	for (size_t i = 0; i < ranks; i++) {
		struct rank *rank = &world->ranks[i];

		if (rank->started)
			world->c->plan.algo->destroy(rank->machine);
		free(rank->expected);
		free(rank->received);
		free(rank->relation);
		free(rank->later);
	}
	free(world->ranks);
	free(world->queues);
	free(world->ready);
	free(world->pending);
	free(world->dirty);
}

uint64_t world_run(const struct world_case *c, const void *const *send, void *const *recv)
{
	struct world world = {.c = c, .random = c->seed};
	size_t ranks = (size_t)c->ranks;
	size_t queues = ranks * ranks * c->plan.channels;

	world.ranks = calloc(ranks, sizeof(struct rank));
	world.queues = calloc(queues, sizeof(struct queue));
	world.ready = calloc(queues, sizeof(size_t));
	world.dirty = calloc(ranks, sizeof(int));
	make_ranks(&world, send, recv);
	start_all(&world);
	while (world.ended < c->ranks && !world.left) {
		if (turn(&world)) {
			if (c->stop_early && chance(&world, 2))
				world.left = true;
			continue;
		}
		WORLD_CHECK(c->late_rank >= 0 && !world.ranks[c->late_rank].started,
			    "nothing can happen, %d ranks of %d have ended", world.ended, c->ranks);
		start_late(&world);
	}
	for (int i = 0; i < c->ranks && !world.left; i++)
		check_rank(&world, &world.ranks[i]);
	WORLD_CHECK(world.left || (!world.ready_count && !world.pending_count),
		    "segments are left over");
	free_world(&world);
	return world.left ? 0 : world.segments;
}
