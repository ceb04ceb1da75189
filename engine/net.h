/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network seam: where byte streams, readiness and time come from.
 *
 * Two providers: posix (sockets and epoll, engine/net_posix.c) and sim (transports/sim: virtual
 * streams under a virtual clock). The engine, its control streams and transports/tcp use nothing
 * else, so all of them run unchanged in the simulator. A leaf: includes nothing of the engine, and
 * transports may include it.
 *
 * Calls never block (poll excepted). They are made under the context's lock, except wake(), which
 * may be called from any thread, and poll(), which is called without it when timeout_ns is not 0.
 */
#ifndef RF_NET_H
#define RF_NET_H

#include "ringfold.h"

#include <stdbool.h>
#include <sys/uio.h>

/* Where a process can be reached. Encoded as it stands in segments (port little-endian there). */
struct rf_addr {
	uint8_t family;   /* 4, 6, or RF_ADDR_SIM */
	uint8_t reserved; /* 0 */
	uint16_t port;    /* host order */
	uint32_t scope;   /* IPv6 scope id, local meaning only; sim: 0 */
	uint8_t ip[16];   /* network order, the first 4 bytes for IPv4; sim: host number, LE */
};
enum { RF_ADDR_SIM = 0x51, RF_ADDR_TEXT = 64 };

/* One of this host's interfaces has this address. */
struct rf_interface {
	char name[16];
	struct rf_addr addr;
};

/* "[fe80::1%3]:7880"; always terminated. Returns text. */
const char *rf_addr_format(const struct rf_addr *addr, char text[RF_ADDR_TEXT]);
bool rf_addr_is_loopback(const struct rf_addr *addr);
bool rf_addr_is_link_local(const struct rf_addr *addr);
bool rf_addr_equal(const struct rf_addr *a, const struct rf_addr *b);

/* Readiness. */
enum {
	RF_NET_IN = 1,  /* data, an end of file, or a connection to accept */
	RF_NET_OUT = 2, /* room to send, or a connect that has ended */
};
/* Control: the listener, lifelines, timers: always served by the service thread. Data: served by
 * it only with RF_PROGRESS_THREAD. */
enum rf_net_lane { RF_NET_CONTROL, RF_NET_DATA };

/*
 * Embedded in whoever owns the stream. ready() is called from rf_net_ops.poll()'s caller (under the
 * context's lock, through rf_net_dispatch()); it should note the readiness and return.
 */
struct rf_watch {
	void (*ready)(struct rf_watch *watch, unsigned events);
};

struct rf_net;
struct rf_stream;
struct rf_listener;

struct rf_stream_ops {
	/* RF_OK when connected, RF_ERR_AGAIN, or RF_ERR_NETWORK (then errno tells). */
	int (*connected)(struct rf_stream *stream);
	/* Sends a part, or all: *sent > 0 and RF_OK; RF_ERR_AGAIN: no room; RF_ERR_NETWORK: broken.
	 */
	int (*send)(struct rf_stream *stream, const struct iovec *iov, int iov_count, size_t *sent);
	/* *received > 0 and RF_OK; RF_OK and 0: orderly end; RF_ERR_AGAIN; RF_ERR_NETWORK. */
	int (*receive)(struct rf_stream *stream, const struct iovec *iov, int iov_count,
		       size_t *received);
	/* Level-triggered interest; events 0 stops it. watch stays owned by the caller. */
	int (*watch)(struct rf_stream *stream, enum rf_net_lane lane, struct rf_watch *watch,
		     unsigned events);
	/* No more sends; what was sent arrives, then the peer reads an orderly end. */
	void (*shutdown)(struct rf_stream *stream);
	void (*close)(struct rf_stream *stream); /* and frees it; no ready() afterwards */
	void (*local_addr)(struct rf_stream *stream, struct rf_addr *addr);
	void (*peer_addr)(struct rf_stream *stream, struct rf_addr *addr);
	/* For fork: closes the descriptor only (async-signal-safe). */
	void (*abandon)(struct rf_stream *stream);
};
struct rf_stream {
	const struct rf_stream_ops *ops; /* TLS later is a stream that wraps a stream */
};

/* Something that poll() fetched. Only rf_net_dispatch() knows, under the lock, whose it is: poll()
 * runs without the lock, so the stream may be gone by then. */
struct rf_net_event {
	uint64_t token; /* the provider's */
	unsigned events;
};

/* How a stream is to be tuned. */
struct rf_stream_tuning {
	int send_buffer_bytes; /* 0: the system's */
	int receive_buffer_bytes;
	int dead_after_ms; /* keepalive and TCP_USER_TIMEOUT; 0: the system's */
};

struct rf_net_ops {
	const char *name;
	uint64_t (*now)(struct rf_net *net); /* nanoseconds, monotonic */

	/* Listens on every local address, IPv4 and IPv6, on the first free port of the range (0 to
	 * 0: ephemeral). RF_ERR_SYSTEM: none is free (errno tells of the last one tried). */
	int (*listen)(struct rf_net *net, uint16_t first_port, uint16_t last_port,
		      struct rf_listener **listener, uint16_t *port);
	int (*watch_listener)(struct rf_listener *listener, struct rf_watch *watch);
	/* RF_ERR_AGAIN: nobody there. RF_ERR_SYSTEM: no descriptor or memory is left, and one that
	 * came was turned away if possible; the listener goes on. tuning may be NULL. */
	int (*accept)(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
		      struct rf_stream **stream);
	void (*close_listener)(struct rf_listener *listener);
	void (*abandon_listener)(struct rf_listener *listener); /* for fork */

	/* Starts to connect; ops->connected() tells the end. RF_ERR_NETWORK (errno tells): there
	 * is no way at all. tuning may be NULL. */
	int (*connect)(struct rf_net *net, const struct rf_addr *addr,
		       const struct rf_stream_tuning *tuning, struct rf_stream **stream);

	/* Resolves a name or a literal. Never blocks (a thread does): RF_ERR_AGAIN until it is
	 * known, then RF_OK with up to capacity addresses in *count; RF_ERR_NETWORK: does not
	 * resolve (ask anew later by calling again with a NULL handle). *handle is NULL before the
	 * first call, and again once the answer is not RF_ERR_AGAIN; resolve_cancel() drops one
	 * before that. */
	int (*resolve)(struct rf_net *net, const char *name, uint16_t port, void **handle,
		       struct rf_addr *addrs, int capacity, int *count);
	void (*resolve_cancel)(struct rf_net *net, void **handle);

	/* This host's interfaces and addresses, best first: global before link-local, loopback
	 * last. */
	int (*interfaces)(struct rf_net *net, struct rf_interface *interfaces, int capacity,
			  int *count);

	/* Waits until something is ready, wake() was called, or the time is over; 0 polls,
	 * UINT64_MAX: for ever. control_only leaves out the data lane. Thread-safe: two threads may
	 * be in it at once (wake() ends both if one of them is control_only). */
	int (*poll)(struct rf_net *net, bool control_only, uint64_t timeout_ns,
		    struct rf_net_event *events, int capacity, int *count);
	void (*wake)(struct rf_net *net); /* ends the current, or the next, poll() */
	/* Whose event it is by now, and what of *events it still wants; NULL: drop it. For
	 * rf_net_dispatch(). */
	struct rf_watch *(*lookup)(struct rf_net *net, uint64_t token, unsigned *events);
	/* A descriptor of somebody else (an eventfd, a verbs channel). posix only; stop it (events
	 * 0) before the descriptor is closed. */
	int (*watch_fd)(struct rf_net *net, int fd, enum rf_net_lane lane, struct rf_watch *watch,
			unsigned events);

	void (*destroy)(struct rf_net *net);
	void (*abandon)(struct rf_net *net); /* for fork: closes its own descriptors */
};
struct rf_net {
	const struct rf_net_ops *ops;
};

int rf_net_posix_create(struct rf_net **net);

/* Calls the watches' ready(), under the context's lock. Events whose stream was closed since poll()
 * fetched them, by an earlier ready() of the same batch too, are dropped. */
void rf_net_dispatch(struct rf_net *net, struct rf_net_event *events, int count);

#endif
