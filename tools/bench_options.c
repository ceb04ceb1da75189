/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of ringfold bench. */
#include "tools/bench.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

/* Calls take for each of the words between commas. */
static bool each_word(const char *list, bool (*take)(void *user, const char *word), void *user)
{
	char word[64];

	for (;;) {
		const size_t length = strcspn(list, ",");

		if (length == 0 || length >= sizeof(word))
			return false;
		memcpy(word, list, length);
		word[length] = '\0';
		if (!take(user, word))
			return false;
		if (!list[length])
			return true;
		list += length + 1;
	}
}

struct names {
	const char *const *names;
	unsigned count;
	unsigned bits;
};

static bool take_name(void *user, const char *word)
{
	struct names *const names = user;

	if (strcmp(word, "all") == 0) {
		names->bits = (1u << names->count) - 1;
		return true;
	}
	for (unsigned i = 0; i < names->count; i++) {
		if (strcmp(names->names[i], word) == 0) {
			names->bits |= 1u << i;
			return true;
		}
	}
	return false;
}

static const char *const collective_words[] = {
#define X(NAME, name) #name,
	RF_COLLECTIVE_LIST(X)
#undef X
};
static const char *const dtype_words[] = {
#define X(NAME, name, bytes) #name,
	RF_DTYPE_LIST(X)
#undef X
};
static const char *const op_words[] = {
#define X(NAME, name) #name,
	RF_OP_LIST(X)
#undef X
};

static bool set_names(const char *const *words, unsigned count, const char *argument,
		      unsigned *bits)
{
	struct names names = {words, count, 0};

	if (!each_word(argument, take_name, &names))
		return false;
	*bits = names.bits;
	return true;
}

static bool parse_size(const char *text, size_t *bytes)
{
	static const char units[] = "kmgKMG";
	char *end;
	const unsigned long long number = strtoull(text, &end, 10);
	const char *const unit = *end ? strchr(units, *end) : NULL;
	const int shift = unit ? (int)((unit - units) % 3 + 1) * 10 : 0;

	if (end == text || text[0] == '-' || (*end && (!unit || end[1])) ||
	    number > (1ull << 40) >> shift)
		return false;
	*bytes = (size_t)number << shift;
	return true;
}

static bool take_size(void *user, const char *word)
{
	struct bench_settings *const settings = user;

	return settings->size_count < BENCH_LIST &&
	       parse_size(word, &settings->sizes[settings->size_count++]);
}

static bool take_over(void *user, const char *word)
{
	struct bench_settings *const settings = user;
	long long number;

	if (settings->over_count == BENCH_LIST || !tool_number(word, 1, 65536, &number))
		return false;
	settings->over[settings->over_count++] = (size_t)number;
	return true;
}

void bench_fill_sizes(struct bench_settings *settings)
{
	size_t size = settings->begin;

	if (settings->size_count)
		return;
	while (size <= settings->end && settings->size_count < BENCH_LIST) {
		settings->sizes[settings->size_count++] = size;
		if (size > settings->end / settings->factor)
			return;
		size = size ? size * settings->factor : 8;
	}
}

/* ---- one function an option ---- */

#define OPTION(name) static bool set_##name(void *settings_, const char *argument)
#define SETTINGS     struct bench_settings *const settings = settings_

OPTION(ranks)
{
	SETTINGS;
	long long number;

	if (!tool_number(argument, 1, 65536, &number))
		return false;
	settings->ranks = (int)number;
	return true;
}

OPTION(collectives)
{
	SETTINGS;
	return set_names(collective_words, RF_COLLECTIVE_COUNT, argument, &settings->collectives);
}

OPTION(dtypes)
{
	SETTINGS;
	return set_names(dtype_words, RF_DTYPE_COUNT, argument, &settings->dtypes);
}

OPTION(ops)
{
	SETTINGS;
	return set_names(op_words, RF_OP_COUNT, argument, &settings->ops);
}

OPTION(sizes)
{
	SETTINGS;
	settings->size_count = 0;
	return each_word(argument, take_size, settings);
}

OPTION(begin)
{
	SETTINGS;
	return parse_size(argument, &settings->begin);
}

OPTION(end)
{
	SETTINGS;
	return parse_size(argument, &settings->end);
}

OPTION(factor)
{
	SETTINGS;
	return parse_size(argument, &settings->factor) && settings->factor >= 2;
}

OPTION(over)
{
	SETTINGS;
	settings->over_count = 0;
	return each_word(argument, take_over, settings);
}

OPTION(transports)
{
	SETTINGS;
	return argument[0] &&
	       (size_t)snprintf(settings->transports, BENCH_TEXT, "%s", argument) < BENCH_TEXT;
}

OPTION(buffers)
{
	SETTINGS;
	settings->warm = strcmp(argument, "cold") != 0;
	settings->cold = strcmp(argument, "warm") != 0;
	return !settings->warm || !settings->cold || strcmp(argument, "both") == 0;
}

OPTION(in_place)
{
	SETTINGS;
	(void)argument;
	settings->in_place = true;
	return true;
}

OPTION(order)
{
	SETTINGS;
	settings->order = strcmp(argument, "tree") == 0 ? RF_ORDER_TREE : RF_ORDER_ANY;
	return settings->order == RF_ORDER_TREE || strcmp(argument, "any") == 0;
}

OPTION(wire)
{
	SETTINGS;
	settings->wire = strcmp(argument, "float32") == 0 ? RF_WIRE_FLOAT32 : RF_WIRE_SAME;
	return settings->wire == RF_WIRE_FLOAT32 || strcmp(argument, "same") == 0;
}

OPTION(seconds)
{
	SETTINGS;
	return tool_seconds(argument, &settings->time_ms);
}

static bool set_count(const char *argument, long long least, long long most, size_t *count)
{
	long long number;

	if (!tool_number(argument, least, most, &number))
		return false;
	*count = (size_t)number;
	return true;
}

OPTION(samples)
{
	SETTINGS;
	return set_count(argument, 1, 100000, &settings->samples);
}

OPTION(warmup)
{
	SETTINGS;
	return set_count(argument, 1, 1000000, &settings->warmup);
}

OPTION(batch)
{
	SETTINGS;
	return set_count(argument, 1, 1000, &settings->batch);
}

OPTION(no_verify)
{
	SETTINGS;
	(void)argument;
	settings->verify = false;
	return true;
}

OPTION(csv)
{
	SETTINGS;
	(void)argument;
	settings->format = TOOL_CSV;
	return true;
}

OPTION(json)
{
	SETTINGS;
	(void)argument;
	settings->format = TOOL_JSON;
	return true;
}

const struct tool_option bench_options[] = {
	{'n', "ranks", "N",
	 "starts N ranks on this machine, 1 to 65536; without it\n"
	 "a launcher has started the ranks",
	 set_ranks},
	{'c', "collectives", "LIST",
	 "of allreduce, reduce, broadcast, reduce_scatter,\n"
	 "allgather, barrier, or all (default allreduce)",
	 set_collectives},
	{'d', "dtypes", "LIST",
	 "of int8, uint8, int32, uint32, int64, uint64, float16,\n"
	 "bfloat16, float32, float64, bool, or all (default float32)",
	 set_dtypes},
	{'o', "ops", "LIST", "of sum, prod, min, max, avg, or all (default sum)", set_ops},
	{'b', "begin", "SIZE", "the smallest size: 8, 4K, 16M (default 8)", set_begin},
	{'e', "end", "SIZE", "the largest size (default 16M)", set_end},
	{'f', "factor", "N", "from one size to the next, at least 2 (default 8)", set_factor},
	{'s', "sizes", "LIST", "these sizes instead: 8,4K,16M", set_sizes},
	{0, "over", "LIST",
	 "numbers of ranks: measures over so many of the first\n"
	 "ranks, one after the other (default all)",
	 set_over},
	{'t', "transports", "LIST", "one after the other, as RINGFOLD_TRANSPORT (default that)",
	 set_transports},
	{0, "buffers", "WHICH",
	 "warm (the same all the time), cold (not in any cache),\n"
	 "or both (default)",
	 set_buffers},
	{0, "in-place", NULL, "input and result in the same buffer; no batches", set_in_place},
	{0, "order", "ORDER", "any (default), or tree: RF_ORDER_TREE", set_order},
	{0, "wire", "WIRE", "same (default), or float32: RF_WIRE_FLOAT32", set_wire},
	{0, "seconds", "S", "how long to measure each row (default 0.5)", set_seconds},
	{0, "samples", "N", "so many samples instead, 1 to 100000", set_samples},
	{'w', "warmup", "N", "calls before measuring, at least 1 (default 5)", set_warmup},
	{0, "batch", "N",
	 "calls in a sample, 1 to 1000 (default: 1, 10, 100 or\n"
	 "1000, whichever takes at most 5 ms)",
	 set_batch},
	{0, "no-verify", NULL, "does not compare the results with the expected", set_no_verify},
	{0, "csv", NULL, "comma-separated values", set_csv},
	{0, "json", NULL, "JSON", set_json},
	{0},
};

void bench_defaults(struct bench_settings *settings)
{
	*settings = (struct bench_settings){
		.collectives = 1u << RF_ALLREDUCE,
		.dtypes = 1u << RF_FLOAT32,
		.ops = 1u << RF_SUM,
		.begin = 8,
		.end = 16u << 20,
		.factor = 8,
		.warm = true,
		.cold = true,
		.verify = true,
		.time_ms = 500,
		.warmup = 5,
	};
}
