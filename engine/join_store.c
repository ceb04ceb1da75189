/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rendezvous over a store: the leader writes which process it is and where, the others read it.
 * The entry is emptied before anybody is told that the communicator is ready, so that a later use
 * of the same name cannot find it; what a leader that died has left behind is found out by dialling
 * (another process, or none, answers), and then the store is asked again.
 */
#include "engine/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = 16 + 1 + RF_JOIN_TRIED_ADDRS * RF_JOIN_ADDR_BYTES };

int rf_join_store_setup(struct rf_join *join, const rf_store *store)
{
	enum { KEY_BYTES = 64 };

	if (!store->set || !store->get)
		return RF_ERR_INVALID;
	join->store_key = malloc(KEY_BYTES);
	if (!join->store_key)
		return RF_ERR_NOMEM;
	snprintf(join->store_key, KEY_BYTES, "ringfold/%016" PRIx64 "/leader", join->key);
	join->store = *store;
	join->store_wanted = true;
	return RF_OK;
}

bool rf_join_needs_store(const rf_comm *comm)
{
	return comm->join && comm->join->store_wanted;
}

static size_t encode_leader(rf_context *context, uint8_t value[VALUE_BYTES])
{
	struct rf_cursor c = {value, value + VALUE_BYTES, false};
	struct rf_addr own[RF_JOIN_TRIED_ADDRS];
	/* Loopback last: it serves where there is nothing else, and the process id is checked. */
	unsigned count = rf_join_own_addrs(context, true, own, RF_JOIN_TRIED_ADDRS);

	rf_put_u64(&c, context->id.hi);
	rf_put_u64(&c, context->id.lo);
	rf_put_u8(&c, (uint8_t)count);
	for (unsigned i = 0; i < count; i++)
		rf_join_put_addr(&c, &own[i]);
	return (size_t)(c.at - value);
}

/* RF_ERR_AGAIN: the entry is empty or no entry of ours. */
static int decode_leader(struct rf_join *join, uint8_t *value, size_t bytes)
{
	struct rf_cursor c = {value, value + bytes, false};
	struct rf_addr addrs[RF_JOIN_TRIED_ADDRS];
	struct rf_process_id id;
	unsigned count;

	id.hi = rf_get_u64(&c);
	id.lo = rf_get_u64(&c);
	count = rf_get_u8(&c);
	if (c.failed || count > RF_JOIN_TRIED_ADDRS)
		return RF_ERR_AGAIN;
	for (unsigned i = 0; i < count; i++)
		rf_join_get_addr(&c, &addrs[i]);
	if (c.failed || !count)
		return RF_ERR_AGAIN;
	join->leader_id = id;
	join->tried_count = (int)count;
	memcpy(join->tried, addrs, count * sizeof(addrs[0]));
	return RF_OK;
}

enum store_step {
	STORE_READ,    /* where is the leader? */
	STORE_PUBLISH, /* here */
	STORE_RETIRE,  /* nowhere any more */
};

/* Under the lock: what became of the step. */
static int store_stepped(struct rf_join *join, enum store_step step, int status, uint8_t *value,
			 size_t bytes)
{
	if (status == RF_OK && step == STORE_READ)
		status = bytes <= VALUE_BYTES ? decode_leader(join, value, bytes) : RF_ERR_AGAIN;
	if (status == RF_ERR_AGAIN)
		return status;
	join->store_wanted = false;
	if (status != RF_OK) {
		rf_join_fail(join->comm, RF_ERR_STORE, "the rendezvous store failed");
		return RF_ERR_STORE;
	}
	if (step == STORE_READ)
		rf_reach_dial(join);
	else if (step == STORE_RETIRE)
		rf_leader_go(join);
	else /* everybody may have come while the entry was being written */
		join->store_wanted = join->state == RF_JOIN_RETIRING;
	return RF_OK;
}

int rf_join_store_step(rf_comm *comm, int64_t timeout_ms)
{
	rf_context *context = comm->context;
	uint8_t value[VALUE_BYTES] = {0};
	size_t bytes = 1; /* an empty entry is one zero byte: not all stores know empty values */
	char key[64];
	rf_store store;
	enum store_step step;
	int status = rf_enter(context);

	if (status != RF_OK)
		return status;
	if (!rf_join_needs_store(comm)) {
		rf_leave(context);
		return RF_OK;
	}
	store = comm->join->store;
	step = comm->join->rank                        ? STORE_READ
	       : comm->join->state == RF_JOIN_RETIRING ? STORE_RETIRE
						       : STORE_PUBLISH;
	snprintf(key, sizeof(key), "%s", comm->join->store_key);
	if (step == STORE_PUBLISH)
		bytes = encode_leader(context, value);
	rf_leave(context);

	if (step != STORE_READ)
		status = store.set(store.user, key, value, bytes);
	else
		status = store.get(store.user, key, value, sizeof(value), &bytes, timeout_ms);

	if (rf_enter(context) != RF_OK)
		return RF_ERR_FORKED;
	/* The deadline may have ended it meanwhile. */
	if (rf_join_needs_store(comm))
		status = store_stepped(comm->join, step, status, value, bytes);
	rf_leave(context);
	return status;
}
