/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a program that is compared: rounds on command, on inputs written anew, with every
 * element of every result looked at. Two batches' worth of buffers are used in turn, so that no
 * round finds its inputs where the last one left its results.
 */
#include "bench/peer.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERIOD = 1024, LINE = 256, SETTINGS_MOST = 32 };

struct rounds {
	struct peer_place place;
	float *memory;
	size_t memory_bytes;
	unsigned number; /* of the round */
};

void peer_die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", peer_name, what, strerror(errno));
	exit(1);
}

/* Small whole numbers: every order of summing gives the same. */
float peer_input(int rank, size_t index, unsigned salt)
{
	return (float)((unsigned)(rank + 1) * (((unsigned)index ^ salt) % PERIOD));
}

static double seconds(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* Bytes from one buffer to the next: whole cache lines, and large ones not all at one offset in
 * their pages. */
static size_t stride_of(size_t bytes)
{
	return ((bytes + 63) & ~(size_t)63) + (bytes >= 4096 ? 64 : 0);
}

static void make_room(struct rounds *rounds, size_t bytes)
{
	if (bytes <= rounds->memory_bytes)
		return;
	free(rounds->memory);
	rounds->memory_bytes = (bytes + 4095) & ~(size_t)4095;
	rounds->memory = aligned_alloc(4096, rounds->memory_bytes);
	if (!rounds->memory)
		peer_die("memory for the buffers");
	memset(rounds->memory, 0, rounds->memory_bytes);
}

static float *buffer(struct rounds *rounds, size_t bytes, unsigned calls, unsigned call)
{
	size_t position = (rounds->number % 2) * (size_t)calls + call;

	return (float *)(void *)((char *)rounds->memory + position * stride_of(bytes));
}

static unsigned salt_of(const struct rounds *rounds, unsigned call)
{
	return (rounds->number * 37 + call * 11) % PERIOD;
}

static void write_inputs(struct rounds *rounds, size_t bytes, unsigned calls)
{
	for (unsigned call = 0; call < calls; call++) {
		float *values = buffer(rounds, bytes, calls, call);
		unsigned salt = salt_of(rounds, call);

		for (size_t i = 0; i < bytes / sizeof(float); i++)
			values[i] = peer_input(rounds->place.rank, i, salt);
	}
}

static size_t count_wrong(struct rounds *rounds, size_t bytes, unsigned calls)
{
	int ranks = rounds->place.ranks, sum = ranks * (ranks + 1) / 2;
	size_t count = bytes / sizeof(float), wrong = 0;

	for (unsigned call = 0; call < calls; call++) {
		const float *values = buffer(rounds, bytes, calls, call);
		unsigned salt = salt_of(rounds, call);

		for (size_t i = 0; i < count; i++) {
			int winner = peer_winner(i, count);

			wrong += values[i] != peer_input(winner < 0 ? sum - 1 : winner, i, salt);
		}
	}
	return wrong;
}

static void run_round(struct rounds *rounds, size_t bytes, unsigned calls)
{
	double start, cpu;
	float all_here = 0;

	make_room(rounds, 2 * (size_t)calls * stride_of(bytes));
	rounds->number++;
	write_inputs(rounds, bytes, calls);
	peer_allreduce(&all_here, 1);
	start = seconds(CLOCK_MONOTONIC);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	for (unsigned call = 0; call < calls; call++)
		peer_allreduce(buffer(rounds, bytes, calls, call), bytes / sizeof(float));
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	start = seconds(CLOCK_MONOTONIC) - start;
	printf("%.9f %.9f %zu\n", start, cpu, count_wrong(rounds, bytes, calls));
	fflush(stdout);
}

static int number_from(const char *name)
{
	const char *text = getenv(name);

	if (!text) {
		fprintf(stderr, "%s: %s is not set; -n 2 starts all ranks\n", peer_name, name);
		exit(2);
	}
	return atoi(text);
}

static int serve(void)
{
	struct rounds rounds = {.place = {.rank = number_from("RANK"),
					  .ranks = number_from("WORLD_SIZE"),
					  .folder = getenv("PEER_FOLDER")}};
	char line[LINE];
	size_t bytes;
	unsigned calls;

	peer_open(&rounds.place);
	printf("ready %s\n", peer_name);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "run %zu %u", &bytes, &calls) != 2 || bytes < sizeof(float)) {
			fprintf(stderr, "%s: not a command: %s", peer_name, line);
			return 2;
		}
		run_round(&rounds, bytes, calls);
	}
	peer_close();
	free(rounds.memory);
	return 0;
}

static void help(void)
{
	printf("%s: times allreduce of fp32 on this machine, ranks as processes, over loopback "
	       "TCP\n"
	       "\n"
	       "  -n RANKS    start that many and print what they take (without: one rank that is\n"
	       "              told by RANK, WORLD_SIZE, PEER_FOLDER and lines on standard input)\n"
	       "  -b SIZES    bytes, comma separated, with K or M (8,4K,64K,1M,16M)\n"
	       "  -r ROUNDS   rounds a size (15); the time is the median of the slowest rank's\n"
	       "  -c CALLS    calls a round (by size: 1000 small ones, one large one)\n"
	       "  -j          JSON\n"
	       "%s",
	       peer_name, peer_help);
}

static void set(const char *setting)
{
	char name[LINE];
	const char *equals = strchr(setting, '=');

	if (equals && (size_t)(equals - setting) < sizeof(name)) {
		memcpy(name, setting, (size_t)(equals - setting));
		name[equals - setting] = 0;
		if (peer_set(name, equals + 1))
			return;
	}
	fprintf(stderr, "%s: no such setting: %s (--help lists them)\n", peer_name, setting);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	struct peer_plan plan = {.sizes = "8,4K,64K,1M,16M", .rounds = 15};
	int option;

	while ((option = getopt_long(argc, argv, "n:b:r:c:jh", options, NULL)) != -1) {
		switch (option) {
		case 'n':
			plan.ranks = atoi(optarg);
			break;
		case 'b':
			plan.sizes = optarg;
			break;
		case 'r':
			plan.rounds = atoi(optarg);
			break;
		case 'c':
			plan.calls = atoi(optarg);
			break;
		case 'j':
			plan.json = true;
			break;
		case 'h':
			help();
			return 0;
		default:
			return 2;
		}
	}
	for (int i = optind; i < argc; i++)
		set(argv[i]);
	plan.settings = argv + optind;
	return plan.ranks ? peer_drive(&plan) : serve();
}
