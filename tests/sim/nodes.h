/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cluster of nodes that speak to the simulator's transport seam directly: a small owner that
 * stands in for the engine, and checks all that it is told.
 */
#ifndef RF_TESTS_SIM_NODES_H
#define RF_TESTS_SIM_NODES_H

#include "engine/list.h"
#include "transports/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { NODES_MAX = 4, SENDS_MAX = 64, WATCHDOG_SECONDS = 300 };

struct node;

/* What a node knows of another one. */
struct rf_transport_peer {
	struct node *node, *other;
	struct rf_endpoint *endpoint;
	unsigned to_send, sent, completed; /* segments */
	unsigned received[8], received_all;
	unsigned last_lane, down;
	bool writable;
	struct rf_list incoming; /* struct incoming: receives that have not ended */
};

struct node {
	struct cluster *cluster;
	struct rf_net *net;
	struct rf_transport *transport;
	struct rf_transport_peer peers[NODES_MAX];
	void *buffers[NODES_MAX][SENDS_MAX]; /* of sends that are not complete */
};

struct cluster {
	struct rf_sim *sim;
	struct rf_sim_params params;
	unsigned count;
	size_t most_bytes; /* of a segment; 0: by the seed */
	struct node nodes[NODES_MAX];
	bool no_payload;
	bool deaf;             /* nobody answers segments */
	unsigned lane_changes; /* a segment sent later, on another lane, came first */
	unsigned last_number;
	enum rf_sim_state ended;
};

/* RINGFOLD_TEST_SEED, or a fixed one. */
uint64_t base_seed(void);

/* params are set before. */
void cluster_start(struct cluster *cluster, uint64_t seed, unsigned count, bool no_payload);
void cluster_end(struct cluster *cluster);
void free_cluster(struct cluster *cluster);
/* Two nodes on a calm network, the first one wired to the second. */
struct cluster *two_nodes(uint64_t seed);
/* pair[0] has connected to pair[1]. */
void stream_pair(struct cluster *cluster, unsigned from, unsigned to, struct rf_stream *pair[2]);
/* Opens an endpoint, with its lanes. */
void wire(struct cluster *cluster, unsigned from, unsigned to);

/* Segment `number` has a size and a pattern of its own. */
size_t segment_bytes(const struct cluster *cluster, unsigned number);
int send_one(struct rf_transport_peer *peer, unsigned number);
int send_some(struct rf_transport_peer *peer);
/* A few events, and what they allow to be sent. */
void drive(struct cluster *cluster, unsigned process);
void on_event(const struct rf_transport_event *event);
/* Until nobody has anything to do. */
void run(struct cluster *cluster);

/* The owner's part of a receive. */
struct incoming {
	struct rf_list node;
	unsigned number;
	uint8_t *memory;
	size_t seen;
};

#endif
