/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks' output, line by line behind "[rank] ", to this process's stdout and stderr. Nothing
 * here blocks: if whoever reads our output is slow, the ranks' pipes fill up and they wait, while
 * signals and ends are still attended to. If the reader is gone, the ranks' pipes are closed, and
 * they learn it as they would without us.
 */
#include "tools/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	READ_BYTES = 16 << 10,
	/* A line that is longer is cut there. */
	LINE_BYTES = 64 << 10,
	/* Above this much waiting to be written, nothing more is read. */
	SINK_HIGH = 1 << 20,
	PREFIX_BYTES = 16,
	/* Every byte that is read may be a line of its own. */
	SINK_BYTES = SINK_HIGH + LINE_BYTES + READ_BYTES * (PREFIX_BYTES + 1),
	/* So much a pipe takes without blocking once it is writable. */
	WRITE_BYTES = 4096,
};

struct sink {
	struct launch_source writable;
	struct launch_source readable; /* the epoll of its streams */
	struct launch_output *output;
	int fd;
	int streams;       /* epoll */
	bool pollable;     /* a file is not: it never blocks */
	bool watched;      /* for being writable */
	bool paused;       /* its streams are not read */
	int error;         /* of a write, or 0; what comes after one is dropped */
	size_t start, end; /* in bytes[] */
	char *bytes;
};

struct stream {
	struct sink *sink;
	int fd; /* -1: at its end */
	char prefix[PREFIX_BYTES];
	size_t used, capacity; /* of the line that has not ended yet */
	char *line;
};

struct launch_output {
	int epoll;
	struct sink sinks[2];
	size_t stream_count;
	struct stream streams[];
};

/* ---- sinks ---- */

static void sink_break(struct sink *sink, int error)
{
	sink->error = error;
	sink->start = sink->end = 0;
}

static void sink_write(struct sink *sink, size_t most)
{
	while (sink->start < sink->end && most > 0) {
		const size_t left = sink->end - sink->start;
		const ssize_t bytes =
			write(sink->fd, sink->bytes + sink->start, left < most ? left : most);

		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes < 0 && errno == EAGAIN)
			break;
		if (bytes < 0) {
			sink_break(sink, errno);
			return;
		}
		sink->start += (size_t)bytes;
		most -= (size_t)bytes;
	}
	if (sink->start == sink->end)
		sink->start = sink->end = 0;
}

/* Watches for what is possible now. */
static void sink_update(struct sink *sink)
{
	const int epoll = sink->output->epoll;
	const bool wants = sink->end > 0;
	const bool full = sink->end - sink->start > SINK_HIGH;

	if (wants != sink->watched) {
		if (wants)
			launch_watch(epoll, sink->fd, EPOLLOUT, &sink->writable);
		else
			epoll_ctl(epoll, EPOLL_CTL_DEL, sink->fd, NULL);
		sink->watched = wants;
	}
	if (full != sink->paused) {
		if (full)
			epoll_ctl(epoll, EPOLL_CTL_DEL, sink->streams, NULL);
		else
			launch_watch(epoll, sink->streams, EPOLLIN, &sink->readable);
		sink->paused = full;
	}
}

static void sink_flush(struct sink *sink)
{
	if (!sink->pollable)
		sink_write(sink, SIZE_MAX);
	sink_update(sink);
}

static void sink_is_writable(struct launch_source *source)
{
	struct sink *const sink = (struct sink *)((char *)source - offsetof(struct sink, writable));

	sink_write(sink, WRITE_BYTES);
	sink_update(sink);
}

/* There is room: nothing is read above SINK_HIGH. */
static void sink_append(struct sink *sink, const char *bytes, size_t count)
{
	if (sink->error || count == 0)
		return;
	if (SINK_BYTES - sink->end < count) {
		memmove(sink->bytes, sink->bytes + sink->start, sink->end - sink->start);
		sink->end -= sink->start;
		sink->start = 0;
	}
	if (count > SINK_BYTES - sink->end)
		count = SINK_BYTES - sink->end;
	memcpy(sink->bytes + sink->end, bytes, count);
	sink->end += count;
}

/* ---- streams ---- */

static void stream_end_line(struct stream *stream, const char *rest, size_t count)
{
	sink_append(stream->sink, stream->prefix, strlen(stream->prefix));
	sink_append(stream->sink, stream->line, stream->used);
	sink_append(stream->sink, rest, count);
	sink_append(stream->sink, "\n", 1);
	stream->used = 0;
}

static bool stream_grow(struct stream *stream, size_t needed)
{
	size_t capacity = stream->capacity ? stream->capacity : 256;
	char *line;

	while (capacity < needed)
		capacity *= 2;
	if (capacity == stream->capacity)
		return true;
	line = realloc(stream->line, capacity);
	if (!line)
		return false;
	stream->line = line;
	stream->capacity = capacity;
	return true;
}

static void stream_keep(struct stream *stream, const char *bytes, size_t count)
{
	if (stream->used + count > LINE_BYTES || !stream_grow(stream, stream->used + count)) {
		stream_end_line(stream, bytes, count);
		return;
	}
	memcpy(stream->line + stream->used, bytes, count);
	stream->used += count;
}

static void stream_take(struct stream *stream, const char *bytes, size_t count)
{
	const char *const end = bytes + count;

	while (bytes < end) {
		const char *const newline = memchr(bytes, '\n', (size_t)(end - bytes));

		if (!newline) {
			stream_keep(stream, bytes, (size_t)(end - bytes));
			return;
		}
		stream_end_line(stream, bytes, (size_t)(newline - bytes));
		bytes = newline + 1;
	}
}

static void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->used > 0)
		stream_end_line(stream, "", 0);
	close(stream->fd);
	stream->fd = -1;
	free(stream->line);
	stream->line = NULL;
	stream->capacity = 0;
}

/* Whether there may be more. */
static bool stream_read(struct stream *stream)
{
	static char bytes[READ_BYTES];
	const ssize_t count = stream->sink->error ? 0 : read(stream->fd, bytes, sizeof(bytes));

	if (count < 0 && errno == EINTR)
		return true;
	if (count < 0 && errno == EAGAIN)
		return false;
	if (count <= 0) {
		stream_close(stream);
		return false;
	}
	stream_take(stream, bytes, (size_t)count);
	return true;
}

static void sink_is_readable(struct launch_source *source)
{
	struct sink *const sink = (struct sink *)((char *)source - offsetof(struct sink, readable));
	struct epoll_event events[32];
	const int count = epoll_wait(sink->streams, events, 32, 0);

	for (int i = 0; i < count && sink->end - sink->start <= SINK_HIGH; i++)
		stream_read(events[i].data.ptr);
	sink_flush(sink);
}

/* ---- what the launcher calls ---- */

static int sink_open(struct sink *sink, struct launch_output *output, int fd)
{
	sink->output = output;
	sink->fd = fd;
	sink->writable.ready = sink_is_writable;
	sink->readable.ready = sink_is_readable;
	sink->streams = epoll_create1(EPOLL_CLOEXEC);
	sink->bytes = malloc(SINK_BYTES);
	if (sink->streams < 0 || !sink->bytes)
		return -1;
	sink->pollable = launch_watch(output->epoll, fd, EPOLLOUT, &sink->writable) == 0;
	if (sink->pollable)
		epoll_ctl(output->epoll, EPOLL_CTL_DEL, fd, NULL);
	return launch_watch(output->epoll, sink->streams, EPOLLIN, &sink->readable);
}

struct launch_output *launch_output_create(int epoll, int ranks)
{
	struct launch_output *const output =
		calloc(1, sizeof(*output) + 2 * (size_t)ranks * sizeof(output->streams[0]));

	if (!output)
		return NULL;
	output->epoll = epoll;
	if (sink_open(&output->sinks[0], output, STDOUT_FILENO) == 0 &&
	    sink_open(&output->sinks[1], output, STDERR_FILENO) == 0)
		return output;
	launch_output_destroy(output);
	return NULL;
}

static int add_stream(struct launch_output *output, struct sink *sink, int rank, int *write_end)
{
	struct stream *const stream = &output->streams[output->stream_count];
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	if (epoll_ctl(sink->streams, EPOLL_CTL_ADD, ends[0], &event)) {
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	stream->sink = sink;
	stream->fd = ends[0];
	snprintf(stream->prefix, sizeof(stream->prefix), "[%d] ", rank);
	output->stream_count++;
	*write_end = ends[1];
	return 0;
}

int launch_output_add(struct launch_output *output, int rank, int write_ends[2])
{
	if (add_stream(output, &output->sinks[0], rank, &write_ends[0]))
		return -1;
	if (add_stream(output, &output->sinks[1], rank, &write_ends[1]) == 0)
		return 0;
	close(write_ends[0]);
	return -1;
}

void launch_output_say(struct launch_output *output, const char *line)
{
	struct sink *const sink = &output->sinks[1];

	sink_append(sink, line, strlen(line));
	sink_append(sink, "\n", 1);
	sink_flush(sink);
}

void launch_output_finish(struct launch_output *output)
{
	for (size_t i = 0; i < output->stream_count; i++) {
		struct stream *const stream = &output->streams[i];
		struct sink *const sink = stream->sink;

		while (stream->fd >= 0 && sink->end - sink->start <= SINK_HIGH &&
		       stream_read(stream))
			sink_flush(sink);
		if (sink->end - sink->start <= SINK_HIGH)
			stream_close(stream);
		sink_flush(sink);
	}
}

bool launch_output_is_flushed(const struct launch_output *output)
{
	for (size_t i = 0; i < output->stream_count; i++) {
		if (output->streams[i].fd >= 0 && !output->streams[i].sink->error)
			return false;
	}
	return output->sinks[0].end == 0 && output->sinks[1].end == 0;
}

int launch_output_error(const struct launch_output *output, const char **name)
{
	const int of_stdout = output->sinks[0].error;

	*name = of_stdout ? "stdout" : "stderr";
	return of_stdout ? of_stdout : output->sinks[1].error;
}

void launch_output_destroy(struct launch_output *output)
{
	for (size_t i = 0; i < output->stream_count; i++)
		stream_close(&output->streams[i]);
	for (int i = 0; i < 2; i++) {
		if (output->sinks[i].streams > 0)
			close(output->sinks[i].streams);
		free(output->sinks[i].bytes);
	}
	free(output);
}
