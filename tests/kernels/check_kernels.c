/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every set of kernels gives the reference's bits, and the reference those of its definition: for
 * all types and operators, all sizes up to several vectors, all offsets, any bit patterns, in a
 * foreign floating-point environment, which is restored; and nothing is read or written outside
 * the buffers. --small leaves out what takes 4 GiB of addresses; --bench measures instead, and
 * --bench --json prints it for programs.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/kernels/table.h"
#include "tests/kernels/bench.h"
#include "tests/kernels/buffers.h"
#include "tests/kernels/fpstate.h"
#include "tests/kernels/oracle.h"

/* The AVX-512 kernels on any machine: avx512_emulated.c. */
extern const struct rf_kernel_table rf_kernels_avx512_emulated;

#define SOURCES_MAX 128

/* One call under test. */
struct call {
	enum { FOLD2, FOLDP, FINISH } shape;
	rf_op op;
	rf_dtype dst_type;
	rf_dtype first_type; /* of the first source; the others have second_type */
	rf_dtype second_type;
	size_t source_count;
	uint64_t divisor;
	size_t count;
};

static struct buffer destination, sources[SOURCES_MAX];
static uint64_t seed;
static unsigned long calls_made;
static const struct call *current_call; /* and of which set, for a crash */
static const char *current_set;

static const char *const shape_names[] = {"fold2", "foldp", "finish"};

static rf_dtype type_of_source(const struct call *call, size_t k)
{
	return k == 0 ? call->first_type : call->second_type;
}

static void fail(const char *set, const struct call *call, const char *what)
{
	fprintf(stderr,
		"%s: %s %s, %s from %s and %s, %zu sources, divisor %llu, %zu elements: %s\n"
		"RINGFOLD_TEST_SEED=%llu\n",
		set, shape_names[call->shape], rf_op_name(call->op), rf_dtype_name(call->dst_type),
		rf_dtype_name(call->first_type), rf_dtype_name(call->second_type),
		call->source_count, (unsigned long long)call->divisor, call->count, what,
		(unsigned long long)seed);
	exit(1);
}

static void make_call(const struct rf_kernel_table *table, const struct call *call, void *dst,
		      const void *const *from)
{
	switch (call->shape) {
	case FOLD2:
		rf_table_fold2(table, call->op, call->dst_type, dst, call->first_type, from[0],
			       call->second_type, from[1], call->count);
		break;
	case FOLDP:
		rf_table_foldp(table, call->op, call->dst_type, dst, call->first_type, from,
			       call->source_count, call->count, call->divisor);
		break;
	case FINISH:
		rf_table_finish(table, call->dst_type, dst, call->first_type, from[0], call->count,
				call->divisor);
		break;
	}
}

/* A kernel touched what is not its own, or trapped. Unsafe in a handler, but the test ends here. */
static void crashed(int number)
{
	fpstate_write(FPSTATE_DEFAULT);
	signal(number, SIG_DFL);
	if (current_call != NULL)
		fail(current_set, current_call, strsignal(number));
	raise(number);
}

/* The call with a caller's environment that is not the usual one. */
static void make_call_abroad(const char *set, const struct rf_kernel_table *table,
			     const struct call *call, void *dst, const void *const *from)
{
	const uint64_t usual = fpstate_read();
	uint64_t before, after;

	current_call = call;
	current_set = set;
	fpstate_write(fpstate_foreign(random_next()));
	before = fpstate_read();
	make_call(table, call, dst, from);
	after = fpstate_read();
	fpstate_write(usual);
	current_call = NULL;
	if (before != after)
		fail(set, call, "the floating-point environment was not restored");
}

static void expect_same(const char *set, const struct call *call, const char *expected,
			const char *got)
{
	const size_t bytes = rf_dtype_size(call->dst_type);
	char what[128];

	for (size_t i = 0; i < call->count; i++) {
		uint64_t want = 0, have = 0;

		if (memcmp(expected + i * bytes, got + i * bytes, bytes) == 0)
			continue;
		memcpy(&want, expected + i * bytes, bytes);
		memcpy(&have, got + i * bytes, bytes);
		snprintf(what, sizeof(what), "element %zu is %#llx and should be %#llx", i,
			 (unsigned long long)have, (unsigned long long)want);
		fail(set, call, what);
	}
}

/*
 * Makes a call with its destination and sources at the given places, and compares. If alias is
 * the number of a source, dst is that source.
 */
static void check_call(const struct rf_kernel_set *set, const struct call *call, int dst_at,
		       const int *source_at, size_t alias)
{
	static char expected[BUFFER_PAYLOAD_MAX];
	const void *content[SOURCES_MAX], *from[SOURCES_MAX];
	rf_dtype types[SOURCES_MAX];
	char *dst;

	for (size_t k = 0; k < call->source_count; k++) {
		types[k] = type_of_source(call, k);
		content[k] = pool_window(types[k], call->count);
		buffer_place(&sources[k], source_at[k], content[k],
			     call->count * rf_dtype_size(types[k]));
		from[k] = sources[k].payload;
	}
	if (set->table == &rf_kernels_reference)
		oracle_fold(call->op, call->dst_type, expected, types, content, call->source_count,
			    call->count, call->divisor);
	else
		make_call(&rf_kernels_reference, call, expected, content);
	buffer_place(&destination, dst_at, pool_window(call->dst_type, call->count),
		     call->count * rf_dtype_size(call->dst_type));
	dst = alias < call->source_count ? sources[alias].payload : destination.payload;

	make_call_abroad(set->name, set->table, call, dst, from);
	calls_made++;

	expect_same(set->name, call, expected, dst);
	if (!buffer_is_intact(&destination))
		fail(set->name, call, "wrote outside of the destination");
	for (size_t k = 0; k < call->source_count; k++) {
		if (!buffer_is_intact(&sources[k]))
			fail(set->name, call, "wrote outside of a source");
		if (k != alias && memcmp(from[k], content[k], sources[k].bytes) != 0)
			fail(set->name, call, "changed a source");
	}
}

/* ---- the promises --------------------------------------------------------------------------- */

static int random_place(void)
{
	return random_below(4) == 0 ? BUFFER_AT_END : (int)random_below(64);
}

static uint64_t random_divisor(void)
{
	static const uint64_t divisors[] = {0, 1, 2, 3, 4, 7, 255, 256, 1000003, UINT64_MAX};

	return divisors[random_below(sizeof(divisors) / sizeof(divisors[0]))];
}

/* A source of the destination's size, or none. */
static size_t random_alias(const struct call *call)
{
	const size_t k = random_below(call->source_count);

	if (random_below(3) != 0 ||
	    rf_dtype_size(type_of_source(call, k)) != rf_dtype_size(call->dst_type))
		return SOURCES_MAX;
	return k;
}

static void check_anywhere(const struct rf_kernel_set *set, const struct call *call)
{
	int at[SOURCES_MAX];

	for (size_t k = 0; k < call->source_count; k++)
		at[k] = random_place();
	check_call(set, call, random_place(), at, random_alias(call));
}

/* Several rounds of the unrolled loop's largest vectors, and a part. */
static size_t count_max(const struct call *call)
{
	const size_t dst_bytes = rf_dtype_size(call->dst_type);
	const size_t src_bytes = rf_dtype_size(call->first_type);

	return 447 / (dst_bytes < src_bytes ? dst_bytes : src_bytes);
}

static void check_all_sizes(const struct rf_kernel_set *set, struct call call, size_t step)
{
	for (call.count = random_below(step); call.count <= count_max(&call); call.count += step) {
		call.divisor = call.shape == FOLD2 ? 0 : random_divisor();
		check_anywhere(set, &call);
	}
}

static void check_all_offsets(const struct rf_kernel_set *set, struct call call)
{
	for (int offset = 0; offset < 64; offset++) {
		int at[SOURCES_MAX];

		call.count = random_below(count_max(&call));
		call.divisor = call.shape == FOLD2 ? 0 : random_divisor();
		for (size_t k = 0; k < call.source_count; k++)
			at[k] = random_place();
		check_call(set, &call, offset, at, SOURCES_MAX);
		at[random_below(call.source_count)] = offset;
		check_call(set, &call, random_place(), at, random_alias(&call));
	}
}

/* step thins the sizes out where the oracle or an emulation is slow. */
static void check_format(const struct rf_kernel_set *set, rf_op op, rf_dtype dst_type,
			 rf_dtype first_type, rf_dtype second_type, size_t step)
{
	static const size_t numbers[] = {1, 2, 3, 4, 8};
	static const size_t larger[] = {5, 6, 7, 9, 15, 16, 17, 31, 33, 64, 100, SOURCES_MAX};
	struct call call = {FOLD2, op, dst_type, first_type, second_type, 2, 0, 0};

	check_all_sizes(set, call, step);
	check_all_offsets(set, call);
	if (first_type != second_type) {
		call.first_type = second_type;
		call.second_type = first_type;
		check_all_sizes(set, call, step);
		return;
	}
	call.shape = FOLDP;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		call.source_count = numbers[i];
		check_all_sizes(set, call, step);
		check_all_offsets(set, call);
	}
	for (size_t i = 0; i < sizeof(larger) / sizeof(larger[0]); i++) {
		call.source_count = larger[i];
		check_all_sizes(set, call, step * 12 + i);
	}
	call.shape = FINISH;
	call.source_count = 1;
	check_all_sizes(set, call, step);
}

static void check_set(const struct rf_kernel_set *set, size_t step)
{
	const unsigned long before = calls_made;
	const clock_t start = clock();

	for (int op = 0; op < RF_OP_COUNT; op++) {
#define X(name, dst, src, second) \
	check_format(set, (rf_op)op, RF_##dst, RF_##src, RF_##second, step);
		RF_FORMAT_LIST(X)
#undef X
	}
	printf("%s: %lu calls, %.1f s\n", set->name, calls_made - before,
	       (double)(clock() - start) / CLOCKS_PER_SEC);
}

/* count values in from, converted in one call, against the oracle. */
static void check_conversion(const struct rf_kernel_set *set, rf_dtype dst_type, rf_dtype src_type,
			     const void *from, size_t count, uint64_t divisor)
{
	const struct call call = {FINISH, RF_SUM, dst_type, src_type, src_type, 1, divisor, count};
	char *expected = malloc(count * rf_dtype_size(dst_type));
	char *got = malloc(count * rf_dtype_size(dst_type));

	if (expected == NULL || got == NULL)
		exit(1);
	oracle_fold(RF_SUM, dst_type, expected, &src_type, &from, 1, count, divisor);
	make_call_abroad(set->name, set->table, &call, got, &from);
	expect_same(set->name, &call, expected, got);
	free(expected);
	free(got);
}

/* Every 16-bit float to fp32; every one, and what lies about half way to the next, back again. */
static void check_conversions(const struct rf_kernel_set *set, rf_dtype narrow)
{
	enum { PATTERNS = 65536, NEAR = 7 };
	static uint16_t all[PATTERNS];
	static float wide[PATTERNS], near_halves[PATTERNS * NEAR];
	const uint32_t half = narrow == RF_FLOAT16 ? 0x1000 : 0x8000;
	const void *from = all;

	for (uint32_t i = 0; i < PATTERNS; i++)
		all[i] = (uint16_t)i;
	check_conversion(set, RF_FLOAT32, narrow, all, PATTERNS, 0);
	check_conversion(set, narrow, narrow, all, PATTERNS, 0);
	oracle_fold(RF_SUM, RF_FLOAT32, wide, &narrow, &from, 1, PATTERNS, 0);
	for (uint32_t i = 0; i < PATTERNS * NEAR; i++) {
		uint32_t bits;

		memcpy(&bits, &wide[i / NEAR], sizeof(bits));
		bits += (i % NEAR >= 3 ? half : 0) + i % NEAR % 3 - 1;
		if (i % NEAR == 6) /* anything near: half way between denormals too */
			bits += (uint32_t)random_next() & (4 * half - 1);
		memcpy(&near_halves[i], &bits, sizeof(bits));
	}
	check_conversion(set, narrow, RF_FLOAT32, near_halves, (size_t)PATTERNS * NEAR, 0);
}

/* Integers are divided a block at a time: more than one block, and no whole number of them. */
static void check_divisions(const struct rf_kernel_set *set)
{
	for (int dtype = 0; dtype < RF_DTYPE_COUNT; dtype++) {
		const size_t count = POOL_ELEMENTS - 1 - random_below(16);
		const void *from = pool_window((rf_dtype)dtype, count);

		check_conversion(set, (rf_dtype)dtype, (rf_dtype)dtype, from, count, 3);
	}
}

/*
 * A buffer of more than 4 GiB in little memory: a window of a file over and over, and then a part
 * that is mapped once, at *last.
 */
#define WINDOW_BYTES ((size_t)8 << 20)
#define WINDOWS      ((((size_t)1 << 32) / WINDOW_BYTES) + 1)

static char *map_large(int fill, char **last)
{
	int file = memfd_create("check_kernels", MFD_CLOEXEC);
	char *buffer = mmap(NULL, WINDOWS * WINDOW_BYTES, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (file < 0 || buffer == MAP_FAILED || ftruncate(file, 2 * (off_t)WINDOW_BYTES) != 0)
		return NULL;
	for (size_t i = 0; i < WINDOWS; i++)
		if (mmap(buffer + i * WINDOW_BYTES, WINDOW_BYTES, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, file,
			 i + 1 < WINDOWS ? 0 : (off_t)WINDOW_BYTES) == MAP_FAILED)
			return NULL;
	close(file);
	*last = buffer + (WINDOWS - 1) * WINDOW_BYTES;
	memset(buffer, fill, WINDOW_BYTES);
	memset(*last, fill, WINDOW_BYTES);
	return buffer;
}

/* ThreadSanitizer keeps several bytes of its own for each byte of address space that is touched. */
#if defined(__SANITIZE_THREAD__)
#define HAVE_ROOM 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAVE_ROOM 0
#endif
#endif
#ifndef HAVE_ROOM
#define HAVE_ROOM 1
#endif

/* More than 2^32 elements: a minimum in place, which the repeated window does not mind. */
static void check_large(void)
{
	const size_t count = (WINDOWS - 1) * WINDOW_BYTES + WINDOW_BYTES / 2 + 3;
	char *a_last, *b_last, *a = map_large(3, &a_last), *b = map_large(2, &b_last);
	size_t folded = 0;

	if (a == NULL || b == NULL) {
		printf("more than 2^32 elements: not tested, there is no address space for it\n");
		return;
	}
	rf_fold2(RF_MIN, RF_INT8, a, RF_INT8, a, RF_INT8, b, count);
	while (folded < WINDOW_BYTES && a_last[folded] == 2)
		folded++;
	if (a[0] != 2 || folded != WINDOW_BYTES / 2 + 3 || a_last[folded] != 3) {
		fprintf(stderr, "more than 2^32 elements are folded wrongly\n");
		exit(1);
	}
	munmap(a, WINDOWS * WINDOW_BYTES);
	munmap(b, WINDOWS * WINDOW_BYTES);
}

/* A process chooses once, so each choice is a child's. */
static void expect_choice(const char *name, const char *expected)
{
	int status = 1;
	pid_t child = fork();

	if (child == 0) {
		if (name != NULL)
			setenv("RINGFOLD_ISA", name, 1);
		else
			unsetenv("RINGFOLD_ISA");
		_exit(strcmp(rf_kernels_active()->name, expected) != 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "RINGFOLD_ISA=%s does not choose %s\n", name ? name : "(unset)",
			expected);
		exit(1);
	}
}

static void expect_forced(const struct rf_kernel_set *set)
{
	const int expected = set->is_supported() ? RF_OK : RF_ERR_UNSUPPORTED;

	if (rf_kernels_force(set->name) == expected &&
	    (expected != RF_OK || rf_kernels_active() == set))
		return;
	fprintf(stderr, "%s cannot be forced\n", set->name);
	exit(1);
}

static void check_choices(void)
{
	const char *best = NULL;

	for (size_t i = 0; i < rf_kernel_set_count; i++)
		if (rf_kernel_sets[i].is_supported())
			best = rf_kernel_sets[i].name;
	expect_choice(NULL, best);
	expect_choice("no such set", best);
	for (size_t i = 0; i < rf_kernel_set_count; i++)
		expect_choice(rf_kernel_sets[i].name,
			      rf_kernel_sets[i].is_supported() ? rf_kernel_sets[i].name : best);
	for (size_t i = 0; i < rf_kernel_set_count; i++)
		expect_forced(&rf_kernel_sets[i]);
	if (rf_kernels_force("no such set") != RF_ERR_INVALID ||
	    rf_kernels_force(NULL) != RF_ERR_INVALID) {
		fprintf(stderr, "a set that does not exist can be forced\n");
		exit(1);
	}
}

/* The calls that the rest of the library makes go to the set in use. */
static void check_public_calls(void)
{
	const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
	const void *const both[2] = {a, b};
	float folded[3], averaged[3], finished[3];

	rf_fold2(RF_AVG, RF_FLOAT32, folded, RF_FLOAT32, a, RF_FLOAT32, b, 3);
	rf_foldp(RF_AVG, RF_FLOAT32, averaged, RF_FLOAT32, both, 2, 3, 2);
	rf_finish(RF_FLOAT32, finished, RF_FLOAT32, folded, 3, 2);
	if (folded[2] != 33 || averaged[2] != 16.5f || finished[2] != 16.5f ||
	    rf_partial_type(RF_BFLOAT16) != RF_FLOAT32 || rf_partial_type(RF_INT8) != RF_INT8) {
		fprintf(stderr, "rf_fold2(), rf_foldp() or rf_finish() is wrong\n");
		exit(1);
	}
}

static void check_names(void)
{
	if (rf_dtype_size(RF_FLOAT16) != 2 || rf_dtype_size(RF_DTYPE_COUNT) != 0 ||
	    rf_dtype_size((rf_dtype)-1) != 0 ||
	    strcmp(rf_dtype_name(RF_BFLOAT16), "bfloat16") != 0 ||
	    rf_dtype_name(RF_DTYPE_COUNT) != NULL || strcmp(rf_op_name(RF_AVG), "avg") != 0 ||
	    rf_op_name(RF_OP_COUNT) != NULL ||
	    strcmp(rf_collective_name(RF_REDUCE_SCATTER), "reduce_scatter") != 0 ||
	    rf_collective_name((rf_collective)-1) != NULL) {
		fprintf(stderr, "a size or a name is wrong\n");
		exit(1);
	}
}

static void check_bits(const struct rf_kernel_set *set, size_t step)
{
	if (!set->is_supported()) {
		printf("%s: not on this CPU\n", set->name);
		return;
	}
	check_set(set, step);
	check_conversions(set, RF_FLOAT16);
	check_conversions(set, RF_BFLOAT16);
	check_divisions(set);
}

static void run_tests(void)
{
	const char *given = getenv("RINGFOLD_TEST_SEED");
	const struct rf_kernel_set emulated = {"avx512, emulated", rf_kernel_sets[0].is_supported,
					       &rf_kernels_avx512_emulated};

	seed = given != NULL ? strtoull(given, NULL, 0)
			     : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	printf("RINGFOLD_TEST_SEED=%llu\n", (unsigned long long)seed);
	random_seed(seed);
	pool_fill();
	buffer_create(&destination);
	for (size_t k = 0; k < SOURCES_MAX; k++)
		buffer_create(&sources[k]);

	check_choices();
	check_public_calls();
	check_names();
	/* The oracle and the emulation are slow: fewer sizes. */
	for (size_t i = 0; i < rf_kernel_set_count; i++)
		check_bits(&rf_kernel_sets[i], i == 0 ? 7 : 1);
	check_bits(&emulated, 5);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "--bench") == 0)
		return bench_run(argc > 2 && strcmp(argv[2], "--json") == 0);
	signal(SIGSEGV, crashed);
	signal(SIGBUS, crashed);
	signal(SIGFPE, crashed);
	run_tests();
	if (HAVE_ROOM && (argc < 2 || strcmp(argv[1], "--small") != 0))
		check_large();
	return 0;
}
