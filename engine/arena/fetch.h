/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hand-over of a memory file between processes of a host, over a local socket: one serves it,
 * the others fetch it. A visitor first presents the token that it was told over the communicator's
 * own connections; a stranger gets nothing, and makes room for others. It acknowledges once it has
 * mapped the memory, or says that it could not.
 */
#ifndef RF_FETCH_H
#define RF_FETCH_H

#include "engine/arena/local.h"
#include "engine/arena/region.h"
#include "engine/net.h"

enum { RF_FETCH_TOKEN_BYTES = 16 };

/* What a visitor must know. */
struct rf_fetch_place {
	uint8_t name[RF_LOCAL_NAME_BYTES];
	uint8_t token[RF_FETCH_TOKEN_BYTES];
};

/* The server. progress() is called, from the network's dispatch, whenever `good` or `bad` has
 * grown; it may close the server. */
struct rf_fetch_server;
struct rf_fetch_server_setup {
	struct rf_net *net;
	int memory_fd; /* the caller's */
	int visitors;  /* as many are expected: a few more may stand in the door */
	void (*progress)(void *user, int good, int bad);
	void *user;
};
int rf_fetch_serve(const struct rf_fetch_server_setup *setup, struct rf_fetch_place *place,
		   struct rf_fetch_server **server);
void rf_fetch_server_close(struct rf_fetch_server *server); /* NULL is allowed */
/* For fork: the descriptors only. */
void rf_fetch_server_abandon(struct rf_fetch_server *server);

/* The visitor. came() is called once, from the network's dispatch: with the descriptor of the
 * memory (then the callee's), or with an error and -1. Then it acknowledges and closes. */
struct rf_fetch;
struct rf_fetch_setup {
	struct rf_net *net;
	struct rf_fetch_place place;
	void (*came)(void *user, int status, int memory_fd);
	void *user;
};
int rf_fetch_start(const struct rf_fetch_setup *setup, struct rf_fetch **fetch);
void rf_fetch_acknowledge(struct rf_fetch *fetch, int good);
void rf_fetch_close(struct rf_fetch *fetch); /* NULL is allowed */
void rf_fetch_abandon(struct rf_fetch *fetch);

#endif
