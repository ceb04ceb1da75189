/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/net_pairs.h"

#include <string.h>

static void count_ready(struct rf_watch *base, unsigned events)
{
	struct counting_watch *watch = (struct counting_watch *)base;

	watch->calls++;
	watch->events |= events;
	if (watch->closes && *watch->closes) {
		(*watch->closes)->ops->close(*watch->closes);
		*watch->closes = NULL;
	}
}

struct counting_watch counting(void)
{
	return (struct counting_watch){.base.ready = count_ready};
}

struct rf_net *net_new(void)
{
	struct rf_net *net;

	assert_int_equal(rf_net_posix_create(&net), RF_OK);
	return net;
}

int turn(struct rf_net *net, bool control_only, uint64_t timeout_ns)
{
	struct rf_net_event events[BATCH];
	int count;

	assert_int_equal(net->ops->poll(net, control_only, timeout_ns, events, BATCH, &count),
			 RF_OK);
	rf_net_dispatch(net, events, count);
	return count;
}

struct rf_addr loopback(int family, uint16_t port)
{
	struct rf_addr addr = {.family = (uint8_t)family, .port = port};

	if (family == 6) {
		addr.ip[15] = 1;
	} else {
		addr.ip[0] = 127;
		addr.ip[3] = 1;
	}
	return addr;
}

bool host_has_ipv6(struct rf_net *net)
{
	struct rf_interface all[64];
	int count;

	assert_int_equal(net->ops->interfaces(net, all, 64, &count), RF_OK);
	for (int i = 0; i < count; i++)
		if (all[i].addr.family == 6 && rf_addr_is_loopback(&all[i].addr))
			return true;
	return false;
}

struct rf_stream *accept_one(struct rf_net *net, struct rf_listener *listener,
			     const struct rf_stream_tuning *tuning)
{
	struct rf_stream *stream;
	int rc;

	while ((rc = net->ops->accept(listener, tuning, &stream)) == RF_ERR_AGAIN)
		turn(net, true, SECOND);
	assert_int_equal(rc, RF_OK);
	return stream;
}

void stream_pair(struct rf_net *net, int family, const struct rf_stream_tuning *tuning,
		 struct rf_stream *pair[2])
{
	struct counting_watch watch = counting();
	struct rf_listener *listener;
	struct rf_addr addr;
	uint16_t port;
	int rc;

	assert_int_equal(net->ops->listen(net, 0, 0, &listener, &port), RF_OK);
	assert_int_equal(net->ops->watch_listener(listener, &watch.base), RF_OK);
	addr = loopback(family, port);
	assert_int_equal(net->ops->connect(net, &addr, tuning, &pair[0]), RF_OK);
	pair[1] = accept_one(net, listener, tuning);
	assert_int_equal(pair[0]->ops->watch(pair[0], RF_NET_DATA, &watch.base, RF_NET_OUT), RF_OK);
	while ((rc = pair[0]->ops->connected(pair[0])) == RF_ERR_AGAIN)
		turn(net, false, SECOND);
	assert_int_equal(rc, RF_OK);
	assert_int_equal(pair[0]->ops->watch(pair[0], RF_NET_DATA, NULL, 0), RF_OK);
	net->ops->close_listener(listener);
}

void close_pair(struct rf_stream *pair[2])
{
	for (int i = 0; i < 2; i++)
		if (pair[i])
			pair[i]->ops->close(pair[i]);
}

int send_text(struct rf_stream *stream, const char *text)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
	size_t sent;

	return stream->ops->send(stream, &iov, 1, &sent);
}

int receive_some(struct rf_stream *stream, void *buffer, size_t bytes, size_t *received)
{
	struct iovec iov = {.iov_base = buffer, .iov_len = bytes};

	return stream->ops->receive(stream, &iov, 1, received);
}
