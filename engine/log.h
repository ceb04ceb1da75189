/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: to the context's callback or to stderr, each in one write, at or above its level. */
#ifndef RF_LOG_H
#define RF_LOG_H

#include "ringfold.h"

struct rf_logger {
	rf_log_level level;
	rf_log_fn *write; /* NULL: stderr, as "ringfold[pid] warning: ..." */
	void *user;
};

void rf_log(const struct rf_logger *logger, rf_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
