/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: a bounded queue of segments for each lane, gathered into as few calls as the stream
 * takes. A segment that the stream takes whole is done when send() returns.
 */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct tcp_slot *slot_of(struct tcp_out *out, unsigned position)
{
	return &out->slots[position % TCP_SEND_SLOTS];
}

bool tcp_out_idle(const struct tcp_out *out)
{
	return out->sent == out->last;
}

static bool has_room(const struct tcp_out *out, size_t bytes)
{
	if (out->last - out->first == TCP_SEND_SLOTS)
		return false;
	return tcp_out_idle(out) || out->queued_bytes + bytes <= TCP_SEND_BYTES;
}

static void set_interest(struct tcp_out *out, unsigned interest)
{
	if (out->interest == interest || !out->stream)
		return;
	out->interest = interest;
	out->stream->ops->watch(out->stream, RF_NET_DATA, &out->watch, interest);
}

/* Frees the reported slots at the front, up to the first that somebody waits for. */
static void trim(struct tcp_out *out)
{
	while (out->first != out->sent && slot_of(out, out->first)->silent)
		out->first++;
}

static void slot_done(struct tcp_out *out)
{
	struct tcp_slot *slot = slot_of(out, out->sent);

	out->queued_bytes -= slot->withdrawn ? 0 : slot->bytes;
	out->sent++;
	out->sent_bytes = 0;
	free(slot->copy);
	slot->copy = NULL;
}

/* Accounts for bytes that the stream has taken. */
static void advance(struct tcp_out *out, size_t bytes)
{
	while (!tcp_out_idle(out)) {
		struct tcp_slot *slot = slot_of(out, out->sent);
		size_t left;

		if (!slot->withdrawn) {
			left = RF_SEGMENT_HEADER_BYTES + slot->bytes - out->sent_bytes;
			if (bytes < left)
				break;
			bytes -= left;
		}
		slot_done(out);
	}
	out->sent_bytes += bytes;
}

/* Headers and payloads of all that is queued. */
static int gather(struct tcp_out *out, struct iovec *iov, size_t *total)
{
	size_t skip = out->sent_bytes;
	int count = 0;

	*total = 0;
	for (unsigned i = out->sent; i != out->last; i++) {
		struct tcp_slot *slot = slot_of(out, i);
		size_t header = skip < RF_SEGMENT_HEADER_BYTES ? skip : RF_SEGMENT_HEADER_BYTES;

		if (slot->withdrawn)
			continue;
		if (header < RF_SEGMENT_HEADER_BYTES)
			iov[count++] = (struct iovec){slot->header + header,
						      RF_SEGMENT_HEADER_BYTES - header};
		skip -= header;
		if (slot->bytes > skip)
			iov[count++] = (struct iovec){(void *)(slot->payload + (skip - slot->from)),
						      slot->bytes - skip};
		*total += RF_SEGMENT_HEADER_BYTES - header + slot->bytes - skip;
		skip = 0;
	}
	return count;
}

static bool is_broken(const struct tcp_out *out)
{
	return out->endpoint && out->endpoint->peer->out_broken;
}

/* One that lingers is gone afterwards. */
static void broken(struct tcp_out *out, int status, const char *reason)
{
	if (out->endpoint)
		tcp_peer_out_broken(out->endpoint->peer, status, reason);
	else
		tcp_out_destroy(out);
}

/* Writes until all is sent or the stream is full. False: it broke, and out may be gone. */
static bool flush(struct tcp_out *out)
{
	struct iovec iov[2 * TCP_SEND_SLOTS];
	size_t total, sent;
	char text[160];
	int count, status;

	while (!out->blocked && (count = gather(out, iov, &total)) != 0) {
		errno = 0;
		status = out->stream->ops->send(out->stream, iov, count, &sent);
		if (status == RF_ERR_AGAIN)
			sent = 0;
		else if (status != RF_OK) {
			broken(out, RF_ERR_NETWORK, tcp_reason(text, "sending failed"));
			return false;
		}
		/* A part means that the stream is full now. */
		out->blocked = sent < total;
		advance(out, sent);
	}
	if (!out->blocked)
		advance(out, 0);
	else
		set_interest(out, RF_NET_IN | RF_NET_OUT);
	return true;
}

/* The peer never sends on our stream: what can be read is its end. */
static bool look_for_the_end(struct tcp_out *out)
{
	uint8_t byte;
	struct iovec iov = {&byte, 1};
	size_t received;
	char text[160];
	int status;

	out->readable = false;
	errno = 0;
	status = out->stream->ops->receive(out->stream, &iov, 1, &received);
	if (status == RF_ERR_AGAIN)
		return true;
	set_interest(out, 0);
	if (status != RF_OK)
		broken(out, RF_ERR_NETWORK, tcp_reason(text, "the connection broke"));
	else if (received)
		broken(out, RF_ERR_PROTOCOL, "the peer sent data on a stream that is not its own");
	else
		broken(out, RF_ERR_NETWORK, "the peer closed the connection");
	return false;
}

static int run_lingering(struct tcp_out *out)
{
	if (out->readable && !look_for_the_end(out))
		return RF_ERR_AGAIN;
	if (flush(out) && tcp_out_idle(out))
		tcp_out_destroy(out);
	return RF_ERR_AGAIN;
}

static bool may_be_tried_again(const struct tcp_out *out)
{
	return out->refused && has_room(out, out->refused_bytes);
}

/* Is there anything left that run() could do or report? */
static bool has_work(const struct tcp_out *out)
{
	return out->first != out->sent || may_be_tried_again(out) ||
	       (!out->blocked && !is_broken(out) && !tcp_out_idle(out));
}

static int report_sent(struct tcp_out *out, struct rf_transport_event *event)
{
	event->kind = RF_EVENT_SENT;
	event->peer = out->endpoint->peer->name;
	event->endpoint = &out->endpoint->base;
	event->cookie = slot_of(out, out->first)->cookie;
	out->first++;
	trim(out);
	return RF_OK;
}

static int run(struct tcp_work *work, struct rf_transport_event *event)
{
	struct tcp_out *out = TCP_CONTAINER(work, struct tcp_out, work);
	struct tcp_peer *peer;
	int status = RF_ERR_AGAIN;

	if (!out->endpoint)
		return run_lingering(out);
	peer = out->endpoint->peer;
	if (out->readable)
		look_for_the_end(out);
	if (!peer->dead && !is_broken(out) && !tcp_out_idle(out))
		flush(out);
	tcp_peer_settle(peer);
	if (peer->dead)
		return RF_ERR_AGAIN;
	trim(out);
	if (out->first != out->sent)
		status = report_sent(out, event);
	if (may_be_tried_again(out)) {
		out->refused = false;
		tcp_work_add(out->tcp, &out->endpoint->work);
	}
	if (has_work(out))
		tcp_work_add(out->tcp, work);
	return status;
}

static void ready(struct rf_watch *watch, unsigned events)
{
	struct tcp_out *out = TCP_CONTAINER(watch, struct tcp_out, watch);

	if (events & RF_NET_IN)
		out->readable = true;
	if (events & RF_NET_OUT) {
		out->blocked = false;
		if (tcp_out_idle(out))
			set_interest(out, RF_NET_IN);
	}
	tcp_work_add(out->tcp, &out->work);
}

static bool copy_payload(struct tcp_slot *slot, size_t from)
{
	uint8_t *copy;

	if (slot->copy || from >= slot->bytes)
		return true;
	copy = malloc(slot->bytes - from);
	if (!copy)
		return false;
	memcpy(copy, slot->payload + from, slot->bytes - from);
	slot->copy = copy;
	slot->payload = copy;
	slot->from = from;
	return true;
}

int tcp_send(struct rf_endpoint *base, const struct rf_transport_send *send)
{
	struct tcp_endpoint *endpoint = TCP_CONTAINER(base, struct tcp_endpoint, base);
	struct tcp_peer *peer = endpoint->peer;
	struct tcp_out *out;
	struct tcp_slot *slot;
	unsigned position;

	if (send->lane >= peer->tcp->base.caps.lanes || send->bytes > RF_SEGMENT_PAYLOAD_MAX)
		return RF_ERR_INVALID;
	if (peer->dead || peer->out_broken || endpoint->attached < peer->tcp->base.caps.lanes)
		return RF_ERR_AGAIN;
	out = endpoint->out[send->lane];
	if (!has_room(out, send->bytes)) {
		out->refused = true;
		out->refused_bytes = send->bytes;
		return RF_ERR_AGAIN;
	}
	position = out->last++;
	slot = slot_of(out, position);
	*slot = (struct tcp_slot){
		.payload = send->payload, .bytes = send->bytes, .cookie = send->cookie};
	memcpy(slot->header, send->header, RF_SEGMENT_HEADER_BYTES);
	out->queued_bytes += send->bytes;
	if (!send->more && !flush(out))
		return RF_OK;
	slot->silent = position - out->first < out->sent - out->first ||
		       (send->bytes <= TCP_INLINE_BYTES && copy_payload(slot, 0));
	trim(out);
	/* A peer that has closed may count as down now that all is sent. */
	if (has_work(out) || peer->in_ended)
		tcp_work_add(out->tcp, &out->work);
	return slot->silent ? RF_SENT_AT_ONCE : RF_OK;
}

static int withdraw_slot(struct tcp_out *out, unsigned position)
{
	struct tcp_slot *slot = slot_of(out, position);
	size_t from = 0;

	if (position == out->sent && out->sent_bytes) {
		if (out->sent_bytes > RF_SEGMENT_HEADER_BYTES)
			from = out->sent_bytes - RF_SEGMENT_HEADER_BYTES;
		if (!copy_payload(slot, from))
			return RF_ERR_AGAIN;
	} else {
		slot->withdrawn = true;
		out->queued_bytes -= slot->bytes;
		tcp_work_add(out->tcp, &out->work);
	}
	slot->silent = true;
	return RF_OK;
}

int tcp_withdraw(struct rf_endpoint *base, uint64_t cookie)
{
	struct tcp_endpoint *endpoint = TCP_CONTAINER(base, struct tcp_endpoint, base);
	struct tcp *tcp = endpoint->peer->tcp;

	/* Once the peer is dead nothing is touched any more, whatever it was. */
	if (endpoint->peer->dead)
		return RF_OK;
	for (unsigned lane = 0; lane < tcp->base.caps.lanes && endpoint->out[lane]; lane++) {
		struct tcp_out *out = endpoint->out[lane];

		for (unsigned i = out->first; i != out->last; i++) {
			if (slot_of(out, i)->silent || slot_of(out, i)->cookie != cookie)
				continue;
			if (i - out->first < out->sent - out->first)
				return RF_ERR_AGAIN;
			return withdraw_slot(out, i);
		}
	}
	return RF_ERR_INVALID;
}

int tcp_out_create(struct tcp_endpoint *endpoint, struct rf_stream *stream, struct tcp_out **made)
{
	struct tcp_out *out = calloc(1, sizeof(*out));
	int status;

	if (!out)
		return RF_ERR_NOMEM;
	out->work.run = run;
	out->watch.ready = ready;
	out->tcp = endpoint->peer->tcp;
	out->endpoint = endpoint;
	out->stream = stream;
	status = stream->ops->watch(stream, RF_NET_DATA, &out->watch, RF_NET_IN);
	if (status != RF_OK) {
		free(out);
		return status;
	}
	out->interest = RF_NET_IN;
	*made = out;
	return RF_OK;
}

void tcp_out_stop(struct tcp_out *out)
{
	tcp_work_remove(&out->work);
	if (out->stream)
		out->stream->ops->close(out->stream);
	out->stream = NULL;
}

void tcp_out_destroy(struct tcp_out *out)
{
	for (struct tcp_out **at = &out->tcp->lingering; *at; at = &(*at)->next)
		if (*at == out) {
			*at = out->next;
			break;
		}
	tcp_out_stop(out);
	for (unsigned i = out->sent; i != out->last; i++)
		free(slot_of(out, i)->copy);
	free(out);
}

/* All that is not sent yet, in our own memory. */
static bool own_the_rest(struct tcp_out *out)
{
	for (unsigned i = out->sent; i != out->last; i++) {
		struct tcp_slot *slot = slot_of(out, i);
		size_t sent = i == out->sent ? out->sent_bytes : 0;
		size_t from = sent > RF_SEGMENT_HEADER_BYTES ? sent - RF_SEGMENT_HEADER_BYTES : 0;

		slot->silent = true;
		if (!slot->withdrawn && !copy_payload(slot, from))
			return false;
	}
	return true;
}

void tcp_out_linger(struct tcp_out *out)
{
	/* Without a stream the peer is dead, and payloads are not ours to touch any more. */
	if (!out->stream || out->endpoint->peer->out_broken || tcp_out_idle(out) ||
	    !own_the_rest(out)) {
		tcp_out_destroy(out);
		return;
	}
	out->endpoint = NULL;
	out->next = out->tcp->lingering;
	out->tcp->lingering = out;
	tcp_work_add(out->tcp, &out->work);
}
