/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the public lists of element types, operators and collectives say about their members: sizes
 * and names.
 */
#include "ringfold.h"

size_t rf_dtype_size(rf_dtype dtype)
{
	static const unsigned char sizes[] = {
#define X(NAME, name, bytes) [RF_##NAME] = bytes,
		RF_DTYPE_LIST(X)
#undef X
	};

	return (unsigned)dtype < RF_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *rf_dtype_name(rf_dtype dtype)
{
	static const char *const names[] = {
#define X(NAME, name, bytes) [RF_##NAME] = #name,
		RF_DTYPE_LIST(X)
#undef X
	};

	return (unsigned)dtype < RF_DTYPE_COUNT ? names[dtype] : NULL;
}

const char *rf_op_name(rf_op op)
{
	static const char *const names[] = {
#define X(NAME, name) [RF_##NAME] = #name,
		RF_OP_LIST(X)
#undef X
	};

	return (unsigned)op < RF_OP_COUNT ? names[op] : NULL;
}

const char *rf_collective_name(rf_collective collective)
{
	static const char *const names[] = {
#define X(NAME, name) [RF_##NAME] = #name,
		RF_COLLECTIVE_LIST(X)
#undef X
	};

	return (unsigned)collective < RF_COLLECTIVE_COUNT ? names[collective] : NULL;
}
