/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network seam over Linux: epoll, an eventfd, the monotonic clock. Here are the poller and the
 * registrations; see net_posix.h for the rest.
 */
#include "engine/net_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { POLL_BATCH = 64 };

/* Tokens that no slot has. */
#define TOKEN_CONTROL UINT64_MAX
#define TOKEN_WAKE    (UINT64_MAX - 1)

static uint64_t posix_now(struct rf_net *net)
{
	struct timespec ts;

	(void)net;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- registrations -------------------------------------------------------------------------- */

static int slot_take(struct posix_net *net, uint32_t *slot)
{
	if (net->free_slot == RF_NO_SLOT) {
		uint32_t count = net->slot_count ? net->slot_count * 2 : 16;
		struct posix_slot *slots = realloc(net->slots, count * sizeof(*slots));

		if (!slots)
			return RF_ERR_NOMEM;
		for (uint32_t i = net->slot_count; i < count; i++)
			slots[i] = (struct posix_slot){
				.fd = -1,
				.epoll = -1,
				.next_free = i + 1 < count ? i + 1 : RF_NO_SLOT,
			};
		net->free_slot = net->slot_count;
		net->slots = slots;
		net->slot_count = count;
	}
	*slot = net->free_slot;
	net->free_slot = net->slots[*slot].next_free;
	return RF_OK;
}

static uint64_t slot_token(const struct posix_net *net, uint32_t slot)
{
	return (uint64_t)net->slots[slot].generation << 32 | slot;
}

static uint32_t interest_to_epoll(unsigned events)
{
	return (events & RF_NET_IN ? (uint32_t)EPOLLIN : 0) |
	       (events & RF_NET_OUT ? (uint32_t)EPOLLOUT : 0);
}

/* An error or a hang-up is told as whatever the owner waits for: the next operation finds it. */
static unsigned events_from_epoll(uint32_t epoll_events)
{
	unsigned events = 0;

	if (epoll_events & (EPOLLIN | EPOLLRDHUP))
		events |= RF_NET_IN;
	if (epoll_events & EPOLLOUT)
		events |= RF_NET_OUT;
	if (epoll_events & (EPOLLHUP | EPOLLERR))
		events |= RF_NET_IN | RF_NET_OUT;
	return events;
}

static void slot_leave_epoll(struct posix_slot *slot)
{
	if (slot->epoll >= 0)
		epoll_ctl(slot->epoll, EPOLL_CTL_DEL, slot->fd, NULL);
	slot->epoll = -1;
}

int posix_register(struct posix_net *net, uint32_t *slot_index, int fd, enum rf_net_lane lane,
		   struct rf_watch *watch, unsigned events)
{
	int epoll = lane == RF_NET_CONTROL ? net->control : net->all_poll;
	struct epoll_event event = {.events = interest_to_epoll(events)};
	struct posix_slot *slot;
	int op;

	if (*slot_index == RF_NO_SLOT) {
		int rc = events ? slot_take(net, slot_index) : RF_OK;

		if (rc != RF_OK || !events)
			return rc;
		net->slots[*slot_index].fd = fd;
	}
	slot = &net->slots[*slot_index];
	if (slot->epoll >= 0 && (slot->epoll != epoll || !events))
		slot_leave_epoll(slot);
	slot->interest = (uint8_t)events;
	slot->watch = watch;
	if (!events)
		return RF_OK;
	event.data.u64 = slot_token(net, *slot_index);
	op = slot->epoll < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	if (epoll_ctl(epoll, op, fd, &event) != 0) {
		posix_unregister(net, slot_index);
		return errno == ENOMEM ? RF_ERR_NOMEM : RF_ERR_SYSTEM;
	}
	slot->epoll = epoll;
	return RF_OK;
}

void posix_unregister(struct posix_net *net, uint32_t *slot_index)
{
	struct posix_slot *slot;
	int saved = errno;

	if (*slot_index == RF_NO_SLOT)
		return;
	slot = &net->slots[*slot_index];
	slot_leave_epoll(slot);
	slot->fd = -1;
	slot->watch = NULL;
	slot->interest = 0;
	slot->foreign = false;
	slot->generation++;
	slot->next_free = net->free_slot;
	net->free_slot = *slot_index;
	*slot_index = RF_NO_SLOT;
	errno = saved;
}

void posix_register_edge(struct posix_net *net, uint32_t slot_index, bool edge)
{
	struct posix_slot *slot;
	struct epoll_event event;

	if (slot_index == RF_NO_SLOT || net->slots[slot_index].epoll < 0)
		return;
	slot = &net->slots[slot_index];
	event.events = interest_to_epoll(slot->interest) | (edge ? (uint32_t)EPOLLET : 0);
	event.data.u64 = slot_token(net, slot_index);
	epoll_ctl(slot->epoll, EPOLL_CTL_MOD, slot->fd, &event);
}

static struct rf_watch *posix_lookup(struct rf_net *base, uint64_t token, unsigned *events)
{
	struct posix_net *net = (struct posix_net *)base;
	uint32_t slot = (uint32_t)token;

	if (slot >= net->slot_count || slot_token(net, slot) != token)
		return NULL;
	*events &= net->slots[slot].interest;
	return net->slots[slot].watch;
}

static int posix_watch_fd(struct rf_net *base, int fd, enum rf_net_lane lane,
			  struct rf_watch *watch, unsigned events)
{
	struct posix_net *net = (struct posix_net *)base;
	uint32_t slot = RF_NO_SLOT;
	int rc;

	for (uint32_t i = 0; i < net->slot_count; i++)
		if (net->slots[i].foreign && net->slots[i].fd == fd)
			slot = i;
	if (!events) {
		posix_unregister(net, &slot);
		return RF_OK;
	}
	rc = posix_register(net, &slot, fd, lane, watch, events);
	if (rc == RF_OK)
		net->slots[slot].foreign = true;
	return rc;
}

/* ---- polling -------------------------------------------------------------------------------- */

/* Waits with the precision of nanoseconds where the system has it. */
static int epoll_wait_ns(int epoll, struct epoll_event *fetched, int capacity, uint64_t timeout_ns)
{
	static atomic_bool no_pwait2;
	uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
	int n;

	if (timeout_ns == 0 || timeout_ns == UINT64_MAX)
		return epoll_wait(epoll, fetched, capacity, timeout_ns ? -1 : 0);
	/* Relaxed: a hint, found out again by whoever does not see it. */
	if (!atomic_load_explicit(&no_pwait2, memory_order_relaxed)) {
		struct timespec ts = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
				      .tv_nsec = (long)(timeout_ns % 1000000000u)};

		n = epoll_pwait2(epoll, fetched, capacity, &ts, NULL);
		/* Old kernels lack it, and old seccomp filters of containers forbid it. */
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		atomic_store_explicit(&no_pwait2, true, memory_order_relaxed);
	}
	return epoll_wait(epoll, fetched, capacity, ms > 0x7fffffff ? 0x7fffffff : (int)ms);
}

/* epoll_wait_ns() that goes on after a signal, for the rest of its time. */
static int epoll_wait_full(struct rf_net *net, int epoll, struct epoll_event *fetched, int capacity,
			   uint64_t timeout_ns)
{
	bool timed = timeout_ns != 0 && timeout_ns != UINT64_MAX;
	uint64_t end = timed ? posix_now(net) + timeout_ns : 0;
	int n = epoll_wait_ns(epoll, fetched, capacity, timeout_ns);

	while (n < 0 && errno == EINTR) {
		if (timed) {
			uint64_t now = posix_now(net);

			timeout_ns = now < end ? end - now : 0;
		}
		n = epoll_wait_ns(epoll, fetched, capacity, timeout_ns);
	}
	return n;
}

static int append_events(const struct epoll_event *fetched, int n, struct rf_net_event *events,
			 int count, bool *control)
{
	for (int i = 0; i < n; i++) {
		if (fetched[i].data.u64 == TOKEN_CONTROL)
			*control = true;
		else if (fetched[i].data.u64 != TOKEN_WAKE)
			events[count++] = (struct rf_net_event){
				.token = fetched[i].data.u64,
				.events = events_from_epoll(fetched[i].events),
			};
	}
	return count;
}

static int posix_poll(struct rf_net *base, bool control_only, uint64_t timeout_ns,
		      struct rf_net_event *events, int capacity, int *count)
{
	struct posix_net *net = (struct posix_net *)base;
	struct epoll_event fetched[POLL_BATCH];
	int most = capacity < POLL_BATCH ? capacity : POLL_BATCH;
	bool control = false;
	int filled, n;

	n = epoll_wait_full(base, control_only ? net->control_poll : net->all_poll, fetched, most,
			    timeout_ns);
	if (n < 0)
		return RF_ERR_SYSTEM;
	filled = append_events(fetched, n, events, 0, &control);
	if (control) {
		/* The nested set took a place in the batch, so there is room for one at least. */
		most = capacity - filled < POLL_BATCH ? capacity - filled : POLL_BATCH;
		n = epoll_wait_full(base, net->control, fetched, most, 0);
		if (n < 0)
			return RF_ERR_SYSTEM;
		filled = append_events(fetched, n, events, filled, &control);
	}
	*count = filled;
	return RF_OK;
}

void posix_wake_signal(struct posix_wake *wake)
{
	const uint64_t one = 1;
	ssize_t written;

	do
		written = write(wake->fd, &one, sizeof(one));
	while (written < 0 && errno == EINTR);
}

void posix_wake_release(struct posix_wake *wake)
{
	/* Acquire and release: the last one sees all uses before it closes. */
	if (atomic_fetch_sub_explicit(&wake->references, 1, memory_order_acq_rel) != 1)
		return;
	if (wake->fd >= 0)
		close(wake->fd);
	free(wake);
}

static void posix_wake(struct rf_net *base)
{
	posix_wake_signal(((struct posix_net *)base)->wake);
}

/* ---- the net -------------------------------------------------------------------------------- */

int posix_reserve_open(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_descriptors(struct posix_net *net)
{
	close_if_open(net->all_poll);
	close_if_open(net->control_poll);
	close_if_open(net->control);
	close_if_open(net->reserve);
}

static void posix_destroy(struct rf_net *base)
{
	struct posix_net *net = (struct posix_net *)base;

	close_descriptors(net);
	if (net->wake)
		posix_wake_release(net->wake);
	free(net->slots);
	free(net);
}

static void posix_abandon(struct rf_net *base)
{
	struct posix_net *net = (struct posix_net *)base;

	close_descriptors(net);
	close(net->wake->fd);
	net->all_poll = net->control_poll = net->control = net->reserve = net->wake->fd = -1;
}

static const struct rf_net_ops posix_ops = {
	.name = "posix",
	.now = posix_now,
	.listen = posix_listen,
	.watch_listener = posix_watch_listener,
	.accept = posix_accept,
	.close_listener = posix_close_listener,
	.abandon_listener = posix_abandon_listener,
	.connect = posix_connect,
	.resolve = posix_resolve,
	.resolve_cancel = posix_resolve_cancel,
	.interfaces = posix_interfaces,
	.poll = posix_poll,
	.wake = posix_wake,
	.lookup = posix_lookup,
	.watch_fd = posix_watch_fd,
	.destroy = posix_destroy,
	.abandon = posix_abandon,
};

static bool epoll_nest(int outer, int inner, uint64_t token, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = token};

	return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0;
}

static bool net_open(struct posix_net *net)
{
	int wake = net->wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	net->control = epoll_create1(EPOLL_CLOEXEC);
	net->control_poll = epoll_create1(EPOLL_CLOEXEC);
	net->all_poll = epoll_create1(EPOLL_CLOEXEC);
	net->reserve = posix_reserve_open();
	return wake >= 0 && net->control >= 0 && net->control_poll >= 0 && net->all_poll >= 0 &&
	       epoll_nest(net->control_poll, net->control, TOKEN_CONTROL, EPOLLIN) &&
	       epoll_nest(net->all_poll, net->control, TOKEN_CONTROL, EPOLLIN) &&
	       epoll_nest(net->control_poll, wake, TOKEN_WAKE, EPOLLIN | EPOLLET) &&
	       epoll_nest(net->all_poll, wake, TOKEN_WAKE, EPOLLIN | EPOLLET);
}

int rf_net_posix_create(struct rf_net **result)
{
	struct posix_net *net = calloc(1, sizeof(*net));
	int saved;

	if (!net)
		return RF_ERR_NOMEM;
	net->base.ops = &posix_ops;
	net->free_slot = RF_NO_SLOT;
	net->control = net->control_poll = net->all_poll = net->reserve = -1;
	net->wake = calloc(1, sizeof(*net->wake));
	if (!net->wake) {
		posix_destroy(&net->base);
		return RF_ERR_NOMEM;
	}
	atomic_init(&net->wake->references, 1);
	if (!net_open(net)) {
		saved = errno;
		posix_destroy(&net->base);
		errno = saved;
		return RF_ERR_SYSTEM;
	}
	*result = &net->base;
	return RF_OK;
}
