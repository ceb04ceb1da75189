/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a new communicator's ranks get their arena. Rank 0 makes a sealed memory file; the ranks tell
 * each other where they are by an allgather over the connections that stand, fetch the file from
 * rank 0 over a Unix socket, map it, and prove with a nonce each that it is one and the same
 * memory; an allreduce then tells all of them whether all have it. Only when all have it is it
 * used. Why it is not is logged once, with the remedy.
 *
 * Runs as a chain of the library's own calls and of events, between the moment in which the
 * communicator is ready and the end of the request that makes it. Nothing of it has a name in a
 * file system: a process that is killed at any moment leaves nothing behind.
 */
#ifndef RF_ATTACH_H
#define RF_ATTACH_H

#include "engine/arena/arena.h"
#include "engine/request.h"

/*
 * Whether these ranks are to try: more than one, all probably on one host, asked for by the agreed
 * configuration, and no simulation. The same on all ranks.
 */
bool rf_attach_wanted(const rf_comm *comm);

/*
 * Starts; comm is READY, and nobody else uses it yet. Ends with rf_request_end(request, status), at
 * once or later: RF_OK with comm->arena set on all ranks, or NULL on all; an error if the
 * communicator failed meanwhile. RF_OK: started (or ended already).
 */
int rf_attach_start(rf_comm *comm, struct rf_request *request);
/* Drops what is under way without ending the request, and unmaps the arena. For rf_comm_free(). */
void rf_attach_free(rf_comm *comm);

/* ---- doorbells ------------------------------------------------------------------------------ */

/*
 * A datagram socket for each context, in the abstract name space: whoever sends a byte to it wakes
 * its context. A stranger who does costs a wake-up. Made when first needed.
 */
struct rf_doorbell;
enum { RF_DOORBELL_NAME = 32 };
int rf_doorbell_get(rf_context *context, uint8_t name[RF_DOORBELL_NAME]);
/* Never blocks; a full queue is as good as a ring. */
void rf_doorbell_ring(rf_context *context, const uint8_t name[RF_DOORBELL_NAME]);
void rf_doorbell_close(rf_context *context);
void rf_doorbell_abandon(rf_context *context); /* for fork: the descriptor only */

#endif
