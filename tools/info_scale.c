/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringfold info --scale: what one rank holds in a communicator of so many, from the structures and
 * the graph of lifelines themselves; tests/sim/check_sim_scale measures the same on whole engines.
 */
#include "engine/comm.h"
#include "tools/info.h"
#include "tools/tool.h"

#include <stdio.h>

static const struct tool_column columns[] = {
	{"what", "a rank holds", -44, false},
	{"value", "at most", 9, true},
	{"grows", "grows with", -14, false},
	{"why", "why", -1, false},
};

static void row(struct tool_table *table, const char *what, size_t value, const char *grows,
		const char *why)
{
	char text[32];
	const char *const cells[] = {what, text, grows, why};

	snprintf(text, sizeof(text), "%zu", value);
	tool_table_row(table, cells);
}

static size_t most_lifelines(int ranks)
{
	int neighbours[64];
	int most = 0;

	/* The graph looks the same from every rank; a few are enough to show it. */
	for (int rank = 0; rank < ranks; rank += 1 + ranks / 16) {
		int count = rf_overlay_neighbours(rank, ranks, neighbours);

		most = count > most ? count : most;
	}
	return (size_t)most;
}

static size_t steps_of_doubling(int ranks)
{
	size_t steps = 0;

	while ((size_t)1 << steps < (size_t)ranks)
		steps++;
	return steps;
}

int info_scale(enum tool_format format, int ranks)
{
	struct tool_table table = {stdout, format, columns, 4, 0};
	size_t lifelines = most_lifelines(ranks);
	size_t steps = steps_of_doubling(ranks);
	struct rf_config config;
	char message[256];

	if (rf_config_load(&config, message)) {
		fprintf(stderr, "ringfold info: %s\n", message);
		return TOOL_FAILED;
	}
	tool_table_begin(&table);
	row(&table, "lifelines", lifelines, "log ranks", "control streams that failures travel by");
	row(&table, "partners of small calls", steps, "log ranks",
	    "doubling: a control stream, and data each way");
	row(&table, "partners of large calls", ranks > 2 ? 2 : (size_t)ranks - 1, "nothing",
	    "the ring: data to the next, from the one before");
	row(&table, "bytes of the table of ranks", (size_t)ranks * sizeof(struct rf_rank_entry),
	    "ranks", "ids and addresses: all that grows with the ranks");
	row(&table, "bytes of objects of its partners",
	    (lifelines + steps + 1) * (sizeof(struct rf_peer) + sizeof(struct rf_link)),
	    "log ranks", "peers and links, without their connections' buffers");
	row(&table, "bytes that one partner may send ahead", config.eager_budget_bytes, "nothing",
	    "RINGFOLD_EAGER_BUDGET_BYTES, held only while it did");
	tool_table_end(&table);
	if (format == TOOL_TEXT)
		puts("\nRF_ORDER_TREE and the direct algorithm connect every rank with every "
		     "other.");
	return TOOL_OK;
}
