/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms of this build. A new one is a file and a row.
 */
#include "engine/algo/algo.h"

#include <string.h>

/* X(name): rf_algo_<name> is in <name>.c. Those that send messages come first. */
#define ALGO_LIST(X) \
	X(ring)      \
	X(direct)    \
	X(tree)      \
	X(chain)     \
	X(doubling)  \
	X(arena)

#define X(name) extern const struct rf_algo rf_algo_##name;
ALGO_LIST(X)
#undef X

const struct rf_algo *const rf_algos[] = {
#define X(name) &rf_algo_##name,
	ALGO_LIST(X)
#undef X
		NULL,
};

const struct rf_algo *rf_algo_find(const char *name)
{
	for (size_t i = 0; rf_algos[i]; i++)
		if (!strcmp(rf_algos[i]->name, name))
			return rf_algos[i];
	return NULL;
}
