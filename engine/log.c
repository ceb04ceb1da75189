/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines. On stderr a line is one write, so that lines of several processes do not mix, and a
 * stderr whose reader has gone raises no SIGPIPE.
 */
#include "engine/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Longer lines (a list of many absent ranks) are made on the heap, and cut if there is none. */
enum { LINE_BYTES = 1024 };

static const char *level_name(rf_log_level level)
{
	switch (level) {
	case RF_LOG_ERROR:
		return "error";
	case RF_LOG_WARN:
		return "warning";
	case RF_LOG_INFO:
		return "info";
	case RF_LOG_DEBUG:
		break;
	}
	return "debug";
}

/* A SIGPIPE of this write is taken back, unless one was pending before. */
static void write_line(const char *line, size_t bytes)
{
	const struct timespec at_once = {0, 0};
	sigset_t pipe_only, pending, before;
	ssize_t written;

	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	sigemptyset(&pending);
	sigpending(&pending);
	if (pthread_sigmask(SIG_BLOCK, &pipe_only, &before))
		return;
	do {
		written = write(STDERR_FILENO, line, bytes);
	} while (written < 0 && errno == EINTR);
	if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
		while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR)
			;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void emit(const struct rf_logger *logger, rf_log_level level, char *line, size_t prefix,
		 size_t bytes)
{
	if (logger->write) {
		line[bytes] = '\0';
		logger->write(logger->user, level, line + prefix);
	} else {
		line[bytes] = '\n';
		write_line(line, bytes + 1);
	}
}

void rf_log(const struct rf_logger *logger, rf_log_level level, const char *format, ...)
{
	const int error = errno;
	char small[LINE_BYTES];
	char *line = small;
	size_t prefix, bytes;
	va_list arguments;
	int length;

	if (level > logger->level)
		return;
	prefix = (size_t)snprintf(small, sizeof(small), "ringfold[%ld] %s: ", (long)getpid(),
				  level_name(level));
	va_start(arguments, format);
	length = vsnprintf(small + prefix, sizeof(small) - prefix, format, arguments);
	va_end(arguments);
	bytes = prefix + (length > 0 ? (size_t)length : 0);
	if (bytes >= sizeof(small)) {
		line = malloc(bytes + 1);
		if (line) {
			memcpy(line, small, prefix);
			va_start(arguments, format);
			vsnprintf(line + prefix, bytes + 1 - prefix, format, arguments);
			va_end(arguments);
		} else {
			line = small;
			bytes = sizeof(small) - 1;
		}
	}
	emit(logger, level, line, prefix, bytes);
	if (line != small)
		free(line);
	errno = error;
}
