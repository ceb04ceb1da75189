/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of a test: see rank.h. */
#include "tests/collective/rank.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

rf_comm *world;
int rank, size;
uint64_t seed;
struct dice common, own;

static const char *case_name = "the beginning";
static char late_line[160]; /* what the watchdog says; ready before it bites */

uint64_t dice_roll(struct dice *dice, uint64_t bound)
{
	uint64_t x = dice->state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
	return (x ^ (x >> 32)) % bound;
}

double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void rank_fail(const char *file, int line, const char *format, ...)
{
	rf_failure failure = RF_FAILURE_INIT;
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s:%d: rank %d of %d: %s: %s (RINGFOLD_TEST_SEED=%llu)\n", file, line,
		rank, size, case_name, text, (unsigned long long)seed);
	if (world && rf_comm_failure(world, &failure) == 1)
		fprintf(stderr, "the world failed: %s\n", failure.message);
	_exit(1);
}

static void bite(int number)
{
	ssize_t ignored = write(STDERR_FILENO, late_line, strlen(late_line));

	(void)number;
	(void)ignored;
	_exit(1);
}

void rank_case(const char *name)
{
	case_name = name;
	snprintf(late_line, sizeof(late_line), "rank %d of %d: %s does not end\n", rank, size,
		 name);
	common.state = seed;
	for (; *name; name++)
		common.state = common.state * 31 + (unsigned char)*name;
	own.state = common.state ^ (0xabcdef12345u * (uint64_t)(rank + 1));
}

void rank_no_log(void *user, rf_log_level level, const char *line)
{
	(void)user;
	(void)level;
	(void)line;
}

int rank_free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t bytes = sizeof(at);
	int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(probe >= 0 && bind(probe, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		      getsockname(probe, (struct sockaddr *)&at, &bytes) == 0,
	      "no free port");
	close(probe);
	return ntohs(at.sin_port);
}

/* The launcher's environment; without it each process would be a world of its own. */
void rank_begin(unsigned watchdog_seconds)
{
	const char *text = getenv("RINGFOLD_TEST_SEED");

	if (!getenv("RANK") && !getenv("RINGFOLD_RANK")) {
		fprintf(stderr, "skipped: run it under ringfold run\n");
		exit(77);
	}
	seed = text ? strtoull(text, NULL, 0) : 1;
	rank_case("joining");
	signal(SIGALRM, bite);
	alarm(watchdog_seconds);
	CHECK_OK(rf_comm_create_from_env(&world));
	rank = rf_comm_rank(world);
	size = rf_comm_size(world);
	rank_case("joined");
}

void rank_end(void)
{
	rank_case("leaving");
	CHECK_OK(rf_barrier(world));
	CHECK_OK(rf_comm_destroy(&world));
	CHECK(!world, "a destroyed communicator is not NULL");
}
