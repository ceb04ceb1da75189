/* SPDX-License-Identifier: BSD-3-Clause */
/* From the terminal to the rank that was given stdin. */
#include "tools/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

static void stop(struct launch_input *input)
{
	epoll_ctl(input->epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
	close(input->pipe);
}

/* One of the two ends is watched at a time: there is one buffer. */
static void read_terminal(struct launch_source *source)
{
	struct launch_input *const input =
		(struct launch_input *)((char *)source -
					offsetof(struct launch_input, from_terminal));
	const ssize_t bytes = read(STDIN_FILENO, input->bytes, sizeof(input->bytes));

	if (bytes < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (bytes <= 0) {
		stop(input);
		return;
	}
	input->used = (size_t)bytes;
	input->sent = 0;
	epoll_ctl(input->epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
	launch_watch(input->epoll, input->pipe, EPOLLOUT, &input->to_rank);
}

static void write_rank(struct launch_source *source)
{
	struct launch_input *const input =
		(struct launch_input *)((char *)source - offsetof(struct launch_input, to_rank));
	const ssize_t bytes =
		write(input->pipe, input->bytes + input->sent, input->used - input->sent);

	if (bytes < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (bytes < 0) {
		stop(input);
		return;
	}
	input->sent += (size_t)bytes;
	if (input->sent < input->used)
		return;
	epoll_ctl(input->epoll, EPOLL_CTL_DEL, input->pipe, NULL);
	launch_watch(input->epoll, STDIN_FILENO, EPOLLIN, &input->from_terminal);
}

int launch_input_start(struct launch_input *input, int epoll)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	input->epoll = epoll;
	input->pipe = ends[1];
	input->from_terminal.ready = read_terminal;
	input->to_rank.ready = write_rank;
	launch_watch(epoll, STDIN_FILENO, EPOLLIN, &input->from_terminal);
	return ends[0];
}
