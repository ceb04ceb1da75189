/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever else connects to the port: garbage, half a hello, other protocols, crowds, other jobs. */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"
#include "engine/control.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int connect_to(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {10, 0};
	int64_t until = now_ns() + INT64_C(20000000000);

	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		CHECK(fd >= 0, "socket: %m");
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
			return fd;
		close(fd);
		CHECK(now_ns() < until, "nobody listens");
		poll(NULL, 0, 2);
	}
}

/* A hello as rank's process would say it, for nobody in particular. */
static size_t make_hello(uint8_t version, uint8_t *bytes)
{
	struct rf_handshake handshake = {0};
	struct rf_hello hello = {.from = {0x1234567, 0x89abcdef}, .purpose = RF_PURPOSE_CONTROL};

	rf_handshake_say(&handshake, RF_SEGMENT_HELLO, &hello);
	memcpy(bytes, handshake.out, handshake.out_bytes);
	bytes[0] = version;
	return handshake.out_bytes;
}

static void say(int fd, const void *bytes, size_t count)
{
	ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

	CHECK(sent == (ssize_t)count || errno == EPIPE || errno == ECONNRESET, "send: %m");
}

/* Some of every kind; those that go on are left open in `open`. */
static int annoy(int port, int open[8])
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	uint8_t hello[RF_SEGMENT_HEADER_BYTES + RF_HANDSHAKE_PAYLOAD_MAX], garbage[70000];
	size_t bytes = make_hello(RF_WIRE_VERSION, hello);
	int count = 0, fd;

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)(i * 2654435761u >> 13);
	fd = connect_to(port);
	say(fd, garbage, sizeof(garbage));
	close(fd);
	fd = connect_to(port);
	say(fd, http, sizeof(http) - 1);
	open[count++] = fd;
	close(connect_to(port));          /* says nothing at all */
	open[count++] = connect_to(port); /* and stays */
	fd = connect_to(port);
	say(fd, hello, bytes / 2); /* half a hello, then gone */
	close(fd);
	fd = connect_to(port);
	say(fd, hello, bytes / 2); /* and stays */
	open[count++] = fd;
	fd = connect_to(port);
	say(fd, hello, bytes); /* a good hello, then garbage */
	say(fd, garbage, sizeof(garbage));
	open[count++] = fd;
	for (int purpose = 0; purpose < 2; purpose++) { /* huge lengths, other types */
		fd = connect_to(port);
		hello[1] = purpose ? RF_SEGMENT_TABLE : RF_SEGMENT_DATA;
		memset(hello + 32, 0xff, 4);
		say(fd, hello, bytes);
		open[count++] = fd;
	}
	return count;
}

static void close_all(const int *open, int count)
{
	for (int i = 0; i < count; i++)
		close(open[i]);
}

static int join_and_sum(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	int64_t sum = 1;

	if (!comm)
		return 0;
	CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &sum, 1, RF_INT64, RF_SUM));
	CHECK(sum == seat->size, "the sum is %lld", (long long)sum);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

void strangers_do_no_harm_in_rendezvous(void)
{
	struct team team;
	int open[8], count;

	team_init(&team, 3);
	team_start(&team, 0, join_and_sum);
	team_start(&team, 1, join_and_sum);
	count = annoy(team.port, open);
	team_start(&team, 2, join_and_sum);
	team_joined(&team);
	team_end(&team);
	close_all(open, count);
}

/* Sums until told to stop, all in step; the rate is of no interest here. */
static int sum_on(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	enum { COUNT = 3000 };
	int32_t *values = malloc(COUNT * sizeof(int32_t)), stop = 0;
	int64_t calls = 0;

	CHECK(values, "out of memory");
	while (!stop) {
		for (int i = 0; i < COUNT; i++)
			values[i] = seat->rank + i;
		CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, values, COUNT, RF_INT32, RF_SUM));
		for (int i = 0; i < COUNT; i++)
			CHECK(values[i] == seat->size * i + seat->size * (seat->size - 1) / 2,
			      "a sum is wrong");
		stop = seat_is_told(seat);
		CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &stop, 1, RF_INT32, RF_MIN));
		if (++calls == 3)
			seat_say(seat, "going", RF_OK, NULL, calls);
	}
	seat_await(seat, "stop");
	seat_say(seat, "stopped", RF_OK, comm, calls);
	free(values);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static void start_sums(struct team *team, int size)
{
	team_init(team, size);
	team_start_all(team, sum_on);
	team_joined(team);
	for (int i = 0; i < size; i++)
		team_hear(team, i, "going", 10000);
}

static void stop_sums(struct team *team)
{
	team_tell_all(team, "stop");
	for (int i = 0; i < team->size; i++)
		CHECK(team_hear(team, i, "stopped", 20000).text[0] == '\0', "rank %d failed", i);
	team_end(team);
}

void strangers_do_no_harm_in_a_run(void)
{
	struct team team;
	int open[8], count;

	start_sums(&team, 3);
	count = annoy(team.port, open);
	stop_sums(&team);
	close_all(open, count);
}

/* Many at once, and a few that send a byte now and then. */
void thousands_of_strangers_do_no_harm(void)
{
	enum { CROWD = 3000, AT_ONCE = 300, LORIS = 20 };
	uint8_t hello[RF_SEGMENT_HEADER_BYTES + RF_HANDSHAKE_PAYLOAD_MAX];
	int crowd[AT_ONCE], loris[LORIS];
	struct team team;

	make_hello(RF_WIRE_VERSION, hello);
	start_sums(&team, 3);
	for (int i = 0; i < LORIS; i++)
		loris[i] = connect_to(team.port);
	for (int i = 0; i < CROWD; i++) {
		if (i >= AT_ONCE)
			close(crowd[i % AT_ONCE]);
		crowd[i % AT_ONCE] = connect_to(team.port);
		say(loris[i % LORIS], hello + i / LORIS % 64, 1);
	}
	stop_sums(&team);
	close_all(crowd, AT_ONCE);
	close_all(loris, LORIS);
}

/* The same number, the same master, but a job that has begun already. */
void another_jobs_rank_is_turned_away(void)
{
	struct team team, other;
	struct report report;

	start_sums(&team, 3);
	team_init(&other, 3);
	close(other.holder);
	other.holder = dup(team.holder);
	other.port = team.port;
	team_set("RINGFOLD_TIMEOUT", "1s");
	team_start(&other, 1, join_and_sum);
	report = team_hear(&other, 1, "joined", 10000);
	CHECK(report.status < 0, "another job's rank has joined");
	CHECK(team_reap(&other, 1, 10000) == 0, "it does not end");
	close(other.holder);
	close(other.members[1].channel);
	close(other.members[1].log);
	stop_sums(&team);
}

static int join_only(struct seat *seat)
{
	CHECK(!seat_join(seat), "joined a master that is none");
	return 0;
}

/* A dialler with another version, then a master with another. */
void another_wire_version_is_shown_to_both(void)
{
	uint8_t bytes[RF_SEGMENT_HEADER_BYTES + RF_HANDSHAKE_PAYLOAD_MAX];
	size_t count = make_hello(77, bytes);
	struct report report;
	struct team team;
	int fd, one;

	start_sums(&team, 2);
	fd = connect_to(team.port);
	say(fd, bytes, count);
	CHECK(recv(fd, bytes, RF_SEGMENT_HEADER_BYTES, MSG_WAITALL) == RF_SEGMENT_HEADER_BYTES,
	      "no answer");
	CHECK(bytes[0] == RF_WIRE_VERSION && bytes[1] == RF_SEGMENT_REFUSE,
	      "answered with version %d, type %d", bytes[0], bytes[1]);
	count = (size_t)recv(fd, bytes, sizeof(bytes) - 1, 0);
	bytes[count < sizeof(bytes) ? count : 0] = '\0';
	CHECK(memmem(bytes, count, "77", 2), "the refusal does not show its version");
	close(fd);
	stop_sums(&team);

	team_init(&team, 2);
	CHECK(listen(team.holder, 4) == 0, "listen: %m");
	team_set("RINGFOLD_TIMEOUT", "10s");
	team_start(&team, 1, join_only);
	one = accept(team.holder, NULL, NULL);
	CHECK(one >= 0 && recv(one, bytes, RF_SEGMENT_HEADER_BYTES, MSG_WAITALL) ==
				  RF_SEGMENT_HEADER_BYTES,
	      "no hello");
	count = make_hello(77, bytes);
	bytes[1] = RF_SEGMENT_REFUSE;
	say(one, bytes, count);
	report = team_hear(&team, 1, "joined", 10000);
	CHECK(report.status == RF_ERR_VERSION, "%s", rf_strerror(report.status));
	CHECK(team_reap(&team, 1, 10000) == 0, "rank 1");
	CHECK(strstr(team_log(&team, 1), "77") && strstr(team_log(&team, 1), "1"),
	      "the versions are not shown: %s", team_log(&team, 1));
	close(one);
	team_end(&team);
}
