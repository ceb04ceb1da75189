/* SPDX-License-Identifier: BSD-3-Clause */
/* A free port for MASTER_PORT. */
#include "tools/launch_parts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* On all addresses, IPv4 too if it is IPv6. */
static int bind_any(int family, int *port)
{
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
	struct sockaddr_in any4 = {.sin_family = AF_INET};
	const int on = 1, off = 0;
	const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = family == AF_INET6 ? sizeof(any6) : sizeof(any4);
	struct sockaddr *const any =
		family == AF_INET6 ? (struct sockaddr *)&any6 : (struct sockaddr *)&any4;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, any, length) || getsockname(fd, any, &length)) {
		close(fd);
		return -1;
	}
	*port = ntohs(family == AF_INET6 ? any6.sin6_port : any4.sin_port);
	return fd;
}

int launch_hold_port(int *port)
{
	const int fd = bind_any(AF_INET6, port);

	return fd >= 0 ? fd : bind_any(AF_INET, port);
}
