/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other ranks have said of calls that have not started here. Credits carry the fingerprint,
 * and if all of a mismatched call's came before their receivers had started theirs, nobody would be
 * left to compare them: each would wait for data of another for ever.
 */
#include "engine/early.h"
#include "engine/comm.h"

#include <stdlib.h>

enum { AHEAD_MAX = 65536 }; /* calls; bounds the memory that one rank's lead takes */

/* The first view of a call, and the first that differs from it. */
struct early {
	struct {
		int rank;
		struct rf_fingerprint fingerprint;
	} views[2];
	int count;
};

void rf_early_note(rf_comm *comm, int rank, const struct rf_segment *segment)
{
	struct early *early = rf_map_get(&comm->early, segment->seq + 1);

	if (segment->seq < comm->next_seq || segment->seq - comm->next_seq >= AHEAD_MAX)
		return;
	if (!early) {
		early = calloc(1, sizeof(*early));
		if (!early)
			return; /* the deadline finds it too */
		if (rf_map_put(&comm->early, segment->seq + 1, early) != RF_OK) {
			free(early);
			return;
		}
	}
	if (early->count == 2 ||
	    (early->count == 1 &&
	     rf_fingerprint_equal(&early->views[0].fingerprint, &segment->fingerprint)))
		return;
	early->views[early->count].rank = rank;
	early->views[early->count].fingerprint = segment->fingerprint;
	early->count++;
}

bool rf_early_differs(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine, int *rank,
		      struct rf_fingerprint *theirs)
{
	struct early *early = comm->early.count ? rf_map_get(&comm->early, seq + 1) : NULL;
	bool differs = false;

	if (!early)
		return false;
	for (int i = 0; i < early->count && !differs; i++) {
		differs = !rf_fingerprint_equal(&early->views[i].fingerprint, mine);
		*rank = early->views[i].rank;
		*theirs = early->views[i].fingerprint;
	}
	rf_map_remove(&comm->early, seq + 1);
	free(early);
	return differs;
}

void rf_early_end(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine)
{
	comm->ended[seq % RF_ENDED_KEPT].seq = seq + 1;
	comm->ended[seq % RF_ENDED_KEPT].fingerprint = *mine;
}

const struct rf_fingerprint *rf_early_ended(const rf_comm *comm, uint64_t seq)
{
	return comm->ended[seq % RF_ENDED_KEPT].seq == seq + 1
		       ? &comm->ended[seq % RF_ENDED_KEPT].fingerprint
		       : NULL;
}

void rf_early_free(rf_comm *comm)
{
	for (size_t i = 0; i < comm->early.capacity; i++)
		free(comm->early.entries[i].value);
	rf_map_free(&comm->early);
}
