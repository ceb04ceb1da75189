/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher: starts the ranks, passes signals on, and ends all when one has failed. A rank that
 * has ended is not reaped before the last has: its process id, which names its group, cannot be
 * given to a stranger meanwhile.
 */
#include "tools/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct job;

struct job_rank {
	struct launch_source ended;
	struct job *job;
	pid_t pid; /* and its group; 0: not started */
	int pidfd; /* -1: has ended */
};

struct job {
	struct launch_source signalled;
	const struct launch *launch;
	int epoll;
	int signals;         /* signalfd */
	sigset_t mask;       /* the one this process was started with */
	struct rlimit files; /* likewise */
	struct launch_guard guard;
	struct launch_output *output; /* NULL: the ranks write for themselves */
	struct launch_input input;
	int alive;
	int interrupts;
	bool ending_asked; /* a signal that ends was passed on */
	bool ending;       /* the rest was told to end */
	int64_t kill_at;   /* -1: never */
	int others;        /* how many were running at the first failure */
	int killed;        /* how many did not end by themselves in time */
	int status;        /* of the first failure */
	char reason[160];  /* and what is said of it */
	struct job_rank ranks[];
};

/* Those that are passed on, and whether they ask for the end. */
static const struct {
	int number;
	bool ends;
} passed_signals[] = {
	{SIGINT, true},  {SIGTERM, true},  {SIGHUP, true},
	{SIGQUIT, true}, {SIGUSR1, false}, {SIGUSR2, false},
};
enum { PASSED_SIGNALS = sizeof(passed_signals) / sizeof(passed_signals[0]) };

int launch_watch(int epoll, int fd, uint32_t events, struct launch_source *source)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((format(printf, 2, 3))) static void say(struct job *job, const char *format, ...)
{
	char line[256];
	const int prefix = snprintf(line, sizeof(line), "%s: ", job->launch->verb);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line + prefix, sizeof(line) - (size_t)prefix, format, arguments);
	va_end(arguments);
	if (job->output)
		launch_output_say(job->output, line);
	else
		fprintf(stderr, "%s\n", line);
}

/* ---- signals and ends ---- */

static void signal_all(struct job *job, int number)
{
	for (int i = 0; i < job->launch->ranks; i++) {
		if (job->ranks[i].pid > 0)
			kill(-job->ranks[i].pid, number);
	}
}

static void kill_all(struct job *job)
{
	job->killed = job->alive;
	job->kill_at = -1;
	signal_all(job, SIGKILL);
}

/* Ranks that were asked to end by a signal from outside are about to, and are not asked again. */
static void end_all(struct job *job)
{
	if (job->ending)
		return;
	job->ending = true;
	job->others = job->alive;
	job->kill_at = now_ms() + job->launch->grace_ms;
	if (!job->ending_asked)
		signal_all(job, SIGTERM);
}

static void describe_end(struct job *job, int rank, const siginfo_t *end)
{
	if (end->si_code == CLD_EXITED) {
		job->status = end->si_status;
		snprintf(job->reason, sizeof(job->reason), "rank %d exited with status %d", rank,
			 end->si_status);
		return;
	}
	job->status = 128 + end->si_status;
	snprintf(job->reason, sizeof(job->reason), "rank %d was ended by signal %d (%s)%s", rank,
		 end->si_status, strsignal(end->si_status),
		 end->si_code == CLD_DUMPED ? ", core dumped" : "");
}

static void rank_ended(struct launch_source *source)
{
	struct job_rank *const rank =
		(struct job_rank *)((char *)source - offsetof(struct job_rank, ended));
	struct job *const job = rank->job;
	siginfo_t end = {0};

	if (waitid(P_PID, (id_t)rank->pid, &end, WEXITED | WNOHANG | WNOWAIT) || !end.si_pid)
		return;
	close(rank->pidfd);
	rank->pidfd = -1;
	job->alive--;
	if ((end.si_code == CLD_EXITED && end.si_status == 0) || job->reason[0])
		return;
	describe_end(job, (int)(rank - job->ranks), &end);
	end_all(job);
}

static void kill_at_once(struct job *job)
{
	if (!job->reason[0]) {
		job->status = 128 + SIGINT;
		snprintf(job->reason, sizeof(job->reason), "interrupted twice: killed all ranks");
	}
	job->ending = true;
	kill_all(job);
	job->killed = 0;
}

static void pass_on(struct job *job, int number)
{
	if (number == SIGINT && job->interrupts++ > 0) {
		kill_at_once(job);
		return;
	}
	for (int i = 0; i < PASSED_SIGNALS; i++) {
		if (passed_signals[i].number == number && passed_signals[i].ends)
			job->ending_asked = true;
	}
	signal_all(job, number);
}

static void job_signalled(struct launch_source *source)
{
	struct job *const job = (struct job *)source;
	struct signalfd_siginfo info;

	while (read(job->signals, &info, sizeof(info)) == sizeof(info))
		pass_on(job, (int)info.ssi_signo);
}

/* Signals that this process was told to ignore (nohup, a shell's background) stay ignored. */
static int catch_signals(struct job *job)
{
	struct sigaction action;
	sigset_t caught;

	sigemptyset(&caught);
	for (int i = 0; i < PASSED_SIGNALS; i++) {
		sigaction(passed_signals[i].number, NULL, &action);
		if (action.sa_handler != SIG_IGN)
			sigaddset(&caught, passed_signals[i].number);
	}
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &caught, &job->mask);
	job->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
	job->signalled.ready = job_signalled;
	if (job->signals < 0)
		return -1;
	return launch_watch(job->epoll, job->signals, EPOLLIN, &job->signalled);
}

/* ---- starting ---- */

static int open_stdio(struct job *job, int rank, int stdio[3])
{
	const bool has_input = rank == job->launch->stdin_rank;

	if (!has_input)
		stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	else if (isatty(STDIN_FILENO))
		stdio[0] = launch_input_start(&job->input, job->epoll);
	else
		stdio[0] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (stdio[0] < 0)
		return -1;
	stdio[1] = STDOUT_FILENO;
	stdio[2] = STDERR_FILENO;
	if (!job->output || launch_output_add(job->output, rank, stdio + 1) == 0)
		return 0;
	close(stdio[0]);
	return -1;
}

static int start_rank(struct job *job, int rank, char **command, int port)
{
	struct launch_start start = {.launch = job->launch,
				     .command = command,
				     .port = port,
				     .signals = &job->mask,
				     .files = &job->files};
	struct job_rank *const started = &job->ranks[rank];
	int error;

	if (open_stdio(job, rank, start.stdio))
		return -1;
	started->pid = launch_start_rank(&start, rank);
	error = errno;
	for (int i = 0; i < (job->output ? 3 : 1); i++)
		close(start.stdio[i]);
	errno = error;
	if (started->pid < 0)
		return -1;
	setpgid(started->pid, started->pid);
	launch_guard_add(&job->guard, started->pid);
	started->job = job;
	started->ended.ready = rank_ended;
	started->pidfd = (int)syscall(SYS_pidfd_open, started->pid, 0);
	if (started->pidfd < 0 ||
	    launch_watch(job->epoll, started->pidfd, EPOLLIN, &started->ended))
		return -1;
	job->alive++;
	return 0;
}

static void start_failed(struct job *job, int rank, const char *program)
{
	const int error = errno;

	job->status = error == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_CANNOT_RUN;
	snprintf(job->reason, sizeof(job->reason), "rank %d could not be started: %.60s: %s", rank,
		 program, strerror(error));
	end_all(job);
	kill_all(job);
}

static int start_all(struct job *job, char **command)
{
	int port = job->launch->port;
	const int held = port ? -1 : launch_hold_port(&port);

	if (!port) {
		job->status = LAUNCH_CANNOT_RUN;
		snprintf(job->reason, sizeof(job->reason), "no port is free: %s", strerror(errno));
		return -1;
	}
	for (int rank = 0; rank < job->launch->ranks && !job->ending; rank++) {
		if (start_rank(job, rank, command, port))
			start_failed(job, rank, command[0]);
	}
	return held;
}

/* ---- the whole ---- */

static void wait_events(struct job *job)
{
	struct epoll_event events[64];
	const int64_t left = job->kill_at < 0 ? -1 : job->kill_at - now_ms();
	const int timeout = left > 3600000 ? 3600000
			    : left < 0     ? (job->kill_at < 0 ? -1 : 0)
					   : (int)left;
	const int count = epoll_wait(job->epoll, events, 64, timeout);

	for (int i = 0; i < count; i++) {
		struct launch_source *const source = events[i].data.ptr;

		source->ready(source);
	}
	if (job->kill_at >= 0 && now_ms() >= job->kill_at)
		kill_all(job);
}

/* What the ranks left behind in their groups goes with them. */
static void reap(struct job *job)
{
	signal_all(job, SIGKILL);
	for (int i = 0; i < job->launch->ranks; i++) {
		if (job->ranks[i].pid > 0)
			waitpid(job->ranks[i].pid, NULL, 0);
	}
}

static void say_end(struct job *job)
{
	if (!job->reason[0])
		return;
	if (job->killed > 0)
		say(job, "%s; %d of the others had to be killed", job->reason, job->killed);
	else
		say(job, "%s%s", job->reason, job->others > 0 ? "; the others were ended" : "");
}

/* Interrupting a third time gives up what nobody reads. */
static void flush(struct job *job)
{
	if (!job->output)
		return;
	launch_output_finish(job->output);
	while (!launch_output_is_flushed(job->output) && job->interrupts < 3) {
		wait_events(job);
		launch_output_finish(job->output);
	}
}

/* Ranks that succeeded, but of whose output something is lost, are a failure. A reader that has
 * gone away knows, and is not told. */
static void check_output(struct job *job)
{
	const char *name;
	const int error = job->output ? launch_output_error(job->output, &name) : 0;

	if (!error || job->status)
		return;
	job->status = error == EPIPE ? 128 + SIGPIPE : LAUNCH_OUTPUT_LOST;
	if (error != EPIPE)
		say(job, "cannot write to %s: %s; output of the ranks is lost", name,
		    strerror(error));
}

static void run_job(struct job *job, char **command)
{
	const int held = start_all(job, command);

	while (job->alive > 0)
		wait_events(job);
	job->kill_at = -1;
	reap(job);
	flush(job);
	say_end(job);
	check_output(job);
	flush(job);
	if (held >= 0)
		close(held);
}

static void raise_file_limit(struct job *job)
{
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &job->files);
	most = job->files;
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
}

/* A pipe that took the place of a closed stdin or stdout would be taken for it. */
static void fill_stdio(void)
{
	for (int fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
	}
}

static int prepare(struct job *job)
{
	fill_stdio();
	raise_file_limit(job);
	job->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (job->epoll < 0 || catch_signals(job))
		return -1;
	if (job->launch->prefix) {
		job->output = launch_output_create(job->epoll, job->launch->ranks);
		if (!job->output)
			return -1;
	}
	return launch_guard_start(&job->guard);
}

int launch_ranks(const struct launch *launch, char **command)
{
	struct job *const job =
		calloc(1, sizeof(*job) + (size_t)launch->ranks * sizeof(job->ranks[0]));
	int status = LAUNCH_CANNOT_RUN;

	if (!job)
		return status;
	job->launch = launch;
	job->kill_at = -1;
	job->epoll = job->signals = -1;
	fflush(NULL);
	if (prepare(job)) {
		fprintf(stderr, "%s: cannot start: %s\n", launch->verb, strerror(errno));
	} else {
		run_job(job, command);
		status = job->status;
		launch_guard_stop(&job->guard);
	}
	if (job->output)
		launch_output_destroy(job->output);
	if (job->epoll >= 0)
		close(job->epoll);
	if (job->signals >= 0)
		close(job->signals);
	free(job);
	return status;
}
