/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's side of the network seam: readiness, streams, listeners, names.
 */
#include "transports/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Until a silent address answers, a connect asks again and again. */
#define SYN_INTERVAL_NS UINT64_C(200000000)

struct rf_listener {
	struct sim_watched watched; /* first */
	uint16_t port;
	struct rf_list node;    /* in its host's listeners */
	struct rf_list pending; /* streams that wait to be accepted */
};

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

/* ---- streams -------------------------------------------------------------------------------- */

struct sim_stream *sim_stream_from(struct rf_stream *stream)
{
	return RF_CONTAINER(stream, struct sim_stream, base);
}

static size_t stream_room(const struct sim_stream *stream)
{
	size_t window = stream->watched.net->sim->params.stream_window_bytes;

	return stream->out->bytes < window ? window - stream->out->bytes : 0;
}

static unsigned stream_readiness(struct sim_watched *watched)
{
	struct sim_stream *stream = (struct sim_stream *)watched;

	if (stream->state == SIM_CONNECTING)
		return 0;
	if (stream->state == SIM_FAILED)
		return RF_NET_IN | RF_NET_OUT;
	return (sim_link_first(stream->in) ? RF_NET_IN : 0) |
	       (stream_room(stream) || stream->out->ended ? RF_NET_OUT : 0);
}

static int stream_failed(const struct sim_stream *stream)
{
	errno = stream->error;
	return RF_ERR_NETWORK;
}

static int stream_connected(struct rf_stream *base)
{
	struct sim_stream *stream = sim_stream_from(base);

	if (stream->state == SIM_CONNECTING)
		return RF_ERR_AGAIN;
	return stream->state == SIM_FAILED ? stream_failed(stream) : RF_OK;
}

static size_t iov_bytes(const struct iovec *iov, int iov_count)
{
	size_t bytes = 0;

	for (int i = 0; i < iov_count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* All that could be moved, or by chance a part. */
static size_t some_of(struct rf_sim *sim, size_t bytes)
{
	return bytes > 1 && sim_chance(sim, sim->params.partial) ? 1 + sim_up_to(sim, bytes - 1)
								 : bytes;
}

static struct sim_item *gather(const struct iovec *iov, size_t bytes)
{
	struct sim_item *item = sim_item_new(SIM_BYTES, NULL, bytes);
	size_t at = 0;

	item->payload = sim_allocate(bytes);
	for (; at < bytes; iov++) {
		size_t n = iov->iov_len < bytes - at ? iov->iov_len : bytes - at;

		if (n)
			memcpy(item->payload + at, iov->iov_base, n);
		at += n;
	}
	return item;
}

static int stream_send(struct rf_stream *base, const struct iovec *iov, int iov_count, size_t *sent)
{
	struct sim_stream *stream = sim_stream_from(base);
	struct rf_sim *sim = stream->watched.net->sim;
	size_t bytes = iov_bytes(iov, iov_count);
	size_t room;

	if (stream->state == SIM_CONNECTING)
		return RF_ERR_AGAIN;
	if (stream->state == SIM_FAILED || stream->out->ended) {
		errno = EPIPE;
		return RF_ERR_NETWORK;
	}
	room = stream_room(stream);
	if (room < bytes)
		bytes = room;
	if (!room || sim_chance(sim, sim->params.stream_again))
		return RF_ERR_AGAIN;
	if (bytes) {
		bytes = some_of(sim, bytes);
		sim_link_push(stream->out, gather(iov, bytes));
		sim_update(&stream->watched);
	}
	*sent = bytes;
	return RF_OK;
}

/* Moves up to `bytes` from what has arrived into the vectors. */
static size_t scatter(struct sim_link *link, const struct iovec *iov, size_t bytes)
{
	struct sim_item *item;
	size_t moved = 0, in_iov = 0;

	while (moved < bytes && (item = sim_link_first(link)) && item->kind == SIM_BYTES) {
		size_t n = item->bytes - item->consumed;

		while (in_iov == iov->iov_len)
			iov++, in_iov = 0;
		if (n > iov->iov_len - in_iov)
			n = iov->iov_len - in_iov;
		if (n > bytes - moved)
			n = bytes - moved;
		memcpy((uint8_t *)iov->iov_base + in_iov, item->payload + item->consumed, n);
		moved += n;
		in_iov += n;
		item->consumed += n;
		link->bytes -= n;
		if (item->consumed == item->bytes)
			sim_link_consume(link);
	}
	return moved;
}

static int stream_receive(struct rf_stream *base, const struct iovec *iov, int iov_count,
			  size_t *received)
{
	struct sim_stream *stream = sim_stream_from(base);
	struct rf_sim *sim = stream->watched.net->sim;
	struct sim_item *first = stream->in ? sim_link_first(stream->in) : NULL;

	if (stream->state != SIM_FAILED && (!first || sim_chance(sim, sim->params.stream_again)))
		return RF_ERR_AGAIN;
	if (!first || first->kind == SIM_RESET)
		return stream_failed(stream);
	*received = 0;
	if (first->kind == SIM_BYTES) {
		*received = scatter(stream->in, iov, some_of(sim, iov_bytes(iov, iov_count)));
		if (stream->in->sender)
			sim_update(&stream->in->sender->watched);
		sim_update(&stream->watched);
	}
	return RF_OK; /* at SIM_END: nothing, now and for ever */
}

static int stream_watch(struct rf_stream *base, enum rf_net_lane lane, struct rf_watch *watch,
			unsigned events)
{
	sim_watch(&sim_stream_from(base)->watched, watch, lane, events);
	return RF_OK;
}

static void stream_shutdown(struct rf_stream *base)
{
	struct sim_stream *stream = sim_stream_from(base);

	if (stream->state == SIM_CONNECTED)
		sim_link_push_mark(stream->out, SIM_END);
	sim_update(&stream->watched);
}

static void free_items(struct rf_list *items)
{
	RF_LIST_EACH(node, items)
	{
		rf_list_remove(node);
		sim_item_free(RF_CONTAINER(node, struct sim_item, node));
	}
}

static void connection_release(struct sim_connection *connection)
{
	if (--connection->references)
		return;
	for (int i = 0; i < 2; i++) {
		sim_clear(connection->way[i].sim, &connection->way[i].arrival);
		free_items(&connection->way[i].under_way);
		free_items(&connection->way[i].arrived);
	}
	rf_list_remove(&connection->node);
	free(connection);
}

void sim_stream_reset(struct sim_stream *stream)
{
	if (stream->state == SIM_FAILED)
		return;
	if (stream->state == SIM_CONNECTED)
		sim_link_push_mark(stream->out, SIM_RESET);
	sim_clear(stream->watched.net->sim, &stream->attempt);
	stream->state = SIM_FAILED;
	stream->error = ECONNRESET;
	sim_update(&stream->watched);
}

void sim_stream_free(struct sim_stream *stream)
{
	struct sim_net *net = stream->watched.net;

	sim_watch(&stream->watched, NULL, RF_NET_CONTROL, 0);
	sim_clear(net->sim, &stream->attempt);
	rf_list_remove(&stream->node);
	net->stream_count--;
	if (stream->connection) {
		stream->out->sender = NULL;
		stream->in->receiver = NULL;
		connection_release(stream->connection);
	}
	free(stream);
}

/* As TCP: what was sent arrives, but what came and was not read is told to the peer as a reset. */
static void stream_close(struct rf_stream *base)
{
	struct sim_stream *stream = sim_stream_from(base);
	struct sim_item *first = stream->in ? sim_link_first(stream->in) : NULL;

	if (stream->state == SIM_CONNECTED)
		sim_link_push_mark(stream->out,
				   first && first->kind == SIM_BYTES ? SIM_RESET : SIM_END);
	sim_stream_free(stream);
}

static void stream_local_addr(struct rf_stream *base, struct rf_addr *addr)
{
	*addr = sim_stream_from(base)->local;
}

static void stream_peer_addr(struct rf_stream *base, struct rf_addr *addr)
{
	*addr = sim_stream_from(base)->peer;
}

static void stream_abandon(struct rf_stream *base)
{
	(void)base;
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

static struct sim_stream *stream_new(struct sim_net *net, struct rf_list *list)
{
	struct sim_stream *stream = sim_allocate(sizeof(*stream));

	stream->base.ops = &stream_ops;
	stream->watched.net = net;
	stream->watched.readiness = stream_readiness;
	rf_list_init(&stream->watched.node);
	rf_list_append(list, &stream->node);
	if (++net->stream_count > net->stream_peak)
		net->stream_peak = net->stream_count;
	return stream;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static unsigned addr_host(const struct rf_addr *addr)
{
	return addr->ip[0] | (unsigned)addr->ip[1] << 8 | (unsigned)addr->ip[2] << 16 |
	       (unsigned)addr->ip[3] << 24;
}

struct rf_addr rf_sim_addr(unsigned host, uint16_t port)
{
	struct rf_addr addr = {.family = RF_ADDR_SIM, .port = port};

	for (int i = 0; i < 4; i++)
		addr.ip[i] = (uint8_t)(host >> (8 * i));
	return addr;
}

static struct rf_listener *find_listener(struct rf_sim *sim, unsigned host_number, uint16_t port)
{
	struct sim_host *host = sim_host(sim, host_number);

	if (!host)
		return NULL;
	RF_LIST_EACH(node, &host->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->port == port)
			return listener;
	}
	return NULL;
}

static void join_way(struct sim_stream *stream, struct sim_connection *connection, int way)
{
	stream->connection = connection;
	stream->out = &connection->way[way];
	stream->in = &connection->way[1 - way];
	stream->out->sender = stream;
	stream->in->receiver = stream;
	connection->references++;
	stream->state = SIM_CONNECTED;
}

static void establish(struct sim_stream *client, struct rf_listener *listener)
{
	struct sim_net *from = client->watched.net;
	struct sim_net *to = listener->watched.net;
	struct sim_connection *connection = sim_connection_new(from, to);
	struct sim_stream *server = stream_new(to, &listener->pending);

	server->local = client->peer;
	server->peer = client->local;
	join_way(client, connection, 0);
	join_way(server, connection, 1);
	sim_trace(from->sim, "connect", from->id, to->id, listener->port);
	sim_update(&listener->watched);
}

static void attempt_failed(struct sim_stream *stream, int error)
{
	stream->state = SIM_FAILED;
	stream->error = error;
	sim_trace(stream->watched.net->sim, "refused", stream->watched.net->id,
		  addr_host(&stream->peer), (uint64_t)error);
}

static void attempt_fire(struct sim_event *event)
{
	struct sim_stream *stream = RF_CONTAINER(event, struct sim_stream, attempt);
	struct rf_sim *sim = stream->watched.net->sim;
	struct rf_listener *listener =
		find_listener(sim, addr_host(&stream->peer), stream->peer.port);

	if (listener && sim_blocked(stream->watched.net, listener->watched.net)) {
		if (sim->now < stream->give_up) {
			sim_set(sim, &stream->attempt, sim->now + SYN_INTERVAL_NS);
			return;
		}
		attempt_failed(stream, ETIMEDOUT);
	} else if (listener) {
		establish(stream, listener);
	} else {
		attempt_failed(stream, ECONNREFUSED);
	}
	sim_update(&stream->watched);
}

static int sim_connect(struct rf_net *base, const struct rf_addr *addr,
		       const struct rf_stream_tuning *tuning, struct rf_stream **result)
{
	struct sim_net *net = net_of(base);
	struct rf_sim *sim = net->sim;
	struct sim_host *host = sim_host(sim, net->host);
	struct sim_stream *stream;

	(void)tuning;
	if (addr->family != RF_ADDR_SIM)
		return RF_ERR_INVALID;
	if (net->dead) {
		errno = ENETDOWN;
		return RF_ERR_NETWORK;
	}
	stream = stream_new(net, &net->streams);
	stream->peer = *addr;
	stream->local = rf_sim_addr(net->host, host->next_port++);
	if (host->next_port < 32768)
		host->next_port = 32768;
	stream->attempt.fire = attempt_fire;
	stream->give_up = sim->now + sim->params.connect_timeout_ns;
	sim_set(sim, &stream->attempt,
		sim->now + 2 * sim->params.latency_ns + sim_up_to(sim, sim->params.jitter_ns));
	*result = &stream->base;
	return RF_OK;
}

/* ---- listeners ------------------------------------------------------------------------------ */

static unsigned listener_readiness(struct sim_watched *watched)
{
	struct rf_listener *listener = (struct rf_listener *)watched;

	return rf_list_empty(&listener->pending) ? 0 : RF_NET_IN;
}

static int sim_listen(struct rf_net *base, uint16_t first_port, uint16_t last_port,
		      struct rf_listener **result, uint16_t *port)
{
	struct sim_net *net = net_of(base);
	unsigned first = first_port, last = last_port;
	struct rf_listener *listener;

	if (first > last)
		return RF_ERR_INVALID;
	if (last == 0)
		first = 20000, last = 32767;
	else if (first == 0)
		first = 1;
	while (first <= last && find_listener(net->sim, net->host, (uint16_t)first))
		first++;
	if (first > last || net->dead) {
		errno = EADDRINUSE;
		return RF_ERR_SYSTEM;
	}
	listener = sim_allocate(sizeof(*listener));
	listener->watched.net = net;
	listener->watched.readiness = listener_readiness;
	rf_list_init(&listener->watched.node);
	rf_list_init(&listener->pending);
	listener->port = (uint16_t)first;
	rf_list_append(&sim_host(net->sim, net->host)->listeners, &listener->node);
	*port = listener->port;
	*result = listener;
	return RF_OK;
}

static int sim_watch_listener(struct rf_listener *listener, struct rf_watch *watch)
{
	sim_watch(&listener->watched, watch, RF_NET_CONTROL, watch ? RF_NET_IN : 0);
	return RF_OK;
}

static int sim_accept(struct rf_listener *listener, const struct rf_stream_tuning *tuning,
		      struct rf_stream **result)
{
	struct sim_net *net = listener->watched.net;
	struct sim_stream *stream;

	(void)tuning;
	if (rf_list_empty(&listener->pending) || net->dead)
		return RF_ERR_AGAIN;
	stream = RF_CONTAINER(listener->pending.next, struct sim_stream, node);
	rf_list_remove(&stream->node);
	rf_list_append(&net->streams, &stream->node);
	sim_update(&listener->watched);
	*result = &stream->base;
	return RF_OK;
}

static void sim_close_listener(struct rf_listener *listener)
{
	sim_watch(&listener->watched, NULL, RF_NET_CONTROL, 0);
	RF_LIST_EACH(node, &listener->pending)
	{
		struct sim_stream *stream = RF_CONTAINER(node, struct sim_stream, node);

		sim_stream_reset(stream);
		sim_stream_free(stream);
	}
	rf_list_remove(&listener->node);
	free(listener);
}

void sim_listeners_die(struct sim_net *net)
{
	RF_LIST_EACH(node, &sim_host(net->sim, net->host)->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->watched.net != net)
			continue;
		RF_LIST_EACH(pending, &listener->pending)
		{
			sim_stream_reset(RF_CONTAINER(pending, struct sim_stream, node));
		}
		rf_list_remove(&listener->node);
	}
}

static void sim_abandon_listener(struct rf_listener *listener)
{
	(void)listener;
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

static int sim_interfaces(struct rf_net *base, struct rf_addr *addrs, int capacity, int *count)
{
	*count = capacity > 0;
	if (capacity > 0)
		addrs[0] = rf_sim_addr(net_of(base)->host, 0);
	return RF_OK;
}

/* ---- the net -------------------------------------------------------------------------------- */

static void sim_destroy(struct rf_net *base)
{
	struct sim_net *net = net_of(base);

	RF_LIST_EACH(node, &sim_host(net->sim, net->host)->listeners)
	{
		struct rf_listener *listener = RF_CONTAINER(node, struct rf_listener, node);

		if (listener->watched.net == net)
			sim_close_listener(listener);
	}
	RF_LIST_EACH(node, &net->streams)
	{
		stream_close(&RF_CONTAINER(node, struct sim_stream, node)->base);
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
