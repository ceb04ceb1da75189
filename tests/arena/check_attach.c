/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How ranks get their arena: as processes that share it, that cannot, and that stop, die or fork in
 * the midst of the hand-over; and the hand-over itself among strangers.
 *
 *   check_attach [CASE...]
 */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"
#include "engine/arena/arena.h"
#include "engine/arena/fetch.h"
#include "engine/comm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the moments of a hand-over ------------------------------------------------------------- */

/* Signals that a rank sends itself: before it connects to the local socket, before it sends the
 * descriptor, before it receives it. 0: none. */
static int at_connect, at_send, at_receive;

static void moment(int *what)
{
	int number = *what;

	*what = 0;
	if (number)
		raise(number);
}

/* In place of those of the C library, in this program. */
int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	if (address->sa_family == AF_UNIX)
		moment(&at_connect);
	return (int)syscall(SYS_connect, fd, address, bytes);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (message->msg_controllen)
		moment(&at_send);
	return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	if (message->msg_controllen)
		moment(&at_receive);
	return syscall(SYS_recvmsg, fd, message, flags);
}

/* ---- sharing -------------------------------------------------------------------------------- */

enum { PATTERN = 4096 };

static void check_sum(rf_comm *comm)
{
	int32_t one = 1;

	CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &one, 1, RF_INT32, RF_SUM));
	CHECK(one == comm->size, "the sum is %d", one);
}

/* No descriptor of the memory is left, and a forked child would not have it. */
static void check_mapping(const struct rf_arena *arena)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	bool inside = false, found = false;
	char line[512], target[64];

	/* An emulator has maps of its own. */
	found = getenv("RINGFOLD_TEST_EMULATED") != NULL;
	CHECK(file, "/proc/self/smaps: %m");
	while (fgets(line, sizeof(line), file)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from == (unsigned long)arena->base;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found |= strstr(line, " sh") && strstr(line, " dc");
	}
	fclose(file);
	CHECK(found, "the region is not shared, or a forked child would have it");
	for (int fd = 0; fd < 256; fd++) {
		char path[32];
		ssize_t bytes;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		bytes = readlink(path, target, sizeof(target) - 1);
		target[bytes > 0 ? bytes : 0] = '\0';
		CHECK(!strstr(target, "memfd:ringfold"), "descriptor %d is left", fd);
	}
}

static int share(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	struct rf_arena *arena = comm->arena;

	CHECK(arena, "there is no arena");
	check_mapping(arena);
	check_sum(comm);
	seat_say(seat, "idle", RF_OK, NULL, 0);
	seat_await(seat, "write");
	/* Between calls nobody looks at the slots. */
	memset(rf_arena_slot(arena, seat->rank, 0), 0x50 + seat->rank, PATTERN);
	seat_say(seat, "written", RF_OK, NULL, 0);
	seat_await(seat, "read");
	for (int rank = 0; rank < seat->size; rank++) {
		for (int at = 0; at < PATTERN; at++)
			CHECK(rf_arena_slot(arena, rank, 0)[at] == 0x50 + rank,
			      "rank %d's memory is another's", rank);
	}
	check_sum(comm);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static void share_among(int size)
{
	struct team team;

	team_init(&team, size);
	team_set("RINGFOLD_TRANSPORT", "shm");
	team_start_all(&team, share);
	team_joined(&team);
	for (int i = 0; i < size; i++)
		team_hear(&team, i, "idle", 5000);
	team_tell_all(&team, "write");
	for (int i = 0; i < size; i++)
		team_hear(&team, i, "written", 5000);
	team_tell_all(&team, "read");
	team_end(&team);
}

static void all_have_the_same_memory(void)
{
	for (int size = 2; size <= 4; size++)
		share_among(size);
}

/* ---- not sharing ---------------------------------------------------------------------------- */

static int do_without(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);

	CHECK(!comm->arena && !comm->attach, "there is an arena");
	check_sum(comm);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static int do_without_if_one_will_not(struct seat *seat)
{
	if (seat->rank == seat->size - 1)
		setenv("RINGFOLD_TRANSPORT", "tcp", 1);
	return do_without(seat);
}

static void one_rank_may_refuse_for_all(void)
{
	struct team team;

	team_init(&team, 3);
	team_set("RINGFOLD_TRANSPORT", "auto");
	team_start_all(&team, do_without_if_one_will_not);
	team_joined(&team);
	team_end(&team);
}

static void limit_files(const struct seat *seat)
{
	struct rlimit limit = {65536, 65536};

	if (seat->rank == 0)
		CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit: %m");
}

static int do_without_large_files(struct seat *seat)
{
	limit_files(seat);
	return do_without(seat);
}

static void memory_that_cannot_be_had_is_told(void)
{
	struct team team;

	team_init(&team, 3);
	team_set("RINGFOLD_TRANSPORT", "auto");
	team_start_all(&team, do_without_large_files);
	team_joined(&team);
	team_end(&team);
	team_init(&team, 3);
	team_set("RINGFOLD_TRANSPORT", "auto");
	team_set("RINGFOLD_SHM_BYTES", "64");
	team_start_all(&team, do_without);
	team_joined(&team);
	team_end(&team);
}

static int insist(struct seat *seat)
{
	limit_files(seat);
	seat_join(seat);
	return 0;
}

static void whoever_insists_gets_an_error(void)
{
	struct team team;

	team_init(&team, 3);
	team_set("RINGFOLD_TRANSPORT", "shm");
	team_start_all(&team, insist);
	for (int i = 0; i < 3; i++) {
		struct report report = team_hear(&team, i, "joined", 10000);

		CHECK(report.status == RF_ERR_UNSUPPORTED, "rank %d: %s", i,
		      rf_strerror(report.status));
	}
	CHECK(strstr(team_log(&team, 0), "ulimit -f"), "rank 0 does not say why");
	team_end(&team);
}

/* ---- ranks that stop, die or fork in its midst ---------------------------------------------- */

static int interrupted_rank, interrupting_signal;
static int *interrupted_moment;

static int join_or_not(struct seat *seat)
{
	if (seat->rank == interrupted_rank)
		*interrupted_moment = interrupting_signal;
	seat_join(seat);
	return 0;
}

static void interrupt(int rank, int *when, int signal, int expected, int64_t within_ms)
{
	struct team team;
	int64_t since;
	siginfo_t ended;

	interrupted_rank = rank;
	interrupted_moment = when;
	interrupting_signal = signal;
	team_init(&team, 3);
	team_set("RINGFOLD_TRANSPORT", "auto");
	team_set("RINGFOLD_TIMEOUT", signal == SIGSTOP ? "4s" : "30s");
	team_start_all(&team, join_or_not);
	CHECK(waitid(P_PID, (id_t)team.members[rank].pid, &ended, WEXITED | WSTOPPED | WNOWAIT) ==
			      0 &&
		      ended.si_status == signal,
	      "rank %d does not come to the moment", rank);
	since = now_ns();
	for (int i = 0; i < 3; i++) {
		struct report report;

		if (i == rank)
			continue;
		report = team_hear(&team, i, "joined", within_ms + 5000);
		CHECK(report.status == expected, "rank %d: %s", i, rf_strerror(report.status));
		CHECK(report.at_ns - since <=
			      within_ms * 1000000 * (is_sanitized() ? 4 : 1) + stalled_ns(),
		      "rank %d waits for %lld ms", i, (long long)(report.at_ns - since) / 1000000);
	}
	team_kill(&team, rank);
	team_end(&team);
}

static void a_death_ends_it(void)
{
	interrupt(1, &at_connect, SIGKILL, RF_ERR_RANK_DEAD, 1000);
	interrupt(1, &at_receive, SIGKILL, RF_ERR_RANK_DEAD, 1000);
	interrupt(0, &at_send, SIGKILL, RF_ERR_RANK_DEAD, 1000);
}

static void a_stopped_rank_does_not_hold_it_up(void)
{
	interrupt(1, &at_connect, SIGSTOP, RF_ERR_TIMEOUT, 8000);
	interrupt(0, &at_send, SIGSTOP, RF_ERR_TIMEOUT, 8000);
}

static int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder, "/proc/self/fd: %m");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static int descriptors_before;

static void *fork_when_told(void *argument)
{
	struct seat *seat = argument;
	int status;
	pid_t child;

	seat_await(seat, "fork");
	child = fork();
	if (child == 0)
		_exit(count_descriptors() == descriptors_before ? 0 : 1);
	CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork: %m");
	seat_say(seat, "forked", RF_OK, NULL, status);
	return NULL;
}

static int fork_in_its_midst(struct seat *seat)
{
	pthread_t thread;
	rf_comm *comm;

	descriptors_before = count_descriptors();
	if (seat->rank == 1)
		at_connect = SIGSTOP;
	else
		CHECK(pthread_create(&thread, NULL, fork_when_told, seat) == 0, "no thread");
	comm = seat_join(seat);
	CHECK(comm && comm->arena, "there is no arena");
	if (seat->rank == 0)
		pthread_join(thread, NULL);
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static void a_forked_child_keeps_nothing_of_it(void)
{
	struct report report;
	struct team team;
	siginfo_t ended;

	team_init(&team, 2);
	team_set("RINGFOLD_TRANSPORT", "auto");
	team_start_all(&team, fork_in_its_midst);
	CHECK(waitid(P_PID, (id_t)team.members[1].pid, &ended, WEXITED | WSTOPPED | WNOWAIT) == 0 &&
		      ended.si_status == SIGSTOP,
	      "rank 1 does not stop");
	team_tell(&team, 0, "fork");
	report = team_hear(&team, 0, "forked", 5000);
	team_signal(&team, 1, SIGCONT);
	CHECK(report.number == 0, "descriptors are left in a forked child");
	team_joined(&team);
	team_end(&team);
}

/* ---- strangers ------------------------------------------------------------------------------ */

static int came_status = 1, came_fd = -1, good_visits;
static struct rf_fetch *visitor;

static void came(void *user, int status, int memory_fd)
{
	(void)user;
	came_status = status;
	came_fd = memory_fd;
	rf_fetch_acknowledge(visitor, status == RF_OK);
}

static void progress(void *user, int good, int bad)
{
	(void)user;
	CHECK(bad == 0, "a stranger counts as a rank that fails");
	good_visits = good;
}

static void turn(struct rf_net *net)
{
	struct rf_net_event events[16];
	int count = 0;

	CHECK_OK(net->ops->poll(net, false, 1000000, events, 16, &count));
	rf_net_dispatch(net, events, count);
}

static int visit(const struct rf_fetch_place *place, const void *words, size_t bytes)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t length = rf_local_address(place->name, &address);

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0, "connect: %m");
	if (bytes)
		(void)!send(fd, words, bytes, MSG_NOSIGNAL);
	return fd;
}

static void strangers_get_nothing_and_do_no_harm(void)
{
	enum { CROWD = 200 };
	struct rf_fetch_server_setup setup = {.visitors = 1, .progress = progress};
	struct rf_fetch_setup visit_setup = {.came = came};
	struct rf_fetch_server *server;
	int fds[CROWD], errors = 0;
	uint8_t wrong[64];
	struct rf_net *net;

	CHECK_OK(rf_net_posix_create(&net));
	setup.net = visit_setup.net = net;
	setup.memory_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK_OK(rf_fetch_serve(&setup, &visit_setup.place, &server));
	memset(wrong, 7, sizeof(wrong));
	memcpy(wrong, visit_setup.place.token, RF_FETCH_TOKEN_BYTES);
	wrong[RF_FETCH_TOKEN_BYTES - 1] ^= 1;
	for (int i = 0; i < CROWD; i++) {
		/* Silent ones, wrong ones, short and long ones. */
		static const size_t lengths[] = {0, RF_FETCH_TOKEN_BYTES, 3, sizeof(wrong)};

		fds[i] = visit(&visit_setup.place, wrong, lengths[i % 4]);
		turn(net);
	}
	CHECK_OK(rf_fetch_start(&visit_setup, &visitor));
	for (int i = 0; i < 1000 && (came_status == 1 || !good_visits); i++)
		turn(net);
	CHECK(came_status == RF_OK && came_fd >= 0 && good_visits == 1, "the rank is kept out");
	for (int i = 0; i < CROWD; i++) {
		char byte;
		ssize_t bytes = recv(fds[i], &byte, 1, 0);

		CHECK(bytes <= 0, "a stranger is answered");
		errors += bytes < 0 && errno == EAGAIN;
		close(fds[i]);
	}
	CHECK(errors <= 17, "%d strangers are kept", errors);
	rf_fetch_close(visitor);
	rf_fetch_server_close(server);
	close(came_fd);
	close(setup.memory_fd);
	net->ops->destroy(net);
}

/* ---- the whole ------------------------------------------------------------------------------ */

#define CASES(X)                                \
	X(strangers_get_nothing_and_do_no_harm) \
	X(all_have_the_same_memory)             \
	X(one_rank_may_refuse_for_all)          \
	X(memory_that_cannot_be_had_is_told)    \
	X(whoever_insists_gets_an_error)        \
	X(a_death_ends_it)                      \
	X(a_stopped_rank_does_not_hold_it_up)   \
	X(a_forked_child_keeps_nothing_of_it)

static const char *case_name = "the beginning";

const char *fault_case_name(void)
{
	return case_name;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
#define X(name) {#name, name},
		CASES(X)
#undef X
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool wanted = argc == 1;

		for (int at = 1; at < argc; at++)
			wanted |= !strcmp(argv[at], cases[i].name);
		if (!wanted)
			continue;
		case_name = cases[i].name;
		alarm(is_sanitized() ? 240 : 90);
		cases[i].run();
		printf("ok %s\n", case_name);
	}
	return 0;
}
