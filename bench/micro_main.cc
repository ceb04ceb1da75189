/* SPDX-License-Identifier: BSD-3-Clause */
/* Hands the C cases to Google Benchmark. Its options apply (--help, --benchmark_filter=fold2). */
#include "bench/micro.h"

#include <benchmark/benchmark.h>

static void run(benchmark::State &state, const struct micro_case *one)
{
	void *prepared = one->begin(one);

	if (!prepared) {
		state.SkipWithError("not possible here");
		return;
	}
	while (state.KeepRunningBatch(16))
		one->repeat(prepared, 16);
	one->end(prepared);
	if (one->bytes)
		state.SetBytesProcessed(static_cast<int64_t>(one->bytes) *
					static_cast<int64_t>(state.iterations()));
}

static void add(const struct micro_case *cases)
{
	for (; cases->name; cases++)
		benchmark::RegisterBenchmark(cases->name, run, cases);
}

int main(int argc, char **argv)
{
	benchmark::Initialize(&argc, argv);
	if (benchmark::ReportUnrecognizedArguments(argc, argv))
		return 1;
	add(micro_kernel_cases());
	add(micro_primitive_cases());
	benchmark::RunSpecifiedBenchmarks();
	benchmark::Shutdown();
	return 0;
}
