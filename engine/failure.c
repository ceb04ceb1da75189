/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failure of communicators: a report that grows, flooded over the lifelines once for each new thing
 * that it says, and orderly goodbyes. What is asked before somebody is called late is in
 * failure_query.c.
 *
 * The payload of DEATH, MISMATCH, ABORT and REVOKE: error i32, number of ranks u32, the ranks u32
 * each, message (a string). Of GOODBYE: rank u32, number of the first call that it will not make
 * u64.
 */
#include "engine/arena/arena.h"
#include "engine/arena/attach.h"
#include "engine/failure.h"
#include "engine/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MESSAGE_BYTES = sizeof(((struct rf_failure_state *)0)->message),
	/* What fits in the 1024 bytes of DEATH, MISMATCH and ABORT beside the longest message. */
	SHORT_LIST_RANKS = 100,
};

/* ---- ranks for people ----------------------------------------------------------------------- */

const char *rf_ranks_format(const int *ranks, size_t count, char *text, size_t capacity)
{
	size_t at = (size_t)snprintf(text, capacity, "%s", count == 1 ? "rank" : "ranks");

	for (size_t i = 0, next; i < count && at + 4 < capacity; i = next) {
		const char *comma = i ? ", " : " ";
		char item[32];

		for (next = i + 1; next < count && ranks[next] == ranks[next - 1] + 1; next++)
			;
		if (next - i > 2) {
			snprintf(item, sizeof(item), "%s%d-%d", comma, ranks[i], ranks[next - 1]);
		} else {
			snprintf(item, sizeof(item), "%s%d", comma, ranks[i]);
			next = i + 1;
		}
		/* Room is kept for the dots, unless this was the last. */
		if (at + strlen(item) + (next < count ? 4 : 0) >= capacity) {
			snprintf(text + at, capacity - at, "...");
			break;
		}
		at += (size_t)snprintf(text + at, capacity - at, "%s", item);
	}
	return text;
}

/* ---- the report ----------------------------------------------------------------------------- */

/* Adds a rank to the ascending set: 1 if it is new, 0 if not, or RF_ERR_NOMEM. */
static int failure_add_rank(struct rf_failure_state *failure, int rank)
{
	size_t at = failure->rank_count;

	while (at > 0 && failure->ranks[at - 1] > rank)
		at--;
	if (at > 0 && failure->ranks[at - 1] == rank)
		return 0;
	if (failure->rank_count == failure->rank_capacity) {
		size_t capacity = failure->rank_capacity ? 2 * failure->rank_capacity : 8;
		int *ranks = realloc(failure->ranks, capacity * sizeof(*ranks));

		if (!ranks)
			return RF_ERR_NOMEM;
		failure->ranks = ranks;
		failure->rank_capacity = capacity;
	}
	memmove(failure->ranks + at + 1, failure->ranks + at,
		(failure->rank_count - at) * sizeof(*failure->ranks));
	failure->ranks[at] = rank;
	failure->rank_count++;
	return 1;
}

static void failure_add_message(struct rf_failure_state *failure, const char *message)
{
	size_t length = strlen(failure->message);

	snprintf(failure->message + length, sizeof(failure->message) - length, "%s%s",
		 length ? "; " : "", message);
}

/* Records; true if it says anything new. */
static bool failure_record(rf_comm *comm, int error, const int *ranks, size_t rank_count,
			   const char *message)
{
	struct rf_failure_state *failure = comm->failure;
	bool is_news = !failure;

	if (!failure) {
		failure = calloc(1, sizeof(*failure));
		if (!failure)
			return false;
		failure->error = error;
		comm->failure = failure;
	}
	for (size_t i = 0; i < rank_count; i++)
		if (failure_add_rank(failure, ranks[i]) == 1)
			is_news = true;
	if (is_news)
		failure_add_message(failure, message);
	return is_news;
}

static void failure_flood(rf_comm *comm, uint8_t type, int error, const int *ranks,
			  size_t rank_count, const char *message, const struct rf_link *except)
{
	size_t capacity = 8 + 4 * rank_count + 2 + MESSAGE_BYTES;
	uint8_t *payload = malloc(capacity);
	struct rf_cursor c = {payload, payload + capacity, false};
	char cut[MESSAGE_BYTES];

	if (!payload)
		return;
	snprintf(cut, sizeof(cut), "%s", message);
	rf_put_u32(&c, (uint32_t)error);
	rf_put_u32(&c, (uint32_t)rank_count);
	for (size_t i = 0; i < rank_count; i++)
		rf_put_u32(&c, (uint32_t)ranks[i]);
	rf_put_string(&c, cut);
	if (!c.failed)
		rf_overlay_flood(comm,
				 rank_count > SHORT_LIST_RANKS ? (uint8_t)RF_SEGMENT_REVOKE : type,
				 0, payload, (size_t)(c.at - payload), except);
	free(payload);
}

void rf_failure_spread(rf_comm *comm, uint8_t type, int error, const int *ranks, size_t rank_count,
		       const char *message, const struct rf_link *from)
{
	bool forming = comm->state == RF_COMM_FORMING;

	if (comm->state == RF_COMM_LEFT)
		return;
	if (failure_record(comm, error, ranks, rank_count, message)) {
		rf_log(&comm->context->logger, error == RF_ERR_ABORTED ? RF_LOG_INFO : RF_LOG_WARN,
		       "rank %d of %d: the communicator has failed: %s", comm->rank, comm->size,
		       message);
		failure_flood(comm, type, error, ranks, rank_count, message, from);
	}
	rf_query_free(comm);
	comm->state = RF_COMM_FAILED;
	if (comm->arena)
		rf_arena_fail(comm->arena);
	rf_attach_comm_failed(comm);
	/* Memory may have been too short to record it. */
	rf_comm_revoke_calls(comm, comm->failure ? comm->failure->error : error);
	rf_join_parent_failed(comm, error, message);
	if (forming)
		rf_join_fail(comm, error, message);
}

void rf_comm_fail(rf_comm *comm, uint8_t type, int error, const int *ranks, size_t rank_count,
		  const char *message)
{
	rf_failure_spread(comm, type, error, ranks, rank_count, message, NULL);
}

void rf_failure_free(rf_comm *comm)
{
	rf_query_free(comm);
	if (comm->failure)
		free(comm->failure->ranks);
	free(comm->failure);
	comm->failure = NULL;
	free(comm->leavers);
	comm->leavers = NULL;
	comm->leaver_count = 0;
}

static bool error_is_known(int error)
{
#define X(name, value, text)  \
	if (error == (value)) \
		return true;
	RF_ERROR_LIST(X)
#undef X
	return false;
}

static int failure_on_report(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
			     const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	int error = (int)rf_get_u32(&c);
	uint32_t rank_count = rf_get_u32(&c);
	char message[MESSAGE_BYTES];
	int *ranks;

	if (c.failed || !error_is_known(error) || rank_count > (uint32_t)comm->size)
		return RF_ERR_PROTOCOL;
	ranks = malloc((rank_count + 1) * sizeof(*ranks));
	if (!ranks)
		return RF_ERR_NOMEM;
	for (uint32_t i = 0; i < rank_count; i++) {
		uint32_t rank = rf_get_u32(&c);

		ranks[i] = (int)rank;
		if (rank >= (uint32_t)comm->size)
			c.failed = true;
	}
	rf_get_string(&c, message, sizeof(message));
	if (!c.failed)
		rf_failure_spread(comm, segment->type, error, ranks, rank_count, message, from);
	free(ranks);
	return c.failed ? RF_ERR_PROTOCOL : RF_OK;
}

/* ---- deaths --------------------------------------------------------------------------------- */

static bool comm_has_leaver(const rf_comm *comm, int rank)
{
	for (size_t i = 0; i < comm->leaver_count; i++)
		if (comm->leavers[i].rank == rank)
			return true;
	return false;
}

/* "10.0.0.3:41234", or what can be said without an address. */
static const char *peer_format(const struct rf_peer *peer, char text[RF_ADDR_TEXT])
{
	if (!peer->addr_count)
		return "address unknown";
	return rf_addr_format(&peer->addrs[0], text);
}

static void link_died(struct rf_link *link, const char *reason)
{
	struct rf_peer *peer = link->peer;
	char message[MESSAGE_BYTES], addr[RF_ADDR_TEXT];

	if (comm_has_leaver(link->comm, link->rank))
		return;
	/* The goodbye of a rank that is no neighbour is still on its way through the others; and
	 * whoever ends after a failure has not failed. */
	if (peer->state == RF_PEER_LEFT && (!link->lifeline || link->comm->failure))
		return;
	snprintf(message, sizeof(message), "rank %d %s: %s (host %s)", link->rank,
		 peer->state == RF_PEER_LEFT ? "ended without leaving the communicator" : "died",
		 reason, peer_format(peer, addr));
	rf_comm_fail(link->comm, RF_SEGMENT_DEATH, RF_ERR_RANK_DEAD, &link->rank, 1, message);
}

void rf_peer_died(struct rf_peer *peer, const char *reason)
{
	RF_LIST_EACH(node, &peer->links)
	link_died(RF_CONTAINER(node, struct rf_link, peer_node), reason);
	rf_join_peer_died(peer, reason);
}

/* ---- goodbye -------------------------------------------------------------------------------- */

static void goodbye_flood(rf_comm *comm, int rank, uint64_t seq, const struct rf_link *except)
{
	uint8_t payload[12];
	struct rf_cursor c = {payload, payload + sizeof(payload), false};

	rf_put_u32(&c, (uint32_t)rank);
	rf_put_u64(&c, seq);
	rf_overlay_flood(comm, RF_SEGMENT_GOODBYE, 0, payload, sizeof(payload), except);
}

void rf_comm_say_goodbye(rf_comm *comm)
{
	goodbye_flood(comm, comm->rank, comm->next_seq, NULL);
}

static int leavers_add(rf_comm *comm, int rank, uint64_t seq)
{
	size_t count = comm->leaver_count;

	if ((count & (count - 1)) == 0) { /* the room is the next power of two */
		struct rf_leaver *leavers =
			realloc(comm->leavers, (count ? 2 * count : 1) * sizeof(*leavers));

		if (!leavers)
			return RF_ERR_NOMEM;
		comm->leavers = leavers;
	}
	comm->leavers[count].rank = rank;
	comm->leavers[count].seq = seq;
	comm->leaver_count++;
	return RF_OK;
}

static void fail_by_leaver(rf_comm *comm, const struct rf_leaver *leaver)
{
	char message[MESSAGE_BYTES];

	snprintf(message, sizeof(message),
		 "rank %d has left the communicator after %llu calls, others make more",
		 leaver->rank, (unsigned long long)leaver->seq);
	rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_RANK_LEFT, &leaver->rank, 1, message);
}

int rf_comm_check_leavers(rf_comm *comm, uint64_t seq)
{
	for (size_t i = 0; i < comm->leaver_count; i++) {
		struct rf_leaver leaver = comm->leavers[i];

		if (leaver.seq <= seq) {
			fail_by_leaver(comm, &leaver);
			return RF_ERR_RANK_LEFT;
		}
	}
	return RF_OK;
}

static bool comm_has_open_call_from(const rf_comm *comm, uint64_t seq)
{
	for (size_t i = 0; i < comm->calls.capacity; i++)
		if (comm->calls.entries[i].value && comm->calls.entries[i].key - 1 >= seq)
			return true;
	return false;
}

static int failure_on_goodbye(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
			      const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	struct rf_leaver leaver;
	uint32_t rank = rf_get_u32(&c);
	int status;

	leaver.seq = rf_get_u64(&c);
	if (c.failed || rank >= (uint32_t)comm->size)
		return RF_ERR_PROTOCOL;
	leaver.rank = (int)rank;
	if (leaver.rank == comm->rank || comm_has_leaver(comm, leaver.rank))
		return RF_OK;
	status = leavers_add(comm, leaver.rank, leaver.seq);
	if (status)
		return status;
	goodbye_flood(comm, leaver.rank, leaver.seq, from);
	if (comm->state == RF_COMM_READY && comm_has_open_call_from(comm, leaver.seq))
		fail_by_leaver(comm, &leaver);
	return RF_OK;
}

/* ---- segments ------------------------------------------------------------------------------- */

int rf_failure_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
			  const uint8_t *payload)
{
	rf_comm *comm = rf_map_get(&peer->context->comms, segment->comm);
	struct rf_link *from;

	/* Unknown: gone here already, or not there yet, and then its leader tells. */
	if (!comm || comm->state == RF_COMM_LEFT || segment->epoch != comm->epoch)
		return RF_OK;
	from = rf_peer_link(peer, comm);
	if (!from)
		return RF_ERR_PROTOCOL;
	switch (segment->type) {
	case RF_SEGMENT_DEATH:
	case RF_SEGMENT_MISMATCH:
	case RF_SEGMENT_ABORT:
	case RF_SEGMENT_REVOKE:
		return failure_on_report(comm, from, segment, payload);
	case RF_SEGMENT_GOODBYE:
		return failure_on_goodbye(comm, from, segment, payload);
	case RF_SEGMENT_QUERY:
		return rf_query_on_query(comm, from, segment, payload);
	case RF_SEGMENT_ANSWER:
		return rf_query_on_answer(comm, from, segment, payload);
	default:
		return RF_ERR_PROTOCOL;
	}
}
