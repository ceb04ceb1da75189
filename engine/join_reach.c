/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank finds the leader: by a name that is resolved and dialled until it answers, by a store
 * that says where it is, or because its process is known already. Everything that may be only "not
 * yet" (a name that does not resolve, a connection refused) is tried again with backoff until the
 * one deadline.
 */
#include "engine/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS            1000000ull
#define BACKOFF_FIRST (20 * MS)
#define BACKOFF_LAST  (1000 * MS)
#define RESOLVE_POLL  (2 * MS)
#define DIAL_LONGEST  (2000 * MS) /* then the name is resolved anew: its host may have moved */

#define LAST_WORD (20 * MS)

static void reach_step(struct rf_timer *timer);

/* ---- ends ----------------------------------------------------------------------------------- */

void rf_reach_stop(struct rf_join *join)
{
	struct rf_net *net = join->context->net;

	rf_timer_clear(&join->context->timers, &join->retry);
	if (join->dial)
		rf_dial_cancel(join->dial);
	join->dial = NULL;
	if (join->resolve)
		net->ops->resolve_cancel(net, &join->resolve);
	join->resolve = NULL;
}

void rf_reach_let_go(struct rf_join *join)
{
	struct rf_peer *leader = join->leader;

	join->leader = NULL;
	if (!leader)
		return;
	rf_control_release(leader);
	rf_peer_put(leader);
}

const char *rf_reach_target(const struct rf_join *join, char text[RF_JOIN_TEXT])
{
	char addr[RF_ADDR_TEXT];

	if (join->master_addr)
		snprintf(text, RF_JOIN_TEXT, "rank 0 at %.300s:%u", join->master_addr,
			 join->master_port);
	else if (join->tried_count)
		snprintf(text, RF_JOIN_TEXT, "rank 0 at %s", rf_addr_format(&join->tried[0], addr));
	else
		snprintf(text, RF_JOIN_TEXT, "rank 0");
	return text;
}

/* ---- reached -------------------------------------------------------------------------------- */

/* Takes the reference over. */
static void reached(struct rf_join *join, struct rf_peer *leader)
{
	int status = rf_control_hold(leader, true);

	if (status != RF_OK) {
		rf_peer_put(leader);
		rf_join_fail(join->comm, status, "the connection to rank 0 cannot be held");
		return;
	}
	join->leader = leader;
	join->state = RF_JOIN_ASKED;
	join->backoff = 0;
	rf_join_send_join(join);
}

static void dial_done(void *user, int status, struct rf_peer *peer, const char *reason)
{
	struct rf_join *join = user;

	join->dial = NULL;
	if (status == RF_ERR_VERSION) {
		rf_join_fail(join->comm, status, reason);
	} else if (status != RF_OK) {
		rf_reach_again(join, reason);
	} else if (join->store.size && !rf_process_id_equal(peer->id, join->leader_id)) {
		rf_peer_put(peer);
		rf_reach_again(join, "the store names a process that is no longer there");
	} else {
		reached(join, peer);
	}
}

void rf_reach_dial(struct rf_join *join)
{
	uint64_t until = rf_now(join->context) + DIAL_LONGEST;
	int status;

	/* A little before the deadline, which then can tell why. */
	if (join->deadline.position && join->deadline.at < until + LAST_WORD)
		until = join->deadline.at - LAST_WORD;
	status = rf_dial_rendezvous(join->context, join->tried, (unsigned)join->tried_count, until,
				    dial_done, join, &join->dial);
	if (status != RF_OK)
		rf_reach_again(join, rf_strerror(status));
}

/* ---- trying --------------------------------------------------------------------------------- */

void rf_reach_again(struct rf_join *join, const char *reason)
{
	uint64_t wait;
	int status;

	snprintf(join->reason, sizeof(join->reason), "%s", reason);
	join->state = RF_JOIN_REACHING;
	join->backoff = join->backoff ? 2 * join->backoff : BACKOFF_FIRST;
	if (join->backoff > BACKOFF_LAST)
		join->backoff = BACKOFF_LAST;
	/* Between half of it and all, so that ranks that were started together spread. */
	wait = join->backoff / 2 + rf_context_random(join->context) % (join->backoff / 2);
	join->retry.fire = reach_step;
	status = rf_timer_set(&join->context->timers, &join->retry, rf_now(join->context) + wait);
	if (status != RF_OK)
		rf_join_fail(join->comm, status, "no memory for a timer");
}

static void reach_by_name(struct rf_join *join)
{
	struct rf_net *net = join->context->net;
	int status = net->ops->resolve(net, join->master_addr, join->master_port, &join->resolve,
				       join->tried, RF_JOIN_TRIED_ADDRS, &join->tried_count);
	char reason[RF_JOIN_TEXT];

	if (status == RF_OK && join->tried_count > 0) {
		rf_reach_dial(join);
	} else if (status == RF_ERR_AGAIN) {
		if (rf_timer_set(&join->context->timers, &join->retry,
				 rf_now(join->context) + RESOLVE_POLL) != RF_OK)
			rf_join_fail(join->comm, RF_ERR_NOMEM, "no memory for a timer");
	} else {
		join->tried_count = 0;
		snprintf(reason, sizeof(reason), "the name %.300s does not resolve",
			 join->master_addr);
		rf_reach_again(join, reason);
	}
}

static void reach_known(struct rf_join *join)
{
	struct rf_peer *peer;
	int status = rf_peer_get(join->context, join->leader_id, join->tried,
				 (unsigned)join->tried_count, &peer);

	if (status != RF_OK)
		rf_join_fail(join->comm, status, "rank 0 cannot be reached");
	else
		reached(join, peer);
}

static void reach_step(struct rf_timer *timer)
{
	struct rf_join *join = RF_CONTAINER(timer, struct rf_join, retry);

	if (join->leader_known) {
		reach_known(join);
	} else if (join->master_addr) {
		reach_by_name(join);
	} else {
		/* The store is asked again: a stale entry may have been replaced. */
		join->store_wanted = true;
		rf_request_stir(join->request);
	}
}

void rf_reach_start(struct rf_join *join)
{
	join->state = RF_JOIN_REACHING;
	join->retry.fire = reach_step;
	snprintf(join->reason, sizeof(join->reason), "%s",
		 join->store.size ? "the store does not say where it is" : "no answer yet");
	if (join->store.size)
		return;
	/* From the driver, not from here: a request does not end inside its start. */
	if (rf_timer_set(&join->context->timers, &join->retry, join->started) != RF_OK)
		snprintf(join->reason, sizeof(join->reason), "no memory for a timer");
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Rank 0 is where it was reached, whatever it thinks of itself: first of its addresses. */
static void put_reached_first(const struct rf_join *join, struct rf_rank_entry *entry)
{
	struct rf_addr local, remote;

	if (rf_control_addrs(join->leader, &local, &remote) != RF_OK)
		return;
	for (int i = 0; i < join->tried_count; i++) {
		if (!rf_addr_equal(&join->tried[i], &remote))
			continue;
		if (entry->addr_count && rf_addr_equal(&entry->addrs[0], &remote))
			return;
		entry->addrs[1] = entry->addrs[0];
		if (entry->addr_count < 2)
			entry->addr_count++;
		entry->addrs[0] = remote;
		return;
	}
}

int rf_reach_on_table(struct rf_join *join, const struct rf_segment *segment,
		      const uint8_t *payload)
{
	struct rf_config agreed = join->context->config;
	struct rf_rank_entry *ranks;
	int status;

	if (join->state != RF_JOIN_ASKED)
		return RF_ERR_PROTOCOL;
	status = rf_join_read_table(join, payload, segment->bytes, &ranks, &agreed);
	if (status != RF_OK) {
		rf_join_fail(join->comm, status, "rank 0 has sent a table that makes no sense");
		return status;
	}
	put_reached_first(join, &ranks[0]);
	rf_join_log_differences(join, &agreed);
	rf_join_link(join, segment->comm, ranks, &agreed);
	return RF_OK;
}
