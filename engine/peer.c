/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: found by process id, counted, freed when nobody refers to them any more. */
#include "engine/control.h"

#include <stdlib.h>
#include <string.h>

struct rf_peer *rf_peer_find(rf_context *context, struct rf_process_id id)
{
	struct rf_peer *peer = rf_map_get(&context->peers, id.hi);

	return peer && rf_process_id_equal(peer->id, id) ? peer : NULL;
}

static void take_addrs(struct rf_peer *peer, const struct rf_addr *addrs, unsigned addr_count)
{
	if (peer->addr_count || !addr_count)
		return;
	peer->addr_count = addr_count < RF_PEER_ADDRS ? addr_count : RF_PEER_ADDRS;
	memcpy(peer->addrs, addrs, peer->addr_count * sizeof(*addrs));
}

int rf_peer_get(rf_context *context, struct rf_process_id id, const struct rf_addr *addrs,
		unsigned addr_count, struct rf_peer **result)
{
	struct rf_peer *peer = rf_map_get(&context->peers, id.hi);
	int rc;

	if (peer && !rf_process_id_equal(peer->id, id))
		return RF_ERR_PROTOCOL; /* ids are random: one of the two was made up */
	if (!peer) {
		peer = calloc(1, sizeof(*peer));
		if (!peer)
			return RF_ERR_NOMEM;
		peer->id = id;
		peer->context = context;
		peer->state = RF_PEER_ALIVE;
		rf_list_init(&peer->links);
		rf_data_init(peer);
		rc = rf_map_put(&context->peers, id.hi, peer);
		if (rc != RF_OK) {
			free(peer);
			return rc;
		}
	}
	take_addrs(peer, addrs, addr_count);
	peer->references++;
	*result = peer;
	return RF_OK;
}

void rf_peer_put(struct rf_peer *peer)
{
	if (--peer->references) {
		if (peer->control)
			rf_control_look(peer->control);
		return;
	}
	rf_data_close(peer); /* first: it may have something to say by the control stream */
	rf_control_free(peer);
	rf_map_remove(&peer->context->peers, peer->id.hi);
	free(peer);
}
