/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of the hand-over: fetch.h. Messages are single packets of a SOCK_SEQPACKET. */
#include "engine/arena/fetch.h"
#include "engine/list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	STRANGERS = 16, /* visitors beyond those that are expected */
	ROUNDS = 64,    /* that are let in at once */
	FLAGS = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
};

static void stop_watch(struct rf_net *net, int fd, struct rf_watch *watch)
{
	net->ops->watch_fd(net, fd, RF_NET_CONTROL, watch, 0);
}

/* ---- the server ----------------------------------------------------------------------------- */

struct rf_fetch_server {
	struct rf_watch watch; /* first */
	struct rf_fetch_server_setup setup;
	uint8_t token[RF_FETCH_TOKEN_BYTES];
	int fd;
	struct rf_list visitors;
	int visitor_count, good, bad;
};

struct visitor {
	struct rf_watch watch; /* first */
	struct rf_list node;
	struct rf_fetch_server *server;
	int fd;
	bool has_memory;
};

static void visitor_close(struct visitor *visitor)
{
	stop_watch(visitor->server->setup.net, visitor->fd, &visitor->watch);
	close(visitor->fd);
	visitor->server->visitor_count--;
	rf_list_remove(&visitor->node);
	free(visitor);
}

/* One byte, and room for one descriptor. */
struct packet {
	struct msghdr message;
	struct iovec iov;
	char byte;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
};

static void packet_init(struct packet *packet)
{
	memset(packet, 0, sizeof(*packet));
	packet->iov = (struct iovec){&packet->byte, 1};
	packet->message.msg_iov = &packet->iov;
	packet->message.msg_iovlen = 1;
	packet->message.msg_control = packet->control.bytes;
	packet->message.msg_controllen = sizeof(packet->control.bytes);
}

static bool send_memory(int socket, int memory_fd)
{
	struct packet packet;
	struct cmsghdr *header;

	packet_init(&packet);
	header = CMSG_FIRSTHDR(&packet.message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &memory_fd, sizeof(int));
	return sendmsg(socket, &packet.message, MSG_NOSIGNAL) == 1;
}

static bool is_token(const struct rf_fetch_server *server, const uint8_t *bytes)
{
	uint8_t differs = 0;

	for (size_t i = 0; i < RF_FETCH_TOKEN_BYTES; i++)
		differs |= bytes[i] ^ server->token[i];
	return !differs;
}

static void visitor_ready(struct rf_watch *watch, unsigned events)
{
	struct visitor *visitor = (struct visitor *)watch;
	struct rf_fetch_server *server = visitor->server;
	uint8_t bytes[RF_FETCH_TOKEN_BYTES + 1];
	ssize_t count = recv(visitor->fd, bytes, sizeof(bytes), 0);

	(void)events;
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (!visitor->has_memory) {
		if (count == RF_FETCH_TOKEN_BYTES && is_token(server, bytes) &&
		    send_memory(visitor->fd, server->setup.memory_fd))
			visitor->has_memory = true;
		else
			visitor_close(visitor);
		return;
	}
	visitor_close(visitor);
	if (count == 1 && bytes[0] == 1)
		server->good++;
	else
		server->bad++;
	server->setup.progress(server->setup.user, server->good, server->bad);
}

/* Whoever has been standing in the door for longest without a word makes room. */
static void make_room(struct rf_fetch_server *server)
{
	if (server->visitor_count < server->setup.visitors + STRANGERS)
		return;
	RF_LIST_EACH(node, &server->visitors)
	{
		struct visitor *visitor = RF_CONTAINER(node, struct visitor, node);

		if (!visitor->has_memory) {
			visitor_close(visitor);
			return;
		}
	}
}

static void let_in(struct rf_fetch_server *server, int fd)
{
	struct rf_net *net = server->setup.net;
	struct visitor *visitor;

	make_room(server);
	visitor = calloc(1, sizeof(*visitor));
	if (!visitor) {
		close(fd);
		return;
	}
	*visitor = (struct visitor){.watch = {visitor_ready}, .server = server, .fd = fd};
	rf_list_init(&visitor->node);
	rf_list_append(&server->visitors, &visitor->node);
	server->visitor_count++;
	if (net->ops->watch_fd(net, fd, RF_NET_CONTROL, &visitor->watch, RF_NET_IN) != RF_OK)
		visitor_close(visitor);
	else
		visitor_ready(&visitor->watch, RF_NET_IN); /* ranks present it as they come */
}

static void accept_visitors(struct rf_watch *watch, unsigned events)
{
	struct rf_fetch_server *server = (struct rf_fetch_server *)watch;
	int fd;

	(void)events;
	for (int i = 0; i < ROUNDS; i++) {
		fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		let_in(server, fd);
	}
}

int rf_fetch_serve(const struct rf_fetch_server_setup *setup, struct rf_fetch_place *place,
		   struct rf_fetch_server **out)
{
	struct rf_fetch_server *server = calloc(1, sizeof(*server));
	struct sockaddr_un address;
	socklen_t length;

	if (!server)
		return RF_ERR_NOMEM;
	server->setup = *setup;
	server->watch.ready = accept_visitors;
	rf_list_init(&server->visitors);
	server->fd = socket(AF_UNIX, FLAGS, 0);
	if (server->fd < 0 || rf_local_name(place->name) != RF_OK ||
	    rf_local_random(place->token, sizeof(place->token)) != RF_OK)
		goto fail;
	memcpy(server->token, place->token, sizeof(server->token));
	length = rf_local_address(place->name, &address);
	if (bind(server->fd, (struct sockaddr *)&address, length) != 0 ||
	    listen(server->fd, setup->visitors + STRANGERS) != 0 ||
	    setup->net->ops->watch_fd(setup->net, server->fd, RF_NET_CONTROL, &server->watch,
				      RF_NET_IN) != RF_OK)
		goto fail;
	*out = server;
	return RF_OK;

fail:
	if (server->fd >= 0)
		close(server->fd);
	free(server);
	return RF_ERR_SYSTEM;
}

void rf_fetch_server_close(struct rf_fetch_server *server)
{
	if (!server)
		return;
	RF_LIST_EACH(node, &server->visitors)
	{
		visitor_close(RF_CONTAINER(node, struct visitor, node));
	}
	stop_watch(server->setup.net, server->fd, &server->watch);
	close(server->fd);
	free(server);
}

void rf_fetch_server_abandon(struct rf_fetch_server *server)
{
	if (!server)
		return;
	RF_LIST_EACH(node, &server->visitors)
	{
		close(RF_CONTAINER(node, struct visitor, node)->fd);
	}
	close(server->fd);
}

/* ---- the visitor ---------------------------------------------------------------------------- */

struct rf_fetch {
	struct rf_watch watch; /* first */
	struct rf_fetch_setup setup;
	int fd;
};

/* The descriptor that came with a packet; -1: none, or not exactly one. */
static int receive_memory(int socket)
{
	struct packet packet;
	struct cmsghdr *header;
	int fd = -1;

	packet_init(&packet);
	if (recvmsg(socket, &packet.message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	header = CMSG_FIRSTHDR(&packet.message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(header), sizeof(int));
	return fd;
}

static void memory_came(struct rf_watch *watch, unsigned events)
{
	struct rf_fetch *fetch = (struct rf_fetch *)watch;
	int memory_fd;

	(void)events;
	stop_watch(fetch->setup.net, fetch->fd, &fetch->watch);
	memory_fd = receive_memory(fetch->fd);
	fetch->setup.came(fetch->setup.user, memory_fd < 0 ? RF_ERR_NETWORK : RF_OK, memory_fd);
}

int rf_fetch_start(const struct rf_fetch_setup *setup, struct rf_fetch **out)
{
	struct rf_fetch *fetch = calloc(1, sizeof(*fetch));
	struct sockaddr_un address;
	socklen_t length = rf_local_address(setup->place.name, &address);

	if (!fetch)
		return RF_ERR_NOMEM;
	fetch->setup = *setup;
	fetch->watch.ready = memory_came;
	fetch->fd = socket(AF_UNIX, FLAGS, 0);
	/* It is listening already, and the queue has room for all: nothing of this waits. */
	if (fetch->fd < 0 || connect(fetch->fd, (struct sockaddr *)&address, length) != 0 ||
	    send(fetch->fd, setup->place.token, RF_FETCH_TOKEN_BYTES, MSG_NOSIGNAL) !=
		    RF_FETCH_TOKEN_BYTES ||
	    setup->net->ops->watch_fd(setup->net, fetch->fd, RF_NET_CONTROL, &fetch->watch,
				      RF_NET_IN) != RF_OK) {
		if (fetch->fd >= 0)
			close(fetch->fd);
		free(fetch);
		return RF_ERR_NETWORK;
	}
	*out = fetch;
	return RF_OK;
}

void rf_fetch_acknowledge(struct rf_fetch *fetch, int good)
{
	char byte = (char)(good ? 1 : 0);

	/* If it does not arrive, the end of the connection says no. */
	(void)!send(fetch->fd, &byte, 1, MSG_NOSIGNAL);
}

void rf_fetch_close(struct rf_fetch *fetch)
{
	if (!fetch)
		return;
	stop_watch(fetch->setup.net, fetch->fd, &fetch->watch);
	close(fetch->fd);
	free(fetch);
}

void rf_fetch_abandon(struct rf_fetch *fetch)
{
	if (fetch)
		close(fetch->fd);
}
