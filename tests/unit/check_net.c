/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The posix network keeps what engine/net.h says of addresses, names, streams and listeners. Only
 * loopback is used.
 */
#include "tests/unit/net_pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- addresses ------------------------------------------------------------------------------ */

static void addresses_have_a_text_form(void **state)
{
	char text[RF_ADDR_TEXT];
	struct rf_addr v4 = loopback(4, 7880);
	struct rf_addr v6 = {.family = 6, .port = 80, .scope = 3, .ip = {0xfe, 0x80, [15] = 1}};
	struct rf_addr sim = {.family = RF_ADDR_SIM, .port = 9, .ip = {1, 1}};
	struct rf_addr none = {.family = 0};

	(void)state;
	assert_string_equal(rf_addr_format(&v4, text), "127.0.0.1:7880");
	assert_string_equal(rf_addr_format(&v6, text), "[fe80::1%3]:80");
	assert_string_equal(rf_addr_format(&sim, text), "sim-257:9");
	assert_string_equal(rf_addr_format(&none, text), "(address of family 0)");
	memset(v6.ip, 0xff, sizeof(v6.ip));
	v6.scope = UINT32_MAX;
	v6.port = 65535;
	assert_string_equal(rf_addr_format(&v6, text),
			    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535");
}

static void addresses_compare_by_what_counts(void **state)
{
	struct rf_addr a = loopback(4, 1), b = loopback(4, 1), c = loopback(6, 1);

	(void)state;
	b.ip[9] = 7; /* beyond the four bytes of IPv4 */
	assert_true(rf_addr_equal(&a, &b));
	b.ip[3] = 2;
	assert_false(rf_addr_equal(&a, &b));
	assert_true(rf_addr_is_loopback(&b));
	assert_true(rf_addr_is_loopback(&c));
	c.ip[0] = 0xfe;
	assert_false(rf_addr_is_loopback(&c));
	c = a;
	c.port = 2;
	assert_false(rf_addr_equal(&a, &c));
}

static void interfaces_have_loopback_last(void **state)
{
	struct rf_net *net = net_new();
	struct rf_interface all[64];
	bool loopback_seen = false;
	int count;

	(void)state;
	assert_int_equal(net->ops->interfaces(net, all, 64, &count), RF_OK);
	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		if (rf_addr_is_loopback(&all[i].addr))
			loopback_seen = true;
		else
			assert_false(loopback_seen);
	}
	assert_int_equal(net->ops->interfaces(net, all, 1, &count), RF_OK);
	assert_int_equal(count, 1);
	net->ops->destroy(net);
}

/* ---- names ---------------------------------------------------------------------------------- */

static void literals_resolve_at_once(void **state)
{
	struct {
		const char *name;
		const char *text;
	} cases[] = {
		{"192.0.2.7", "192.0.2.7:5"},
		{"2001:db8::9", "[2001:db8::9]:5"},
		{"[2001:db8::9]", "[2001:db8::9]:5"},
		{"::ffff:192.0.2.7", "192.0.2.7:5"},
	};
	struct rf_net *net = net_new();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[RF_ADDR_TEXT];
		struct rf_addr addr;
		void *handle = NULL;
		int count;

		assert_int_equal(
			net->ops->resolve(net, cases[i].name, 5, &handle, &addr, 1, &count), RF_OK);
		assert_null(handle);
		assert_int_equal(count, 1);
		assert_string_equal(rf_addr_format(&addr, text), cases[i].text);
	}
	net->ops->destroy(net);
}

static int resolve_fully(struct rf_net *net, const char *name, struct rf_addr *addrs, int *count)
{
	void *handle = NULL;
	int rc;

	/* The answer's wake ends the poll. */
	while ((rc = net->ops->resolve(net, name, 7, &handle, addrs, 8, count)) == RF_ERR_AGAIN) {
		assert_non_null(handle);
		turn(net, true, UINT64_MAX);
	}
	assert_null(handle);
	return rc;
}

static void names_resolve_in_the_background(void **state)
{
	/* A label of more than 63 letters is refused without asking anybody. */
	char absent[80];
	struct rf_net *net = net_new();
	struct rf_addr addrs[8];
	int count;

	(void)state;
	assert_int_equal(resolve_fully(net, "localhost", addrs, &count), RF_OK);
	assert_true(count >= 1);
	assert_true(rf_addr_is_loopback(&addrs[0]));
	assert_int_equal(addrs[0].port, 7);
	memset(absent, 'x', sizeof(absent) - 1);
	absent[sizeof(absent) - 1] = '\0';
	assert_int_equal(resolve_fully(net, absent, addrs, &count), RF_ERR_NETWORK);
	net->ops->destroy(net);
}

static void a_question_may_be_dropped(void **state)
{
	struct rf_net *net = net_new();
	struct rf_addr addrs[8];
	void *handle = NULL;
	int count;

	(void)state;
	assert_int_equal(net->ops->resolve(net, "localhost", 7, &handle, addrs, 8, &count),
			 RF_ERR_AGAIN);
	net->ops->resolve_cancel(net, &handle);
	assert_null(handle);
	net->ops->destroy(net); /* while the thread may still run */
}

/* ---- streams -------------------------------------------------------------------------------- */

/* Sends megabytes through small buffers: many partial sends and receives. */
static void transfer(struct rf_net *net, struct rf_stream *from, struct rf_stream *to)
{
	enum { BYTES = 8 << 20 };
	struct counting_watch out = counting(), in = counting();
	unsigned char *source = malloc(BYTES), *target = malloc(BYTES);
	size_t sent = 0, received = 0, n;
	bool partial = false;
	int rc;

	for (size_t i = 0; i < BYTES; i++)
		source[i] = (unsigned char)(i * 131 + (i >> 8));
	assert_int_equal(from->ops->watch(from, RF_NET_DATA, &out.base, RF_NET_OUT), RF_OK);
	assert_int_equal(to->ops->watch(to, RF_NET_DATA, &in.base, RF_NET_IN), RF_OK);
	while (received < BYTES) {
		struct iovec iov[2] = {
			{source + sent, (BYTES - sent) / 2},
			{source + sent + (BYTES - sent) / 2, BYTES - sent - (BYTES - sent) / 2}};

		rc = sent < BYTES ? from->ops->send(from, iov, 2, &n) : RF_ERR_AGAIN;
		assert_true(rc == RF_OK || rc == RF_ERR_AGAIN);
		if (rc == RF_OK) {
			partial = partial || n < BYTES - sent;
			sent += n;
		}
		if (sent == BYTES)
			from->ops->watch(from, RF_NET_DATA, NULL, 0);
		turn(net, false, SECOND);
		rc = receive_some(to, target + received, BYTES - received, &n);
		assert_true(rc == RF_OK || rc == RF_ERR_AGAIN);
		if (rc == RF_OK) {
			assert_true(n > 0);
			received += n;
		}
	}
	assert_true(partial);
	assert_true(out.events == RF_NET_OUT);
	assert_true(in.events == RF_NET_IN);
	assert_memory_equal(source, target, BYTES);
	free(source);
	free(target);
}

static void bytes_arrive_in_order(void **state)
{
	static const struct rf_stream_tuning tuning = {
		.send_buffer_bytes = 65536, .receive_buffer_bytes = 262144, .dead_after_ms = 5000};
	struct rf_net *net = net_new();

	(void)state;
	for (int family = 4; family <= 6; family += 2) {
		struct rf_stream *pair[2];
		struct rf_addr a, b;

		if (family == 6 && !host_has_ipv6(net))
			continue;
		stream_pair(net, family, &tuning, pair);
		pair[0]->ops->local_addr(pair[0], &a);
		pair[1]->ops->peer_addr(pair[1], &b);
		assert_int_equal(a.family, family);
		assert_true(rf_addr_equal(&a, &b));
		transfer(net, pair[0], pair[1]);
		transfer(net, pair[1], pair[0]);
		close_pair(pair);
	}
	net->ops->destroy(net);
}

static void shutdown_is_an_orderly_end(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch in = counting();
	struct rf_stream *pair[2];
	char text[8];
	size_t n;
	int rc;

	(void)state;
	stream_pair(net, 4, NULL, pair);
	assert_int_equal(receive_some(pair[1], text, sizeof(text), &n), RF_ERR_AGAIN);
	assert_int_equal(pair[1]->ops->watch(pair[1], RF_NET_DATA, &in.base, RF_NET_IN), RF_OK);
	assert_int_equal(send_text(pair[0], "last"), RF_OK);
	pair[0]->ops->shutdown(pair[0]);
	turn(net, false, UINT64_MAX);
	assert_int_equal(receive_some(pair[1], text, sizeof(text), &n), RF_OK);
	assert_int_equal(n, 4);
	while ((rc = receive_some(pair[1], text, sizeof(text), &n)) == RF_ERR_AGAIN)
		turn(net, false, SECOND);
	assert_int_equal(rc, RF_OK);
	assert_int_equal(n, 0);
	/* The other way is open still. */
	assert_int_equal(send_text(pair[1], "back"), RF_OK);
	close_pair(pair);
	net->ops->destroy(net);
}

static void a_broken_stream_is_an_error_and_no_signal(void **state)
{
	struct rf_net *net = net_new();
	struct rf_stream *pair[2];
	int rc;

	(void)state;
	stream_pair(net, 4, NULL, pair);
	pair[1]->ops->close(pair[1]);
	pair[1] = NULL;
	/* The first send may still pass; SIGPIPE would end the test. */
	while ((rc = send_text(pair[0], "to nobody")) == RF_OK)
		turn(net, false, 1000000);
	assert_int_equal(rc, RF_ERR_NETWORK);
	close_pair(pair);
	net->ops->destroy(net);
}

static void a_refused_connect_says_so(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch watch = counting();
	struct rf_listener *listener;
	struct rf_stream *stream;
	struct rf_addr addr;
	uint16_t port;
	int rc;

	(void)state;
	assert_int_equal(net->ops->listen(net, 0, 0, &listener, &port), RF_OK);
	net->ops->close_listener(listener);
	addr = loopback(4, port);
	rc = net->ops->connect(net, &addr, NULL, &stream);
	if (rc == RF_OK) {
		assert_int_equal(stream->ops->watch(stream, RF_NET_CONTROL, &watch.base,
						    RF_NET_IN | RF_NET_OUT),
				 RF_OK);
		while ((rc = stream->ops->connected(stream)) == RF_ERR_AGAIN)
			turn(net, true, SECOND);
		assert_int_equal(errno, ECONNREFUSED);
		stream->ops->close(stream);
	}
	assert_int_equal(rc, RF_ERR_NETWORK);
	net->ops->destroy(net);
}

static void descriptors_close_on_exec(void **state)
{
	struct rf_net *net;
	struct rf_stream *pair[2];
	struct rf_listener *listener;
	bool before[256];
	uint16_t port;

	(void)state;
	for (int fd = 0; fd < 256; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	net = net_new();
	stream_pair(net, 4, NULL, pair);
	assert_int_equal(net->ops->listen(net, 0, 0, &listener, &port), RF_OK);
	for (int fd = 0; fd < 256; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && !before[fd])
			assert_true(flags & FD_CLOEXEC);
	}
	net->ops->close_listener(listener);
	close_pair(pair);
	net->ops->destroy(net);
	for (int fd = 0; fd < 256; fd++)
		assert_int_equal(fcntl(fd, F_GETFD) >= 0, before[fd]);
}

/* ---- listeners ------------------------------------------------------------------------------ */

static void a_listener_takes_a_free_port_of_its_range(void **state)
{
	struct rf_net *net = net_new();
	struct rf_listener *first, *second, *third = NULL;
	uint16_t port, next;
	int rc;

	(void)state;
	/* Somebody else may hold the port after the first: then look for another place. */
	for (;;) {
		assert_int_equal(net->ops->listen(net, 0, 0, &first, &port), RF_OK);
		rc = port < 65535
			     ? net->ops->listen(net, port, (uint16_t)(port + 1), &second, &next)
			     : RF_ERR_SYSTEM;
		if (rc == RF_OK)
			break;
		net->ops->close_listener(first);
	}
	assert_int_equal(next, port + 1);
	assert_int_equal(net->ops->listen(net, port, next, &third, &next), RF_ERR_SYSTEM);
	assert_int_equal(errno, EADDRINUSE);
	assert_null(third);
	assert_int_equal(net->ops->listen(net, 2, 1, &third, &next), RF_ERR_INVALID);
	net->ops->close_listener(first);
	net->ops->close_listener(second);
	net->ops->destroy(net);
}

static int lowest_free_descriptor(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* Without descriptors a connection is turned away, and the listener does not stay ready. */
static void a_full_process_turns_connections_away(void **state)
{
	struct rf_net *net = net_new();
	struct counting_watch watch = counting();
	struct rlimit saved, tight;
	struct rf_listener *listener;
	struct rf_stream *client, *server;
	struct rf_addr addr;
	uint16_t port;
	char byte;
	size_t n;
	int rc;

	(void)state;
	assert_int_equal(net->ops->listen(net, 0, 0, &listener, &port), RF_OK);
	assert_int_equal(net->ops->watch_listener(listener, &watch.base), RF_OK);
	addr = loopback(4, port);
	assert_int_equal(net->ops->connect(net, &addr, NULL, &client), RF_OK);
	turn(net, true, UINT64_MAX);
	assert_int_equal(watch.calls, 1);
	getrlimit(RLIMIT_NOFILE, &saved);
	tight = saved;
	tight.rlim_cur = (rlim_t)lowest_free_descriptor();
	setrlimit(RLIMIT_NOFILE, &tight);
	rc = net->ops->accept(listener, NULL, &server);
	setrlimit(RLIMIT_NOFILE, &saved);
	assert_int_equal(rc, RF_ERR_SYSTEM);
	assert_int_equal(turn(net, true, 0), 0);
	while ((rc = receive_some(client, &byte, 1, &n)) == RF_ERR_AGAIN)
		turn(net, true, 1000000);
	assert_true(rc == RF_ERR_NETWORK || n == 0);
	client->ops->close(client);
	/* And the next one is taken. */
	assert_int_equal(net->ops->connect(net, &addr, NULL, &client), RF_OK);
	server = accept_one(net, listener, NULL);
	client->ops->close(client);
	server->ops->close(server);
	net->ops->close_listener(listener);
	net->ops->destroy(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_have_a_text_form),
		cmocka_unit_test(addresses_compare_by_what_counts),
		cmocka_unit_test(interfaces_have_loopback_last),
		cmocka_unit_test(literals_resolve_at_once),
		cmocka_unit_test(names_resolve_in_the_background),
		cmocka_unit_test(a_question_may_be_dropped),
		cmocka_unit_test(bytes_arrive_in_order),
		cmocka_unit_test(shutdown_is_an_orderly_end),
		cmocka_unit_test(a_broken_stream_is_an_error_and_no_signal),
		cmocka_unit_test(a_refused_connect_says_so),
		cmocka_unit_test(descriptors_close_on_exec),
		cmocka_unit_test(a_listener_takes_a_free_port_of_its_range),
		cmocka_unit_test(a_full_process_turns_connections_away),
	};

	alarm(WATCHDOG_SECONDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
