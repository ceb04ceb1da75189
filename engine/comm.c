/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators as objects: the table of ranks, links, accessors, and leaving. How they are made is
 * in join.c and create.c, how they fail in failure.c.
 */
#include "engine/arena/attach.h"
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/early.h"

#include <stdlib.h>
#include <string.h>

int rf_comm_new(rf_context *context, rf_comm **out)
{
	rf_comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return RF_ERR_NOMEM;
	comm->context = context;
	comm->state = RF_COMM_FORMING;
	comm->rank = -1;
	comm->deadline_ms = context->config.timeout_ms;
	comm->counters.size = sizeof(comm->counters);
	rf_list_init(&comm->call_list);
	rf_list_append(&context->comm_list, &comm->context_node);
	*out = comm;
	return RF_OK;
}

int rf_comm_set_table(rf_comm *comm, uint64_t id, int rank, int size, struct rf_rank_entry *ranks,
		      const struct rf_config *agreed)
{
	struct rf_map *comms = &comm->context->comms;
	int status;

	if (!id || rf_map_get(comms, id))
		return RF_ERR_PROTOCOL; /* the id comes from the leader */
	status = rf_map_put(comms, id, comm);
	if (status != RF_OK)
		return status;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	comm->ranks = ranks;
	comm->agreed = *agreed;
	comm->agreed_digest = rf_config_agreed_digest(agreed);
	comm->local_ranks = 0;
	for (int i = 0; i < size; i++)
		comm->local_ranks += ranks[i].host == ranks[rank].host;
	return RF_OK;
}

int rf_comm_link(rf_comm *comm, int rank, struct rf_link **out)
{
	struct rf_rank_entry *entry = &comm->ranks[rank];
	struct rf_link *link;
	int status;

	if (entry->link) {
		*out = entry->link;
		return RF_OK;
	}
	link = calloc(1, sizeof(*link));
	if (!link)
		return RF_ERR_NOMEM;
	status =
		rf_peer_get(comm->context, entry->id, entry->addrs, entry->addr_count, &link->peer);
	if (status != RF_OK) {
		free(link);
		return status;
	}
	link->comm = comm;
	link->rank = rank;
	rf_list_append(&link->peer->links, &link->peer_node);
	entry->link = link;
	*out = link;
	return RF_OK;
}

struct rf_link *rf_peer_link(struct rf_peer *peer, rf_comm *comm)
{
	struct rf_link *made;

	RF_LIST_EACH(node, &peer->links)
	{
		struct rf_link *link = RF_CONTAINER(node, struct rf_link, peer_node);

		if (link->comm == comm)
			return link;
	}
	for (int rank = 0; comm->ranks && rank < comm->size; rank++) {
		if (rank != comm->rank && rf_process_id_equal(comm->ranks[rank].id, peer->id))
			return rf_comm_link(comm, rank, &made) == RF_OK ? made : NULL;
	}
	return NULL;
}

static void free_staged(rf_comm *comm)
{
	for (size_t i = 0; i < comm->staged.capacity; i++) {
		struct rf_staged *staged = comm->staged.entries[i].value;

		while (staged) {
			struct rf_staged *next = staged->next;

			rf_staged_free(staged);
			staged = next;
		}
	}
	rf_map_free(&comm->staged);
}

static void free_links(rf_comm *comm)
{
	for (int rank = 0; comm->ranks && rank < comm->size; rank++) {
		struct rf_link *link = comm->ranks[rank].link;

		if (!link)
			continue;
		if (link->holds_control)
			rf_control_release(link->peer);
		rf_list_remove(&link->peer_node);
		rf_peer_put(link->peer);
		free(link);
	}
}

void rf_comm_free(rf_comm *comm)
{
	if (comm->join)
		rf_join_cancel(comm);
	rf_attach_free(comm);
	if (comm->id && rf_map_get(&comm->context->comms, comm->id) == comm)
		rf_map_remove(&comm->context->comms, comm->id);
	rf_list_remove(&comm->context_node);
	free_staged(comm);
	rf_early_free(comm);
	rf_failure_free(comm);
	free_links(comm);
	rf_map_free(&comm->calls);
	free(comm->spare_call);
	free(comm->lifelines);
	free(comm->leavers);
	free(comm->ranks);
	free(comm);
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* Ended calls are still owned by whoever waits for them; open ones must let go of their buffers. */
static void drain_calls(rf_comm *comm)
{
	rf_context *context = comm->context;
	uint64_t until = rf_now(context) + 10000000000u;

	while (comm->open_calls && rf_now(context) < until) {
		bool never = false;

		if (context->simulated)
			return;
		rf_drive_until(context, &never, rf_now(context) + 1000000);
	}
}

int rf_comm_destroy(rf_comm **out)
{
	rf_context *context;
	rf_comm *comm;
	int status;

	if (!out || !*out)
		return RF_ERR_INVALID;
	comm = *out;
	context = comm->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (comm->open_calls) {
		rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_ABORTED, &comm->rank, 1,
			     "destroyed by its user while calls were in flight");
		rf_calls_advance(context);
		drain_calls(comm);
	}
	if (comm->open_calls) {
		rf_leave(context);
		return RF_ERR_BUSY;
	}
	if (comm->state == RF_COMM_READY)
		rf_comm_say_goodbye(comm);
	comm->state = RF_COMM_LEFT;
	rf_comm_free(comm);
	*out = NULL;
	rf_leave(context);
	rf_context_shared_release(context);
	return RF_OK;
}

/* ---- accessors ------------------------------------------------------------------------------ */

static bool is_forked(const rf_context *context)
{
	return atomic_load_explicit(&context->forked, memory_order_acquire);
}

int rf_comm_rank(const rf_comm *comm)
{
	if (!comm)
		return RF_ERR_INVALID;
	return is_forked(comm->context) ? RF_ERR_FORKED : comm->rank;
}

int rf_comm_size(const rf_comm *comm)
{
	if (!comm)
		return RF_ERR_INVALID;
	return is_forked(comm->context) ? RF_ERR_FORKED : comm->size;
}

rf_context *rf_comm_context(const rf_comm *comm)
{
	return comm ? comm->context : NULL;
}

int rf_comm_abort(rf_comm *comm)
{
	rf_context *context;
	int status;

	if (!comm)
		return RF_ERR_INVALID;
	context = comm->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (comm->state == RF_COMM_READY) {
		rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_ABORTED, &comm->rank, 1,
			     "aborted by its user");
		rf_calls_advance(context);
	}
	rf_leave(context);
	return RF_OK;
}

static void copy_ranks(const struct rf_failure_state *state, rf_failure *failure)
{
	size_t count = state->rank_count < failure->rank_capacity ? state->rank_count
								  : failure->rank_capacity;

	if (failure->ranks && count)
		memcpy(failure->ranks, state->ranks, count * sizeof(int));
}

int rf_comm_failure(const rf_comm *comm, rf_failure *failure)
{
	rf_context *context;
	int status;

	if (!comm || !failure || failure->size < sizeof(*failure))
		return RF_ERR_INVALID;
	context = comm->context;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (comm->failure) {
		failure->error = comm->failure->error;
		failure->rank_count = comm->failure->rank_count;
		copy_ranks(comm->failure, failure);
		memcpy(failure->message, comm->failure->message, sizeof(failure->message));
		status = 1;
	}
	rf_leave(context);
	return status;
}

int rf_comm_counters(const rf_comm *comm, rf_counters *counters)
{
	rf_counters all;
	size_t size;
	int status;

	if (!comm || !counters || counters->size < sizeof(size_t))
		return RF_ERR_INVALID;
	status = rf_enter(comm->context);
	if (status != RF_OK)
		return status;
	all = comm->counters;
	all.payload_bytes_sent += comm->traffic.sent;
	all.payload_bytes_received += comm->traffic.received;
	size = counters->size < sizeof(*counters) ? counters->size : sizeof(*counters);
	memcpy(counters, &all, size);
	counters->size = size;
	rf_leave(comm->context);
	return RF_OK;
}

int rf_comm_peer_wait_ns(const rf_comm *comm, int rank, uint64_t *wait_ns)
{
	int status;

	if (!comm || !wait_ns || rank < 0 || rank >= comm->size)
		return RF_ERR_INVALID;
	status = rf_enter(comm->context);
	if (status != RF_OK)
		return status;
	*wait_ns = comm->ranks[rank].link ? comm->ranks[rank].link->wait_ns : 0;
	rf_leave(comm->context);
	return RF_OK;
}
