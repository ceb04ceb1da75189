/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/table.h"

#include <string.h>

void tool_json_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

static void csv_cell(FILE *out, const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++)
		fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
	fputc('"', out);
}

static void csv_row(struct tool_table *table, const char *const *cells)
{
	for (size_t i = 0; i < table->column_count; i++) {
		if (i)
			fputc(',', table->out);
		csv_cell(table->out, cells ? cells[i] : table->columns[i].name);
	}
	fputc('\n', table->out);
}

/* Without cells the headings. Nothing follows the last text of a line. */
static void text_row(struct tool_table *table, const char *const *cells)
{
	int owed = 0;
	bool first = true;

	for (size_t i = 0; i < table->column_count; i++) {
		const struct tool_column *column = &table->columns[i];
		const char *const cell = cells ? cells[i] : column->head;
		const int width = column->width < 0 ? -column->width : column->width;
		const int length = column->head ? (int)strlen(cell) : 0;
		const int pad = length < width ? width - length : 0;

		if (!column->head)
			continue;
		owed += first ? 0 : 2;
		first = false;
		if (column->width > 0)
			owed += pad;
		if (length > 0) {
			fprintf(table->out, "%*s%s", owed, "", cell);
			owed = 0;
		}
		if (column->width < 0)
			owed += pad;
	}
	fputc('\n', table->out);
}

static void json_row(struct tool_table *table, const char *const *cells)
{
	fputs(table->rows ? ",\n  {" : "\n  {", table->out);
	for (size_t i = 0; i < table->column_count; i++) {
		if (i)
			fputs(", ", table->out);
		tool_json_string(table->out, table->columns[i].name);
		fputs(": ", table->out);
		if (!table->columns[i].number)
			tool_json_string(table->out, cells[i]);
		else
			fputs(cells[i][0] ? cells[i] : "null", table->out);
	}
	fputc('}', table->out);
}

void tool_table_begin(struct tool_table *table)
{
	table->rows = 0;
	switch (table->format) {
	case TOOL_TEXT:
		text_row(table, NULL);
		break;
	case TOOL_CSV:
		csv_row(table, NULL);
		break;
	case TOOL_JSON:
		fputc('[', table->out);
		break;
	}
}

void tool_table_row(struct tool_table *table, const char *const *cells)
{
	switch (table->format) {
	case TOOL_TEXT:
		text_row(table, cells);
		break;
	case TOOL_CSV:
		csv_row(table, cells);
		break;
	case TOOL_JSON:
		json_row(table, cells);
		break;
	}
	table->rows++;
}

void tool_table_end(struct tool_table *table)
{
	if (table->format == TOOL_JSON)
		fputs(table->rows ? "\n]" : "]", table->out);
}
