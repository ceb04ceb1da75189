/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringfold bench: starts the ranks if it is asked to, makes the communicators, goes through the
 * cases, and prints a row for each.
 */
#include "tools/bench.h"
#include "tools/launch.h"
#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tool_column columns[] = {
	{"collective", "collective", -14, false},
	{"transport", "transport", -9, false},
	{"ranks", "ranks", 5, true},
	{"dtype", "dtype", -8, false},
	{"op", "op", -4, false},
	{"bytes", "bytes", 11, true},
	{"count", NULL, 0, true},
	{"buffers", "buffers", -7, false},
	{"samples", "samples", 7, true},
	{"batch", "batch", 5, true},
	{"median_us", "median us", 10, true},
	{"p99_us", "p99 us", 10, true},
	{"min_us", "min us", 10, true},
	{"algbw_gbps", "algbw GB/s", 10, true},
	{"busbw_gbps", "busbw GB/s", 10, true},
	{"wrong", "wrong", 5, true},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), CELL = 32 };

struct run {
	const struct bench_settings *settings;
	const char *transport; /* "" : as the environment says */
	struct bench bench;
	struct tool_table table;
	bool prints;
	int64_t wrong;
};

/* ---- rows ---- */

static void print_row(struct run *run, const struct bench_case *what,
		      const struct bench_shape *shape, const struct bench_result *result)
{
	const bool folds = what->collective == RF_ALLREDUCE || what->collective == RF_REDUCE ||
			   what->collective == RF_REDUCE_SCATTER;
	const bool moves = what->collective != RF_BARRIER;
	const double gbps = (double)shape->bytes / result->median_us * 1e-3;
	char text[COLUMNS][CELL] = {{0}};
	const char *cells[COLUMNS];
	size_t column = 0;

#define CELL_IS(...) snprintf(text[column++], CELL, __VA_ARGS__)
	CELL_IS("%s", rf_collective_name(what->collective));
	CELL_IS("%s", run->transport[0] ? run->transport : "default");
	CELL_IS("%d", run->bench.ranks);
	CELL_IS("%s", moves ? rf_dtype_name(what->dtype) : "");
	CELL_IS("%s", folds ? rf_op_name(what->op) : "");
	CELL_IS("%zu", shape->bytes);
	CELL_IS("%zu", shape->count);
	CELL_IS("%s", what->cold ? "cold" : "warm");
	CELL_IS("%zu", result->samples);
	CELL_IS("%zu", result->batch);
	CELL_IS("%.2f", result->median_us);
	CELL_IS("%.2f", result->p99_us);
	CELL_IS("%.2f", result->least_us);
	CELL_IS("%.4f", gbps);
	CELL_IS("%.4f", gbps * shape->bus_factor);
	if (run->settings->verify)
		CELL_IS("%lld", (long long)result->wrong);
	else if (run->table.format == TOOL_TEXT)
		CELL_IS("-");
#undef CELL_IS
	for (size_t i = 0; i < COLUMNS; i++)
		cells[i] = text[i];
	tool_table_row(&run->table, cells);
	fflush(stdout);
}

static int failed(struct run *run, const char *what, int error)
{
	rf_failure failure = RF_FAILURE_INIT;

	fprintf(stderr, "ringfold bench: %s: %s\n", what, rf_strerror(error));
	if (run->bench.comm && rf_comm_failure(run->bench.comm, &failure) == 1)
		fprintf(stderr, "ringfold bench: %s\n", failure.message);
	return TOOL_FAILED;
}

static int run_case(struct run *run, const struct bench_case *what)
{
	struct bench_result result;
	struct bench_shape shape;
	int error;

	bench_shape(&run->bench, what, &shape);
	error = bench_measure(&run->bench, what, &shape, &result);
	if (error == RF_ERR_UNSUPPORTED || error == RF_ERR_INVALID) {
		if (run->prints)
			fprintf(stderr, "ringfold bench: no %s of %s with %s: %s\n",
				rf_collective_name(what->collective), rf_dtype_name(what->dtype),
				rf_op_name(what->op), rf_strerror(error));
		return TOOL_OK;
	}
	if (error)
		return failed(run, rf_collective_name(what->collective), error);
	run->wrong += result.wrong;
	if (run->prints)
		print_row(run, what, &shape, &result);
	return TOOL_OK;
}

static int run_sizes(struct run *run, struct bench_case what)
{
	const struct bench_settings *const settings = run->settings;
	const size_t count = what.collective == RF_BARRIER ? 1 : settings->size_count;
	int status = TOOL_OK;

	for (size_t i = 0; i < count && !status; i++) {
		what.bytes = what.collective == RF_BARRIER ? 0 : settings->sizes[i];
		what.cold = false;
		if (settings->warm)
			status = run_case(run, &what);
		what.cold = true;
		if (settings->cold && !status)
			status = run_case(run, &what);
	}
	return status;
}

/* Those that there are: a gather has no operator, a barrier no type either. */
static bool is_possible(const struct bench_settings *settings, const struct bench_case *what)
{
	const bool has_op = what->collective == RF_ALLREDUCE || what->collective == RF_REDUCE ||
			    what->collective == RF_REDUCE_SCATTER;
	const bool has_dtype = what->collective != RF_BARRIER;
	const unsigned lower_ops = settings->ops & ((1u << what->op) - 1);
	const unsigned lower_dtypes = settings->dtypes & ((1u << what->dtype) - 1);

	/* The average of booleans is not defined. */
	if (has_op && what->dtype == RF_BOOL && what->op == RF_AVG)
		return false;
	return (has_op || !lower_ops) && (has_dtype || !lower_dtypes);
}

static bool is_asked_for(const struct bench_settings *settings, const struct bench_case *what)
{
	return (settings->collectives >> what->collective & 1) &&
	       (settings->dtypes >> what->dtype & 1) && (settings->ops >> what->op & 1) &&
	       is_possible(settings, what);
}

static int run_cases(struct run *run)
{
	const size_t cases = (size_t)RF_COLLECTIVE_COUNT * RF_DTYPE_COUNT * RF_OP_COUNT;
	int status = TOOL_OK;

	for (size_t i = 0; i < cases && !status; i++) {
		const struct bench_case what = {
			.collective = (rf_collective)(i / RF_OP_COUNT / RF_DTYPE_COUNT),
			.dtype = (rf_dtype)(i / RF_OP_COUNT % RF_DTYPE_COUNT),
			.op = (rf_op)(i % RF_OP_COUNT)};

		if (is_asked_for(run->settings, &what))
			status = run_sizes(run, what);
	}
	return status;
}

/* ---- communicators ---- */

static size_t rotation(int ranks)
{
	const size_t cache = bench_last_level_cache();
	const size_t memory =
		(size_t)sysconf(_SC_PHYS_PAGES) / 8 / (size_t)ranks * (size_t)sysconf(_SC_PAGESIZE);
	const size_t wanted = cache + cache / 4;

	return wanted < memory ? wanted : memory;
}

static void print_heading(struct run *run)
{
	const struct bench *const bench = &run->bench;

	if (run->table.format != TOOL_TEXT)
		return;
	printf("# ringfold %s, %d ranks, %s, order %s, %s\n"
	       "# cold: round %zu MiB a rank (last-level cache: %zu MiB); results %s\n"
	       "# times: of a call, of the slowest rank, the mean over a batch\n",
	       rf_version(), bench->ranks, run->settings->in_place ? "in place" : "out of place",
	       run->settings->order == RF_ORDER_TREE ? "tree" : "any",
	       run->settings->wire == RF_WIRE_FLOAT32 ? "fp32 on the wire" : "own type on the wire",
	       bench->rotation_bytes >> 20, bench_last_level_cache() >> 20,
	       run->settings->verify ? "verified" : "not verified");
}

/* The ranks that take no part wait at the barrier. */
static int run_over(struct run *run, rf_comm *whole, int ranks)
{
	const int rank = rf_comm_rank(whole);
	rf_comm *part;
	int status = TOOL_OK;
	int error = rf_comm_split(whole, rank < ranks ? 0 : -1, rank, NULL, &part);

	if (error)
		return failed(run, "cannot split the ranks", error);
	if (part) {
		run->bench.comm = part;
		run->bench.rank = rf_comm_rank(part);
		run->bench.ranks = rf_comm_size(part);
		status = run_cases(run);
		rf_comm_destroy(&part);
	}
	run->bench.comm = whole;
	error = rf_barrier(whole);
	if (error && !status)
		status = failed(run, "barrier", error);
	return status;
}

static int run_whole(struct run *run, rf_comm *whole)
{
	const struct bench_settings *const settings = run->settings;
	const size_t size = (size_t)rf_comm_size(whole);
	int status = TOOL_OK;

	for (size_t i = 0; i < settings->over_count && !status; i++) {
		if (settings->over[i] > size) {
			fprintf(stderr, "ringfold bench: --over %zu: there are %zu ranks\n",
				settings->over[i], size);
			return TOOL_USAGE;
		}
		status = run_over(run, whole, (int)settings->over[i]);
	}
	return settings->over_count ? status : run_cases(run);
}

static int run_transport(struct run *run, const char *transport)
{
	rf_context_options context_options = RF_CONTEXT_OPTIONS_INIT;
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	rf_context *context;
	int status, error;

	run->transport = transport;
	context_options.transport = transport[0] ? transport : NULL;
	options.name = "ringfold bench";
	error = rf_context_create(&context_options, &context);
	if (error)
		return failed(run, "cannot make a context", error);
	error = rf_comm_create(context, &options, &run->bench.comm);
	if (error) {
		run->bench.comm = NULL;
		status = failed(run, "cannot join the other ranks (or to start some: -n 2)", error);
		rf_context_destroy(&context);
		return status;
	}
	run->bench.rank = rf_comm_rank(run->bench.comm);
	run->bench.ranks = rf_comm_size(run->bench.comm);
	run->bench.rotation_bytes = rotation(run->bench.ranks);
	if (run->settings->cold && !run->bench.sweep)
		run->bench.sweep = malloc(run->bench.rotation_bytes);
	if (!run->prints && run->bench.rank == 0) {
		run->prints = true;
		print_heading(run);
		tool_table_begin(&run->table);
	}
	status = run_whole(run, run->bench.comm);
	rf_comm_destroy(&run->bench.comm);
	rf_context_destroy(&context);
	return status;
}

static int measure(const struct bench_settings *settings)
{
	struct run run = {.settings = settings,
			  .table = {stdout, settings->format, columns, COLUMNS, 0}};
	char names[BENCH_TEXT], *rest = names, *name;
	int status = TOOL_OK;

	run.bench.settings = settings;
	snprintf(names, sizeof(names), "%s", settings->transports);
	if (!names[0])
		status = run_transport(&run, "");
	while (!status && names[0] && (name = strsep(&rest, ",")))
		status = run_transport(&run, name);
	free(run.bench.sweep);
	if (run.prints)
		tool_table_end(&run.table);
	if (run.prints && settings->format == TOOL_JSON)
		putchar('\n');
	if (run.wrong && run.prints)
		fprintf(stderr, "ringfold bench: %lld WRONG elements\n", (long long)run.wrong);
	/* Rank 0 alone says so: a rank that fails ends the others. */
	return run.wrong && run.prints && !status ? TOOL_FAILED : status;
}

/* ---- the verb ---- */

/* The same command on every rank, without the option that starts them. */
static int start_ranks(const struct bench_settings *settings, int argc, char **argv)
{
	const struct launch launch = {.verb = "ringfold bench",
				      .ranks = settings->ranks,
				      .stdin_rank = -1,
				      .grace_ms = 5000};
	char self[] = "/proc/self/exe";
	char **const command = calloc((size_t)argc + 2, sizeof(*command));
	int words = 0, status;

	if (!command)
		return TOOL_FAILED;
	command[words++] = self;
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--ranks") == 0)
			i++;
		else if (strncmp(argv[i], "-n", 2) != 0 && strncmp(argv[i], "--ranks=", 8) != 0)
			command[words++] = argv[i];
	}
	status = launch_ranks(&launch, command);
	free(command);
	return status;
}

static int run(const struct tool_verb *verb, int argc, char **argv)
{
	struct bench_settings settings;
	int status, operand;

	bench_defaults(&settings);
	operand = tool_parse(verb, &settings, argc, argv, &status);
	if (operand < 0)
		return status;
	if (operand < argc)
		return tool_wrong(verb, "\"%s\" is not an option", argv[operand]);
	if (settings.ranks)
		return start_ranks(&settings, argc, argv);
	bench_fill_sizes(&settings);
	return measure(&settings);
}

const struct tool_verb tool_bench = {
	.name = "bench",
	.summary = "measures the collectives, and verifies their results",
	.synopsis = "[-n N] [options]",
	.description =
		"Measures collectives and prints a row for each type, operator, size and kind of\n"
		"buffer. With -n it starts its ranks on this machine; without, a launcher has\n"
		"started it as all the ranks (ringfold run, torchrun, mpirun, srun, pods).\n"
		"\n"
		"Inputs are written anew before every round, and results compared with what they\n"
		"must be, outside the time that is measured. A time is that of a call on the\n"
		"slowest rank: median, 99th percentile and least. Small calls are timed in "
		"batches\n"
		"of calls that follow one another. Cold buffers are in no cache: calls go round\n"
		"more memory than the last-level cache holds.\n"
		"\n"
		"algbw is size / time. busbw is that times 2(n-1)/n for allreduce, (n-1)/n for\n"
		"reduce_scatter and allgather, 1 for the others: what the busiest link carries,\n"
		"whatever the number of ranks. Sizes are of all that is reduced or gathered.\n",
	.options = bench_options,
	.more = "Exit status: 0; 1 if a call failed or a result was wrong; 2 after a typing "
		"error;\n"
		"with -n as for ringfold run.\n"
		"\n"
		"Examples:\n"
		"  ringfold bench -n 2\n"
		"  ringfold bench -n 4 -b 1M -e 64M -f 2 -d float32,bfloat16 --csv\n"
		"  mpirun -np 8 ringfold bench -c all -s 8,64K,16M\n",
	.run = run,
};
