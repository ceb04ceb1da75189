/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the posix network share: watches that count, and connected pairs. */
#ifndef RF_TESTS_NET_PAIRS_H
#define RF_TESTS_NET_PAIRS_H

#include "engine/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { WATCHDOG_SECONDS = 120, BATCH = 16 };
#define SECOND UINT64_C(1000000000)

struct counting_watch {
	struct rf_watch base;
	int calls;
	unsigned events;
	struct rf_stream **closes; /* closed, and set to NULL, when the watch is called */
};

struct counting_watch counting(void);
struct rf_net *net_new(void);
/* One round; returns the number of events that were fetched. */
int turn(struct rf_net *net, bool control_only, uint64_t timeout_ns);
struct rf_addr loopback(int family, uint16_t port);
bool host_has_ipv6(struct rf_net *net);
struct rf_stream *accept_one(struct rf_net *net, struct rf_listener *listener,
			     const struct rf_stream_tuning *tuning);
/* pair[0] has connected to pair[1]. */
void stream_pair(struct rf_net *net, int family, const struct rf_stream_tuning *tuning,
		 struct rf_stream *pair[2]);
void close_pair(struct rf_stream *pair[2]);
int send_text(struct rf_stream *stream, const char *text);
int receive_some(struct rf_stream *stream, void *buffer, size_t bytes, size_t *received);

#endif
