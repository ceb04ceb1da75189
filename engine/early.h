/* SPDX-License-Identifier: BSD-3-Clause */
/* Fingerprints of calls that are not open here: what other ranks have said of those to come, and
 * this rank's own of those that have ended. */
#ifndef RF_EARLY_H
#define RF_EARLY_H

#include "engine/segment.h"

/* A rank's credit for a call; does nothing if the call has started here. */
void rf_early_note(rf_comm *comm, int rank, const struct rf_segment *segment);
/* The call starts here: true if a rank has made another one, and which. Forgets the call. */
bool rf_early_differs(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine, int *rank,
		      struct rf_fingerprint *theirs);
/* A call has ended here. */
void rf_early_end(rf_comm *comm, uint64_t seq, const struct rf_fingerprint *mine);
/* Its fingerprint, if it is one of the last; else NULL. */
const struct rf_fingerprint *rf_early_ended(const rf_comm *comm, uint64_t seq);
void rf_early_free(rf_comm *comm);

#endif
