/* SPDX-License-Identifier: BSD-3-Clause */
/* Any MPI, as one of those that are compared: built by its own mpicc, not with the library. */
#include "bench/peer.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

const char *const peer_name = "mpi";
const char *const peer_help = "";

static void check(int status)
{
	if (status == MPI_SUCCESS)
		return;
	fprintf(stderr, "mpi: error %d\n", status);
	exit(1);
}

bool peer_set(const char *name, const char *value)
{
	(void)name;
	(void)value;
	return false;
}

void peer_open(const struct peer_place *place)
{
	(void)place;
	check(MPI_Init(NULL, NULL));
}

void peer_allreduce(float *values, size_t count)
{
	check(MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

int peer_winner(size_t index, size_t count)
{
	(void)index;
	(void)count;
	return -1;
}

void peer_close(void)
{
	check(MPI_Finalize());
}
