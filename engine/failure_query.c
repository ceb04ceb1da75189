/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Before a rank is called late: who has started the call?
 *
 * The first rank whose call passes its deadline floods a QUERY. Every rank then knows about itself
 * whether it has started that call, and tells its lifelines all that it knows of anybody, whenever
 * that has grown (ANSWER: two bitmaps). So answers find their way round ranks that are silent.
 * After mute_ms those that asked name the ranks that are behind, or have not been heard of.
 *
 * The payload of QUERY: number of ranks u32, round u32. Of ANSWER: the same, then a bitmap of the
 * ranks that have answered, and one of those among them that have not started the call. Both carry
 * the call's number in the header. There is one query at a time on a communicator. An answer tells
 * who lived when it was given, so that no query lends its answers to one that begins mute_ms later
 * or after its call has ended: the later one is a new round, and takes the place of all earlier
 * rounds. Of two in one round, the one about the earlier call goes on, because whoever is behind in
 * it is behind in the later one too.
 */
#include "engine/call.h"
#include "engine/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS        1000000ull
#define GOSSIP_NS (20 * MS) /* the least time between two tellings */

struct rf_query {
	rf_comm *comm;
	uint64_t seq;
	uint32_t round;
	uint64_t begun_at;
	bool asking; /* this rank's call own_seq has passed its deadline */
	uint64_t own_seq;
	int awaited;  /* whom that call waits for; -1: nobody in particular */
	bool changed; /* there is something to tell */
	uint64_t told_at;
	struct rf_timer gossip;
	struct rf_timer verdict; /* asking: names the late; otherwise: forgets the query */
	size_t map_bytes;
	uint8_t *behind; /* the second half of answered */
	uint8_t answered[];
};

static bool bit_get(const uint8_t *map, int rank)
{
	return map[rank / 8] >> (rank % 8) & 1;
}

static void bit_set(uint8_t *map, int rank)
{
	map[rank / 8] = (uint8_t)(map[rank / 8] | 1 << rank % 8);
}

void rf_query_free(rf_comm *comm)
{
	struct rf_query *query = comm->query;

	if (!query)
		return;
	rf_timer_clear(&comm->context->timers, &query->gossip);
	rf_timer_clear(&comm->context->timers, &query->verdict);
	free(query);
	comm->query = NULL;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void send_question(const struct rf_query *query, const struct rf_link *except)
{
	uint8_t payload[8];
	struct rf_cursor c = {payload, payload + sizeof(payload), false};

	rf_put_u32(&c, (uint32_t)query->comm->size);
	rf_put_u32(&c, query->round);
	rf_overlay_flood(query->comm, RF_SEGMENT_QUERY, query->seq, payload, sizeof(payload),
			 except);
}

static void tell(struct rf_query *query)
{
	size_t bytes = 8 + 2 * query->map_bytes;
	uint8_t *payload = malloc(bytes);
	struct rf_cursor c = {payload, payload + bytes, false};

	query->told_at = rf_now(query->comm->context);
	if (!payload)
		return;
	query->changed = false;
	rf_put_u32(&c, (uint32_t)query->comm->size);
	rf_put_u32(&c, query->round);
	rf_put_bytes(&c, query->answered, 2 * query->map_bytes);
	rf_overlay_flood(query->comm, RF_SEGMENT_ANSWER, query->seq, payload, bytes, NULL);
	free(payload);
}

static void gossip_due(struct rf_timer *timer)
{
	tell(RF_CONTAINER(timer, struct rf_query, gossip));
}

/* At once, or when the pause since the last telling is over. */
static void tell_soon(struct rf_query *query)
{
	rf_context *context = query->comm->context;

	if (!query->changed || query->gossip.position)
		return;
	if (!query->told_at || rf_now(context) >= query->told_at + GOSSIP_NS)
		tell(query);
	else
		(void)rf_timer_set(&context->timers, &query->gossip, query->told_at + GOSSIP_NS);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

static const char *describe_call(const rf_comm *comm, uint64_t seq, char text[256])
{
	const struct rf_call *call = rf_map_get(&comm->calls, seq + 1);
	char fingerprint[RF_FINGERPRINT_TEXT];

	if (call)
		snprintf(text, 256, "call %llu (%s)", (unsigned long long)seq,
			 rf_fingerprint_format(&call->fingerprint, fingerprint));
	else
		snprintf(text, 256, "call %llu", (unsigned long long)seq);
	return text;
}

/* Ranks that are behind, or the mute ones. */
static size_t collect(const struct rf_query *query, bool mute, int *ranks)
{
	size_t count = 0;

	for (int rank = 0; rank < query->comm->size; rank++) {
		bool answered = bit_get(query->answered, rank);

		if (mute ? !answered : answered && bit_get(query->behind, rank))
			ranks[count++] = rank;
	}
	return count;
}

static void accuse(struct rf_query *query, int *ranks)
{
	rf_comm *comm = query->comm;
	size_t behind = collect(query, false, ranks);
	size_t mute = collect(query, true, ranks + behind);
	size_t count = behind + mute;
	char message[512], call[256], names[100], more[160] = "";

	describe_call(comm, behind ? query->seq : query->own_seq, call);
	if (behind && mute)
		snprintf(more, sizeof(more), "; no answer from %s",
			 rf_ranks_format(ranks + behind, mute, names, sizeof(names)));
	if (behind) {
		snprintf(message, sizeof(message),
			 "late: %s had not started %s when its deadline passed%s",
			 rf_ranks_format(ranks, behind, names, sizeof(names)), call, more);
	} else if (mute) {
		snprintf(message, sizeof(message),
			 "the deadline of %s has passed, and there is no answer from %s", call,
			 rf_ranks_format(ranks, mute, names, sizeof(names)));
	} else if (query->awaited >= 0) {
		ranks[count++] = query->awaited;
		snprintf(message, sizeof(message),
			 "the deadline of %s has passed; all ranks have started it, rank %d is "
			 "waited for",
			 call, query->awaited);
	} else {
		snprintf(message, sizeof(message),
			 "the deadline of %s has passed; all ranks have started it", call);
	}
	rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, ranks, count, message);
}

/* The call asked about has ended. One whose deadline passed meanwhile has only this query. */
static void query_next(rf_comm *comm)
{
	rf_query_free(comm);
	RF_LIST_EACH(node, &comm->call_list)
	{
		const struct rf_call *call = RF_CONTAINER(node, struct rf_call, node);

		if (!call->request.deadline.position) {
			rf_query_start(comm, call->seq, call->stages[0].awaited);
			return;
		}
	}
}

static bool is_open(const rf_comm *comm, uint64_t seq)
{
	return rf_map_get(&comm->calls, seq + 1) != NULL;
}

static bool is_asking(const struct rf_query *query)
{
	return query->asking && is_open(query->comm, query->own_seq);
}

static void verdict_due(struct rf_timer *timer)
{
	struct rf_query *query = RF_CONTAINER(timer, struct rf_query, verdict);
	rf_comm *comm = query->comm;
	int *ranks;

	if (!is_asking(query)) {
		query_next(comm);
		return;
	}
	ranks = calloc((size_t)comm->size + 1, sizeof(*ranks));
	if (!ranks) {
		rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, NULL, 0,
			     "a call's deadline has passed");
		return;
	}
	accuse(query, ranks);
	free(ranks);
}

/* ---- asking --------------------------------------------------------------------------------- */

static void set_verdict(struct rf_query *query)
{
	rf_context *context = query->comm->context;
	uint64_t mute_ns = (uint64_t)query->comm->agreed.mute_ms * MS;

	/* Who does not ask keeps what it has heard for as long as others may. */
	(void)rf_timer_set(&context->timers, &query->verdict,
			   rf_now(context) + (query->asking ? mute_ns : 4 * mute_ns));
}

/* A query that knows of this rank alone, in the place of the one that there was. */
static struct rf_query *query_begin(rf_comm *comm, uint64_t seq, uint32_t round)
{
	size_t map_bytes = ((size_t)comm->size + 7) / 8;
	struct rf_query *query = calloc(1, sizeof(*query) + 2 * map_bytes);

	if (!query)
		return NULL;
	query->awaited = -1;
	if (comm->query) {
		query->asking = comm->query->asking;
		query->own_seq = comm->query->own_seq;
		query->awaited = comm->query->awaited;
	}
	rf_query_free(comm);
	query->comm = comm;
	query->seq = seq;
	query->round = round;
	query->begun_at = rf_now(comm->context);
	query->map_bytes = map_bytes;
	query->behind = query->answered + map_bytes;
	query->gossip.fire = gossip_due;
	query->verdict.fire = verdict_due;
	bit_set(query->answered, comm->rank);
	if (comm->next_seq <= seq)
		bit_set(query->behind, comm->rank);
	query->changed = true;
	comm->query = query;
	set_verdict(query);
	return query;
}

static void query_ask(struct rf_query *query, uint64_t own_seq, int awaited)
{
	query->asking = true;
	query->own_seq = own_seq;
	query->awaited = awaited;
	set_verdict(query);
}

/* Whether the answers are good for a call that passes its deadline now. */
static bool is_fresh(const struct rf_query *query)
{
	const rf_comm *comm = query->comm;
	uint64_t mute_ns = (uint64_t)comm->agreed.mute_ms * MS;

	return is_open(comm, query->seq) && rf_now(comm->context) < query->begun_at + mute_ns;
}

void rf_query_start(rf_comm *comm, uint64_t seq, int awaited_rank)
{
	struct rf_query *query = comm->query;

	if (comm->state != RF_COMM_READY || (query && is_asking(query)))
		return;
	if (query && query->seq <= seq && is_fresh(query)) {
		query_ask(query, seq, awaited_rank);
		return;
	}
	query = query_begin(comm, seq, comm->query_round + 1);
	if (!query) {
		rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, &awaited_rank,
			     awaited_rank >= 0, "a call's deadline has passed");
		return;
	}
	comm->query_round = query->round;
	query_ask(query, seq, awaited_rank);
	send_question(query, NULL);
	tell_soon(query);
}

/* Whether a question takes the place of the query that there is. */
static bool is_newer(const rf_comm *comm, uint64_t seq, uint32_t round)
{
	const struct rf_query *query = comm->query;

	if (!query || round != query->round)
		return round >= comm->query_round;
	return seq < query->seq;
}

int rf_query_on_query(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		      const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	bool right_size = rf_get_u32(&c) == (uint32_t)comm->size;
	uint32_t round = rf_get_u32(&c);
	struct rf_query *query = comm->query;
	uint64_t seq = segment->seq;

	if (!right_size || c.failed)
		return RF_ERR_PROTOCOL;
	if (comm->state != RF_COMM_READY || !is_newer(comm, seq, round))
		return RF_OK;
	if (query && is_asking(query) && query->own_seq < seq) {
		/* Mine is about an earlier call, and as old: both are asked anew. */
		seq = query->own_seq;
		round++;
		from = NULL;
	}
	query = query_begin(comm, seq, round);
	if (!query)
		return RF_ERR_NOMEM;
	comm->query_round = round;
	send_question(query, from);
	tell_soon(query);
	return RF_OK;
}

int rf_query_on_answer(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		       const uint8_t *payload)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + segment->bytes, false};
	bool right_size = rf_get_u32(&c) == (uint32_t)comm->size;
	uint32_t round = rf_get_u32(&c);
	struct rf_query *query = comm->query;
	size_t map_bytes = ((size_t)comm->size + 7) / 8;

	(void)from;
	if (!right_size || c.failed || segment->bytes != 8 + 2 * map_bytes)
		return RF_ERR_PROTOCOL;
	if (!query || query->seq != segment->seq || query->round != round)
		return RF_OK;
	for (size_t i = 0; i < 2 * map_bytes; i++) {
		uint8_t merged = query->answered[i] | c.at[i];

		query->changed |= merged != query->answered[i];
		query->answered[i] = merged;
	}
	tell_soon(query);
	return RF_OK;
}
