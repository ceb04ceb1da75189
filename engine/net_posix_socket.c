/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The posix provider's streams and listeners: non-blocking TCP sockets that never raise SIGPIPE and
 * are not inherited by programs that the process starts.
 */
#include "engine/net_posix.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct posix_stream {
	struct rf_stream base;
	struct posix_net *net;
	int fd;
	uint32_t slot;
	bool is_connected;
};

struct rf_listener {
	struct posix_net *net;
	int fd;
	uint32_t slot;
	bool starved; /* no descriptors: watched for new arrivals only, to not spin */
};

/* ---- addresses ------------------------------------------------------------------------------ */

void posix_addr_from_sockaddr(const struct sockaddr_storage *from, struct rf_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	if (from->ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;

		addr->family = 4;
		addr->port = ntohs(v4->sin_port);
		memcpy(addr->ip, &v4->sin_addr, 4);
	} else if (from->ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

		addr->port = ntohs(v6->sin6_port);
		if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
			addr->family = 4;
			memcpy(addr->ip, &v6->sin6_addr.s6_addr[12], 4);
		} else {
			addr->family = 6;
			addr->scope = v6->sin6_scope_id;
			memcpy(addr->ip, &v6->sin6_addr, 16);
		}
	}
}

socklen_t posix_addr_to_sockaddr(const struct rf_addr *addr, struct sockaddr_storage *to)
{
	memset(to, 0, sizeof(*to));
	if (addr->family == 4) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)to;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(addr->port);
		memcpy(&v4->sin_addr, addr->ip, 4);
		return sizeof(*v4);
	}
	if (addr->family == 6) {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;

		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(addr->port);
		v6->sin6_scope_id = addr->scope;
		memcpy(&v6->sin6_addr, addr->ip, 16);
		return sizeof(*v6);
	}
	return 0;
}

/* ---- tuning --------------------------------------------------------------------------------- */

static void set_option(int fd, int level, int option, int value)
{
	/* None of them is needed for correctness, and sandboxes refuse some. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

/* Half of the time may pass in silence; probes fill the rest. */
static void tune_death(int fd, int dead_after_ms)
{
	int seconds = (dead_after_ms + 999) / 1000;
	int idle = seconds / 2 > 1 ? seconds / 2 : 1;
	int interval = (seconds - idle) / 5 > 1 ? (seconds - idle) / 5 : 1;
	int probes = (seconds - idle + interval - 1) / interval;

	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes > 1 ? probes : 1);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, dead_after_ms);
}

/* Before connect() where possible: the window scale is agreed upon there. */
static void tune(int fd, const struct rf_stream_tuning *tuning)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (!tuning)
		return;
	if (tuning->send_buffer_bytes > 0)
		set_option(fd, SOL_SOCKET, SO_SNDBUF, tuning->send_buffer_bytes);
	if (tuning->receive_buffer_bytes > 0)
		set_option(fd, SOL_SOCKET, SO_RCVBUF, tuning->receive_buffer_bytes);
	if (tuning->dead_after_ms > 0)
		tune_death(fd, tuning->dead_after_ms);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void stream_local_addr(struct rf_stream *base, struct rf_addr *addr)
{
	struct posix_stream *stream = (struct posix_stream *)base;
	struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
	socklen_t length = sizeof(storage);

	(void)getsockname(stream->fd, (struct sockaddr *)&storage, &length);
	posix_addr_from_sockaddr(&storage, addr);
}

static void stream_peer_addr(struct rf_stream *base, struct rf_addr *addr)
{
	struct posix_stream *stream = (struct posix_stream *)base;
	struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
	socklen_t length = sizeof(storage);

	(void)getpeername(stream->fd, (struct sockaddr *)&storage, &length);
	posix_addr_from_sockaddr(&storage, addr);
}

/* A connect to a local port in the ephemeral range on which nobody listens may be given that very
 * port as its own, and then meets itself. */
static bool connected_to_itself(struct rf_stream *base)
{
	struct rf_addr local, peer;

	stream_local_addr(base, &local);
	stream_peer_addr(base, &peer);
	return rf_addr_equal(&local, &peer);
}

static int stream_connected(struct rf_stream *base)
{
	struct posix_stream *stream = (struct posix_stream *)base;
	struct pollfd poll_fd = {.fd = stream->fd, .events = POLLOUT};
	socklen_t length = sizeof(int);
	int error = 0;

	if (stream->is_connected)
		return RF_OK;
	if (poll(&poll_fd, 1, 0) <= 0)
		return RF_ERR_AGAIN;
	if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		return RF_ERR_NETWORK;
	if (!error && connected_to_itself(base))
		error = ECONNREFUSED;
	if (error) {
		errno = error;
		return RF_ERR_NETWORK;
	}
	stream->is_connected = true;
	return RF_OK;
}

static int transfer_error(void)
{
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)
		return RF_ERR_AGAIN;
	return RF_ERR_NETWORK;
}

static int stream_send(struct rf_stream *base, const struct iovec *iov, int iov_count, size_t *sent)
{
	struct posix_stream *stream = (struct posix_stream *)base;
	struct msghdr message = {.msg_iov = (struct iovec *)iov,
				 .msg_iovlen = (size_t)(iov_count < IOV_MAX ? iov_count : IOV_MAX)};
	ssize_t n;

	do
		n = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return transfer_error();
	*sent = (size_t)n;
	return RF_OK;
}

static int stream_receive(struct rf_stream *base, const struct iovec *iov, int iov_count,
			  size_t *received)
{
	struct posix_stream *stream = (struct posix_stream *)base;
	struct msghdr message = {.msg_iov = (struct iovec *)iov,
				 .msg_iovlen = (size_t)(iov_count < IOV_MAX ? iov_count : IOV_MAX)};
	ssize_t n;

	do
		n = recvmsg(stream->fd, &message, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return transfer_error();
	*received = (size_t)n;
	return RF_OK;
}

static int stream_watch(struct rf_stream *base, enum rf_net_lane lane, struct rf_watch *watch,
			unsigned events)
{
	struct posix_stream *stream = (struct posix_stream *)base;

	return posix_register(stream->net, &stream->slot, stream->fd, lane, watch, events);
}

static void stream_shutdown(struct rf_stream *base)
{
	(void)shutdown(((struct posix_stream *)base)->fd, SHUT_WR);
}

static void stream_close(struct rf_stream *base)
{
	struct posix_stream *stream = (struct posix_stream *)base;

	posix_unregister(stream->net, &stream->slot);
	close(stream->fd);
	free(stream);
}

static void stream_abandon(struct rf_stream *base)
{
	close(((struct posix_stream *)base)->fd);
}

static const struct rf_stream_ops stream_ops = {
	.connected = stream_connected,
	.send = stream_send,
	.receive = stream_receive,
	.watch = stream_watch,
	.shutdown = stream_shutdown,
	.close = stream_close,
	.local_addr = stream_local_addr,
	.peer_addr = stream_peer_addr,
	.abandon = stream_abandon,
};

/* Takes fd over, on failure too. */
static int stream_make(struct posix_net *net, int fd, bool is_connected, struct rf_stream **result)
{
	struct posix_stream *stream = malloc(sizeof(*stream));

	if (!stream) {
		close(fd);
		return RF_ERR_NOMEM;
	}
	*stream = (struct posix_stream){
		.base.ops = &stream_ops,
		.net = net,
		.fd = fd,
		.slot = RF_NO_SLOT,
		.is_connected = is_connected,
	};
	*result = &stream->base;
	return RF_OK;
}

int posix_connect(struct rf_net *base, const struct rf_addr *addr,
		  const struct rf_stream_tuning *tuning, struct rf_stream **stream)
{
	struct sockaddr_storage to;
	socklen_t length = posix_addr_to_sockaddr(addr, &to);
	int fd, saved;

	if (length == 0)
		return RF_ERR_INVALID;
	fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno == EAFNOSUPPORT ? RF_ERR_NETWORK : RF_ERR_SYSTEM;
	tune(fd, tuning);
	/* An interrupted connect goes on by itself. */
	if (connect(fd, (struct sockaddr *)&to, length) != 0 && errno != EINPROGRESS &&
	    errno != EINTR) {
		saved = errno;
		close(fd);
		errno = saved;
		return RF_ERR_NETWORK;
	}
	return stream_make((struct posix_net *)base, fd, false, stream);
}

/* ---- listeners ------------------------------------------------------------------------------ */

static int listen_socket(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	return fd;
}

static int listen_at(int family, uint16_t port)
{
	struct rf_addr any = {.family = family == AF_INET6 ? 6 : 4, .port = port};
	struct sockaddr_storage to;
	socklen_t length = posix_addr_to_sockaddr(&any, &to);
	int fd = listen_socket(family);
	int saved;

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&to, length) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* Both families at once, or IPv4 where the system has no IPv6. */
static int listen_any(uint16_t port)
{
	int fd = listen_at(AF_INET6, port);

	if (fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL || errno == EPROTONOSUPPORT))
		fd = listen_at(AF_INET, port);
	return fd;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
	socklen_t length = sizeof(storage);
	struct rf_addr addr;

	(void)getsockname(fd, (struct sockaddr *)&storage, &length);
	posix_addr_from_sockaddr(&storage, &addr);
	return addr.port;
}

int posix_listen(struct rf_net *base, uint16_t first_port, uint16_t last_port,
		 struct rf_listener **result, uint16_t *port)
{
	struct rf_listener *listener;
	int fd = -1;

	if (first_port > last_port)
		return RF_ERR_INVALID;
	for (unsigned at = first_port; fd < 0 && at <= last_port; at++) {
		fd = listen_any((uint16_t)at);
		if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
			return RF_ERR_SYSTEM;
	}
	if (fd < 0)
		return RF_ERR_SYSTEM;
	listener = malloc(sizeof(*listener));
	if (!listener) {
		close(fd);
		return RF_ERR_NOMEM;
	}
	*listener = (struct rf_listener){
		.net = (struct posix_net *)base,
		.fd = fd,
		.slot = RF_NO_SLOT,
	};
	*port = bound_port(fd);
	*result = listener;
	return RF_OK;
}

int posix_watch_listener(struct rf_listener *listener, struct rf_watch *watch)
{
	return posix_register(listener->net, &listener->slot, listener->fd, RF_NET_CONTROL, watch,
			      watch ? RF_NET_IN : 0);
}

static int accept_retry(int listener_fd)
{
	int fd;

	/* What went wrong with a single connection is no matter of the listener. */
	do
		fd = accept4(listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO ||
			  errno == ENETDOWN || errno == EHOSTUNREACH || errno == ENETUNREACH ||
			  errno == ENOPROTOOPT || errno == EHOSTDOWN || errno == ENONET));
	return fd;
}

/* Out of descriptors: gives up the reserve to take the connection and close it, so that its peer
 * learns of it and the listener does not stay ready for ever. */
static void turn_away(struct rf_listener *listener)
{
	struct posix_net *net = listener->net;
	int fd;

	if (net->reserve < 0)
		net->reserve = posix_reserve_open();
	if (net->reserve >= 0) {
		close(net->reserve);
		fd = accept_retry(listener->fd);
		if (fd >= 0)
			close(fd);
		net->reserve = posix_reserve_open();
	}
	if (net->reserve < 0 && !listener->starved) {
		listener->starved = true;
		posix_register_edge(net, listener->slot, true);
	}
}

int posix_accept(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
		 struct rf_stream **stream)
{
	int fd = accept_retry(listener->fd);
	int saved;

	if (fd < 0) {
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return RF_ERR_AGAIN;
		saved = errno;
		turn_away(listener);
		errno = saved;
		return RF_ERR_SYSTEM;
	}
	if (listener->starved) {
		listener->starved = false;
		posix_register_edge(listener->net, listener->slot, false);
	}
	tune(fd, tuning);
	return stream_make(listener->net, fd, true, stream);
}

void posix_close_listener(struct rf_listener *listener)
{
	posix_unregister(listener->net, &listener->slot);
	close(listener->fd);
	free(listener);
}

void posix_abandon_listener(struct rf_listener *listener)
{
	close(listener->fd);
}
