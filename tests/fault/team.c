/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as processes, and their driver: see team.h. */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_MS = 10, SETTINGS_MAX = 16, RANK_SECONDS = 60 };

static int64_t stalled;
static struct {
	char variable[48], value[80];
} settings[SETTINGS_MAX];
static int setting_count;
static int my_rank = -1; /* in a rank's process */
static struct team *current;

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t stalled_ns(void)
{
	return stalled;
}

bool is_sanitized(void)
{
	const char *sanitizer = getenv("RINGFOLD_SANITIZER");

	return sanitizer && *sanitizer && strcmp(sanitizer, "none") != 0;
}

void fault_fail(const char *file, int line, const char *format, ...)
{
	char text[900];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (my_rank >= 0) {
		fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, my_rank, text);
		_exit(1);
	}
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, fault_case_name(), text);
	for (int i = 0; current && i < current->size; i++) {
		const char *log = team_log(current, i);

		if (*log)
			fprintf(stderr, "rank %d: %s\n", i, log);
		if (current->members[i].pid)
			kill(current->members[i].pid, SIGKILL);
	}
	exit(1);
}

/* ---- the rank's side ------------------------------------------------------------------------ */

static void add_failure(struct report *report, const rf_comm *comm)
{
	rf_failure failure = RF_FAILURE_INIT;
	int ranks[TEAM_MAX];

	failure.ranks = ranks;
	failure.rank_capacity = TEAM_MAX;
	if (rf_comm_failure(comm, &failure) != 1)
		return;
	snprintf(report->text, sizeof(report->text), "%.479s", failure.message);
	for (size_t i = 0; i < failure.rank_count && i < TEAM_MAX; i++)
		report->ranks |= UINT64_C(1) << ranks[i];
}

void seat_say(struct seat *seat, const char *word, int status, const rf_comm *comm, int64_t number)
{
	struct report report = {.at_ns = now_ns(), .number = number, .status = status};

	snprintf(report.word, sizeof(report.word), "%s", word);
	if (comm)
		add_failure(&report, comm);
	CHECK(send(seat->channel, &report, sizeof(report), MSG_NOSIGNAL) == sizeof(report),
	      "the driver is gone");
}

void seat_await(struct seat *seat, const char *word)
{
	char said[24] = "";
	ssize_t bytes;

	do
		bytes = recv(seat->channel, said, sizeof(said) - 1, 0);
	while (bytes < 0 && errno == EINTR);
	CHECK(bytes > 0 && strcmp(said, word) == 0, "waited for \"%s\", not \"%s\"", word, said);
}

bool seat_is_told(struct seat *seat)
{
	struct pollfd readable = {.fd = seat->channel, .events = POLLIN};

	return poll(&readable, 1, 0) == 1;
}

rf_comm *seat_join(struct seat *seat)
{
	rf_comm *comm = NULL;
	int status = rf_comm_create_from_env(&comm);

	seat_say(seat, "joined", status, NULL, status == RF_OK ? rf_comm_rank(comm) : -1);
	return comm;
}

void seat_watch(struct seat *seat, const rf_comm *comm)
{
	rf_failure failure = RF_FAILURE_INIT;

	while (rf_comm_failure(comm, &failure) == 0)
		poll(NULL, 0, 2);
	seat_say(seat, "failed", failure.error, comm, 0);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int hold_port(int *port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6};
	socklen_t bytes = sizeof(at);
	int one = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
		      bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		      getsockname(fd, (struct sockaddr *)&at, &bytes) == 0,
	      "no free port: %m");
	*port = ntohs(at.sin6_port);
	return fd;
}

void team_init(struct team *team, int size)
{
	memset(team, 0, sizeof(*team));
	team->size = size;
	team->holder = hold_port(&team->port);
	snprintf(team->host, sizeof(team->host), "127.0.0.1");
	for (int i = 0; i < TEAM_MAX; i++)
		team->members[i].channel = team->members[i].log = -1;
	setting_count = 0;
	stalled = 0;
	current = team;
}

void team_set(const char *variable, const char *value)
{
	CHECK(setting_count < SETTINGS_MAX, "too many settings");
	snprintf(settings[setting_count].variable, sizeof(settings[0].variable), "%s", variable);
	snprintf(settings[setting_count].value, sizeof(settings[0].value), "%s", value);
	setting_count++;
}

static void set_number(const char *variable, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(variable, text, 1);
}

/* Only what the team says; not what the tests themselves were started with. */
static void set_environment(const struct team *team, int rank)
{
	const char *transport = getenv("RINGFOLD_TEST_TRANSPORT");
	static const char *const others[] = {"RINGFOLD_TRANSPORT",
					     "RINGFOLD_PORT",
					     "RINGFOLD_TIMEOUT",
					     "RINGFOLD_PROGRESS",
					     "RINGFOLD_ALGORITHM",
					     "RINGFOLD_LOG",
					     "RINGFOLD_INTERFACE",
					     "RINGFOLD_RANK",
					     "RINGFOLD_SPIN_US",
					     "RINGFOLD_WORLD_SIZE",
					     "rank",
					     "world"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		unsetenv(others[i]);
	if (transport)
		setenv("RINGFOLD_TRANSPORT", transport, 1);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", team->size);
	set_number("MASTER_PORT", team->port);
	setenv("MASTER_ADDR", team->host, 1);
	setenv("RINGFOLD_TIMEOUT", "30s", 1);
	for (int i = 0; i < setting_count; i++)
		setenv(settings[i].variable, settings[i].value, 1);
}

static void run_member(const struct team *team, int rank, role *what, int channel, int log)
{
	struct seat seat = {.rank = rank, .size = team->size, .port = team->port};

	my_rank = rank;
	seat.channel = channel;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(RANK_SECONDS); /* a rank that hangs dies of it, and the driver says so */
	dup2(log, STDERR_FILENO);
	close(log);
	close(team->holder);
	for (int i = 0; i < team->size; i++) {
		if (team->members[i].channel >= 0)
			close(team->members[i].channel);
		if (team->members[i].log >= 0)
			close(team->members[i].log);
	}
	set_environment(team, rank);
	exit(what(&seat));
}

void team_start(struct team *team, int rank, role *what)
{
	struct member *member = &team->members[rank];
	int ends[2], log = memfd_create("stderr", 0);

	CHECK(log >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "%m");
	if (member->channel >= 0) {
		close(member->channel);
		close(member->log);
		member->channel = member->log = -1;
	}
	fflush(NULL);
	member->pid = fork();
	CHECK(member->pid >= 0, "fork: %m");
	if (member->pid == 0) {
		close(ends[0]);
		run_member(team, rank, what, ends[1], log);
	}
	close(ends[1]);
	member->channel = ends[0];
	member->log = log;
}

void team_start_all(struct team *team, role *what)
{
	for (int i = 0; i < team->size; i++)
		team_start(team, i, what);
}

/* ---- talking -------------------------------------------------------------------------------- */

void team_tell(struct team *team, int rank, const char *word)
{
	CHECK(send(team->members[rank].channel, word, strlen(word) + 1, MSG_NOSIGNAL) > 0,
	      "rank %d cannot be told \"%s\": %m", rank, word);
}

void team_tell_all(struct team *team, const char *word)
{
	for (int i = 0; i < team->size; i++) {
		if (team->members[i].pid)
			team_tell(team, i, word);
	}
}

/* One slice of waiting; what it lasts longer is the machine's stall. */
static bool wait_slice(int fd, int64_t *left_ns)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	int64_t begin = now_ns(), lasted;
	int count = poll(&readable, fd >= 0, SLICE_MS);

	lasted = now_ns() - begin;
	if (lasted > 2 * SLICE_MS * INT64_C(1000000)) {
		stalled += lasted;
		lasted = SLICE_MS * INT64_C(1000000);
	}
	*left_ns -= lasted;
	return count > 0;
}

struct report team_hear(struct team *team, int rank, const char *word, int64_t within_ms)
{
	int64_t left = within_ms * 1000000 * (is_sanitized() ? 4 : 1);
	struct report report;
	ssize_t bytes;

	while (!wait_slice(team->members[rank].channel, &left))
		CHECK(left > 0, "rank %d does not say \"%s\" within %lld ms", rank, word,
		      (long long)within_ms);
	bytes = recv(team->members[rank].channel, &report, sizeof(report), 0);
	if (bytes != sizeof(report))
		fault_fail(__FILE__, __LINE__, "rank %d ends (%d) before it has said \"%s\"", rank,
			   team_reap(team, rank, 5000), word);
	CHECK(strcmp(report.word, word) == 0, "rank %d says \"%s\" (%s, %s), not \"%s\"", rank,
	      report.word, rf_strerror(report.status), report.text, word);
	return report;
}

void team_joined(struct team *team)
{
	for (int i = 0; i < team->size; i++) {
		struct report report = team_hear(team, i, "joined", 20000);

		CHECK(report.status == RF_OK && report.number == i, "rank %d joined as %lld: %s", i,
		      (long long)report.number, rf_strerror(report.status));
	}
}

void team_hear_failed(struct team *team, int rank, int error, int culprit, int64_t since_ns,
		      int64_t within_ms)
{
	struct report report = team_hear(team, rank, "failed", within_ms + 5000);
	int64_t limit = within_ms * 1000000 * (is_sanitized() ? 4 : 1) + stalled;

	CHECK(report.status == error, "rank %d: %s, not %s: %s", rank, rf_strerror(report.status),
	      rf_strerror(error), report.text);
	CHECK(culprit < 0 || report.ranks >> culprit & 1, "rank %d: rank %d is not named: %s", rank,
	      culprit, report.text);
	CHECK(report.text[0], "rank %d gives no reason", rank);
	CHECK(report.at_ns - since_ns <= limit, "rank %d knew after %lld ms", rank,
	      (long long)(report.at_ns - since_ns) / 1000000);
}

/* ---- ends ----------------------------------------------------------------------------------- */

void team_signal(struct team *team, int rank, int number)
{
	CHECK(kill(team->members[rank].pid, number) == 0, "kill: %m");
}

int team_reap(struct team *team, int rank, int64_t within_ms)
{
	int64_t left = within_ms * 1000000 * (is_sanitized() ? 4 : 1);
	int status;
	pid_t pid;

	while ((pid = waitpid(team->members[rank].pid, &status, WNOHANG)) == 0) {
		wait_slice(-1, &left);
		CHECK(left > 0, "rank %d does not end", rank);
	}
	CHECK(pid > 0, "waitpid: %m");
	team->members[rank].pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int64_t team_kill(struct team *team, int rank)
{
	int64_t at = now_ns();

	team_signal(team, rank, SIGKILL);
	team_reap(team, rank, 10000);
	return at;
}

const char *team_log(const struct team *team, int rank)
{
	static char text[16384];
	ssize_t bytes = -1;

	if (team->members[rank].log >= 0)
		bytes = pread(team->members[rank].log, text, sizeof(text) - 1, 0);
	text[bytes > 0 ? bytes : 0] = '\0';
	return text;
}

/* Nobody listens on the port any more, and it can be listened on. */
static void check_port(const struct team *team)
{
	CHECK(listen(team->holder, 1) == 0, "something is left on the port: %m");
	close(team->holder);
}

void team_end(struct team *team)
{
	for (int i = 0; i < team->size; i++) {
		int status = team->members[i].pid ? team_reap(team, i, 20000) : 0;

		CHECK(status == 0, "rank %d ends with %d", i, status);
	}
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a process is left");
	check_port(team);
	for (int i = 0; i < team->size; i++) {
		if (team->members[i].channel < 0)
			continue;
		close(team->members[i].channel);
		close(team->members[i].log);
	}
	current = NULL;
}
