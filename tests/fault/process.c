/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does to its process, and the process to it: fork, signals, limits, CPU time. */
#include "tests/fault/fault.h"
#include "tests/fault/team.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int leave(rf_comm *comm)
{
	CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

static int idle(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);

	seat_watch(seat, comm);
	return leave(comm);
}

/* ---- fork ----------------------------------------------------------------------------------- */

static int count_descriptors(bool sockets_only)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	CHECK(folder, "/proc/self/fd: %m");
	while ((entry = readdir(folder))) {
		char target[64];
		ssize_t bytes =
			readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		if (bytes <= 0 || atoi(entry->d_name) == dirfd(folder))
			continue;
		target[bytes] = '\0';
		count += !sockets_only || strncmp(target, "socket", 6) == 0 ||
			 strncmp(target, "anon_inode", 10) == 0;
	}
	closedir(folder);
	return count;
}

/* In the child. */
static void check_forked(rf_comm *comm, rf_cq *cq, rf_request *request)
{
	rf_failure failure = RF_FAILURE_INIT;
	rf_counters counters = RF_COUNTERS_INIT;
	rf_context *context = rf_comm_context(comm);
	rf_completion completion;
	rf_comm *made = NULL, *same = comm;
	void *memory;
	float value = 0;
	size_t index;

	CHECK_STATUS(rf_allreduce(comm, RF_IN_PLACE, &value, 1, RF_FLOAT32, RF_SUM), RF_ERR_FORKED);
	CHECK_STATUS(rf_barrier(comm), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_rank(comm), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_size(comm), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_abort(comm), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_failure(comm, &failure), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_counters(comm, &counters), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_split(comm, 0, 0, NULL, &made), RF_ERR_FORKED);
	CHECK_STATUS(rf_comm_destroy(&same), RF_ERR_FORKED);
	CHECK_STATUS(rf_wait(&request, 0), RF_ERR_FORKED);
	CHECK_STATUS(rf_wait_any(&request, 1, 0, &index), RF_ERR_FORKED);
	CHECK_STATUS(rf_wait_all(&request, 1, 0), RF_ERR_FORKED);
	CHECK_STATUS(rf_cancel(request), RF_ERR_FORKED);
	CHECK_STATUS(rf_cq_fd(cq), RF_ERR_FORKED);
	CHECK_STATUS(rf_cq_poll(cq, &completion, 1, 0), RF_ERR_FORKED);
	CHECK_STATUS(rf_cq_destroy(&cq), RF_ERR_FORKED);
	CHECK_STATUS(rf_alloc(context, 1, &memory), RF_ERR_FORKED);
	CHECK_STATUS(rf_context_destroy(&context), RF_ERR_FORKED);
}

/* Forks while a call is in flight and the library's thread lives; both end well. */
static int fork_and_go_on(struct seat *seat)
{
	int before = count_descriptors(true), status;
	rf_comm *comm = seat_join(seat);
	rf_request *request;
	rf_cq *cq;
	pid_t child;

	CHECK_OK(rf_cq_create(rf_comm_context(comm), &cq));
	for (int i = 0; i < 5; i++) {
		CHECK_OK(rf_ibarrier(comm, NULL, &request));
		child = fork();
		CHECK(child >= 0, "fork: %m");
		if (child == 0) {
			int left = count_descriptors(true);

			CHECK(left == before, "%d of the library's descriptors are left",
			      left - before);
			check_forked(comm, cq, request);
			_exit(0);
		}
		CHECK_OK(rf_wait(&request, RF_NO_TIMEOUT));
		CHECK(waitpid(child, &status, 0) == child && status == 0, "the child fails");
	}
	CHECK_OK(rf_cq_destroy(&cq));
	CHECK_OK(rf_barrier(comm));
	CHECK_OK(rf_comm_destroy(&comm));
	CHECK(count_descriptors(true) == before, "descriptors are left behind");
	return 0;
}

void a_forked_child_is_told_so(void)
{
	struct team team;

	team_init(&team, 3);
	team_start_all(&team, fork_and_go_on);
	team_joined(&team);
	team_end(&team);
}

/* The child holds on until the channel's other end is closed, long after its parent's death. */
static int fork_and_die(struct seat *seat)
{
	seat_join(seat);
	if (fork() == 0) {
		char word[24];

		signal(SIGALRM, SIG_DFL);
		alarm(30);
		while (recv(seat->channel, word, sizeof(word), 0) > 0)
			;
		_exit(0);
	}
	seat_say(seat, "forked", RF_OK, NULL, 0);
	seat_await(seat, "never");
	return 1;
}

void a_dead_parent_is_seen_while_its_child_lives(void)
{
	struct team team;
	int64_t at;

	team_init(&team, 3);
	team_start(&team, 0, idle);
	team_start(&team, 1, fork_and_die);
	team_start(&team, 2, idle);
	team_joined(&team);
	team_hear(&team, 1, "forked", 10000);
	at = team_kill(&team, 1);
	team_hear_failed(&team, 0, RF_ERR_RANK_DEAD, 1, at, 1000);
	team_hear_failed(&team, 2, RF_ERR_RANK_DEAD, 1, at, 1000);
	/* The child lives: it has not closed its end. */
	CHECK(send(team.members[1].channel, "live", 5, MSG_NOSIGNAL) == 5, "the child is gone");
	team_end(&team);
}

static int child_makes_its_own(struct seat *seat)
{
	rf_comm *comm = seat_join(seat), *own;
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	pid_t child = fork();
	int status;

	CHECK(child >= 0, "fork: %m");
	if (child == 0) {
		int32_t one = 1;

		options.rank = 0;
		options.world_size = 1;
		CHECK_OK(rf_comm_create(NULL, &options, &own));
		CHECK_OK(rf_allreduce(own, RF_IN_PLACE, &one, 1, RF_INT32, RF_SUM));
		CHECK_STATUS(rf_barrier(comm), RF_ERR_FORKED);
		CHECK_OK(rf_comm_destroy(&own));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the child fails");
	CHECK_OK(rf_barrier(comm));
	return leave(comm);
}

void a_forked_child_makes_a_context_of_its_own(void)
{
	const char *sanitizer = getenv("RINGFOLD_SANITIZER");
	struct team team;

	if (sanitizer && strcmp(sanitizer, "thread") == 0) {
		printf("skipped: the thread sanitizer lets no forked child start threads\n");
		return;
	}
	if (getenv("RINGFOLD_TEST_EMULATED")) {
		printf("skipped: the emulator fails where a forked child starts threads\n");
		return;
	}
	team_init(&team, 2);
	team_start_all(&team, child_makes_its_own);
	team_joined(&team);
	team_end(&team);
}

/* ---- signals and limits --------------------------------------------------------------------- */

static volatile sig_atomic_t pipes_broken;

static void on_broken_pipe(int number)
{
	(void)number;
	pipes_broken = 1;
}

static int call_until_failed(struct seat *seat)
{
	static float values[300000];
	struct sigaction action = {.sa_handler = on_broken_pipe}, now;
	rf_comm *comm;
	int ends[2], status;

	CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0, "pipe: %m");
	close(ends[0]);
	close(ends[1]);
	sigaction(SIGPIPE, &action, NULL);
	comm = seat_join(seat);
	do
		status = rf_allreduce(comm, RF_IN_PLACE, values, 300000, RF_FLOAT32, RF_SUM);
	while (status == RF_OK);
	seat_say(seat, "failed", status, comm, 0);
	status = leave(comm);
	sigaction(SIGPIPE, NULL, &now);
	return pipes_broken ? 3 : now.sa_handler != on_broken_pipe ? 4 : status;
}

/* By connections that break while they are written to, and by a stderr that nobody reads. Ranks end
 * with 3 if it was, and with 4 if their handler was replaced. */
void no_sigpipe_is_raised(void)
{
	struct team team;
	int64_t at;

	for (int i = 0; i < 4; i++) {
		team_init(&team, 3);
		team_set("RINGFOLD_LOG", "debug");
		team_start_all(&team, call_until_failed);
		team_joined(&team);
		at = team_kill(&team, i % 3);
		for (int rank = 0; rank < 3; rank++) {
			if (rank != i % 3)
				team_hear_failed(&team, rank, RF_ERR_RANK_DEAD, i % 3, at, 1000);
		}
		team_end(&team);
	}
}

static int join_with_few(struct seat *seat)
{
	struct rlimit few;
	rf_comm *comm = NULL;
	int status;

	few.rlim_cur = few.rlim_max = seat->size == 12 ? 20 : 6;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit: %m");
	status = rf_comm_create_from_env(&comm);
	seat_say(seat, "joined", status, NULL, comm ? rf_comm_rank(comm) : -1);
	if (comm)
		CHECK_OK(rf_comm_destroy(&comm));
	return 0;
}

/* Too few for the rank's lifelines, then too few for a listener: an error that speaks of it, soon.
 */
void a_low_limit_of_descriptors_is_said(void)
{
	struct team team;
	bool said = false;

	team_init(&team, 12);
	team_set("RINGFOLD_TIMEOUT", "4s");
	team_start_all(&team, join_with_few);
	for (int i = 0; i < team.size; i++)
		team_hear(&team, i, "joined", 10000);
	for (int i = 0; i < team.size; i++) {
		CHECK(team_reap(&team, i, 10000) == 0, "rank %d: %s", i, team_log(&team, i));
		said |= strstr(team_log(&team, i), "ulimit -n") != NULL;
	}
	CHECK(said, "nobody speaks of descriptors: %s", team_log(&team, 0));
	team_end(&team);

	team_init(&team, 2);
	team_set("RINGFOLD_TIMEOUT", "3s");
	team_start(&team, 1, join_with_few);
	CHECK(team_hear(&team, 1, "joined", 10000).status < 0, "it works with 6 descriptors");
	CHECK(team_reap(&team, 1, 10000) == 0, "rank 1: %s", team_log(&team, 1));
	CHECK(strstr(team_log(&team, 1), "ulimit -n"), "descriptors are not spoken of: %s",
	      team_log(&team, 1));
	team_end(&team);
}

/* ---- CPU time ------------------------------------------------------------------------------- */

static int64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static int measure_idle(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	int64_t before;

	CHECK_OK(rf_barrier(comm));
	seat_await(seat, "rest");
	before = cpu_us();
	seat_await(seat, "wake");
	seat_say(seat, "rested", RF_OK, NULL, cpu_us() - before);
	CHECK_OK(rf_barrier(comm));
	return leave(comm);
}

void an_idle_rank_uses_no_cpu(void)
{
	const int64_t seconds = 5;
	struct team team;

	team_init(&team, 3);
	team_start_all(&team, measure_idle);
	team_joined(&team);
	team_tell_all(&team, "rest");
	poll(NULL, 0, (int)seconds * 1000);
	team_tell_all(&team, "wake");
	for (int i = 0; i < team.size; i++) {
		struct report report = team_hear(&team, i, "rested", 10000);

		CHECK(report.number < seconds * 5000 * (is_sanitized() ? 4 : 1),
		      "rank %d used %lld us in %lld s of idleness", i, (long long)report.number,
		      (long long)seconds);
	}
	team_end(&team);
}

/* In the library's hands, waiting for the last rank, which is late by a second. */
static int wait_for_late(struct seat *seat)
{
	rf_comm *comm = seat_join(seat);
	int64_t before;

	CHECK_OK(rf_barrier(comm));
	seat_await(seat, "wait");
	before = cpu_us();
	CHECK_OK(rf_barrier(comm));
	seat_say(seat, "waited", RF_OK, NULL, cpu_us() - before);
	return leave(comm);
}

void ranks_that_outnumber_cores_do_not_spin(void)
{
	struct team team;

	team_init(&team, 8);
	team_start_all(&team, wait_for_late);
	team_joined(&team);
	for (int i = 0; i < 7; i++)
		team_tell(&team, i, "wait");
	poll(NULL, 0, 1000);
	team_tell(&team, 7, "wait");
	for (int i = 0; i < 8; i++) {
		struct report report = team_hear(&team, i, "waited", 10000);

		CHECK(report.number < 20000 * (is_sanitized() ? 4 : 1),
		      "rank %d used %lld us of CPU while it waited a second", i,
		      (long long)report.number);
	}
	team_end(&team);
}

/* ---- many ranks ----------------------------------------------------------------------------- */

/* At most 2 log2(n) lifelines, as many data connections, and a handful of its own. */
enum { FEW = 12 + 12 + 12 };

static int count_and_sum(struct seat *seat)
{
	int before = count_descriptors(false);
	int64_t sum = 1;
	rf_comm *comm;

	seat_say(seat, "ready", RF_OK, NULL, 0);
	seat_await(seat, "join");
	comm = seat_join(seat);
	CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &sum, 1, RF_INT64, RF_SUM));
	CHECK(sum == seat->size, "the sum is %lld", (long long)sum);
	seat_say(seat, "summed", RF_OK, NULL, 0);
	/* The leader has met all; connections that nobody needs are closed after a while. */
	for (int i = 0; i < 500 && count_descriptors(false) - before > FEW; i++)
		poll(NULL, 0, 20);
	seat_say(seat, "counted", RF_OK, NULL, count_descriptors(false) - before);
	CHECK_OK(rf_barrier(comm));
	return leave(comm);
}

void a_rank_of_many_has_few_descriptors(void)
{
	enum { RANKS = 64 };
	struct team team;
	int64_t most = 0, begin, joined = 0, summed = 0;

	team_init(&team, RANKS);
	team_start_all(&team, count_and_sum);
	for (int i = 0; i < RANKS; i++)
		team_hear(&team, i, "ready", 20000);
	begin = now_ns();
	team_tell_all(&team, "join");
	for (int i = 0; i < RANKS; i++) {
		struct report report = team_hear(&team, i, "joined", 30000);

		CHECK(report.status == RF_OK, "rank %d: %s", i, rf_strerror(report.status));
		joined = report.at_ns > joined ? report.at_ns : joined;
	}
	for (int i = 0; i < RANKS; i++) {
		struct report report = team_hear(&team, i, "summed", 30000);

		summed = report.at_ns > summed ? report.at_ns : summed;
	}
	for (int i = 0; i < RANKS; i++) {
		struct report report = team_hear(&team, i, "counted", 30000);

		most = report.number > most ? report.number : most;
	}
	printf("64 ranks: made in %lld ms, the first sum after another %lld ms, at most %lld "
	       "descriptors a rank\n",
	       (long long)(joined - begin) / 1000000, (long long)(summed - joined) / 1000000,
	       (long long)most);
	CHECK(most <= FEW, "%lld descriptors", (long long)most);
	team_end(&team);
}
