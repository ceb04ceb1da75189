/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The posix provider's names: literals at once, the rest by getaddrinfo() in a thread of its own,
 * because it may block for as long as it likes; and the addresses of this host's interfaces.
 */
#include "engine/net_posix.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MOST = 32, RESOLVE_STACK_BYTES = 512 << 10 };

/* Shared by the caller and the thread; whoever lets go last frees it. */
struct resolving {
	atomic_uint references;
	atomic_bool done; /* released by the thread after addrs, count; acquired in resolve */
	struct posix_wake *wake;
	uint16_t port;
	int count;
	struct rf_addr addrs[RESOLVE_MOST];
	char name[];
};

static void resolving_release(struct resolving *resolving)
{
	/* Acquire and release: the last one sees all that the other did. */
	if (atomic_fetch_sub_explicit(&resolving->references, 1, memory_order_acq_rel) != 1)
		return;
	posix_wake_release(resolving->wake);
	free(resolving);
}

static bool addr_listed(const struct rf_addr *addrs, int count, const struct rf_addr *addr)
{
	for (int i = 0; i < count; i++)
		if (rf_addr_equal(&addrs[i], addr))
			return true;
	return false;
}

/* The answers in their order, each once. Negative where there are none. */
static int look_up(const char *name, int flags, uint16_t port, struct rf_addr *addrs, int capacity)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
	struct addrinfo *answers;
	int count = 0;

	if (getaddrinfo(name, NULL, &hints, &answers) != 0)
		return -1;
	for (struct addrinfo *at = answers; at && count < capacity; at = at->ai_next) {
		struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
		struct rf_addr addr;

		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		memcpy(&storage, at->ai_addr, at->ai_addrlen);
		posix_addr_from_sockaddr(&storage, &addr);
		addr.port = port;
		if (!addr_listed(addrs, count, &addr))
			addrs[count++] = addr;
	}
	freeaddrinfo(answers);
	return count ? count : -1;
}

static void *resolve_thread(void *argument)
{
	struct resolving *resolving = argument;

	resolving->count =
		look_up(resolving->name, 0, resolving->port, resolving->addrs, RESOLVE_MOST);
	atomic_store_explicit(&resolving->done, true, memory_order_release);
	posix_wake_signal(resolving->wake);
	resolving_release(resolving);
	return NULL;
}

/* Detached, and deaf to signals: those are the application's. */
static int start_thread(struct resolving *resolving)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int rc;

	if (pthread_attr_init(&attributes) != 0)
		return RF_ERR_NOMEM;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, RESOLVE_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(&thread, &attributes, resolve_thread, resolving);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return rc == 0 ? RF_OK : RF_ERR_SYSTEM;
}

static int resolve_start(struct posix_net *net, const char *name, uint16_t port, void **handle)
{
	size_t length = strlen(name) + 1;
	struct resolving *resolving = calloc(1, sizeof(*resolving) + length);
	int rc;

	if (!resolving)
		return RF_ERR_NOMEM;
	atomic_init(&resolving->references, 2);
	resolving->wake = net->wake;
	/* Relaxed: the net holds a reference meanwhile. */
	atomic_fetch_add_explicit(&net->wake->references, 1, memory_order_relaxed);
	resolving->port = port;
	memcpy(resolving->name, name, length);
	rc = start_thread(resolving);
	if (rc != RF_OK) {
		posix_wake_release(resolving->wake);
		free(resolving);
		return rc;
	}
	*handle = resolving;
	return RF_ERR_AGAIN;
}

static int resolve_answer(struct resolving *resolving, struct rf_addr *addrs, int capacity,
			  int *count)
{
	int known = resolving->count < capacity ? resolving->count : capacity;

	if (known < 0)
		return RF_ERR_NETWORK;
	memcpy(addrs, resolving->addrs, (size_t)known * sizeof(*addrs));
	*count = known;
	return RF_OK;
}

/* Literals, IPv6 with brackets or without. */
static int look_up_literal(const char *name, uint16_t port, struct rf_addr *addrs, int capacity)
{
	char bare[RF_ADDR_TEXT];
	size_t length = strlen(name);

	if (name[0] == '[' && length > 2 && length < sizeof(bare) && name[length - 1] == ']') {
		memcpy(bare, name + 1, length - 2);
		bare[length - 2] = '\0';
		name = bare;
	}
	return look_up(name, AI_NUMERICHOST, port, addrs, capacity);
}

int posix_resolve(struct rf_net *base, const char *name, uint16_t port, void **handle,
		  struct rf_addr *addrs, int capacity, int *count)
{
	struct resolving *resolving = *handle;
	int rc;

	if (capacity < 1 || !name[0])
		return RF_ERR_INVALID;
	if (!resolving) {
		rc = look_up_literal(name, port, addrs, capacity);
		if (rc > 0) {
			*count = rc;
			return RF_OK;
		}
		return resolve_start((struct posix_net *)base, name, port, handle);
	}
	if (!atomic_load_explicit(&resolving->done, memory_order_acquire))
		return RF_ERR_AGAIN;
	rc = resolve_answer(resolving, addrs, capacity, count);
	posix_resolve_cancel(base, handle);
	return rc;
}

void posix_resolve_cancel(struct rf_net *base, void **handle)
{
	(void)base;
	if (*handle)
		resolving_release(*handle);
	*handle = NULL;
}

/* ---- interfaces ----------------------------------------------------------------------------- */

enum { REACH_GLOBAL, REACH_LINK, REACH_LOOPBACK, REACH_COUNT };

static int addr_reach(const struct rf_addr *addr)
{
	if (rf_addr_is_loopback(addr))
		return REACH_LOOPBACK;
	if (rf_addr_is_link_local(addr))
		return REACH_LINK;
	return REACH_GLOBAL;
}

static bool interface_addr(const struct ifaddrs *interface, struct rf_addr *addr)
{
	struct sockaddr_storage storage = {.ss_family = AF_UNSPEC};
	const struct sockaddr *from = interface->ifa_addr;

	if (!from || !(interface->ifa_flags & IFF_UP))
		return false;
	if (from->sa_family == AF_INET)
		memcpy(&storage, from, sizeof(struct sockaddr_in));
	else if (from->sa_family == AF_INET6)
		memcpy(&storage, from, sizeof(struct sockaddr_in6));
	else
		return false;
	posix_addr_from_sockaddr(&storage, addr);
	return true;
}

int posix_interfaces(struct rf_net *base, struct rf_interface *interfaces, int capacity, int *count)
{
	struct ifaddrs *list;
	struct rf_addr addr;
	int filled = 0;

	(void)base;
	if (getifaddrs(&list) != 0)
		return RF_ERR_SYSTEM;
	for (int reach = REACH_GLOBAL; reach < REACH_COUNT; reach++)
		for (struct ifaddrs *at = list; at && filled < capacity; at = at->ifa_next)
			if (interface_addr(at, &addr) && addr_reach(&addr) == reach) {
				memset(&interfaces[filled], 0, sizeof(interfaces[filled]));
				strncpy(interfaces[filled].name, at->ifa_name,
					sizeof(interfaces[filled].name) - 1);
				interfaces[filled++].addr = addr;
			}
	freeifaddrs(list);
	*count = filled;
	return RF_OK;
}
