/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold info --algorithms: what there is, and which row of the table selects it when. */
#include "engine/select.h"
#include "tools/info.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 128 };

static const struct tool_column algorithm_columns[] = {
	{"name", "algorithm", -10, false},
	{"collectives", "collectives", -41, false},
	{"tree_order", "tree order", -10, true},
	{"summary", "steps and bytes a rank", -1, false},
};
static const struct tool_column row_columns[] = {
	{"collectives", "collectives", -41, false}, {"order", "order", -5, false},
	{"max_bytes", "up to bytes", 11, true},     {"max_ranks", "ranks", 5, true},
	{"algorithm", "algorithm", -10, false},     {"why", "why", -1, false},
};

static const char *collective_names(unsigned bits, char text[NAMES_BYTES])
{
	size_t used = 0;

	text[0] = '\0';
	if (bits == (1u << RF_COLLECTIVE_COUNT) - 1)
		return "all";
	for (unsigned i = 0; i < RF_COLLECTIVE_COUNT; i++) {
		if ((bits & 1u << i) && used < NAMES_BYTES)
			used += (size_t)snprintf(text + used, NAMES_BYTES - used, "%s%s",
						 used ? " " : "",
						 rf_collective_name((rf_collective)i));
	}
	return text;
}

static void print_algorithms(enum tool_format format)
{
	struct tool_table table = {stdout, format, algorithm_columns, 4, 0};
	char names[NAMES_BYTES];

	tool_table_begin(&table);
	for (size_t i = 0; rf_algos[i]; i++) {
		const struct rf_algo *const algo = rf_algos[i];
		const char *const yes = format == TOOL_JSON ? "true" : "yes";
		const char *const no = format == TOOL_JSON ? "false" : "no";
		const char *const cells[] = {algo->name, collective_names(algo->collectives, names),
					     algo->tree_order ? yes : no, algo->summary};

		tool_table_row(&table, cells);
	}
	tool_table_end(&table);
}

static void print_rows(enum tool_format format, const struct rf_config *config)
{
	struct tool_table table = {stdout, format, row_columns, 6, 0};
	char names[NAMES_BYTES], most[32], ranks[32];

	tool_table_begin(&table);
	for (size_t i = 0; i < rf_select_row_count; i++) {
		const struct rf_select_row *const row = &rf_select_rows[i];
		const char *const cells[] = {collective_names(row->collectives, names),
					     row->tree_order_only ? "tree" : "any",
					     most,
					     ranks,
					     row->algo->name,
					     row->why};

		snprintf(most, sizeof(most), format == TOOL_JSON ? "" : "any size");
		if (row->max_bytes)
			snprintf(most, sizeof(most), "%zu", row->max_bytes(config));
		snprintf(ranks, sizeof(ranks), format == TOOL_JSON ? "" : "any");
		if (row->max_ranks)
			snprintf(ranks, sizeof(ranks), "%d", row->max_ranks);
		tool_table_row(&table, cells);
	}
	tool_table_end(&table);
}

int info_algorithms(enum tool_format format)
{
	struct rf_config config;
	char message[256];

	if (rf_config_load(&config, message)) {
		fprintf(stderr, "ringfold info: %s\n", message);
		return TOOL_FAILED;
	}
	if (format == TOOL_JSON)
		fputs("{\"algorithms\": ", stdout);
	print_algorithms(format);
	fputs(format == TOOL_JSON ? ",\n\"select\": " : "\nThe first row that fits is taken:\n",
	      stdout);
	print_rows(format, &config);
	if (format == TOOL_JSON) {
		fputs(",\n\"forced\": ", stdout);
		tool_json_string(stdout, config.algorithm);
		puts("}");
	} else if (config.algorithm[0]) {
		printf("\nRINGFOLD_ALGORITHM forces %s where it can do the call.\n",
		       config.algorithm);
	}
	return TOOL_OK;
}
