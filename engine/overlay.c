/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overlay: which ranks of a communicator keep a control stream to each other, and flooding
 * over those streams. The edges of a rank r lead to r + 2^k and r - 2^k, modulo the size (the graph
 * of Chord's fingers, in both directions): every distance is a sum of powers of two, so any two
 * ranks are at most log2(size) hops apart, and all of a rank's neighbours must die before it is cut
 * off.
 */
#include "engine/failure.h"

#include <stdlib.h>

static int neighbour_add(int *neighbours, int count, int rank, int candidate)
{
	if (candidate == rank)
		return count;
	for (int i = 0; i < count; i++)
		if (neighbours[i] == candidate)
			return count;
	neighbours[count] = candidate;
	return count + 1;
}

int rf_overlay_neighbours(int rank, int size, int neighbours[64])
{
	int count = 0;

	for (int64_t step = 1; step < size; step *= 2) {
		count = neighbour_add(neighbours, count, rank, (int)((rank + step) % size));
		count = neighbour_add(neighbours, count, rank, (int)((rank - step + size) % size));
	}
	return count;
}

int rf_overlay_raise(rf_comm *comm)
{
	int neighbours[64];
	int count = rf_overlay_neighbours(comm->rank, comm->size, neighbours);

	if (!count)
		return RF_OK;
	comm->lifelines = calloc((size_t)count, sizeof(*comm->lifelines));
	if (!comm->lifelines)
		return RF_ERR_NOMEM;
	for (int i = 0; i < count; i++) {
		struct rf_link *link;
		int status = rf_comm_link(comm, neighbours[i], &link);

		if (status)
			return status;
		status = rf_control_hold(link->peer, comm->rank > neighbours[i]);
		if (status)
			return status;
		link->lifeline = true;
		link->holds_control = true;
		comm->lifelines[comm->lifeline_count++] = link;
	}
	return RF_OK;
}

void rf_overlay_send(struct rf_link *link, uint8_t type, uint64_t seq, const void *payload,
		     size_t bytes)
{
	struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = type,
		.comm = link->comm->id,
		.epoch = link->comm->epoch,
		.seq = seq,
		.bytes = (uint32_t)bytes,
	};

	/* An error means that the peer is dead or memory is short: a flood has other ways, and a
	 * query repeats itself. */
	(void)rf_control_send(link->peer, &segment, payload, bytes);
}

void rf_overlay_flood(rf_comm *comm, uint8_t type, uint64_t seq, const void *payload, size_t bytes,
		      const struct rf_link *except)
{
	for (int i = 0; i < comm->lifeline_count; i++) {
		struct rf_link *link = comm->lifelines[i];

		if (link != except && link->peer->state == RF_PEER_ALIVE)
			rf_overlay_send(link, type, seq, payload, bytes);
	}
}
