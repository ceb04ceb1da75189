/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests of control streams: up to three contexts in one process, over sockets or over the
 * simulator, with the rest of the engine played by check_control_world.c.
 */
#ifndef CHECK_CONTROL_WORLD_H
#define CHECK_CONTROL_WORLD_H

#include "engine/control.h"
#include "transports/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXTS = 3, LOG_BYTES = 65536 };

extern const char *current; /* the test's name */
extern struct rf_sim *sim;  /* NULL: over sockets */

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s: line %d: not so: %s\n", current, __LINE__, \
				#condition);                                            \
			_exit(1);                                                       \
		}                                                                       \
	} while (0)

/* What a context has been told. */
struct world {
	unsigned process; /* of the simulation */
	rf_context context;
	uint64_t next_seq; /* expected of the one that sends in order */
	size_t received;
	size_t big_bytes;
	bool big_right;
	unsigned ups;
	unsigned deaths;
	enum rf_peer_state last_state;
	char death_reason[512];
	unsigned lanes;
	uint32_t eager_seen;
	char log[LOG_BYTES];
	size_t log_bytes;
	unsigned log_lines;
	bool refuse_segments;
};
extern struct world worlds[CONTEXTS];

struct world *world_start(int i, const char *port);
void world_stop(struct world *world);
void on_log(void *user, rf_log_level level, const char *line);
void turn(void);
/* The watchdog ends what never comes. */
#define UNTIL(condition)             \
	do {                         \
		while (!(condition)) \
			turn();      \
	} while (0)
uint64_t now_ms(void);
void turn_for(uint64_t ms);

uint8_t pattern(size_t i);
struct rf_addr addr_of(const struct world *world);
struct rf_peer *peer_of(struct world *at, struct world *of, bool dialable);
void send_seq(struct rf_peer *peer, uint64_t seq);
int streams_of(struct rf_peer *peer);
/* Cuts the connections of a peer as a network would, without a word. */
void cut(struct rf_peer *peer);

/* How a dial ended. */
struct outcome {
	bool done;
	int status;
	struct rf_peer *peer;
	struct rf_stream *stream;
	char reason[256];
};
void on_rendezvous(void *user, int status, struct rf_peer *peer, const char *reason);
void on_data(void *user, unsigned lane, int status, struct rf_stream *stream, const char *reason);

/* check_control_streams.c: what holds on every network. */
struct named_test {
	const char *name;
	void (*run)(void);
};
extern const struct named_test stream_tests[];
extern const size_t stream_test_count;

/* From now on worlds are of this simulation, with all its hostility. */
void start_simulation(uint64_t seed);
/* Runs those that are named, or all if none is, with a watchdog. */
void run_tests(const struct named_test *tests, size_t count, int name_count, char **names);

#endif
