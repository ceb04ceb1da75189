/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold itself, from C, as one of those that are compared. */
#include "bench/peer.h"
#include "ringfold.h"

#include <stdio.h>
#include <stdlib.h>

static rf_comm *comm;

static void check(int status)
{
	if (status == RF_OK)
		return;
	fprintf(stderr, "ringfold: %s\n", rf_strerror(status));
	exit(1);
}

static void open_comm(const struct peer_place *place)
{
	(void)place;
	check(rf_comm_create_from_env(&comm));
}

static void allreduce(const struct peer_call *call)
{
	static const rf_dtype dtypes[] = {[PEER_FLOAT32] = RF_FLOAT32,
					  [PEER_BFLOAT16] = RF_BFLOAT16,
					  [PEER_FLOAT16] = RF_FLOAT16};
	const void *send = call->send == call->recv ? RF_IN_PLACE : call->send;

	check(rf_allreduce(comm, send, call->recv, call->count, dtypes[call->dtype], RF_SUM));
}

static void *memory(size_t bytes)
{
	void *block = NULL;

	check(rf_alloc(rf_comm_context(comm), bytes, &block));
	return block;
}

static void memory_free(void *block)
{
	check(rf_free(rf_comm_context(comm), block));
}

static void close_comm(void)
{
	check(rf_comm_destroy(&comm));
}

const struct peer peer = {.name = "ringfold",
			  .help = "",
			  .open = open_comm,
			  .allreduce = allreduce,
			  .close = close_comm,
			  .memory = memory,
			  .memory_free = memory_free};
