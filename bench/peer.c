/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a program that is compared: rounds on command, on inputs written anew, with every
 * element of every result looked at. Two batches' worth of buffers are used in turn, so that no
 * round finds its inputs where the last one left its results.
 */
#include "bench/peer.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 1024, SHORT_PERIOD = 4, LINE = 256, SETTINGS_MOST = 32 };

struct block {
	char *bytes;
	size_t size;
	bool of_library;
};

struct rounds {
	struct peer_place place;
	struct block inputs, outputs;
	unsigned number; /* of the round */
};

/* One round, as it was asked for. */
struct round {
	size_t bytes, count;
	unsigned calls;
	enum peer_dtype dtype;
	bool out, alloc, same;
};

static FILE *answers;

void peer_die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", peer.name, what, strerror(errno));
	exit(1);
}

static double seconds(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* ---- buffers ---- */

/* Bytes from one buffer to the next: whole cache lines, and large ones not all at one offset in
 * their pages. */
static size_t stride_of(size_t bytes)
{
	return ((bytes + 63) & ~(size_t)63) + (bytes >= 4096 ? 64 : 0);
}

static void drop(struct block *block)
{
	if (block->bytes && block->of_library)
		peer.memory_free(block->bytes);
	else
		free(block->bytes);
	*block = (struct block){0};
}

static void make_room(struct block *block, size_t bytes, bool of_library)
{
	if (bytes <= block->size && block->of_library == of_library)
		return;
	drop(block);
	block->size = (bytes + 4095) & ~(size_t)4095;
	block->of_library = of_library;
	block->bytes = of_library ? peer.memory(block->size) : aligned_alloc(4096, block->size);
	if (!block->bytes)
		peer_die("memory for the buffers");
	memset(block->bytes, 0, block->size);
}

static char *buffer(const struct rounds *rounds, const struct block *block,
		    const struct round *round, unsigned call)
{
	size_t set = round->same ? 0 : rounds->number % 2;

	return block->bytes + (set * round->calls + call) * stride_of(round->bytes);
}

/* ---- inputs and results ---- */

/* The bits of a small whole number. */
static uint32_t bits_of(unsigned value, enum peer_dtype dtype)
{
	float number = (float)value;
	unsigned exponent = 0;
	uint32_t bits;

	memcpy(&bits, &number, sizeof(bits));
	if (dtype == PEER_FLOAT32)
		return bits;
	if (dtype == PEER_BFLOAT16)
		return bits >> 16;
	if (!value)
		return 0;
	while (value >> (exponent + 1))
		exponent++;
	return (exponent + 15) << 10 | ((value << 10 >> exponent) & 0x3ff);
}

/* Inputs are small whole numbers, so that every order of summing gives the same: at an index the
 * weight times ((index ^ salt) modulo the period). Its bits, for each remainder. */
static unsigned make_pattern(uint32_t *pattern, int weight, enum peer_dtype dtype)
{
	unsigned period = dtype == PEER_FLOAT32 ? PERIOD : SHORT_PERIOD;

	for (unsigned i = 0; i < period; i++)
		pattern[i] = bits_of((unsigned)weight * i, dtype);
	return period - 1;
}

static unsigned salt_of(const struct rounds *rounds, unsigned call)
{
	return (rounds->number * 37 + call * 11) % PERIOD;
}

static void write_inputs(struct rounds *rounds, const struct round *round)
{
	const struct block *block = &rounds->inputs;
	uint32_t pattern[PERIOD];
	unsigned mask = make_pattern(pattern, rounds->place.rank + 1, round->dtype);

	for (unsigned call = 0; call < round->calls; call++) {
		void *values = buffer(rounds, block, round, call);
		unsigned salt = salt_of(rounds, call);

		for (size_t i = 0; i < round->count; i++)
			if (round->dtype == PEER_FLOAT32)
				((uint32_t *)values)[i] = pattern[((unsigned)i ^ salt) & mask];
			else
				((uint16_t *)values)[i] =
					(uint16_t)pattern[((unsigned)i ^ salt) & mask];
	}
}

static size_t wrong_in(const void *values, const struct round *round, const uint32_t *sums,
		       unsigned mask, unsigned salt)
{
	size_t wrong = 0;

	for (size_t i = 0; i < round->count; i++) {
		unsigned place = ((unsigned)i ^ salt) & mask;
		int winner = peer.winner ? peer.winner(i, round->count) : -1;
		uint32_t must = winner < 0 ? sums[place]
					   : bits_of((unsigned)(winner + 1) * place, round->dtype);

		wrong += (round->dtype == PEER_FLOAT32 ? ((const uint32_t *)values)[i]
						       : ((const uint16_t *)values)[i]) != must;
	}
	return wrong;
}

static size_t count_wrong(struct rounds *rounds, const struct round *round)
{
	int ranks = rounds->place.ranks;
	uint32_t sums[PERIOD];
	unsigned mask = make_pattern(sums, ranks * (ranks + 1) / 2, round->dtype);
	const struct block *block = round->out ? &rounds->outputs : &rounds->inputs;
	size_t wrong = 0;

	for (unsigned call = 0; call < round->calls; call++)
		wrong += wrong_in(buffer(rounds, block, round, call), round, sums, mask,
				  salt_of(rounds, call));
	return wrong;
}

/* ---- rounds ---- */

static void call_once(struct rounds *rounds, const struct round *round, unsigned call)
{
	const struct block *to = round->out ? &rounds->outputs : &rounds->inputs;
	struct peer_call one = {.send = buffer(rounds, &rounds->inputs, round, call),
				.recv = buffer(rounds, to, round, call),
				.count = round->count,
				.dtype = round->dtype};

	peer.allreduce(&one);
}

/* Nobody is ahead when the clock starts. */
static void meet(void)
{
	float all_here = 0;
	struct peer_call one = {.send = &all_here, .recv = &all_here, .count = 1};

	peer.allreduce(&one);
}

static void run_round(struct rounds *rounds, const struct round *round)
{
	size_t room = (round->same ? 1 : 2) * (size_t)round->calls * stride_of(round->bytes);
	double start, cpu;
	int core;

	make_room(&rounds->inputs, room, round->alloc);
	if (round->out)
		make_room(&rounds->outputs, room, round->alloc);
	rounds->number++;
	/* What a call that does nothing would leave is wrong. */
	if (round->out)
		for (unsigned call = 0; call < round->calls; call++)
			memset(buffer(rounds, &rounds->outputs, round, call), 0xff, round->bytes);
	write_inputs(rounds, round);
	meet();
	start = seconds(CLOCK_MONOTONIC);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	for (unsigned call = 0; call < round->calls; call++)
		call_once(rounds, round, call);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	start = seconds(CLOCK_MONOTONIC) - start;
	core = sched_getcpu();
	fprintf(answers, "%.9f %.9f %zu %d\n", start, cpu, count_wrong(rounds, round), core);
	fflush(answers);
}

/* "run BYTES CALLS [WORD...]"; false: it is none, or the program cannot do it. */
static bool parse_round(char *line, struct round *round)
{
	static const struct {
		const char *name;
		enum peer_dtype dtype;
	} dtypes[] = {
		{"float32", PEER_FLOAT32}, {"bfloat16", PEER_BFLOAT16}, {"float16", PEER_FLOAT16}};
	int words = 0;
	size_t size;

	*round = (struct round){0};
	if (sscanf(line, "run %zu %u%n", &round->bytes, &round->calls, &words) != 2)
		return false;
	for (char *word = strtok(line + words, " \n"); word; word = strtok(NULL, " \n")) {
		bool known = true;

		if (!strcmp(word, "out"))
			round->out = true;
		else if (!strcmp(word, "alloc") && peer.memory)
			round->alloc = true;
		else if (!strcmp(word, "same"))
			round->same = true;
		else
			known = false;
		for (int i = 0; i < 3 && !known; i++)
			if (!strcmp(word, dtypes[i].name)) {
				round->dtype = dtypes[i].dtype;
				known = true;
			}
		if (!known)
			return false;
	}
	size = round->dtype == PEER_FLOAT32 ? 4 : 2;
	round->count = round->bytes / size;
	return round->calls && round->count && round->bytes % size == 0 &&
	       !(peer.only_plain && (round->out || round->dtype != PEER_FLOAT32));
}

static int number_from(const char *name)
{
	const char *text = getenv(name);

	if (!text) {
		fprintf(stderr, "%s: %s is not set; -n 2 starts all ranks\n", peer.name, name);
		exit(2);
	}
	return atoi(text);
}

/* Libraries print things: what they write to standard output goes with the errors. */
static void take_stdout(void)
{
	int own = dup(STDOUT_FILENO);

	answers = own < 0 ? NULL : fdopen(own, "w");
	if (!answers || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		peer_die("standard output");
}

static int serve(void)
{
	struct rounds rounds = {.place = {.rank = number_from("RANK"),
					  .ranks = number_from("WORLD_SIZE"),
					  .folder = getenv("PEER_FOLDER")}};
	char line[LINE], copy[LINE];
	struct round round;

	take_stdout();
	peer.open(&rounds.place);
	fprintf(answers, "ready %s %d\n", peer.name, (int)getpid());
	fflush(answers);
	while (fgets(line, sizeof(line), stdin)) {
		strcpy(copy, line);
		if (!parse_round(copy, &round)) {
			fprintf(stderr, "%s: cannot do: %s", peer.name, line);
			return 2;
		}
		run_round(&rounds, &round);
	}
	drop(&rounds.inputs);
	drop(&rounds.outputs);
	peer.close();
	return 0;
}

static void help(void)
{
	printf("%s: times allreduce on this machine, ranks as processes\n"
	       "\n"
	       "  -n RANKS    start that many and print what they take (without: one rank that is\n"
	       "              told by RANK, WORLD_SIZE, PEER_FOLDER and lines on standard input)\n"
	       "  -b SIZES    bytes, comma separated, with K or M (8,4K,64K,1M,16M)\n"
	       "  -r ROUNDS   rounds a size (15); the time is the median of the slowest rank's\n"
	       "  -c CALLS    calls a round (by size: 1000 small ones, one large one)\n"
	       "  -w WORDS    of each round: float32, bfloat16 or float16; out (of place); alloc "
	       "(the\n"
	       "              library's memory); same (one set of buffers, not two in turn)\n"
	       "  -j          JSON\n"
	       "%s",
	       peer.name, peer.help);
}

static void set(const char *setting)
{
	char name[LINE];
	const char *equals = strchr(setting, '=');

	if (equals && (size_t)(equals - setting) < sizeof(name)) {
		memcpy(name, setting, (size_t)(equals - setting));
		name[equals - setting] = 0;
		if (peer.set && peer.set(name, equals + 1))
			return;
	}
	fprintf(stderr, "%s: no such setting: %s (--help lists them)\n", peer.name, setting);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	struct peer_plan plan = {.sizes = "8,4K,64K,1M,16M", .rounds = 15, .words = ""};
	int option;

	while ((option = getopt_long(argc, argv, "n:b:r:c:w:jh", options, NULL)) != -1) {
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
		case 'w':
			plan.words = optarg;
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
