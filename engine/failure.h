/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failure and overlay, what their files share. Outside of them: join.c raises the overlay.
 */
#ifndef RF_FAILURE_H
#define RF_FAILURE_H

#include "engine/comm.h"

/* overlay.c. Links and held control streams to all neighbours, the higher rank dialling. What was
 * raised before an error is let go by rf_comm_free(). */
int rf_overlay_raise(rf_comm *comm);
/* To one lifeline. */
void rf_overlay_send(struct rf_link *link, uint8_t type, uint64_t seq, const void *payload,
		     size_t bytes);

/* failure.c. As rf_comm_fail(), for what came from a lifeline (NULL: from nowhere). */
void rf_failure_spread(rf_comm *comm, uint8_t type, int error, const int *ranks, size_t rank_count,
		       const char *message, const struct rf_link *from);

/* A list of ranks as people write it: "rank 4", "ranks 3-7, 12"; cut with "..." where the room
 * ends. Ascending ranks. Returns text. */
const char *rf_ranks_format(const int *ranks, size_t count, char *text, size_t capacity);

/* failure_query.c */
int rf_query_on_query(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		      const uint8_t *payload);
int rf_query_on_answer(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		       const uint8_t *payload);
void rf_query_free(rf_comm *comm);

#endif
