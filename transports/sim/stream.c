/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simulated byte streams: the two ends of a connection.
 */
#include "transports/sim/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

struct sim_stream *sim_stream_new(struct sim_net *net, struct rf_list *list)
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

void sim_stream_join(struct sim_stream *stream, struct sim_connection *connection, int way)
{
	stream->connection = connection;
	stream->out = &connection->way[way];
	stream->in = &connection->way[1 - way];
	stream->out->sender = stream;
	stream->in->receiver = stream;
	connection->references++;
	stream->state = SIM_CONNECTED;
}
