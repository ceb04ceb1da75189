/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving. A lane reads into a buffer that it borrows from a common stack only while there is
 * something in it: so the buffer that was folded from last, and is in the cache, is the next that
 * is read into, and idle lanes cost nothing. What is to land is read straight to its final address,
 * together with the next header.
 *
 * A lane that stands still does not read. Its interest in RF_NET_IN is dropped only when the stream
 * reports that it is readable meanwhile: mostly the answer comes earlier, and nothing is to be
 * done.
 */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tcp *tcp_of(const struct tcp_in *in)
{
	return in->peer->tcp;
}

/* ---- buffers ---- */

static bool take_buffer(struct tcp_in *in)
{
	struct tcp *tcp = tcp_of(in);
	size_t kept = (size_t)(in->end - in->at);

	if (in->buffer)
		return true;
	if (tcp->buffers) {
		in->buffer = (uint8_t *)tcp->buffers;
		tcp->buffers = tcp->buffers->next;
	} else {
		in->buffer = aligned_alloc(4096, tcp->buffer_bytes);
		if (!in->buffer)
			return false;
	}
	memcpy(in->buffer, in->at, kept);
	in->at = in->buffer;
	in->end = in->buffer + kept;
	return true;
}

/* Gives the buffer back if what is left in it fits in the stash. */
static void give_buffer(struct tcp_in *in)
{
	struct tcp *tcp = tcp_of(in);
	size_t kept = (size_t)(in->end - in->at);
	struct tcp_buffer *buffer = (struct tcp_buffer *)(void *)in->buffer;

	if (!buffer || kept > sizeof(in->stash))
		return;
	memcpy(in->stash, in->at, kept);
	in->at = in->stash;
	in->end = in->stash + kept;
	in->buffer = NULL;
	buffer->next = tcp->buffers;
	tcp->buffers = buffer;
}

/* ---- reading ---- */

static void end_of_file(struct tcp_in *in)
{
	struct tcp_peer *peer = in->peer;

	if (in->state != TCP_IN_HEADER || in->at != in->end) {
		tcp_peer_fail(peer, RF_ERR_NETWORK,
			      "the peer closed the connection in the middle of a segment");
		return;
	}
	in->state = TCP_IN_ENDED;
	tcp_in_stop(in);
	peer->in_ended++;
	tcp_peer_settle(peer);
}

/* Reads into iov. 0: nothing came, or the lane has ended. */
static size_t receive(struct tcp_in *in, struct iovec *iov, int count)
{
	size_t asked = iov[0].iov_len + (count > 1 ? iov[1].iov_len : 0), got = 0;
	char text[160];
	int status;

	errno = 0;
	status = in->stream->ops->receive(in->stream, iov, count, &got);
	in->readable = status == RF_OK && got == asked;
	if (status == RF_ERR_AGAIN)
		return 0;
	if (status != RF_OK) {
		tcp_peer_fail(in->peer, RF_ERR_NETWORK, tcp_reason(text, "receiving failed"));
		return 0;
	}
	if (!got)
		end_of_file(in);
	tcp_of(in)->poll_bytes += got;
	return got;
}

/* Reads into the buffer, behind what is there. */
static bool fill(struct tcp_in *in, size_t most)
{
	struct tcp *tcp = tcp_of(in);
	size_t kept = (size_t)(in->end - in->at), room, got;
	struct iovec iov;

	if (!in->readable)
		return false;
	if (!take_buffer(in)) {
		tcp_peer_fail(in->peer, RF_ERR_NOMEM, "no memory for a receive buffer");
		return false;
	}
	if (kept <= RF_SEGMENT_HEADER_BYTES && in->at != in->buffer) {
		memmove(in->buffer, in->at, kept);
		in->at = in->buffer;
		in->end = in->buffer + kept;
	}
	room = (size_t)(in->buffer + tcp->buffer_bytes - in->end);
	if (!room)
		return false;
	iov = (struct iovec){in->end, most < room ? most : room};
	got = receive(in, &iov, 1);
	in->end += got;
	return got > 0;
}

/* Reads the payload to its final address, and the next header on the way. */
static bool land(struct tcp_in *in)
{
	size_t most = in->rest < TCP_LAND_BYTES ? in->rest : TCP_LAND_BYTES, got, landed;
	struct iovec iov[2] = {{in->memory, most}};
	int count = 1;

	if (!in->readable)
		return false;
	if (most == in->rest && take_buffer(in))
		iov[count++] = (struct iovec){in->buffer, TCP_PEEK_BYTES};
	got = receive(in, iov, count);
	landed = got < most ? got : most;
	in->memory += landed;
	in->rest -= landed;
	if (count > 1)
		in->end += got - landed;
	return got > 0;
}

/* ---- segments ---- */

static int report(struct tcp_in *in, struct rf_transport_event *event,
		  enum rf_transport_event_kind kind)
{
	event->kind = kind;
	event->peer = in->peer->name;
	event->receive = &in->receive;
	return RF_OK;
}

static void refuse_header(struct tcp_in *in, int status, unsigned version)
{
	char text[160];

	if (status == RF_ERR_VERSION)
		snprintf(text, sizeof(text), "the peer speaks wire version %u, this is version %d",
			 version, RF_WIRE_VERSION);
	else
		snprintf(text, sizeof(text), "the peer sent a header that is not one");
	tcp_peer_fail(in->peer, status, text);
}

static int begin_segment(struct tcp_in *in, struct rf_transport_event *event)
{
	struct rf_segment segment;
	int status = rf_segment_decode(in->at, &segment);

	if (status != RF_OK || segment.bytes > RF_SEGMENT_PAYLOAD_MAX) {
		refuse_header(in, status == RF_OK ? RF_ERR_PROTOCOL : status, segment.version);
		return RF_ERR_AGAIN;
	}
	memcpy(in->receive.header, in->at, RF_SEGMENT_HEADER_BYTES);
	in->at += RF_SEGMENT_HEADER_BYTES;
	in->receive.bytes = segment.bytes;
	in->receive.user = NULL;
	in->rest = segment.bytes;
	in->state = TCP_IN_ASKED;
	return report(in, event, RF_EVENT_SEGMENT);
}

static int end_segment(struct tcp_in *in, struct rf_transport_event *event)
{
	in->state = TCP_IN_HEADER;
	return report(in, event, RF_EVENT_DELIVERED);
}

static int step_header(struct tcp_in *in, struct rf_transport_event *event)
{
	size_t most = in->lands ? TCP_PEEK_BYTES : SIZE_MAX;

	if (in->end - in->at < RF_SEGMENT_HEADER_BYTES)
		fill(in, most);
	if (in->state == TCP_IN_HEADER && in->end - in->at >= RF_SEGMENT_HEADER_BYTES &&
	    !in->peer->dead)
		return begin_segment(in, event);
	return RF_ERR_AGAIN;
}

static int step_landing(struct tcp_in *in, struct rf_transport_event *event)
{
	size_t kept = (size_t)(in->end - in->at);
	size_t taken = kept < in->rest ? kept : in->rest;

	if (taken) {
		memcpy(in->memory, in->at, taken);
		in->memory += taken;
		in->at += taken;
		in->rest -= taken;
	}
	if (in->rest) {
		give_buffer(in);
		land(in);
	}
	return in->rest || in->peer->dead ? RF_ERR_AGAIN : end_segment(in, event);
}

/* All of the rest, or a multiple of 64 bytes of it. */
static size_t next_piece(const struct tcp_in *in)
{
	size_t kept = (size_t)(in->end - in->at);

	return kept >= in->rest ? in->rest : kept & ~(size_t)63;
}

static int step_pieces(struct tcp_in *in, struct rf_transport_event *event)
{
	size_t piece;

	if (!in->rest)
		return end_segment(in, event);
	piece = next_piece(in);
	if (piece < in->rest && piece < TCP_PIECE_SMALL && fill(in, SIZE_MAX))
		piece = next_piece(in);
	if (!piece || in->peer->dead)
		return RF_ERR_AGAIN;
	in->piece = piece;
	in->state = TCP_IN_BORROWED;
	event->piece = in->at;
	event->offset = in->receive.bytes - in->rest;
	event->bytes = piece;
	return report(in, event, RF_EVENT_PIECE);
}

static void step_discard(struct tcp_in *in)
{
	size_t kept, taken;

	if (in->at == in->end && in->rest)
		fill(in, SIZE_MAX);
	kept = (size_t)(in->end - in->at);
	taken = kept < in->rest ? kept : in->rest;
	in->at += taken;
	in->rest -= taken;
	if (!in->rest)
		in->state = TCP_IN_HEADER;
}

static bool stands_still(const struct tcp_in *in)
{
	return in->state == TCP_IN_ASKED || in->state == TCP_IN_BORROWED ||
	       in->state == TCP_IN_ENDED;
}

/* Can another step do anything before the stream reports that it is readable? */
static bool can_step(const struct tcp_in *in)
{
	size_t kept = (size_t)(in->end - in->at);

	if (in->readable)
		return true;
	switch (in->state) {
	case TCP_IN_HEADER:
		return kept >= RF_SEGMENT_HEADER_BYTES;
	case TCP_IN_LANDING:
	case TCP_IN_DISCARD:
		return kept || !in->rest;
	case TCP_IN_PIECES:
		return !in->rest || next_piece(in);
	default:
		return false;
	}
}

static int run(struct tcp_work *work, struct rf_transport_event *event)
{
	struct tcp_in *in = TCP_CONTAINER(work, struct tcp_in, work);
	int status = RF_ERR_AGAIN;

	switch (in->state) {
	case TCP_IN_HEADER:
		status = step_header(in, event);
		break;
	case TCP_IN_LANDING:
		status = step_landing(in, event);
		break;
	case TCP_IN_PIECES:
		status = step_pieces(in, event);
		break;
	case TCP_IN_DISCARD:
		step_discard(in);
		break;
	case TCP_IN_ASKED:
	case TCP_IN_BORROWED:
	case TCP_IN_ENDED:
		break;
	}
	if (in->peer->dead)
		return RF_ERR_AGAIN;
	if (in->state != TCP_IN_BORROWED)
		give_buffer(in);
	if (!stands_still(in) && can_step(in))
		tcp_work_add(tcp_of(in), work);
	return status;
}

static void set_interest(struct tcp_in *in, bool interested)
{
	if (in->interested == interested || !in->stream)
		return;
	in->interested = interested;
	in->stream->ops->watch(in->stream, RF_NET_DATA, &in->watch, interested ? RF_NET_IN : 0);
}

static void ready(struct rf_watch *watch, unsigned events)
{
	struct tcp_in *in = TCP_CONTAINER(watch, struct tcp_in, watch);

	(void)events;
	in->readable = true;
	if (stands_still(in))
		set_interest(in, false);
	else
		tcp_work_add(tcp_of(in), &in->work);
}

/* ---- the engine's answers ---- */

static struct tcp_in *in_of(struct rf_receive *receive)
{
	return TCP_CONTAINER(receive, struct tcp_in, receive);
}

/* Goes on after standing still. */
static void go_on(struct tcp_in *in, enum tcp_in_state state)
{
	in->state = state;
	if (in->peer->dead)
		return;
	set_interest(in, true);
	tcp_work_add(tcp_of(in), &in->work);
}

int tcp_receive_into(struct rf_receive *receive, void *memory)
{
	struct tcp_in *in = in_of(receive);

	if (in->state != TCP_IN_ASKED)
		return RF_ERR_INVALID;
	if (receive->bytes > TCP_PEEK_BYTES)
		in->lands = true;
	in->memory = memory;
	go_on(in, TCP_IN_LANDING);
	return RF_OK;
}

int tcp_receive_pieces(struct rf_receive *receive)
{
	struct tcp_in *in = in_of(receive);

	if (in->state != TCP_IN_ASKED)
		return RF_ERR_INVALID;
	in->lands = false;
	go_on(in, TCP_IN_PIECES);
	return RF_OK;
}

void tcp_release(struct rf_receive *receive)
{
	struct tcp_in *in = in_of(receive);

	if (in->state != TCP_IN_BORROWED)
		return;
	in->at += in->piece;
	in->rest -= in->piece;
	go_on(in, TCP_IN_PIECES);
}

void tcp_discard(struct rf_receive *receive)
{
	struct tcp_in *in = in_of(receive);

	if (in->state == TCP_IN_HEADER || in->state == TCP_IN_ENDED)
		return;
	go_on(in, TCP_IN_DISCARD);
}

/* ---- life ---- */

int tcp_in_create(struct tcp_peer *peer, unsigned lane, struct rf_stream *stream,
		  struct tcp_in **made)
{
	struct tcp_in *in = aligned_alloc(64, (sizeof(*in) + 63) & ~(size_t)63);
	int status;

	if (!in)
		return RF_ERR_NOMEM;
	memset(in, 0, sizeof(*in));
	in->work.run = run;
	in->watch.ready = ready;
	in->receive.peer = peer->name;
	in->receive.lane = lane;
	in->peer = peer;
	in->stream = stream;
	in->readable = true;
	in->at = in->end = in->stash;
	status = stream->ops->watch(stream, RF_NET_DATA, &in->watch, RF_NET_IN);
	if (status != RF_OK) {
		free(in);
		return status;
	}
	in->interested = true;
	tcp_work_add(peer->tcp, &in->work);
	*made = in;
	return RF_OK;
}

void tcp_in_stop(struct tcp_in *in)
{
	tcp_work_remove(&in->work);
	if (in->stream)
		in->stream->ops->close(in->stream);
	in->stream = NULL;
}

void tcp_in_destroy(struct tcp_in *in)
{
	tcp_in_stop(in);
	in->at = in->end;
	give_buffer(in);
	free(in);
}
