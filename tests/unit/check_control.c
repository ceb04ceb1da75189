/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control streams, hello, listener and dials over sockets: what holds on every network
 * (check_control_streams.c), and strangers of all kinds.
 */
#include "tests/unit/check_control_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

/* A forked child has all descriptors too: the far end must not mistake it for its parent. */
static void a_forked_child_keeps_nothing_open(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	int ends[2];
	char byte;
	pid_t child;

	rf_control_hold(peer, true);
	UNTIL(rf_control_is_up(peer));
	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		rf_server_abandon(&a->context);
		rf_server_abandon(&b->context);
		close(ends[1]);
		while (read(ends[0], &byte, 1) > 0)
			continue;
		_exit(0);
	}
	close(ends[0]);
	world_stop(b);
	UNTIL(a->deaths);
	CHECK(kill(child, 0) == 0);
	close(ends[1]);
	CHECK(waitpid(child, NULL, 0) == child);
	rf_control_release(peer);
	rf_peer_put(peer);
	world_stop(a);
}

/* ---- strangers ------------------------------------------------------------------------------ */

static int connect_to(const struct world *world)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(world->context.port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Whether the other side has ended it; what it said is thrown away or kept. */
static bool is_closed(int fd, uint8_t *kept, size_t *bytes)
{
	uint8_t bin[4096];
	ssize_t n = recv(fd, bin, sizeof(bin), 0);

	if (n > 0 && kept) {
		memcpy(kept + *bytes, bin, (size_t)n);
		*bytes += (size_t)n;
	}
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void garbage_is_turned_away(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	unsigned seed = (unsigned)time(NULL);
	const char *given = getenv("RINGFOLD_TEST_SEED");
	uint8_t noise[2048];

	if (given)
		seed = (unsigned)strtoul(given, NULL, 10);
	printf("garbage: RINGFOLD_TEST_SEED=%u\n", seed);
	srand(seed);
	for (int round = 0; round < 300; round++) {
		struct rf_hello hello = {.from = {1, 2}, .purpose = RF_PURPOSE_CONTROL};
		struct rf_handshake good;
		size_t bytes = (size_t)rand() % sizeof(noise);
		int fd = connect_to(b);

		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)rand();
		if (round % 3) {
			/* A hello with something wrong in it. */
			hello.session = 1;
			hello.to = b->context.id;
			rf_handshake_say(&good, RF_SEGMENT_HELLO, &hello);
			memcpy(noise, good.out, good.out_bytes);
			noise[(size_t)rand() % 64] ^= (uint8_t)(1 + rand() % 255);
			bytes = 64 + (size_t)rand() % 400;
		}
		CHECK(send(fd, noise, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
		shutdown(fd, SHUT_WR);
		UNTIL(is_closed(fd, NULL, NULL));
		close(fd);
	}
	CHECK(b->log_lines < 20);
	send_seq(peer, 0);
	UNTIL(b->received == 1);
	CHECK(!b->deaths || b->last_state != RF_PEER_ALIVE);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void a_flood_of_strangers_starves_nobody(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer;
	int fds[RF_STRANGERS_MAX + 200], count = 0;

	for (; count < RF_STRANGERS_MAX + 200; count++) {
		fds[count] = connect_to(b);
		if (count % 50 == 0)
			turn();
		CHECK(b->context.server->stranger_count <= RF_STRANGERS_MAX);
	}
	peer = peer_of(a, b, true);
	send_seq(peer, 0);
	UNTIL(b->received == 1);
	/* The oldest went first. */
	CHECK(is_closed(fds[0], NULL, NULL) && !is_closed(fds[count - 1], NULL, NULL));
	CHECK(b->log_lines < 20);
	/* And the rest are not waited for for ever. */
	UNTIL(b->context.server->stranger_count == 0);
	for (int i = 0; i < count; i++)
		close(fds[i]);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

static void no_descriptors_left_is_survived(void)
{
	struct world *a = world_start(0, ""), *b = world_start(1, "");
	struct rf_peer *peer = peer_of(a, b, true);
	struct rlimit was, low;
	int waiting[4], probe, turns = 0;

	for (int i = 0; i < 4; i++)
		waiting[i] = connect_to(b);
	CHECK(getrlimit(RLIMIT_NOFILE, &was) == 0);
	probe = dup(0);
	close(probe);
	low = was;
	low.rlim_cur = (rlim_t)probe;
	CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
	send_seq(peer, 0); /* cannot even make a socket */
	while (turns++ < 50)
		turn();
	CHECK(strstr(b->log, "ulimit -n") && b->log_lines < 10);
	CHECK(!a->deaths);
	CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
	UNTIL(b->received == 1);
	for (int i = 0; i < 4; i++)
		close(waiting[i]);
	rf_peer_put(peer);
	world_stop(a);
	world_stop(b);
}

/* ---- versions ------------------------------------------------------------------------------- */

static void another_version_is_told_so(void)
{
	struct world *b = world_start(0, "");
	struct rf_hello hello = {.from = {1, 2}, .purpose = RF_PURPOSE_CONTROL, .session = 1};
	struct rf_handshake future;
	uint8_t answer[4096];
	size_t bytes = 0;
	int fd = connect_to(b);

	rf_handshake_say(&future, RF_SEGMENT_HELLO, &hello);
	future.out[0] = 9;
	future.out[1] = 200; /* nothing else of it is looked at */
	CHECK(send(fd, future.out, sizeof(future.out), MSG_NOSIGNAL) > 0);
	UNTIL(is_closed(fd, answer, &bytes));
	close(fd);
	answer[bytes] = 0;
	CHECK(bytes > 64 && answer[0] == RF_WIRE_VERSION && answer[1] == RF_SEGMENT_REFUSE);
	CHECK(strstr((char *)answer + 68, "version 1") && strstr((char *)answer + 68, "speak 9"));
	CHECK(strstr(b->log, "version 9") && strstr(b->log, "speaks 1"));
	world_stop(b);
}

/* A listener that answers whatever comes with some bytes. */
static void answer_dial_with(const uint8_t *bytes, size_t count, uint64_t timeout_ms,
			     struct outcome *outcome)
{
	struct world *a = &worlds[0];
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct rf_addr addr = {.family = 4, .ip = {127, 0, 0, 1}};
	struct rf_dial *dial;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 8) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
	addr.port = ntohs(at.sin_port);
	memset(outcome, 0, sizeof(*outcome));
	CHECK(rf_dial_rendezvous(&a->context, &addr, 1, rf_now(&a->context) + timeout_ms * RF_MS,
				 on_rendezvous, outcome, &dial) == RF_OK);
	while (!outcome->done) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			CHECK(send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
			shutdown(fd, SHUT_WR);
			while (!outcome->done && !is_closed(fd, NULL, NULL))
				turn();
			close(fd);
		}
		turn();
	}
	close(listener);
}

static void dials_meet_other_versions_and_garbage(void)
{
	struct world *a = world_start(0, "");
	struct rf_handshake said = {0};
	struct outcome outcome;

	rf_handshake_refuse(&said, RF_REFUSAL_VERSION, "whatever");
	said.out[0] = 7;
	answer_dial_with(said.out, said.out_bytes, 5000, &outcome);
	CHECK(outcome.status == RF_ERR_VERSION);
	CHECK(strstr(outcome.reason, "version 7") && strstr(outcome.reason, "speaks 1"));
	CHECK(strstr(a->log, "version 7"));

	said.out[0] = 1;
	said.out[8] = 'R';
	answer_dial_with(said.out, said.out_bytes, 300, &outcome);
	CHECK(outcome.status == RF_ERR_TIMEOUT && strstr(outcome.reason, "no ringfold process"));

	rf_handshake_refuse(&said, RF_REFUSAL_DEAD, "rest in\npeace");
	answer_dial_with(said.out, said.out_bytes, 5000, &outcome);
	CHECK(outcome.status == RF_ERR_RANK_DEAD && strstr(outcome.reason, "rest in?peace"));
	world_stop(a);
}

static void ports_are_taken_from_the_configuration(void)
{
	struct world *a = world_start(0, ""), *b = &worlds[1];
	char range[32];

	snprintf(range, sizeof(range), "%u-%u", a->context.port, a->context.port);
	memset(b, 0, sizeof(*b));
	b->context.logger = (struct rf_logger){RF_LOG_DEBUG, on_log, b};
	CHECK(rf_net_posix_create(&b->context.net) == RF_OK);
	snprintf(b->context.config.port, sizeof(range), "%s", range);
	CHECK(rf_server_start(&b->context) == RF_ERR_SYSTEM && strstr(b->log, range));
	static const char *const wrong[] = {"x", "0", "70000", "7000-", "8000-7000", "1-2-3", "-5"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(b->context.config.port, sizeof(range), "%s", wrong[i]);
		CHECK(rf_server_start(&b->context) == RF_ERR_CONFIG);
	}
	CHECK(!b->context.server && !b->context.listener);
	b->context.net->ops->destroy(b->context.net);
	b->context.net = NULL;
	world_stop(a);
}

static const struct named_test tests[] = {
	{"a_forked_child_keeps_nothing_open", a_forked_child_keeps_nothing_open},
	{"garbage_is_turned_away", garbage_is_turned_away},
	{"a_flood_of_strangers_starves_nobody", a_flood_of_strangers_starves_nobody},
	{"no_descriptors_left_is_survived", no_descriptors_left_is_survived},
	{"another_version_is_told_so", another_version_is_told_so},
	{"dials_meet_other_versions_and_garbage", dials_meet_other_versions_and_garbage},
	{"ports_are_taken_from_the_configuration", ports_are_taken_from_the_configuration},
};

/* Without arguments all; else those named. */
int main(int argc, char **argv)
{
	run_tests(stream_tests, stream_test_count, argc - 1, argv + 1);
	run_tests(tests, sizeof(tests) / sizeof(tests[0]), argc - 1, argv + 1);
	return 0;
}
