/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The template of all folds; formats.h includes it once for every element format. It expects
 *
 *   NAME    the format, as in RF_FORMAT_LIST
 *   MATH    what is computed in: MATH_vec, MATH_lanes, MATH_fold(), MATH_scale(), MATH_finish()
 *   DST     how results are stored: DST_bytes, DST_store(), DST_store_part()
 *   SRC     how sources are loaded: SRC_bytes, SRC_load(), SRC_load_part()
 *   SECOND  the same for the second of two sources, if that is of another type
 *
 * and makes NAME_kernels of them. op and the number of sources are constants wherever they appear
 * below, because everything is inlined into the functions of the table. The last elements, fewer
 * than a vector, go through the same arithmetic by way of the _part functions.
 */
#define N(x)       RF_PASTE(NAME, x)
#define VEC        RF_PASTE(MATH, vec)
#define LANES      ((size_t)RF_PASTE(MATH, lanes))
#define FOLD(a, b) RF_PASTE(MATH, fold)(op, a, b)

#ifdef SECOND
#define OTHER SECOND
#else
#define OTHER SRC
#endif

RF_INLINE VEC N(leaf)(const void *source, size_t i, size_t n)
{
	const char *from = (const char *)source + i * RF_PASTE(SRC, bytes);

	return n == LANES ? RF_PASTE(SRC, load)(from) : RF_PASTE(SRC, load_part)(from, n);
}

RF_INLINE VEC N(other_leaf)(const void *source, size_t i, size_t n)
{
	const char *from = (const char *)source + i * RF_PASTE(OTHER, bytes);

	return n == LANES ? RF_PASTE(OTHER, load)(from) : RF_PASTE(OTHER, load_part)(from, n);
}

RF_INLINE void N(put)(void *dst, size_t i, size_t n, VEC value)
{
	char *to = (char *)dst + i * RF_PASTE(DST, bytes);

	if (n == LANES)
		RF_PASTE(DST, store)(to, value);
	else
		RF_PASTE(DST, store_part)(to, value, n);
}

RF_INLINE VEC N(tree2)(rf_op op, const void *const *s, size_t i, size_t n)
{
	return FOLD(N(leaf)(s[0], i, n), N(other_leaf)(s[1], i, n));
}

#ifndef SECOND
RF_INLINE VEC N(tree4)(rf_op op, const void *const *s, size_t i, size_t n)
{
	return FOLD(N(tree2)(op, s, i, n), N(tree2)(op, s + 2, i, n));
}
#endif

/* Elements i to i + n of the first arity sources, folded. */
RF_INLINE VEC N(tree)(rf_op op, int arity, const void *const *s, size_t i, size_t n)
{
	switch (arity) {
#ifndef SECOND
	case 1:
		return N(leaf)(s[0], i, n);
	case 3:
		return FOLD(N(tree2)(op, s, i, n), N(leaf)(s[2], i, n));
	case 4:
		return N(tree4)(op, s, i, n);
	case 8:
		return FOLD(N(tree4)(op, s, i, n), N(tree4)(op, s + 4, i, n));
#endif
	default:
		return N(tree2)(op, s, i, n);
	}
}

RF_INLINE VEC N(result)(rf_op op, int arity, const void *const *s, size_t i, size_t n, bool divide,
			RF_PASTE(MATH, divisor) by)
{
	return RF_PASTE(MATH, finish)(op, N(tree)(op, arity, s, i, n), divide, by);
}

/* One pass over a fixed number of sources. */
RF_INLINE void N(run)(rf_op op, int arity, void *dst, const void *const *sources, size_t i,
		      size_t end, uint64_t divisor)
{
	const RF_PASTE(MATH, divisor) by = RF_PASTE(MATH, scale)(divisor);
	const bool divide = divisor > 1;
	const void *s[RF_LARGEST_ARITY];
	VEC v[RF_UNROLLED];

	RF_UNROLL
	for (int k = 0; k < RF_LARGEST_ARITY; k++)
		s[k] = k < arity ? sources[k] : NULL;
	for (; end - i >= RF_UNROLLED * LANES; i += RF_UNROLLED * LANES) {
		RF_UNROLL
		for (size_t u = 0; u < RF_UNROLLED; u++)
			v[u] = N(result)(op, arity, s, i + u * LANES, LANES, divide, by);
		RF_UNROLL
		for (size_t u = 0; u < RF_UNROLLED; u++)
			N(put)(dst, i + u * LANES, LANES, v[u]);
	}
	for (; end - i >= LANES; i += LANES) {
		v[0] = N(result)(op, arity, s, i, LANES, divide, by);
		N(put)(dst, i, LANES, v[0]);
	}
	if (i < end) {
		v[0] = N(result)(op, arity, s, i, end - i, divide, by);
		N(put)(dst, i, end - i, v[0]);
	}
}

#define KERNEL(OP, ARITY)                                                                       \
	static void N(OP##_##ARITY)(void *dst, const void *const *sources, size_t source_count, \
				    size_t begin, size_t end, uint64_t divisor)                 \
	{                                                                                       \
		(void)source_count;                                                             \
		N(run)(RF_##OP, ARITY, dst, sources, begin, end, divisor);                      \
	}

#define KERNEL_ROW(ARITY)                                                       \
	{                                                                       \
		N(SUM_##ARITY), N(PROD_##ARITY), N(MIN_##ARITY), N(MAX_##ARITY) \
	}

#define KERNELS(ARITY) KERNEL(SUM, ARITY) KERNEL(PROD, ARITY) KERNEL(MIN, ARITY) KERNEL(MAX, ARITY)

KERNELS(2)

#ifdef SECOND

static const struct rf_format_kernels N(kernels) = {.fold = {[RF_ARITY_2] = KERNEL_ROW(2)}};

#else

/*
 * One vector of any number of sources: the stack holds perfect subtrees of descending size, and
 * works like a binary counter of the sources done. There is at least one source.
 */
RF_INLINE VEC N(many)(rf_op op, const void *const *sources, size_t source_count, size_t i, size_t n)
{
	VEC stack[RF_MANY_DEPTH];
	size_t depth = 0, done = 0;

	do {
		const void *const *s = sources + done;
		const size_t left = source_count - done;
		const size_t size = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
		VEC top = size == 8   ? N(tree)(op, 8, s, i, n)
			  : size == 4 ? N(tree)(op, 4, s, i, n)
			  : size == 2 ? N(tree)(op, 2, s, i, n)
				      : N(tree)(op, 1, s, i, n);

		done += size;
		for (size_t carry = done / size; carry % 2 == 0; carry /= 2)
			top = FOLD(stack[--depth], top);
		stack[depth++] = top;
	} while (done < source_count);
	while (--depth > 0)
		stack[depth - 1] = FOLD(stack[depth - 1], stack[depth]);
	return stack[0];
}

RF_INLINE void N(run_many)(rf_op op, void *dst, const void *const *sources, size_t source_count,
			   size_t i, size_t end, uint64_t divisor)
{
	const RF_PASTE(MATH, divisor) by = RF_PASTE(MATH, scale)(divisor);
	const bool divide = divisor > 1;

	for (size_t n; i < end; i += n) {
		VEC v;

		n = end - i < LANES ? end - i : LANES;
		v = N(many)(op, sources, source_count, i, n);
		N(put)(dst, i, n, RF_PASTE(MATH, finish)(op, v, divide, by));
	}
}

#define MANY_KERNEL(OP)                                                                      \
	static void N(OP##_MANY)(void *dst, const void *const *sources, size_t source_count, \
				 size_t begin, size_t end, uint64_t divisor)                 \
	{                                                                                    \
		N(run_many)(RF_##OP, dst, sources, source_count, begin, end, divisor);       \
	}

/* With one source there is nothing to fold: one function serves all operators. */
KERNEL(SUM, 1)
KERNELS(3)
KERNELS(4)
KERNELS(8)
MANY_KERNEL(SUM)
MANY_KERNEL(PROD)
MANY_KERNEL(MIN)
MANY_KERNEL(MAX)

static const struct rf_format_kernels N(kernels) = {
	.fold = {
		[RF_ARITY_1] = {N(SUM_1), N(SUM_1), N(SUM_1), N(SUM_1)},
		[RF_ARITY_2] = KERNEL_ROW(2),
		[RF_ARITY_3] = KERNEL_ROW(3),
		[RF_ARITY_4] = KERNEL_ROW(4),
		[RF_ARITY_8] = KERNEL_ROW(8),
		[RF_ARITY_MANY] = KERNEL_ROW(MANY),
	}};

#undef MANY_KERNEL
#endif

#undef KERNELS
#undef KERNEL_ROW
#undef KERNEL
#undef OTHER
#undef FOLD
#undef LANES
#undef VEC
#undef N
#undef SECOND
#undef SRC
#undef DST
#undef MATH
#undef NAME
