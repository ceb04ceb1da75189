/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold info --config: the configuration as this environment makes it. */
#include "engine/config.h"
#include "tools/info.h"
#include "tools/tool.h"

#include <stdlib.h>
#include <string.h>

static const struct tool_column columns[] = {
	{"variable", "variable", -29, false},
	{"value", "value", -8, false},
	{"default", "default", -8, false},
	{"source", "from", -11, false},
	{"agreed", NULL, 0, true},
	{"choices", NULL, 0, false},
	{"text", "what it is", -1, false},
};

static const char *set_in_environment(const char *variable)
{
	const char *const value = getenv(variable);

	return value && value[0] ? value : NULL;
}

/* A wrong value is shown as it is, and the command fails. */
static int config_row(struct tool_table *table, struct rf_config *config,
		      const struct rf_config_row *row)
{
	const char *const set = set_in_environment(row->variable);
	char text[RF_CONFIG_TEXT_BYTES], message[256], about[256];
	const int error =
		rf_config_set(config, row->variable, set ? set : row->default_value, message);
	const char *const cells[] = {
		row->variable,
		error ? set : rf_config_format(config, row, text),
		row->default_value,
		error ? "wrong"
		: set ? "environment"
		      : "default",
		row->agreed ? "true" : "false",
		row->choices ? row->choices : "",
		about,
	};

	snprintf(about, sizeof(about), "%s", row->text);
	if (row->choices && table->format == TOOL_TEXT)
		snprintf(about, sizeof(about), "%s (%s)", row->text, row->choices);
	tool_table_row(table, cells);
	if (!error)
		return TOOL_OK;
	fprintf(stderr, "ringfold info: %s\n", message);
	return TOOL_FAILED;
}

static void other_row(struct tool_table *table, const struct rf_config_other *other)
{
	const char *const set = set_in_environment(other->variable);
	const char *const cells[] = {
		other->variable, set ? set : "", "", set ? "environment" : "default", "false", "",
		other->text,
	};

	tool_table_row(table, cells);
}

static void unknown_row(void *user, const char *variable)
{
	const char *const cells[] = {variable,
				     getenv(variable),
				     "",
				     "environment",
				     "false",
				     "",
				     "NOTHING READS THIS: a typing error?"};

	tool_table_row(user, cells);
}

int info_config(enum tool_format format)
{
	struct tool_table table = {.out = stdout,
				   .format = format,
				   .columns = columns,
				   .column_count = sizeof(columns) / sizeof(columns[0])};
	struct rf_config config;
	int status = TOOL_OK;

	memset(&config, 0, sizeof(config));
	tool_table_begin(&table);
	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (config_row(&table, &config, &rf_config_rows[i]) != TOOL_OK)
			status = TOOL_FAILED;
	}
	for (size_t i = 0; i < rf_config_other_count; i++)
		other_row(&table, &rf_config_others[i]);
	rf_config_unknown(unknown_row, &table);
	tool_table_end(&table);
	if (format == TOOL_JSON)
		putchar('\n');
	return status;
}
