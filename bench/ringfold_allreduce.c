/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold itself, from C, as one of those that are compared. */
#include "bench/peer.h"
#include "ringfold.h"

#include <stdio.h>
#include <stdlib.h>

const char *const peer_name = "ringfold";
const char *const peer_help = "";

static rf_comm *comm;

static void check(int status)
{
	if (status == RF_OK)
		return;
	fprintf(stderr, "ringfold: %s\n", rf_strerror(status));
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
	check(rf_comm_create_from_env(&comm));
}

void peer_allreduce(float *values, size_t count)
{
	check(rf_allreduce(comm, RF_IN_PLACE, values, count, RF_FLOAT32, RF_SUM));
}

int peer_winner(size_t index, size_t count)
{
	(void)index;
	(void)count;
	return -1;
}

void peer_close(void)
{
	check(rf_comm_destroy(&comm));
}
