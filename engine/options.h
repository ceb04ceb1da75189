/* SPDX-License-Identifier: BSD-3-Clause */
/* Options structs of programs that were built with another version of the header. */
#ifndef RF_OPTIONS_H
#define RF_OPTIONS_H

#include "ringfold.h"

#include <stdbool.h>

enum { RF_OPTIONS_MOST = 4096 };

/*
 * size: as the program has set it; first: that of the first published version, the least that there
 * is; known: today's. What a later version has appended must be zero, which asks for nothing.
 * Whoever appends the first field must read it from a copy that begins with the defaults: an older
 * program's struct ends before it.
 */
static inline bool rf_options_fit(const void *options, size_t size, size_t first, size_t known)
{
	const unsigned char *bytes = options;

	if (size < first || size > RF_OPTIONS_MOST)
		return false;
	for (size_t i = known; i < size; i++) {
		if (bytes[i])
			return false;
	}
	return true;
}

/* Today's first version: nothing has been appended yet. */
#define RF_OPTIONS_FIT(options) \
	rf_options_fit(options, (options)->size, sizeof(*(options)), sizeof(*(options)))

/* A timeout of the public functions: RF_NO_TIMEOUT, or not negative. */
static inline bool rf_timeout_fits(int64_t timeout_ms)
{
	return timeout_ms >= RF_NO_TIMEOUT;
}

#endif
