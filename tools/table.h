/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of results: rows for a person, or the same as CSV or JSON. Rows are written as they come.
 */
#ifndef RF_TABLE_H
#define RF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum tool_format { TOOL_TEXT, TOOL_CSV, TOOL_JSON };

struct tool_column {
	const char *name; /* CSV, JSON: the key */
	const char *head; /* text: the heading; NULL: the column is not shown */
	int width;        /* text: at least; below zero: aligned to the left */
	bool number;      /* JSON: without quotes; an empty cell is null */
};

struct tool_table {
	FILE *out;
	enum tool_format format;
	const struct tool_column *columns;
	size_t column_count;
	size_t rows;
};

void tool_table_begin(struct tool_table *table);
void tool_table_row(struct tool_table *table, const char *const *cells);
void tool_table_end(struct tool_table *table);

/* A quoted and escaped JSON string. */
void tool_json_string(FILE *out, const char *text);

#endif
