/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms of this build. A new one is a file and a row of RF_ALGO_LIST.
 */
#include "engine/algo/algo.h"

#include <string.h>

const struct rf_algo *const rf_algos[] = {
#define X(name) &rf_algo_##name,
	RF_ALGO_LIST(X)
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
