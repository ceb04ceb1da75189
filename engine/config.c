/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration: the rows of RF_CONFIG_LIST, read from text and written back as text. */
#include "engine/config.h"
#include "engine/kernels/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct rf_config_row rf_config_rows[] = {
#define X(field, variable, kind, default_value, agreed, choices, text) \
	{variable,                                                     \
	 RF_CONFIG_##kind,                                             \
	 default_value,                                                \
	 agreed,                                                       \
	 choices,                                                      \
	 text,                                                         \
	 offsetof(struct rf_config, field)},
	RF_CONFIG_LIST(X)
#undef X
};
const size_t rf_config_row_count = sizeof(rf_config_rows) / sizeof(rf_config_rows[0]);

const struct rf_config_other rf_config_others[] = {
#define X(variable, text) {variable, text},
	RF_CONFIG_OTHER_LIST(X)
#undef X
};
const size_t rf_config_other_count = sizeof(rf_config_others) / sizeof(rf_config_others[0]);

/* ---- values from text ---- */

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"", 1},         {"k", 1u << 10}, {"K", 1u << 10}, {"m", 1u << 20},
	{"M", 1u << 20}, {"g", 1u << 30}, {"G", 1u << 30}, {NULL, 0},
};
static const struct unit time_units[] = {
	{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000}, {NULL, 0},
};

/* A number and a unit, at most INT64_MAX. */
static bool parse_units(const char *text, const struct unit *units, uint64_t *value)
{
	uint64_t number = 0;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++) {
		const uint64_t digit = (uint64_t)(*at - '0');

		if (number > (INT64_MAX - digit) / 10)
			return false;
		number = number * 10 + digit;
	}
	if (at == text)
		return false;
	for (; units->suffix; units++) {
		if (strcmp(at, units->suffix) == 0)
			break;
	}
	if (!units->suffix || number > INT64_MAX / units->factor)
		return false;
	*value = number * units->factor;
	return true;
}

static bool parse_size(const char *text, void *field)
{
	uint64_t value;

	if (!parse_units(text, size_units, &value) || value > SIZE_MAX)
		return false;
	*(size_t *)field = (size_t)value;
	return true;
}

static bool parse_time(const char *text, void *field)
{
	uint64_t value;

	if (!parse_units(text, time_units, &value))
		return false;
	*(int64_t *)field = (int64_t)value;
	return true;
}

static bool parse_count(const struct rf_config_row *row, const char *text, void *field)
{
	static const struct unit none[] = {{"", 1}, {NULL, 0}};
	const bool negative = text[0] == '-';
	uint64_t value;

	if (negative && row->default_value[0] != '-')
		return false;
	if (!parse_units(text + negative, none, &value))
		return false;
	*(int64_t *)field = negative ? -(int64_t)value : (int64_t)value;
	return true;
}

static bool parse_text(const char *text, char *field)
{
	if (strlen(text) >= RF_CONFIG_TEXT_BYTES)
		return false;
	memset(field, 0, RF_CONFIG_TEXT_BYTES);
	memcpy(field, text, strlen(text));
	return true;
}

static bool parse_port(const char **text, uint16_t *port)
{
	unsigned number = 0;
	const char *at = *text;

	for (; *at >= '0' && *at <= '9' && number <= UINT16_MAX; at++)
		number = number * 10 + (unsigned)(*at - '0');
	*text = at;
	*port = (uint16_t)number;
	return number > 0 && number <= UINT16_MAX;
}

bool rf_config_ports(const char *text, uint16_t *first, uint16_t *last)
{
	*first = *last = 0;
	if (!text[0])
		return true;
	if (!parse_port(&text, first))
		return false;
	*last = *first;
	if (*text == '-') {
		text++;
		if (!parse_port(&text, last))
			return false;
	}
	return !*text && *first <= *last;
}

static bool parse_ports(const char *text, char *field)
{
	uint16_t first, last;

	return rf_config_ports(text, &first, &last) && parse_text(text, field);
}

static bool parse_isa(const char *text, char *field)
{
	for (size_t i = 0; text[0]; i++) {
		if (i == rf_kernel_set_count)
			return false;
		if (!strcmp(text, rf_kernel_sets[i].name) && rf_kernel_sets[i].is_supported())
			break;
	}
	return parse_text(text, field);
}

static bool is_choice(const char *choices, const char *word)
{
	const size_t length = strlen(word);

	for (;;) {
		const size_t choice = strcspn(choices, "|");

		if (choice == length && memcmp(choices, word, length) == 0)
			return true;
		if (!choices[choice])
			return false;
		choices += choice + 1;
	}
}

static bool parse(const struct rf_config_row *row, const char *text, void *field)
{
	switch (row->kind) {
	case RF_CONFIG_SIZE:
		return parse_size(text, field);
	case RF_CONFIG_COUNT:
		return parse_count(row, text, field);
	case RF_CONFIG_TIME:
		return parse_time(text, field);
	case RF_CONFIG_PORTS:
		return parse_ports(text, field);
	case RF_CONFIG_ISA:
		return parse_isa(text, field);
	case RF_CONFIG_TEXT:
		return parse_text(text, field);
	case RF_CONFIG_CHOICE:
		return is_choice(row->choices, text) && parse_text(text, field);
	}
	return false;
}

static void explain(const struct rf_config_row *row, const char *name, const char *value,
		    char message[256])
{
	static const char *const expected[] = {
		[RF_CONFIG_SIZE] = "a number of bytes such as 65536, 64K, 1M or 2G",
		[RF_CONFIG_COUNT] = "a whole number",
		[RF_CONFIG_TIME] = "a time such as 1800 (seconds), 500ms, 30s, 5m or 2h",
		[RF_CONFIG_PORTS] = "a number from 1 to 65535, or a range such as 7000-7010",
		[RF_CONFIG_ISA] = "one that this processor runs:",
		[RF_CONFIG_TEXT] = "at most 63 bytes",
		[RF_CONFIG_CHOICE] = "one of ",
	};
	const bool below = row->kind == RF_CONFIG_COUNT && row->default_value[0] != '-';

	snprintf(message, 256, "%s is \"%.80s\", but must be %s%s%s", name, value,
		 expected[row->kind], below ? " from 0" : "", row->choices ? row->choices : "");
}

/* Behind the message, what there is. */
static void list_isas(char message[256])
{
	for (size_t i = 0; i < rf_kernel_set_count; i++) {
		const size_t used = strlen(message);

		if (rf_kernel_sets[i].is_supported())
			snprintf(message + used, 256 - used, "%s %s", i ? "," : "",
				 rf_kernel_sets[i].name);
	}
}

static int set_row(struct rf_config *config, const struct rf_config_row *row, const char *name,
		   const char *value, char message[256])
{
	if (parse(row, value, (char *)config + row->offset))
		return RF_OK;
	explain(row, name, value, message);
	if (row->kind == RF_CONFIG_ISA)
		list_isas(message);
	return RF_ERR_CONFIG;
}

static const struct rf_config_row *find_row(const char *variable)
{
	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (strcmp(rf_config_rows[i].variable, variable) == 0)
			return &rf_config_rows[i];
	}
	return NULL;
}

/* ---- values to text ---- */

/* In the largest unit that divides the value. The units ascend; alternatives for reading (k, K)
 * stand before the one that is written. */
static void format_units(const struct unit *units, uint64_t value, char *text)
{
	const struct unit *best = units;

	for (; units->suffix; units++) {
		if (value && units->suffix[0] && value % units->factor == 0)
			best = units;
	}
	snprintf(text, RF_CONFIG_TEXT_BYTES, "%" PRIu64 "%s", value / best->factor, best->suffix);
}

/* ---- what others call ---- */

int rf_config_load(struct rf_config *config, char message[256])
{
	struct rf_config loaded;

	memset(&loaded, 0, sizeof(loaded));
	for (size_t i = 0; i < rf_config_row_count; i++) {
		const struct rf_config_row *row = &rf_config_rows[i];
		const char *value = getenv(row->variable);
		const int error = set_row(&loaded, row, row->variable,
					  value && value[0] ? value : row->default_value, message);

		if (error)
			return error;
	}
	*config = loaded;
	return RF_OK;
}

int rf_config_set(struct rf_config *config, const char *variable, const char *value,
		  char message[256])
{
	return rf_config_set_as(config, variable, variable, value, message);
}

int rf_config_set_as(struct rf_config *config, const char *variable, const char *name,
		     const char *value, char message[256])
{
	const struct rf_config_row *row = find_row(variable);

	if (row)
		return set_row(config, row, name, value, message);
	snprintf(message, 256, "there is no variable \"%.80s\"", variable);
	return RF_ERR_CONFIG;
}

const char *rf_config_format(const struct rf_config *config, const struct rf_config_row *row,
			     char text[RF_CONFIG_TEXT_BYTES])
{
	const void *field = (const char *)config + row->offset;

	switch (row->kind) {
	case RF_CONFIG_SIZE:
		format_units(size_units, *(const size_t *)field, text);
		break;
	case RF_CONFIG_TIME:
		if (*(const int64_t *)field)
			format_units(time_units, (uint64_t) * (const int64_t *)field, text);
		else
			snprintf(text, RF_CONFIG_TEXT_BYTES, "0");
		break;
	case RF_CONFIG_COUNT:
		snprintf(text, RF_CONFIG_TEXT_BYTES, "%" PRId64, *(const int64_t *)field);
		break;
	case RF_CONFIG_PORTS:
	case RF_CONFIG_ISA:
	case RF_CONFIG_TEXT:
	case RF_CONFIG_CHOICE:
		snprintf(text, RF_CONFIG_TEXT_BYTES, "%s", (const char *)field);
		break;
	}
	return text;
}

static bool matches(const char *variable, const char *pattern)
{
	const size_t fixed = strcspn(pattern, "*");

	if (!pattern[fixed])
		return strcmp(variable, pattern) == 0;
	return strncmp(variable, pattern, fixed) == 0;
}

static bool is_read(const char *variable)
{
	for (size_t i = 0; i < rf_config_other_count; i++) {
		if (matches(variable, rf_config_others[i].variable))
			return true;
	}
	return find_row(variable) != NULL;
}

void rf_config_unknown(void (*visit)(void *user, const char *variable), void *user)
{
	static const char prefix[] = "RINGFOLD_";
	char variable[128];

	for (char **entry = environ; entry && *entry; entry++) {
		const size_t length = strcspn(*entry, "=");
		const bool is_set = (*entry)[length] && (*entry)[length + 1];

		if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0)
			continue;

		snprintf(variable, sizeof(variable), "%.*s", (int)length, *entry);
		if (is_set && !is_read(variable))
			visit(user, variable);
	}
}
