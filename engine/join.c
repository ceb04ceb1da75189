/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The making of communicators: a state machine like any call, under one deadline. Here are its
 * beginning and its ends, and the part that is the same for all ranks: the lifelines. How a rank
 * finds the leader is in join_reach.c, the leader's part in join_leader.c.
 */
#include "engine/arena/attach.h"
#include "engine/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS          1000000ull
#define PROGRESS_NS (5000 * MS) /* between two lines of "waiting for ranks ..." */
#define GRACE_NS    (500 * MS)  /* for the leader's word on who is missing */

/* ---- ends ----------------------------------------------------------------------------------- */

static void join_free(struct rf_join *join)
{
	rf_timer_clear(&join->context->timers, &join->deadline);
	rf_timer_clear(&join->context->timers, &join->progress);
	rf_reach_stop(join);
	rf_reach_let_go(join);
	rf_leader_forget_all(join);
	rf_list_remove(&join->node);
	if (join->comm)
		join->comm->join = NULL;
	free(join->by_rank);
	free(join->gave_up);
	free(join->master_addr);
	free(join->store_key);
	free(join->standing);
	free(join);
}

void rf_join_succeed(struct rf_join *join)
{
	rf_comm *comm = join->comm;
	rf_request *request = join->request;
	uint64_t until = join->deadline.position ? join->deadline.at : UINT64_MAX;
	char elapsed[RF_JOIN_TIME_TEXT];

	rf_log(&comm->context->logger, RF_LOG_DEBUG,
	       "rank %d of %d: the communicator is ready after %s", comm->rank, comm->size,
	       rf_join_elapsed(join, elapsed));
	join_free(join);
	comm->state = RF_COMM_READY;
	if (rf_attach_wanted(comm))
		rf_attach_start(comm, request, until);
	else
		rf_request_end(request, RF_OK);
}

/* Those who wait for this rank: the ranks that have come to a leader, or the leader. */
static void join_tell(struct rf_join *join, int error, const char *message)
{
	if (join->rank == 0)
		rf_leader_tell_failure(join, error, message);
	else if (join->leader && join->leader->state == RF_PEER_ALIVE)
		rf_join_send_failed(join->leader, join->key, error, message);
}

void rf_join_fail(rf_comm *comm, int error, const char *message)
{
	struct rf_join *join = comm->join;
	rf_request *request;

	if (!join)
		return;
	request = join->request;
	if (!comm->failure)
		rf_log(&comm->context->logger, RF_LOG_ERROR,
		       "rank %d of %d: the communicator cannot be made: %s", join->rank, join->size,
		       message);
	join_tell(join, error, message);
	join_free(join);
	comm->state = RF_COMM_FAILED;
	rf_request_end(request, error);
}

void rf_join_cancel(rf_comm *comm)
{
	struct rf_join *join = comm->join;
	char message[64];

	if (!join)
		return;
	snprintf(message, sizeof(message), "rank %d has given up", join->rank);
	join_tell(join, RF_ERR_ABORTED, message);
	join_free(join);
}

void rf_join_forget_all(rf_context *context)
{
	RF_LIST_EACH(node, &context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->state == RF_JOIN_LOBBY)
			join_free(join);
	}
}

/* ---- lifelines ------------------------------------------------------------------------------ */

static void all_stand(struct rf_join *join)
{
	if (join->rank == 0) {
		rf_leader_on_ready(join, NULL);
		return;
	}
	join->state = RF_JOIN_STANDING;
	rf_join_send_ready(join->leader, join->comm);
}

static void lifeline_stands(struct rf_join *join, int index)
{
	if (join->standing[index])
		return;
	join->standing[index] = true;
	if (++join->standing_count == join->comm->lifeline_count)
		all_stand(join);
}

/* Marks the lifelines whose streams stand. The join may end by it. */
static void lifelines_look(rf_comm *comm)
{
	for (int i = 0; i < comm->lifeline_count; i++)
		if (comm->join && comm->join->state == RF_JOIN_LINKING &&
		    rf_control_is_up(comm->lifelines[i]->peer))
			lifeline_stands(comm->join, i);
}

void rf_join_peer_up(struct rf_peer *peer)
{
	RF_LIST_EACH(node, &peer->links)
	{
		const struct rf_link *link = RF_CONTAINER(node, struct rf_link, peer_node);

		if (link->lifeline && link->comm->join)
			lifelines_look(link->comm);
	}
}

void rf_join_log_differences(struct rf_join *join, const struct rf_config *agreed)
{
	char text[1024];

	rf_config_agreed_differences(&join->context->config, agreed, text, sizeof(text));
	if (text[0])
		rf_log(&join->context->logger, RF_LOG_INFO,
		       "rank %d of %d: rank 0's settings hold, not this rank's: %s", join->rank,
		       join->size, text);
}

void rf_join_link(struct rf_join *join, uint64_t id, struct rf_rank_entry *ranks,
		  const struct rf_config *agreed)
{
	rf_comm *comm = join->comm;
	int status;

	join->state = RF_JOIN_LINKING;
	status = rf_comm_set_table(comm, id, join->rank, join->size, ranks, agreed);
	if (status == RF_OK)
		status = rf_overlay_raise(comm);
	else
		free(ranks);
	if (status == RF_OK) {
		join->standing = calloc((size_t)comm->lifeline_count, sizeof(*join->standing));
		if (!join->standing)
			status = RF_ERR_NOMEM;
	}
	if (status != RF_OK)
		rf_join_fail(comm, status, "the lifelines to the other ranks cannot be made");
	else
		lifelines_look(comm);
}

/* ---- deadline and progress ------------------------------------------------------------------ */

const char *rf_join_elapsed(const struct rf_join *join, char text[RF_JOIN_TIME_TEXT])
{
	uint64_t ms = (rf_now(join->context) - join->started) / MS;

	if (ms < 10000)
		snprintf(text, RF_JOIN_TIME_TEXT, "%u.%03u s", (unsigned)(ms / 1000),
			 (unsigned)(ms % 1000));
	else
		snprintf(text, RF_JOIN_TIME_TEXT, "%llu s", (unsigned long long)(ms / 1000));
	return text;
}

/* Names the neighbours to which no lifeline stands. */
static void expire_linking(struct rf_join *join)
{
	rf_comm *comm = join->comm;
	int missing[64];
	size_t count = 0;
	char message[RF_JOIN_TEXT], names[RF_JOIN_TEXT / 2], elapsed[RF_JOIN_TIME_TEXT];

	for (int rank = 0; rank < comm->size && count < 64; rank++)
		for (int i = 0; i < comm->lifeline_count; i++)
			if (comm->lifelines[i]->rank == rank && !join->standing[i])
				missing[count++] = rank;
	snprintf(message, sizeof(message), "rank %d has no connection to %s after %s", join->rank,
		 rf_ranks_format(missing, count, names, sizeof(names)),
		 rf_join_elapsed(join, elapsed));
	rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, missing, count, message);
}

static void expire_leader(struct rf_join *join)
{
	char message[RF_JOIN_TEXT], names[RF_JOIN_TEXT - 100], elapsed[RF_JOIN_TIME_TEXT];
	bool gathering = join->state == RF_JOIN_GATHERING;

	snprintf(message, sizeof(message), "%s %s within %s",
		 rf_leader_absent(join, names, sizeof(names)),
		 gathering ? "did not come" : "did not connect to all their neighbours",
		 rf_join_elapsed(join, elapsed));
	rf_join_fail(join->comm, gathering ? RF_ERR_RENDEZVOUS : RF_ERR_TIMEOUT, message);
}

static void expire_reaching(struct rf_join *join)
{
	char message[RF_JOIN_TEXT * 2 + 64], target[RF_JOIN_TEXT], elapsed[RF_JOIN_TIME_TEXT];

	snprintf(message, sizeof(message), "%s cannot be reached within %s: %s",
		 rf_reach_target(join, target), rf_join_elapsed(join, elapsed), join->reason);
	rf_join_fail(join->comm, RF_ERR_RENDEZVOUS, message);
}

/* The leader knows who is missing: it is asked once, and has a moment to answer. */
static void expire_waiting(struct rf_join *join)
{
	char message[RF_JOIN_TEXT + 128], target[RF_JOIN_TEXT], elapsed[RF_JOIN_TIME_TEXT];
	int status = RF_ERR_NOMEM;

	if (!join->expired) {
		join->expired = true;
		if (join->state == RF_JOIN_ASKED)
			rf_join_send_failed(join->leader, join->key, RF_ERR_AGAIN, "");
		status = rf_timer_set(&join->context->timers, &join->deadline,
				      rf_now(join->context) + GRACE_NS);
	}
	if (status == RF_OK)
		return;
	snprintf(message, sizeof(message),
		 "not all ranks came within %s, and %s does not say which",
		 rf_join_elapsed(join, elapsed), rf_reach_target(join, target));
	if (join->state == RF_JOIN_ASKED)
		rf_join_fail(join->comm, RF_ERR_RENDEZVOUS, message);
	else
		rf_comm_fail(join->comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, NULL, 0, message);
}

static void deadline_fired(struct rf_timer *timer)
{
	struct rf_join *join = RF_CONTAINER(timer, struct rf_join, deadline);

	switch (join->state) {
	case RF_JOIN_LOBBY:
		rf_leader_tell_failure(join, RF_ERR_RENDEZVOUS,
				       "rank 0 has not begun to create this communicator");
		join_free(join);
		break;
	case RF_JOIN_REACHING:
		expire_reaching(join);
		break;
	case RF_JOIN_ASKED:
	case RF_JOIN_STANDING:
		expire_waiting(join);
		break;
	case RF_JOIN_LINKING:
		if (join->standing_count < join->comm->lifeline_count) {
			expire_linking(join);
			break;
		}
		expire_leader(join);
		break;
	case RF_JOIN_GATHERING:
	case RF_JOIN_RETIRING:
		expire_leader(join);
		break;
	}
}

static void progress_fired(struct rf_timer *timer)
{
	struct rf_join *join = RF_CONTAINER(timer, struct rf_join, progress);
	char text[RF_JOIN_TEXT], elapsed[RF_JOIN_TIME_TEXT];
	const struct rf_logger *logger = &join->context->logger;

	rf_join_elapsed(join, elapsed);
	if (join->rank == 0)
		rf_log(logger, RF_LOG_INFO, "rank 0: waiting for %s for %s",
		       rf_leader_absent(join, text, sizeof(text)), elapsed);
	else if (join->state == RF_JOIN_REACHING)
		rf_log(logger, RF_LOG_INFO, "rank %d: trying to reach %s for %s: %s", join->rank,
		       rf_reach_target(join, text), elapsed, join->reason);
	else
		rf_log(logger, RF_LOG_INFO, "rank %d: waiting for the other ranks for %s",
		       join->rank, elapsed);
	rf_timer_set(&join->context->timers, timer, rf_now(join->context) + PROGRESS_NS);
}

/* ---- beginning ------------------------------------------------------------------------------ */

static int start_alone(rf_comm *comm, struct rf_request *request)
{
	struct rf_rank_entry *ranks = calloc(1, sizeof(*ranks));
	uint64_t id;
	int status;

	if (!ranks)
		return RF_ERR_NOMEM;
	ranks[0].id = comm->context->id;
	ranks[0].host = rf_join_host(comm->context);
	id = rf_join_new_comm_id(comm->context);
	status = rf_comm_set_table(comm, id, 0, 1, ranks, &comm->context->config);
	if (status != RF_OK) {
		free(ranks);
		return status;
	}
	comm->state = RF_COMM_READY;
	rf_request_end(request, RF_OK);
	return RF_OK;
}

static int join_setup(struct rf_join *join, const struct rf_join_setup *setup)
{
	unsigned addr_count = setup->leader_addr_count;

	join->key = setup->key;
	join->parent = setup->parent;
	join->rank = setup->rank;
	join->size = setup->size;
	join->started = rf_now(join->context);
	join->master_port = setup->master_port;
	join->leader_known = setup->leader_known;
	join->leader_id = setup->leader_id;
	for (unsigned i = 0; i < addr_count && i < 2; i++)
		join->tried[join->tried_count++] = setup->leader_addrs[i];
	if (setup->store)
		return rf_join_store_setup(join, setup->store);
	if (setup->master_addr) {
		join->master_addr = strdup(setup->master_addr);
		return join->master_addr ? RF_OK : RF_ERR_NOMEM;
	}
	return setup->leader_known || setup->rank == 0 ? RF_OK : RF_ERR_INVALID;
}

int rf_join_start(rf_comm *comm, const struct rf_join_setup *setup, struct rf_request *request)
{
	rf_context *context = comm->context;
	struct rf_timers *timers = &context->timers;
	struct rf_join *join;
	int status;

	if (setup->size < 1 || setup->rank < 0 || setup->rank >= setup->size)
		return RF_ERR_INVALID;
	comm->deadline_ms = setup->call_deadline_ms;
	if (setup->size == 1)
		return start_alone(comm, request);
	join = rf_join_new(context, setup->key);
	if (!join)
		return RF_ERR_NOMEM;
	join->comm = comm;
	join->request = request;
	comm->join = join;
	status = join_setup(join, setup);
	if (status == RF_OK)
		status = rf_timer_set(timers, &join->deadline, setup->deadline);
	if (status == RF_OK)
		status = rf_timer_set(timers, &join->progress, join->started + PROGRESS_NS);
	if (status == RF_OK && join->rank == 0)
		status = rf_leader_start(join);
	if (status != RF_OK) {
		join_free(join);
		return status;
	}
	if (join->rank != 0)
		rf_reach_start(join);
	return RF_OK;
}

struct rf_join *rf_join_new(rf_context *context, uint64_t key)
{
	struct rf_join *join = calloc(1, sizeof(*join));

	if (!join)
		return NULL;
	join->context = context;
	join->key = key;
	join->deadline.fire = deadline_fired;
	join->progress.fire = progress_fired;
	rf_list_init(&join->arrivals);
	rf_list_append(&context->joins, &join->node);
	return join;
}

void rf_join_free_lobby(struct rf_join *lobby)
{
	join_free(lobby);
}

/* ---- segments ------------------------------------------------------------------------------- */

static struct rf_join *follower_find(struct rf_peer *leader, uint64_t key)
{
	RF_LIST_EACH(node, &leader->context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->key == key && join->leader == leader)
			return join;
	}
	return NULL;
}

static int on_ready(struct rf_peer *peer, const struct rf_segment *segment)
{
	rf_comm *comm = rf_map_get(&peer->context->comms, segment->comm);

	if (comm && comm->join && comm->join->rank == 0)
		rf_leader_on_ready(comm->join, peer);
	return RF_OK;
}

static int on_go(struct rf_peer *peer, const struct rf_segment *segment)
{
	rf_comm *comm = rf_map_get(&peer->context->comms, segment->comm);
	struct rf_join *join = comm ? comm->join : NULL;

	if (!join || join->leader != peer)
		return RF_OK;
	if (join->state != RF_JOIN_STANDING)
		return RF_ERR_PROTOCOL;
	rf_join_succeed(join);
	return RF_OK;
}

static int on_failed(struct rf_peer *peer, const struct rf_segment *segment, const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	uint64_t key = rf_get_u64(&c);
	int error = (int)rf_get_u32(&c);
	char message[RF_JOIN_TEXT];
	struct rf_join *join;

	rf_get_string(&c, message, sizeof(message));
	if (c.failed || error >= 0 || error < RF_ERR_BUSY)
		return RF_ERR_PROTOCOL;
	join = follower_find(peer, key);
	if (!join) {
		rf_leader_on_withdrawal(peer, key, error, message);
		return RF_OK;
	}
	rf_reach_let_go(join); /* it knows: no answer */
	rf_join_fail(join->comm, error, message);
	return RF_OK;
}

int rf_join_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
		       const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	struct rf_join *join;

	switch (segment->type) {
	case RF_SEGMENT_JOIN:
		return rf_leader_on_join(peer, segment, payload);
	case RF_SEGMENT_TABLE:
		join = follower_find(peer, rf_get_u64(&c));
		return !c.failed && join ? rf_reach_on_table(join, segment, payload) : RF_OK;
	case RF_SEGMENT_READY:
		return on_ready(peer, segment);
	case RF_SEGMENT_GO:
		return on_go(peer, segment);
	case RF_SEGMENT_JOIN_FAILED:
		return on_failed(peer, segment, payload);
	default:
		return RF_ERR_PROTOCOL;
	}
}

/* ---- deaths --------------------------------------------------------------------------------- */

static void follower_peer_died(struct rf_join *join, const char *reason)
{
	char message[RF_JOIN_TEXT];
	int rank = 0;

	snprintf(message, sizeof(message), "rank 0 died: %s", reason);
	if (join->state != RF_JOIN_ASKED) {
		rf_comm_fail(join->comm, RF_SEGMENT_DEATH, RF_ERR_RANK_DEAD, &rank, 1, message);
	} else if (join->leader_known) {
		rf_join_fail(join->comm, RF_ERR_RANK_DEAD, message);
	} else {
		rf_reach_let_go(join);
		rf_reach_again(join, message);
	}
}

void rf_join_peer_died(struct rf_peer *peer, const char *reason)
{
	RF_LIST_EACH(node, &peer->context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->leader == peer)
			follower_peer_died(join, reason);
		else
			rf_leader_peer_died(join, peer, reason);
	}
}

static struct rf_join *join_from(rf_context *context, uint64_t parent)
{
	RF_LIST_EACH(node, &context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->comm && join->parent == parent)
			return join;
	}
	return NULL;
}

void rf_join_parent_failed(rf_comm *parent, int error, const char *reason)
{
	struct rf_join *join;
	char message[RF_JOIN_TEXT];

	snprintf(message, sizeof(message), "what it is made from has failed: %s", reason);
	while (parent->id && (join = join_from(parent->context, parent->id))) {
		if (join->state == RF_JOIN_REACHING || join->state == RF_JOIN_ASKED ||
		    join->state == RF_JOIN_GATHERING)
			rf_join_fail(join->comm, error, message);
		else /* others may have it already */
			rf_comm_fail(join->comm, RF_SEGMENT_REVOKE, error, NULL, 0, message);
	}
}
