/* SPDX-License-Identifier: BSD-3-Clause */
/* Before a rank is called late: who has started the call? */
#include "engine/failure.h"

#include <stdio.h>

void rf_query_start(rf_comm *comm, uint64_t seq, int awaited_rank)
{
	char message[160];

	snprintf(message, sizeof(message), "call %llu has not ended by its deadline",
		 (unsigned long long)seq);
	rf_comm_fail(comm, RF_SEGMENT_REVOKE, RF_ERR_TIMEOUT, &awaited_rank, awaited_rank >= 0,
		     message);
}

int rf_query_on_query(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		      const uint8_t *payload)
{
	(void)comm, (void)from, (void)segment, (void)payload;
	return RF_OK;
}

int rf_query_on_answer(rf_comm *comm, struct rf_link *from, const struct rf_segment *segment,
		       const uint8_t *payload)
{
	(void)comm, (void)from, (void)segment, (void)payload;
	return RF_OK;
}

void rf_query_free(rf_comm *comm)
{
	(void)comm;
}
