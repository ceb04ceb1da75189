/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's side of the network seam: readiness, names, and the table of operations.
 */
#include "transports/sim/world.h"

#include <stdlib.h>
#include <string.h>

static struct sim_net *net_of(struct rf_net *base)
{
	return (struct sim_net *)base;
}

/* ---- readiness ------------------------------------------------------------------------------ */

static void slot_take(struct sim_watched *watched)
{
	struct sim_net *net = watched->net;
	uint32_t slot;

	if (net->free_slot == UINT32_MAX) {
		uint32_t count = net->slot_count ? net->slot_count * 2 : 8;

		net->slots = sim_grow(net->slots, count * sizeof(*net->slots));
		while (net->slot_count < count) {
			net->slots[net->slot_count] =
				(struct sim_slot){.next_free = net->free_slot};
			net->free_slot = net->slot_count++;
		}
	}
	slot = net->free_slot;
	net->free_slot = net->slots[slot].next_free;
	net->slots[slot].watched = watched;
	watched->slot = slot;
}

static void slot_return(struct sim_watched *watched)
{
	struct sim_net *net = watched->net;
	struct sim_slot *slot = &net->slots[watched->slot];

	slot->watched = NULL;
	slot->generation++;
	slot->next_free = net->free_slot;
	net->free_slot = watched->slot;
}

void sim_watch(struct sim_watched *watched, struct rf_watch *watch, enum rf_net_lane lane,
	       unsigned events)
{
	if (!watched->interest && events)
		slot_take(watched);
	else if (watched->interest && !events)
		slot_return(watched);
	watched->watch = watch;
	watched->lane = lane;
	watched->interest = events;
	sim_update(watched);
}

void sim_update(struct sim_watched *watched)
{
	bool ready = watched->interest && (watched->readiness(watched) & watched->interest);

	if (ready && rf_list_empty(&watched->node)) {
		rf_list_append(&watched->net->watched_ready, &watched->node);
		sim_make_ready(watched->net);
	} else if (!ready) {
		rf_list_remove(&watched->node);
	}
}

static int sim_poll(struct rf_net *base, bool control_only, uint64_t timeout_ns,
		    struct rf_net_event *events, int capacity, int *count)
{
	struct sim_net *net = net_of(base);
	struct rf_list *last = net->watched_ready.prev;
	int filled = 0;

	(void)timeout_ns;
	net->woken = false;
	if (rf_list_empty(&net->watched_ready) || net->dead) {
		*count = 0;
		return RF_OK;
	}
	RF_LIST_EACH(node, &net->watched_ready)
	{
		struct sim_watched *watched = RF_CONTAINER(node, struct sim_watched, node);
		bool was_last = node == last;

		if (filled == capacity)
			break;
		if (watched->lane == RF_NET_CONTROL || !control_only) {
			events[filled++] = (struct rf_net_event){
				.token = (uint64_t)net->slots[watched->slot].generation << 32 |
					 watched->slot,
				.events = watched->readiness(watched) & watched->interest,
			};
			/* Behind the others, so that small batches serve all. */
			rf_list_remove(node);
			rf_list_append(&net->watched_ready, node);
		}
		if (was_last)
			break;
	}
	*count = filled;
	return RF_OK;
}

static struct rf_watch *sim_lookup(struct rf_net *base, uint64_t token, unsigned *events)
{
	struct sim_net *net = net_of(base);
	uint32_t slot = (uint32_t)token;

	if (slot >= net->slot_count || net->slots[slot].generation != token >> 32 ||
	    !net->slots[slot].watched)
		return NULL;
	*events &= net->slots[slot].watched->interest;
	return net->slots[slot].watched->watch;
}

static void sim_wake(struct rf_net *base)
{
	rf_sim_again(net_of(base)->sim, net_of(base)->id);
}

static int sim_watch_fd(struct rf_net *net, int fd, enum rf_net_lane lane, struct rf_watch *watch,
			unsigned events)
{
	(void)net, (void)fd, (void)lane, (void)watch, (void)events;
	return RF_ERR_UNSUPPORTED;
}

static uint64_t sim_now(struct rf_net *base)
{
	return net_of(base)->sim->now;
}

/* ---- names ---------------------------------------------------------------------------------- */

struct resolving {
	struct sim_net *net;
	struct sim_event answer;
	bool done;
};

static void answer_fire(struct sim_event *event)
{
	struct resolving *resolving = RF_CONTAINER(event, struct resolving, answer);

	resolving->done = true;
	rf_sim_again(resolving->net->sim, resolving->net->id);
}

static void sim_resolve_cancel(struct rf_net *base, void **handle)
{
	struct resolving *resolving = *handle;

	if (resolving)
		sim_clear(net_of(base)->sim, &resolving->answer);
	free(resolving);
	*handle = NULL;
}

static int look_up(struct rf_sim *sim, const char *name, uint16_t port, struct rf_addr *addr)
{
	static const char prefix[] = "sim-";
	struct sim_host *host;
	unsigned long number;
	char *end;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return RF_ERR_NETWORK;
	name += sizeof(prefix) - 1;
	number = strtoul(name, &end, 10);
	if (end == name || *end || number > UINT32_MAX)
		return RF_ERR_NETWORK;
	host = sim_host(sim, (unsigned)number);
	if (!host || host->name_at > sim->now)
		return RF_ERR_NETWORK;
	*addr = rf_sim_addr((unsigned)number, port);
	return RF_OK;
}

static int sim_resolve(struct rf_net *base, const char *name, uint16_t port, void **handle,
		       struct rf_addr *addrs, int capacity, int *count)
{
	struct sim_net *net = net_of(base);
	struct resolving *resolving = *handle;
	int rc;

	if (capacity < 1 || !name[0])
		return RF_ERR_INVALID;
	if (!resolving) {
		resolving = sim_allocate(sizeof(*resolving));
		resolving->net = net;
		resolving->answer.fire = answer_fire;
		sim_set(net->sim, &resolving->answer, net->sim->now + net->sim->params.resolve_ns);
		*handle = resolving;
	}
	if (!resolving->done)
		return RF_ERR_AGAIN;
	sim_resolve_cancel(base, handle);
	rc = look_up(net->sim, name, port, addrs);
	if (rc == RF_OK)
		*count = 1;
	return rc;
}

static int sim_interfaces(struct rf_net *base, struct rf_interface *interfaces, int capacity,
			  int *count)
{
	*count = capacity > 0;
	if (capacity > 0)
		*interfaces = (struct rf_interface){"sim", rf_sim_addr(net_of(base)->host, 0)};
	return RF_OK;
}

/* ---- the net -------------------------------------------------------------------------------- */

static void sim_destroy(struct rf_net *base)
{
	struct sim_net *net = net_of(base);

	sim_listeners_close(net);
	RF_LIST_EACH(node, &net->streams)
	{
		struct rf_stream *stream = &RF_CONTAINER(node, struct sim_stream, node)->base;

		stream->ops->close(stream);
	}
	sim_clear(net->sim, &net->timer);
	net->gone = true;
}

static void sim_abandon(struct rf_net *base)
{
	(void)base;
}

const struct rf_net_ops sim_net_ops = {
	.name = "sim",
	.now = sim_now,
	.listen = sim_listen,
	.watch_listener = sim_watch_listener,
	.accept = sim_accept,
	.close_listener = sim_close_listener,
	.abandon_listener = sim_abandon_listener,
	.connect = sim_connect,
	.resolve = sim_resolve,
	.resolve_cancel = sim_resolve_cancel,
	.interfaces = sim_interfaces,
	.poll = sim_poll,
	.wake = sim_wake,
	.lookup = sim_lookup,
	.watch_fd = sim_watch_fd,
	.destroy = sim_destroy,
	.abandon = sim_abandon,
};
