/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a new communicator's ranks get their arena. Rank 0 makes a sealed memory file. The ranks tell
 * each other where they are by an allgather over the connections that stand; the others fetch the
 * file from rank 0 over a local socket, map it, and show by a nonce each that it is one and the
 * same memory; an allreduce then tells all of them whether all have it. Only when all have it is it
 * used. Why it is not is logged, with the remedy.
 *
 * A chain of the library's own calls and of events, between the moment in which the communicator is
 * ready and the end of the request that makes it. Nothing of it has a name in a file system: a
 * process that is killed at any moment leaves nothing behind.
 */
#ifndef RF_ATTACH_H
#define RF_ATTACH_H

#include "engine/request.h"

/* Whether these ranks are to try: several, all probably on one host, and no simulation. The same on
 * all ranks; but where hosts differ, a rank that insists on shared memory is to start, and is told
 * that there is none. */
bool rf_attach_wanted(const rf_comm *comm);

/*
 * Starts; comm is READY, and nobody else uses it yet. Always ends with rf_request_end(), at once or
 * later: with RF_OK and comm->arena set on all ranks or NULL on all, or with an error. until: the
 * deadline, of the context's clock.
 */
void rf_attach_start(rf_comm *comm, struct rf_request *request, uint64_t until);
/* Whether it has not ended. Failing the communicator ends it. */
bool rf_attach_is_running(const rf_comm *comm);
/* By the user, while it is running: fails the communicator. */
void rf_attach_cancel(rf_comm *comm);
/* The communicator has failed: nobody waits for a hand-over any more. */
void rf_attach_comm_failed(rf_comm *comm);
/* For fork: the descriptors only. */
void rf_attach_abandon(rf_comm *comm);
/* Drops what is under way without ending the request, and the arena. For rf_comm_free(). */
void rf_attach_free(rf_comm *comm);

#endif
