/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts all ranks of this program, tells them what to do, and prints what they took. A round's
 * time is that of its slowest rank.
 */
#include "bench/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MOST = 64, ROUNDS_MOST = 10000, ARGUMENTS_MOST = 32, WARM_UP = 2 };

struct rank_process {
	pid_t pid;
	FILE *commands, *answers;
};

struct measured {
	double us[ROUNDS_MOST], cpu_us[ROUNDS_MOST];
	int rounds;
	size_t wrong;
};

static struct rank_process processes[RANKS_MOST];
static char folder[] = "/tmp/peer-XXXXXX";

static void become_rank(int rank, const struct peer_plan *plan, const int in[2], const int out[2])
{
	char *arguments[ARGUMENTS_MOST + 2] = {(char *)"rank"};
	char text[16];

	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	for (int i = 0; i < 2; i++) {
		close(in[i]);
		close(out[i]);
	}
	for (int i = 0; i < ARGUMENTS_MOST && plan->settings[i]; i++)
		arguments[i + 1] = plan->settings[i];
	snprintf(text, sizeof(text), "%d", rank);
	setenv("RANK", text, 1);
	execv("/proc/self/exe", arguments);
	peer_die("exec");
}

static void start(int rank, const struct peer_plan *plan)
{
	struct rank_process *process = &processes[rank];
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		peer_die("pipe");
	process->pid = fork();
	if (process->pid < 0)
		peer_die("fork");
	if (!process->pid) {
		for (int other = 0; other < rank; other++)
			fclose(processes[other].commands);
		become_rank(rank, plan, in, out);
	}
	close(in[0]);
	close(out[1]);
	process->commands = fdopen(in[1], "w");
	process->answers = fdopen(out[0], "r");
}

static void start_all(const struct peer_plan *plan)
{
	char ranks[16], port[16];

	if (!mkdtemp(folder))
		peer_die("a folder in /tmp");
	snprintf(ranks, sizeof(ranks), "%d", plan->ranks);
	snprintf(port, sizeof(port), "%d", 20000 + (int)getpid() % 20000);
	setenv("WORLD_SIZE", ranks, 1);
	setenv("PEER_FOLDER", folder, 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", port, 1);
	for (int rank = 0; rank < plan->ranks; rank++)
		start(rank, plan);
}

static void answer(int rank, char *line, int capacity)
{
	if (!fgets(line, capacity, processes[rank].answers)) {
		fprintf(stderr, "%s: rank %d has ended early\n", peer.name, rank);
		exit(1);
	}
}

static int end_all(int ranks)
{
	char command[64];
	int failed = 0, status;

	for (int rank = 0; rank < ranks; rank++)
		fclose(processes[rank].commands);
	for (int rank = 0; rank < ranks; rank++) {
		waitpid(processes[rank].pid, &status, 0);
		failed |= status != 0;
	}
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) || failed;
}

static void round_of_all(int ranks, size_t bytes, int calls, const char *words,
			 struct measured *measured)
{
	double slowest = 0, cpu_sum = 0;
	char line[128];

	for (int rank = 0; rank < ranks; rank++) {
		fprintf(processes[rank].commands, "run %zu %d %s\n", bytes, calls, words);
		fflush(processes[rank].commands);
	}
	for (int rank = 0; rank < ranks; rank++) {
		double time, cpu;
		size_t wrong;

		answer(rank, line, sizeof(line));
		if (sscanf(line, "%lf %lf %zu", &time, &cpu, &wrong) != 3)
			peer_die("an answer that is none");
		slowest = time > slowest ? time : slowest;
		cpu_sum += cpu;
		measured->wrong += wrong;
	}
	measured->us[measured->rounds] = slowest * 1e6 / calls;
	measured->cpu_us[measured->rounds++] = cpu_sum * 1e6 / calls / ranks;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const struct peer_plan *plan, size_t bytes, int calls, bool first,
		  struct measured *m)
{
	size_t rounds = (size_t)m->rounds;

	qsort(m->us, rounds, sizeof(double), by_value);
	qsort(m->cpu_us, rounds, sizeof(double), by_value);
	if (plan->json)
		printf("%s\n  {\"bytes\": %zu, \"calls\": %d, \"rounds\": %d, \"median_us\": %.3f, "
		       "\"min_us\": %.3f, \"p90_us\": %.3f, \"cpu_us\": %.3f, \"wrong\": %zu}",
		       first ? "" : ",", bytes, calls, m->rounds, m->us[rounds / 2], m->us[0],
		       m->us[rounds * 9 / 10], m->cpu_us[rounds / 2], m->wrong);
	else
		printf("%-10s %d ranks %10zu bytes %11.2f us  (min %.2f, p90 %.2f, cpu %.2f a rank)"
		       "%s\n",
		       peer.name, plan->ranks, bytes, m->us[rounds / 2], m->us[0],
		       m->us[rounds * 9 / 10], m->cpu_us[rounds / 2], m->wrong ? "  WRONG" : "");
	fflush(stdout);
}

static size_t next_size(const char **text)
{
	char *end;
	size_t bytes = strtoull(*text, &end, 10);

	if (*end == 'K' || *end == 'k')
		bytes <<= 10, end++;
	else if (*end == 'M' || *end == 'm')
		bytes <<= 20, end++;
	if (bytes < sizeof(float) || (*end && *end != ',')) {
		fprintf(stderr, "%s: not a list of sizes: %s\n", peer.name, *text);
		exit(2);
	}
	*text = *end ? end + 1 : NULL;
	return bytes;
}

int peer_drive(const struct peer_plan *plan)
{
	static struct measured measured;
	const char *sizes = plan->sizes;
	bool first = true, wrong = false;
	char line[128];

	if (plan->ranks < 1 || plan->ranks > RANKS_MOST || plan->rounds < 1 ||
	    plan->rounds > ROUNDS_MOST - WARM_UP) {
		fprintf(stderr, "%s: ranks or rounds out of range\n", peer.name);
		return 2;
	}
	start_all(plan);
	for (int rank = 0; rank < plan->ranks; rank++)
		answer(rank, line, sizeof(line));
	if (plan->json)
		printf("{\"program\": \"%s\", \"ranks\": %d, \"results\": [", peer.name,
		       plan->ranks);
	for (; sizes; first = false) {
		size_t bytes = next_size(&sizes);
		size_t by_size = ((size_t)4 << 20) / bytes;
		int calls = plan->calls      ? plan->calls
			    : by_size > 1000 ? 1000
			    : by_size        ? (int)by_size
					     : 1;

		measured.rounds = 0;
		measured.wrong = 0;
		for (int i = 0; i < WARM_UP + plan->rounds; i++) {
			if (i == WARM_UP)
				measured.rounds = 0;
			round_of_all(plan->ranks, bytes, calls, plan->words, &measured);
		}
		print(plan, bytes, calls, first, &measured);
		wrong |= measured.wrong > 0;
	}
	if (plan->json)
		printf("\n]}\n");
	return end_all(plan->ranks) || wrong;
}
