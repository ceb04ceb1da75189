/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to the posix provider: net_posix.c has the poller and its registrations,
 * net_posix_socket.c streams and listeners, net_posix_names.c names and interfaces.
 */
#ifndef RF_NET_POSIX_H
#define RF_NET_POSIX_H

#include "engine/net.h"

#include <stdatomic.h>
#include <sys/socket.h>

enum { RF_NO_SLOT = 0xffffffff };

/* One watched descriptor. Its place in the table and its generation make the token of its events,
 * so that an event outlived by its registration is known. Touched under the context's lock only. */
struct posix_slot {
	struct rf_watch *watch;
	int fd;
	int epoll; /* the set that has it, or -1 */
	uint32_t generation;
	uint32_t next_free;
	uint8_t interest; /* RF_NET_* */
	bool foreign;     /* from watch_fd() */
};

/* Outlives the net while a resolving thread still means to use it. */
struct posix_wake {
	atomic_uint references;
	int fd;
};

/*
 * Three epoll sets. `control` holds the descriptors of the control lane; it is nested in
 * `control_poll` and in `all_poll`, which poll() waits on, so that a descriptor is registered once
 * whoever waits. all_poll holds the data lane itself. The eventfd of wake() is in both poll sets,
 * edge-triggered: each of them sees every wake once, and nobody needs to read it.
 */
struct posix_net {
	struct rf_net base;
	int control;
	int control_poll;
	int all_poll;
	int reserve; /* a descriptor to give up when there are none left for accept() */
	struct posix_wake *wake;
	struct posix_slot *slots;
	uint32_t slot_count;
	uint32_t free_slot;
};

/* Sets what a descriptor is watched for. *slot is RF_NO_SLOT before the first call. */
int posix_register(struct posix_net *net, uint32_t *slot, int fd, enum rf_net_lane lane,
		   struct rf_watch *watch, unsigned events);
void posix_unregister(struct posix_net *net, uint32_t *slot);
/* Makes a registered descriptor edge-triggered, or level-triggered again. */
void posix_register_edge(struct posix_net *net, uint32_t slot, bool edge);

int posix_reserve_open(void);

void posix_addr_from_sockaddr(const struct sockaddr_storage *from, struct rf_addr *addr);
socklen_t posix_addr_to_sockaddr(const struct rf_addr *addr, struct sockaddr_storage *to);

void posix_wake_signal(struct posix_wake *wake);
void posix_wake_release(struct posix_wake *wake);

int posix_listen(struct rf_net *net, uint16_t first_port, uint16_t last_port,
		 struct rf_listener **listener, uint16_t *port);
int posix_watch_listener(struct rf_listener *listener, struct rf_watch *watch);
int posix_accept(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
		 struct rf_stream **stream);
void posix_close_listener(struct rf_listener *listener);
void posix_abandon_listener(struct rf_listener *listener);
int posix_connect(struct rf_net *net, const struct rf_addr *addr,
		  const struct rf_stream_tuning *tuning, struct rf_stream **stream);
int posix_resolve(struct rf_net *net, const char *name, uint16_t port, void **handle,
		  struct rf_addr *addrs, int capacity, int *count);
void posix_resolve_cancel(struct rf_net *net, void **handle);
/* net may be NULL. */
int posix_interfaces(struct rf_net *net, struct rf_interface *interfaces, int capacity, int *count);

#endif
