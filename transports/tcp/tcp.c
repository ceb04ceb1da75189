/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tcp transport: segments over the byte streams of an rf_net, so it runs over sockets and in
 * the simulator alike. Here are its peers, their failure, and the queue of what is ready.
 *
 * When a peer closes, both directions are brought to their end before it counts as down: an orderly
 * end of what comes from it waits for what is still being sent to it, and a broken way to it waits
 * until everything has been read that it had sent before. So the data of a process that finished
 * first and left is never lost.
 */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tcp_reason(char text[160], const char *what)
{
	if (errno)
		snprintf(text, 160, "%s: %m", what);
	else
		snprintf(text, 160, "%s", what);
	return text;
}

/* ---- work ---- */

void tcp_work_add(struct tcp *tcp, struct tcp_work *work)
{
	if (work->next)
		return;
	work->previous = tcp->queue.previous;
	work->next = &tcp->queue;
	work->previous->next = work;
	tcp->queue.previous = work;
}

void tcp_work_remove(struct tcp_work *work)
{
	if (!work->next)
		return;
	work->next->previous = work->previous;
	work->previous->next = work->next;
	work->next = work->previous = NULL;
}

static int tcp_poll(struct rf_transport *transport, struct rf_transport_event *event)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);

	tcp->poll_bytes = 0;
	while (tcp->queue.next != &tcp->queue && tcp->poll_bytes < TCP_POLL_BYTES) {
		struct tcp_work *work = tcp->queue.next;

		tcp_work_remove(work);
		if (work->run(work, event) == RF_OK)
			return RF_OK;
	}
	return RF_ERR_AGAIN;
}

static int tcp_arm(struct rf_transport *transport)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);

	return tcp->queue.next == &tcp->queue ? RF_OK : RF_ERR_AGAIN;
}

/* ---- peers ---- */

static struct tcp_peer **bucket_of(struct tcp *tcp, const struct rf_transport_peer *name)
{
	uint64_t hash = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15;

	return &tcp->peers[hash >> 56];
}

static struct tcp_peer *find_peer(struct tcp *tcp, const struct rf_transport_peer *name)
{
	struct tcp_peer *peer = *bucket_of(tcp, name);

	while (peer && peer->name != name)
		peer = peer->next;
	return peer;
}

static int run_peer(struct tcp_work *work, struct rf_transport_event *event);

static struct tcp_peer *find_or_make_peer(struct tcp *tcp, struct rf_transport_peer *name)
{
	struct tcp_peer **bucket = bucket_of(tcp, name), *peer = find_peer(tcp, name);

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->work.run = run_peer;
	peer->tcp = tcp;
	peer->name = name;
	peer->next = *bucket;
	*bucket = peer;
	return peer;
}

static void destroy_in_lanes(struct tcp_peer *peer)
{
	for (unsigned lane = 0; lane < TCP_LANES_MAX; lane++) {
		if (peer->in[lane])
			tcp_in_destroy(peer->in[lane]);
		peer->in[lane] = NULL;
	}
	peer->in_attached = peer->in_ended = 0;
}

/* Frees a peer that nothing is open to or from, and of which nothing is to be reported. */
static void drop_unused(struct tcp_peer *peer)
{
	struct tcp_peer **at = bucket_of(peer->tcp, peer->name);

	if (peer->endpoint || peer->in_attached || peer->work.next)
		return;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

/* ---- failure ---- */

/* Streams are closed and memory is let go at once. What the engine may still point to, receives
 * and the piece that it has borrowed, stays until it has fetched DOWN. */
void tcp_peer_fail(struct tcp_peer *peer, int status, const char *reason)
{
	struct tcp_endpoint *endpoint = peer->endpoint;

	if (peer->dead)
		return;
	peer->dead = true;
	peer->status = status;
	snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	for (unsigned lane = 0; lane < TCP_LANES_MAX; lane++)
		if (peer->in[lane])
			tcp_in_stop(peer->in[lane]);
	for (unsigned lane = 0; endpoint && lane < peer->tcp->base.caps.lanes; lane++)
		if (endpoint->out[lane])
			tcp_out_stop(endpoint->out[lane]);
	if (endpoint)
		tcp_work_remove(&endpoint->work);
	tcp_work_add(peer->tcp, &peer->work);
}

void tcp_peer_out_broken(struct tcp_peer *peer, int status, const char *reason)
{
	if (peer->dead || peer->out_broken)
		return;
	peer->out_broken = true;
	peer->status = status;
	snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	tcp_peer_settle(peer);
}

static bool all_sent(const struct tcp_endpoint *endpoint, unsigned lanes)
{
	for (unsigned lane = 0; endpoint && lane < lanes; lane++)
		if (endpoint->out[lane] && !tcp_out_idle(endpoint->out[lane]))
			return false;
	return true;
}

void tcp_peer_settle(struct tcp_peer *peer)
{
	unsigned lanes = peer->tcp->base.caps.lanes;
	bool in_open = peer->in_ended < peer->in_attached;
	char reason[160];

	if (peer->dead)
		return;
	if (peer->out_broken && !in_open) {
		snprintf(reason, sizeof(reason), "%s", peer->reason);
		tcp_peer_fail(peer, peer->status, reason);
	} else if (!in_open && peer->in_ended >= lanes && all_sent(peer->endpoint, lanes)) {
		tcp_peer_fail(peer, RF_ERR_NETWORK, "the peer closed the connection");
	}
}

static int run_peer(struct tcp_work *work, struct rf_transport_event *event)
{
	struct tcp_peer *peer = TCP_CONTAINER(work, struct tcp_peer, work);

	event->kind = RF_EVENT_DOWN;
	event->peer = peer->name;
	event->endpoint = peer->endpoint ? &peer->endpoint->base : NULL;
	event->receive = NULL;
	event->status = peer->status;
	memcpy(event->reason, peer->reason, sizeof(event->reason));
	destroy_in_lanes(peer);
	drop_unused(peer);
	return RF_OK;
}

/* ---- endpoints ---- */

static int run_endpoint(struct tcp_work *work, struct rf_transport_event *event)
{
	struct tcp_endpoint *endpoint = TCP_CONTAINER(work, struct tcp_endpoint, work);

	event->kind = RF_EVENT_WRITABLE;
	event->peer = endpoint->peer->name;
	event->endpoint = &endpoint->base;
	return RF_OK;
}

static int tcp_open(struct rf_transport *transport, struct rf_transport_peer *name,
		    const void *peer_blob, size_t blob_bytes, struct rf_endpoint **made)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);
	struct tcp_peer *peer = find_or_make_peer(tcp, name);
	struct tcp_endpoint *endpoint;

	(void)peer_blob;
	(void)blob_bytes;
	if (!peer)
		return RF_ERR_NOMEM;
	/* To a peer whose death is still to be told, too: the DOWN will name this endpoint. */
	if (peer->endpoint)
		return RF_ERR_BUSY;
	endpoint = calloc(1, sizeof(*endpoint) + tcp->base.caps.lanes * sizeof(endpoint->out[0]));
	if (!endpoint) {
		drop_unused(peer);
		return RF_ERR_NOMEM;
	}
	endpoint->base.peer = name;
	endpoint->work.run = run_endpoint;
	endpoint->peer = peer;
	peer->endpoint = endpoint;
	*made = &endpoint->base;
	return RF_OK;
}

static int tcp_attach(struct rf_endpoint *base, unsigned lane, struct rf_stream *stream)
{
	struct tcp_endpoint *endpoint = TCP_CONTAINER(base, struct tcp_endpoint, base);
	struct tcp_peer *peer = endpoint->peer;
	unsigned lanes = peer->tcp->base.caps.lanes;
	int status;

	if (peer->dead)
		status = RF_ERR_NETWORK;
	else if (lane >= lanes || endpoint->out[lane])
		status = RF_ERR_INVALID;
	else
		status = tcp_out_create(endpoint, stream, &endpoint->out[lane]);
	if (status != RF_OK) {
		stream->ops->close(stream);
		return status;
	}
	if (++endpoint->attached == lanes)
		tcp_work_add(peer->tcp, &endpoint->work);
	return RF_OK;
}

static void tcp_close(struct rf_endpoint *base)
{
	struct tcp_endpoint *endpoint = TCP_CONTAINER(base, struct tcp_endpoint, base);
	struct tcp_peer *peer = endpoint->peer;

	tcp_work_remove(&endpoint->work);
	for (unsigned lane = 0; lane < peer->tcp->base.caps.lanes; lane++)
		if (endpoint->out[lane])
			tcp_out_linger(endpoint->out[lane]);
	free(endpoint);
	peer->endpoint = NULL;
	/* A way that the engine itself has closed is not broken. */
	if (!peer->dead)
		peer->out_broken = false;
	/* A death of which it has not heard yet is still to be told if there were receives. */
	if (!peer->in_attached)
		tcp_work_remove(&peer->work);
	drop_unused(peer);
}

static int tcp_accept(struct rf_transport *transport, struct rf_transport_peer *name, unsigned lane,
		      struct rf_stream *stream)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);
	struct tcp_peer *peer = find_or_make_peer(tcp, name);
	int status;

	if (!peer)
		status = RF_ERR_NOMEM;
	else if (peer->dead)
		status = RF_ERR_NETWORK;
	else if (lane >= TCP_LANES_MAX || peer->in[lane])
		status = RF_ERR_INVALID;
	else
		status = tcp_in_create(peer, lane, stream, &peer->in[lane]);
	if (status != RF_OK) {
		stream->ops->close(stream);
		if (peer)
			drop_unused(peer);
		return status;
	}
	peer->in_attached++;
	return RF_OK;
}

static void tcp_forget(struct rf_transport *transport, struct rf_transport_peer *name)
{
	struct tcp_peer *peer = find_peer(TCP_CONTAINER(transport, struct tcp, base), name);

	if (!peer)
		return;
	destroy_in_lanes(peer);
	if (!peer->endpoint)
		tcp_work_remove(&peer->work);
	else
		tcp_peer_settle(peer);
	drop_unused(peer);
}

/* ---- the transport ---- */

static unsigned lanes_for(unsigned asked)
{
	if (!asked)
		return 1;
	return asked < TCP_LANES_MAX ? asked : TCP_LANES_MAX;
}

static size_t buffer_bytes_for(size_t asked)
{
	if (!asked)
		return TCP_BUFFER_BYTES;
	if (asked < TCP_BUFFER_BYTES_MIN)
		return TCP_BUFFER_BYTES_MIN;
	/* Whole pages, and a bound, so that a mistake in a setting does not end in no memory. */
	if (asked > RF_SEGMENT_PAYLOAD_MAX)
		asked = RF_SEGMENT_PAYLOAD_MAX;
	return (asked + 4095) & ~(size_t)4095;
}

static int tcp_create(const struct rf_transport_env *env, struct rf_transport **transport)
{
	struct tcp *tcp;

	if (env->no_payload)
		return RF_ERR_UNSUPPORTED;
	tcp = calloc(1, sizeof(*tcp));
	if (!tcp)
		return RF_ERR_NOMEM;
	tcp->base.ops = &rf_transport_tcp;
	tcp->base.caps = (struct rf_transport_caps){
		.borrow = true,
		.uses_streams = true,
		.lanes = lanes_for(env->lanes),
		.segment_max_bytes = RF_SEGMENT_PAYLOAD_MAX,
		.inline_bytes = TCP_INLINE_BYTES,
	};
	tcp->queue.next = tcp->queue.previous = &tcp->queue;
	tcp->buffer_bytes = buffer_bytes_for(env->receive_buffer_bytes);
	*transport = &tcp->base;
	return RF_OK;
}

static void destroy_endpoint(struct tcp_endpoint *endpoint, unsigned lanes)
{
	if (!endpoint)
		return;
	tcp_work_remove(&endpoint->work);
	for (unsigned lane = 0; lane < lanes; lane++)
		if (endpoint->out[lane])
			tcp_out_destroy(endpoint->out[lane]);
	free(endpoint);
}

static void destroy_peer(struct tcp_peer *peer)
{
	destroy_in_lanes(peer);
	destroy_endpoint(peer->endpoint, peer->tcp->base.caps.lanes);
	tcp_work_remove(&peer->work);
	free(peer);
}

static void tcp_destroy(struct rf_transport *transport)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);

	for (unsigned i = 0; i < TCP_PEER_BUCKETS; i++)
		while (tcp->peers[i]) {
			struct tcp_peer *peer = tcp->peers[i];

			tcp->peers[i] = peer->next;
			destroy_peer(peer);
		}
	while (tcp->lingering)
		tcp_out_destroy(tcp->lingering);
	while (tcp->buffers) {
		struct tcp_buffer *buffer = tcp->buffers;

		tcp->buffers = buffer->next;
		free(buffer);
	}
	free(tcp);
}

static void abandon_stream(struct rf_stream *stream)
{
	if (stream)
		stream->ops->abandon(stream);
}

static void tcp_abandon(struct rf_transport *transport)
{
	struct tcp *tcp = TCP_CONTAINER(transport, struct tcp, base);

	for (unsigned i = 0; i < TCP_PEER_BUCKETS; i++)
		for (struct tcp_peer *peer = tcp->peers[i]; peer; peer = peer->next)
			for (unsigned lane = 0; lane < TCP_LANES_MAX; lane++) {
				if (peer->in[lane])
					abandon_stream(peer->in[lane]->stream);
				if (peer->endpoint && lane < tcp->base.caps.lanes &&
				    peer->endpoint->out[lane])
					abandon_stream(peer->endpoint->out[lane]->stream);
			}
	for (struct tcp_out *out = tcp->lingering; out; out = out->next)
		abandon_stream(out->stream);
}

static int tcp_blob(struct rf_transport *transport, void *blob, size_t *bytes)
{
	(void)transport;
	(void)blob;
	*bytes = 0;
	return RF_OK;
}

const struct rf_transport_ops rf_transport_tcp = {
	.name = "tcp",
	.create = tcp_create,
	.destroy = tcp_destroy,
	.abandon = tcp_abandon,
	.blob = tcp_blob,
	.open = tcp_open,
	.attach = tcp_attach,
	.accept = tcp_accept,
	.close = tcp_close,
	.forget = tcp_forget,
	.send = tcp_send,
	.withdraw = tcp_withdraw,
	.receive_into = tcp_receive_into,
	.receive_pieces = tcp_receive_pieces,
	.release = tcp_release,
	.discard = tcp_discard,
	.poll = tcp_poll,
	.arm = tcp_arm,
};
