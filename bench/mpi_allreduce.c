/* SPDX-License-Identifier: BSD-3-Clause */
/* Any MPI, as one of those that are compared: built by its own mpicc, not with the library. */
#include "bench/peer.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status)
{
	if (status == MPI_SUCCESS)
		return;
	fprintf(stderr, "mpi: error %d\n", status);
	exit(1);
}

static void open_world(const struct peer_place *place)
{
	(void)place;
	check(MPI_Init(NULL, NULL));
}

static void allreduce(const struct peer_call *call)
{
	const void *send = call->send == call->recv ? MPI_IN_PLACE : call->send;

	if (call->dtype != PEER_FLOAT32) {
		fprintf(stderr, "mpi: float32 only\n");
		exit(2);
	}
	check(MPI_Allreduce(send, call->recv, (int)call->count, MPI_FLOAT, MPI_SUM,
			    MPI_COMM_WORLD));
}

static void close_world(void)
{
	check(MPI_Finalize());
}

const struct peer peer = {.name = "mpi",
			  .help = "",
			  .open = open_world,
			  .allreduce = allreduce,
			  .close = close_world};
