/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The leader's part: gathers the ranks, hands out the table, and says GO when all are ready. Ranks
 * that come before the leader has begun wait in a lobby, one for each key.
 */
#include "engine/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { LOOK_AGAIN_MS = 20 };

#define LOBBY_NS (1800ull * 1000000000ull) /* how long early ranks are kept */

/* ---- arrivals ------------------------------------------------------------------------------- */

static void arrival_forget(struct rf_join *join, struct rf_join_arrival *arrival)
{
	if (join->by_rank && arrival->rank < join->size && join->by_rank[arrival->rank] == arrival)
		join->by_rank[arrival->rank] = NULL;
	rf_list_remove(&arrival->node);
	join->arrival_count--;
	rf_control_release(arrival->peer);
	rf_peer_put(arrival->peer);
	free(arrival);
}

void rf_leader_forget_all(struct rf_join *join)
{
	RF_LIST_EACH(node, &join->arrivals)
	arrival_forget(join, RF_CONTAINER(node, struct rf_join_arrival, node));
}

static struct rf_join_arrival *arrival_of(const struct rf_join *join, const struct rf_peer *peer)
{
	RF_LIST_EACH(node, &join->arrivals)
	{
		struct rf_join_arrival *arrival = RF_CONTAINER(node, struct rf_join_arrival, node);

		if (arrival->peer == peer)
			return arrival;
	}
	return NULL;
}

static unsigned add_addr(struct rf_addr *addrs, unsigned count, unsigned capacity,
			 const struct rf_addr *addr)
{
	for (unsigned i = 0; i < count; i++)
		if (rf_addr_equal(&addrs[i], addr))
			return count;
	if (count < capacity)
		addrs[count++] = *addr;
	return count;
}

/* By which addresses a rank is reached: as it is seen first, unless that has meaning on the
 * leader's link only. */
static unsigned arrival_addrs(const struct rf_join_arrival *arrival, struct rf_addr *addrs,
			      unsigned capacity)
{
	bool seen_last = !arrival->is_seen || rf_join_is_link_local(&arrival->seen);
	unsigned count = 0;

	if (!seen_last)
		count = add_addr(addrs, count, capacity, &arrival->seen);
	for (unsigned i = 0; i < arrival->own_count; i++)
		count = add_addr(addrs, count, capacity, &arrival->own[i]);
	if (arrival->is_seen)
		count = add_addr(addrs, count, capacity, &arrival->seen);
	return count;
}

static void arrival_look(struct rf_join_arrival *arrival)
{
	struct rf_peer *peer = arrival->peer;
	uint16_t port = arrival->seen.port;
	struct rf_addr local;

	arrival->is_seen = rf_control_addrs(peer, &local, &arrival->seen) == RF_OK;
	arrival->seen.port = port;
	if (!peer->addr_count)
		peer->addr_count = arrival_addrs(arrival, peer->addrs, RF_PEER_ADDRS);
}

static const char *arrival_format(const struct rf_join_arrival *arrival, char text[RF_ADDR_TEXT])
{
	if (arrival->is_seen)
		return rf_addr_format(&arrival->seen, text);
	return arrival->own_count ? rf_addr_format(&arrival->own[0], text) : "address unknown";
}

/* ---- who is missing ------------------------------------------------------------------------- */

const char *rf_leader_absent(const struct rf_join *join, char *text, size_t capacity)
{
	int *absent = calloc((size_t)join->size, sizeof(*absent));
	size_t count = 0, length;

	if (!absent || !join->by_rank) {
		free(absent);
		snprintf(text, capacity, "some ranks");
		return text;
	}
	/* Those that gave up waiting did come: they are named only if there is nobody else. */
	for (int turn = 0; turn < 2 && !count; turn++) {
		for (int rank = 1; rank < join->size; rank++) {
			const struct rf_join_arrival *arrival = join->by_rank[rank];

			if (!arrival ? turn || !join->gave_up[rank]
				     : join->state != RF_JOIN_GATHERING && !arrival->ready)
				absent[count++] = rank;
		}
	}
	rf_ranks_format(absent, count, text, capacity);
	if (!count)
		snprintf(text, capacity, "the connections of rank 0");
	length = strlen(text);
	snprintf(text + length, capacity - length, " of %d", join->size);
	free(absent);
	return text;
}

void rf_leader_tell_failure(struct rf_join *join, int error, const char *message)
{
	RF_LIST_EACH(node, &join->arrivals)
	{
		struct rf_join_arrival *arrival = RF_CONTAINER(node, struct rf_join_arrival, node);

		if (arrival->peer->state == RF_PEER_ALIVE)
			rf_join_send_failed(arrival->peer, join->key, error, message);
	}
}

/* ---- the table ------------------------------------------------------------------------------ */

uint64_t rf_join_new_comm_id(rf_context *context)
{
	uint64_t id;

	do {
		if (context->simulated || getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
			id = rf_context_random(context);
	} while (!id || rf_map_get(&context->comms, id));
	return id;
}

static void fill_entry(struct rf_rank_entry *entry, const struct rf_join_arrival *arrival)
{
	struct rf_addr all[RF_JOIN_OWN_ADDRS + 1];
	unsigned count = arrival_addrs(arrival, all, RF_JOIN_OWN_ADDRS + 1);

	entry->id = arrival->peer->id;
	entry->host = arrival->host;
	for (unsigned i = 0; i < count && i < 2; i++)
		entry->addrs[entry->addr_count++] = all[i];
}

static struct rf_rank_entry *make_entries(const struct rf_join *join)
{
	struct rf_rank_entry *ranks = calloc((size_t)join->size, sizeof(*ranks));

	if (!ranks)
		return NULL;
	ranks[0].id = join->context->id;
	ranks[0].host = rf_join_host(join->context);
	/* Loopback too: a receiver that was not seen on loopback passes it over. */
	ranks[0].addr_count = (uint8_t)rf_join_own_addrs(join->context, true, ranks[0].addrs, 2);
	for (int rank = 1; rank < join->size; rank++)
		fill_entry(&ranks[rank], join->by_rank[rank]);
	return ranks;
}

static void hand_out_table(struct rf_join *join)
{
	struct rf_rank_entry *ranks = make_entries(join);
	uint64_t id = rf_join_new_comm_id(join->context);
	uint8_t *table;
	size_t bytes;

	/* Once: a rank that came again may have been waited for by the timer too. */
	rf_timer_clear(&join->context->timers, &join->retry);
	table = ranks ? rf_join_write_table(join, ranks, &bytes) : NULL;
	if (!table) {
		free(ranks);
		rf_join_fail(join->comm, RF_ERR_NOMEM, "no memory for the table of ranks");
		return;
	}
	for (int rank = 1; rank < join->size; rank++) {
		const struct rf_join_arrival *arrival = join->by_rank[rank];
		struct rf_segment segment = {
			.version = RF_WIRE_VERSION,
			.type = RF_SEGMENT_TABLE,
			.comm = id,
			.bytes = (uint32_t)bytes,
		};

		rf_join_patch_table(table, rank,
				    arrival->is_seen && rf_addr_is_loopback(&arrival->seen));
		(void)rf_control_send(arrival->peer, &segment, table, bytes);
	}
	free(table);
	rf_join_link(join, id, ranks, &join->context->config);
}

/* ---- gathering ------------------------------------------------------------------------------ */

/* False if it contradicts what is known; then the join has failed and is gone. */
static bool arrival_fits(struct rf_join *join, struct rf_join_arrival *arrival)
{
	char message[RF_JOIN_TEXT], here[RF_ADDR_TEXT], there[RF_ADDR_TEXT];
	struct rf_join_arrival *other;

	if (arrival->size != join->size) {
		snprintf(message, sizeof(message),
			 "rank %d (%s) says that there are %d ranks, rank 0 says %d: set the same "
			 "world size everywhere",
			 arrival->rank, arrival_format(arrival, there), arrival->size, join->size);
		rf_join_fail(join->comm, RF_ERR_RENDEZVOUS, message);
		return false;
	}
	other = join->by_rank[arrival->rank];
	if (!other)
		return true;
	/* It was started again before the end of its predecessor was noticed. */
	if (!rf_control_is_up(other->peer)) {
		arrival_forget(join, other);
		return true;
	}
	snprintf(message, sizeof(message),
		 "two processes say that they are rank %d: %s and %s; each needs a rank of its own",
		 arrival->rank, arrival_format(other, here), arrival_format(arrival, there));
	rf_join_fail(join->comm, RF_ERR_RENDEZVOUS, message);
	return false;
}

/* A rank that has just died may be lost to the leader only: it dials again, or is forgotten when
 * RINGFOLD_REDIAL has passed, and then it may be started again. */
static bool all_are_up(const struct rf_join *join)
{
	for (int rank = 1; rank < join->size; rank++) {
		if (!rf_control_is_up(join->by_rank[rank]->peer))
			return false;
	}
	return true;
}

static void all_have_come(struct rf_join *join);

static void look_again(struct rf_timer *timer)
{
	struct rf_join *join = RF_CONTAINER(timer, struct rf_join, retry);

	if (join->state == RF_JOIN_GATHERING && join->arrival_count == (size_t)join->size - 1)
		all_have_come(join);
}

static void all_have_come(struct rf_join *join)
{
	join->retry.fire = look_again;
	if (all_are_up(join) ||
	    rf_timer_set(&join->context->timers, &join->retry,
			 rf_now(join->context) + LOOK_AGAIN_MS * 1000000ull) != RF_OK)
		hand_out_table(join);
}

/* The arrival is in join->arrivals already, so that it hears of a failure. False: it has failed. */
static bool arrival_take(struct rf_join *join, struct rf_join_arrival *arrival)
{
	if (!arrival_fits(join, arrival))
		return false;
	join->by_rank[arrival->rank] = arrival;
	join->gave_up[arrival->rank] = false;
	if (join->arrival_count == (size_t)join->size - 1) {
		all_have_come(join);
		return false;
	}
	return true;
}

static struct rf_join *find(rf_context *context, uint64_t key, enum rf_join_state state)
{
	RF_LIST_EACH(node, &context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->key == key && join->state == state)
			return join;
	}
	return NULL;
}

static void listen_failed(struct rf_join *join, int error)
{
	rf_log(&join->context->logger, RF_LOG_ERROR,
	       "rank 0 cannot listen on port %u, where the others look for it: %s; free the port, "
	       "or "
	       "set MASTER_PORT (RINGFOLD_MASTER_PORT) to another one on all ranks",
	       join->master_port, error ? strerror(error) : rf_strerror(RF_ERR_SYSTEM));
}

static void take_lobby(struct rf_join *join, struct rf_join *lobby)
{
	RF_LIST_EACH(node, &lobby->arrivals)
	{
		rf_list_remove(node);
		lobby->arrival_count--;
		rf_list_append(&join->arrivals, node);
		join->arrival_count++;
	}
	rf_join_free_lobby(lobby);
	join->arrival_count = 0;
	/* Counted one by one, so that the last completes the table. */
	RF_LIST_EACH(node, &join->arrivals)
	{
		join->arrival_count++;
		if (!arrival_take(join, RF_CONTAINER(node, struct rf_join_arrival, node)))
			return;
	}
}

static void lobby_due(struct rf_timer *timer)
{
	struct rf_join *join = RF_CONTAINER(timer, struct rf_join, retry);
	struct rf_join *lobby = find(join->context, join->key, RF_JOIN_LOBBY);

	if (lobby)
		take_lobby(join, lobby);
}

int rf_leader_start(struct rf_join *join)
{
	struct rf_timers *timers = &join->context->timers;

	join->state = RF_JOIN_GATHERING;
	join->by_rank = calloc((size_t)join->size, sizeof(*join->by_rank));
	join->gave_up = calloc((size_t)join->size, sizeof(*join->gave_up));
	if (!join->by_rank || !join->gave_up)
		return RF_ERR_NOMEM;
	if (join->master_addr && join->master_port != join->context->port) {
		int status = rf_server_listen_also(join->context, join->master_port);

		if (status != RF_OK) {
			listen_failed(join, errno);
			return status;
		}
	}
	if (!find(join->context, join->key, RF_JOIN_LOBBY))
		return RF_OK;
	/* From the driver, not from here: a request does not end inside its start. */
	join->retry.fire = lobby_due;
	return rf_timer_set(timers, &join->retry, join->started);
}

/* ---- the lobby ------------------------------------------------------------------------------ */

static struct rf_join *lobby_enter(rf_context *context, uint64_t key)
{
	struct rf_join *lobby = find(context, key, RF_JOIN_LOBBY);
	size_t lobbies = 0, waiting = 0;

	RF_LIST_EACH(node, &context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);

		if (join->state == RF_JOIN_LOBBY) {
			lobbies++;
			waiting += join->arrival_count;
		}
	}
	if (waiting >= RF_JOIN_WAITING || (!lobby && lobbies >= RF_JOIN_LOBBIES))
		return NULL;
	if (lobby)
		return lobby;
	lobby = rf_join_new(context, key);
	if (lobby &&
	    rf_timer_set(&context->timers, &lobby->deadline, rf_now(context) + LOBBY_NS) != RF_OK) {
		rf_join_free_lobby(lobby);
		lobby = NULL;
	}
	return lobby;
}

int rf_leader_on_join(struct rf_peer *peer, const struct rf_segment *segment,
		      const uint8_t *payload)
{
	rf_context *context = peer->context;
	struct rf_join_arrival *arrival = calloc(1, sizeof(*arrival)), *earlier;
	struct rf_join *join;
	uint64_t key;
	int status;

	if (!arrival)
		return RF_ERR_NOMEM;
	status = rf_join_read_join(payload, segment->bytes, &key, arrival);
	if (status != RF_OK)
		goto free_arrival;
	join = find(context, key, RF_JOIN_GATHERING);
	/* The ranks of the lobby come first; its timer is about to fire. */
	if (!join || find(context, key, RF_JOIN_LOBBY))
		join = lobby_enter(context, key);
	if (!join) {
		rf_join_send_failed(peer, key, RF_ERR_RENDEZVOUS,
				    "too many ranks wait at this process");
		goto free_arrival;
	}
	status = rf_control_hold(peer, false);
	if (status != RF_OK)
		goto free_arrival;
	earlier = arrival_of(join, peer);
	if (earlier)
		arrival_forget(join, earlier);
	peer->references++;
	arrival->peer = peer;
	arrival_look(arrival);
	rf_list_append(&join->arrivals, &arrival->node);
	join->arrival_count++;
	if (join->state == RF_JOIN_GATHERING)
		arrival_take(join, arrival);
	return RF_OK;

free_arrival:
	free(arrival);
	return status;
}

/* ---- leaving and dying ---------------------------------------------------------------------- */

/* Before the table it is forgotten, and may come again; after it the communicator fails. */
static void arrival_lost(struct rf_join *join, struct rf_join_arrival *arrival, int error,
			 const char *reason)
{
	char message[RF_JOIN_TEXT], addr[RF_ADDR_TEXT];
	int rank = arrival->rank;

	snprintf(message, sizeof(message), "rank %d (%s) %s", rank, arrival_format(arrival, addr),
		 reason);
	if (join->state == RF_JOIN_LOBBY || join->state == RF_JOIN_GATHERING) {
		if (join->comm)
			rf_log(&join->context->logger, RF_LOG_INFO, "%s; it may come again",
			       message);
		arrival_forget(join, arrival);
		if (join->state == RF_JOIN_LOBBY && !join->arrival_count)
			rf_join_free_lobby(join);
		return;
	}
	rf_comm_fail(join->comm, RF_SEGMENT_DEATH, error, &rank, 1, message);
}

void rf_leader_peer_died(struct rf_join *join, struct rf_peer *peer, const char *reason)
{
	struct rf_join_arrival *arrival = arrival_of(join, peer);
	char text[RF_JOIN_TEXT];

	if (!arrival)
		return;
	snprintf(text, sizeof(text), "died while the communicator was made: %s", reason);
	arrival_lost(join, arrival, RF_ERR_RANK_DEAD, text);
}

/* A rank that has the table already cannot make the communicator, for a reason of its own: that
 * reason is everybody's, and the rank itself is none. */
static void arrival_withdraws(struct rf_join *join, const struct rf_join_arrival *arrival,
			      int error, const char *reason)
{
	char message[2 * RF_JOIN_TEXT];

	if (error == RF_ERR_AGAIN) { /* it has only asked who is missing, but its time is over */
		error = RF_ERR_RENDEZVOUS;
		reason = "it has waited too long";
	}
	snprintf(message, sizeof(message), "rank %d has given up: %s", arrival->rank, reason);
	rf_comm_fail(join->comm, RF_SEGMENT_REVOKE, error, NULL, 0, message);
}

void rf_leader_on_withdrawal(struct rf_peer *peer, uint64_t key, int error, const char *reason)
{
	RF_LIST_EACH(node, &peer->context->joins)
	{
		struct rf_join *join = RF_CONTAINER(node, struct rf_join, node);
		struct rf_join_arrival *arrival = join->key == key ? arrival_of(join, peer) : NULL;
		char message[RF_JOIN_TEXT], names[RF_JOIN_TEXT - 64];

		if (!arrival)
			continue;
		if (join->state != RF_JOIN_LOBBY && join->state != RF_JOIN_GATHERING) {
			arrival_withdraws(join, arrival, error, reason);
			continue;
		}
		if (join->state == RF_JOIN_LOBBY)
			snprintf(message, sizeof(message),
				 "rank 0 has not begun to create this communicator");
		else
			snprintf(message, sizeof(message), "%s did not come",
				 rf_leader_absent(join, names, sizeof(names)));
		rf_join_send_failed(peer, key, RF_ERR_RENDEZVOUS, message);
		if (join->gave_up && arrival->rank < join->size)
			join->gave_up[arrival->rank] = true;
		arrival_lost(join, arrival, RF_ERR_RENDEZVOUS, "has given up waiting");
	}
}

/* ---- ready and go --------------------------------------------------------------------------- */

void rf_leader_go(struct rf_join *join)
{
	RF_LIST_EACH(node, &join->arrivals)
	{
		struct rf_join_arrival *arrival = RF_CONTAINER(node, struct rf_join_arrival, node);
		struct rf_segment segment = {
			.version = RF_WIRE_VERSION,
			.type = RF_SEGMENT_GO,
			.comm = join->comm->id,
		};

		(void)rf_control_send(arrival->peer, &segment, NULL, 0);
	}
	rf_join_succeed(join);
}

void rf_leader_on_ready(struct rf_join *join, struct rf_peer *peer)
{
	struct rf_join_arrival *arrival = peer ? arrival_of(join, peer) : NULL;

	if (peer) {
		if (!arrival || arrival->ready)
			return;
		arrival->ready = true;
	}
	if (++join->ready_count < (size_t)join->size)
		return;
	join->state = RF_JOIN_RETIRING;
	if (join->store.size) {
		join->store_wanted = true;
		rf_request_stir(join->request);
	} else {
		rf_leader_go(join);
	}
}
