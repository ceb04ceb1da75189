/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control segments on their way in: framed, checked, brought into order by their numbers, and given
 * to the room that handles their type.
 */
#include "engine/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	READS_MAX = 16, /* in one go, so that one stream cannot keep the others waiting */
	READ_BYTES = 16384,
	PAYLOAD_FIRST_BYTES = 65536, /* a payload's buffer grows only as its bytes arrive */
	ACK_EVERY = 32,
	ACK_BYTES = 65536,
};

/* What handling a segment says beside RF_OK and errors. */
enum { STREAM_IS_OVER = 1 };

/* ---- handlers by type ----------------------------------------------------------------------- */

typedef int handler(struct rf_peer *peer, const struct rf_segment *segment, const uint8_t *payload);

static int on_credit(struct rf_peer *peer, const struct rf_segment *segment, const uint8_t *payload)
{
	(void)payload;
	return rf_call_on_credit(peer, segment);
}

enum { UNHANDLED_MAX = 4096 };
static handler *const handlers[RF_SEGMENT_TYPE_COUNT] = {
	[RF_SEGMENT_JOIN] = rf_join_on_segment,
	[RF_SEGMENT_TABLE] = rf_join_on_segment,
	[RF_SEGMENT_READY] = rf_join_on_segment,
	[RF_SEGMENT_GO] = rf_join_on_segment,
	[RF_SEGMENT_JOIN_FAILED] = rf_join_on_segment,
	[RF_SEGMENT_CREDIT] = on_credit,
	[RF_SEGMENT_WANT] = on_credit,
	[RF_SEGMENT_DEATH] = rf_failure_on_segment,
	[RF_SEGMENT_MISMATCH] = rf_failure_on_segment,
	[RF_SEGMENT_ABORT] = rf_failure_on_segment,
	[RF_SEGMENT_REVOKE] = rf_failure_on_segment,
	[RF_SEGMENT_GOODBYE] = rf_failure_on_segment,
	[RF_SEGMENT_QUERY] = rf_failure_on_segment,
	[RF_SEGMENT_ANSWER] = rf_failure_on_segment,
};

/* ---- what belongs to the stream itself ------------------------------------------------------ */

/* The low 16 bits of a count that only grows, and never passes what was sent. */
static void take_ack(struct rf_control *control, uint16_t low)
{
	uint64_t upto = control->acked + (uint16_t)(low - (uint16_t)control->acked);

	control->heard |= upto > control->acked && upto <= control->sent_number;
	if (upto <= control->sent_number)
		rf_control_acknowledged(control, upto);
}

static int on_second_hello(struct rf_control_stream *stream, uint8_t *payload)
{
	struct rf_peer *peer = stream->control->peer;
	struct rf_hello hello;
	int rc = rf_hello_decode(payload, stream->segment.bytes, &hello);

	if (rc != RF_OK || !stream->awaits_hello || !rf_process_id_equal(hello.from, peer->id))
		return RF_ERR_PROTOCOL;
	rc = rf_control_meet(peer, &hello);
	if (rc != RF_OK)
		return rc;
	stream->awaits_hello = false;
	rf_control_pump(stream->control);
	if (stream->control->sending == stream)
		rf_join_peer_up(peer);
	return RF_OK;
}

static int on_ack(struct rf_control_stream *stream)
{
	struct rf_control *control = stream->control;

	if (stream->segment.stage != RF_ACK_IDLE)
		return RF_OK;
	control->peer_idle = true;
	if (control->idle_told && !rf_control_needed(control))
		rf_control_farewell(control);
	return RF_OK;
}

static int on_bye(struct rf_control_stream *stream)
{
	if (stream->segment.stage == RF_BYE_LEAVING)
		stream->control->peer_left = true;
	stream->bye_came = true;
	return STREAM_IS_OVER;
}

static void acknowledge_if_due(struct rf_control *control)
{
	if (control->received - control->told < ACK_EVERY && control->untold_bytes < ACK_BYTES)
		return;
	if (!control->sending)
		return;
	rf_control_say_aside(control->sending, RF_SEGMENT_ACK, 0);
	rf_control_pump(control);
}

static int on_numbered(struct rf_control_stream *stream, const uint8_t *payload)
{
	struct rf_control *control = stream->control;
	struct rf_segment *segment = &stream->segment;
	int32_t ahead = (int32_t)(segment->chunk - (uint32_t)(control->received + 1));
	int rc;

	/* After a farewell nothing is received any more: the peer keeps it, and sends it again. */
	if (stream->state != RF_CONTROL_OPEN || ahead < 0)
		return RF_OK;
	if (ahead > 0 || stream->awaits_hello || !handlers[segment->type])
		return RF_ERR_PROTOCOL;
	control->received++;
	control->heard = true;
	control->untold_bytes += segment->bytes;
	control->peer_idle = false;
	control->last_use = rf_now(control->peer->context);
	segment->chunk = 0;
	segment->channel = 0;
	rc = handlers[segment->type](control->peer, segment, payload);
	acknowledge_if_due(control);
	/* Only reading a stream may say AGAIN or NETWORK. */
	return rc == RF_ERR_AGAIN || rc == RF_ERR_NETWORK ? RF_ERR_PROTOCOL : rc;
}

static int on_segment(struct rf_control_stream *stream, uint8_t *payload)
{
	struct rf_control *control = stream->control;

	if (stream->segment.type == RF_SEGMENT_HELLO)
		return on_second_hello(stream, payload);
	if (stream->awaits_hello && stream->segment.type != RF_SEGMENT_BYE)
		return RF_ERR_PROTOCOL;
	take_ack(control, stream->segment.channel);
	rf_data_on_eager_freed(control->peer, stream->segment.eager_freed);
	switch (stream->segment.type) {
	case RF_SEGMENT_ACK:
		return on_ack(stream);
	case RF_SEGMENT_BYE:
		return on_bye(stream);
	default:
		return on_numbered(stream, payload);
	}
}

/* ---- framing -------------------------------------------------------------------------------- */

static void next_segment(struct rf_control_stream *stream)
{
	free(stream->payload);
	stream->payload = NULL;
	stream->payload_capacity = 0;
	stream->payload_bytes = 0;
	stream->header_bytes = 0;
}

/* Room for one byte more at least. */
static int payload_room(struct rf_control_stream *stream)
{
	size_t capacity =
		stream->payload_capacity ? stream->payload_capacity * 2 : PAYLOAD_FIRST_BYTES;
	uint8_t *payload;

	if (stream->payload_bytes < stream->payload_capacity)
		return RF_OK;
	if (capacity > stream->segment.bytes)
		capacity = stream->segment.bytes;
	payload = realloc(stream->payload, capacity);
	if (!payload)
		return RF_ERR_NOMEM;
	stream->payload = payload;
	stream->payload_capacity = capacity;
	return RF_OK;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int complete(struct rf_control_stream *stream, uint8_t *payload)
{
	int rc = on_segment(stream, payload);

	next_segment(stream);
	return rc;
}

static int feed_header(struct rf_control_stream *stream, const uint8_t *bytes, size_t count,
		       size_t *taken)
{
	int rc;

	*taken = least(count, RF_SEGMENT_HEADER_BYTES - stream->header_bytes);
	memcpy(stream->header + stream->header_bytes, bytes, *taken);
	stream->header_bytes += *taken;
	if (stream->header_bytes < RF_SEGMENT_HEADER_BYTES)
		return RF_OK;
	rc = rf_segment_decode(stream->header, &stream->segment);
	/* Before a byte of it is kept: what nobody here handles is short. */
	if (rc == RF_OK && stream->segment.bytes > UNHANDLED_MAX && !handlers[stream->segment.type])
		rc = RF_ERR_PROTOCOL;
	return rc;
}

static int feed_payload(struct rf_control_stream *stream, uint8_t *bytes, size_t count,
			size_t *taken)
{
	int rc;

	*taken = 0;
	if (!stream->payload_bytes && count >= stream->segment.bytes) {
		*taken = stream->segment.bytes;
		return complete(stream, bytes);
	}
	rc = payload_room(stream);
	if (rc != RF_OK)
		return rc;
	*taken = least(count, stream->payload_capacity - stream->payload_bytes);
	memcpy(stream->payload + stream->payload_bytes, bytes, *taken);
	stream->payload_bytes += *taken;
	return stream->payload_bytes < stream->segment.bytes ? RF_OK
							     : complete(stream, stream->payload);
}

static int feed(struct rf_control_stream *stream, uint8_t *bytes, size_t count)
{
	int rc = RF_OK;

	while (rc == RF_OK && count) {
		bool in_header = stream->header_bytes < RF_SEGMENT_HEADER_BYTES;
		size_t taken;

		rc = in_header ? feed_header(stream, bytes, count, &taken)
			       : feed_payload(stream, bytes, count, &taken);
		bytes += taken;
		count -= taken;
		if (rc == RF_OK && in_header && stream->header_bytes == RF_SEGMENT_HEADER_BYTES &&
		    !stream->segment.bytes)
			rc = complete(stream, bytes);
	}
	return rc;
}

/* Bytes of a large payload go to their place at once, what follows it into the buffer. */
static int receive_once(struct rf_control_stream *stream, bool *ended)
{
	uint8_t buffer[READ_BYTES];
	struct iovec iov[2];
	size_t received = 0, direct = 0;
	int count = 0, rc;

	if (stream->payload_bytes) {
		rc = payload_room(stream);
		if (rc != RF_OK)
			return rc;
		direct = stream->payload_capacity - stream->payload_bytes;
		iov[count++] = (struct iovec){stream->payload + stream->payload_bytes, direct};
	}
	iov[count++] = (struct iovec){buffer, sizeof(buffer)};
	rc = stream->stream->ops->receive(stream->stream, iov, count, &received);
	if (rc != RF_OK)
		return rc;
	*ended = received == 0;
	if (direct) {
		direct = least(direct, received);
		stream->payload_bytes += direct;
		received -= direct;
		if (stream->payload_bytes == stream->segment.bytes)
			rc = complete(stream, stream->payload);
	}
	return rc == RF_OK && received ? feed(stream, buffer, received) : rc;
}

/* ---- readiness ------------------------------------------------------------------------------ */

static void protocol_violated(struct rf_control_stream *stream, int error)
{
	struct rf_control *control = stream->control;
	rf_context *context = control->peer->context;
	struct rf_addr addr;
	char at[RF_ADDR_TEXT], reason[160];

	stream->stream->ops->peer_addr(stream->stream, &addr);
	snprintf(reason, sizeof(reason), "%s sent a control segment that cannot be taken: %s",
		 rf_addr_format(&addr, at), rf_strerror(error));
	if (control->holds || !rf_list_empty(&control->peer->links))
		rf_log(&context->logger, RF_LOG_WARN, "%s", reason);
	else
		rf_server_log_stranger(context->server, RF_LOG_INFO, reason, stream->stream);
	rf_control_end(control->peer, RF_PEER_DEAD, reason);
}

static void stream_failed(struct rf_control_stream *stream)
{
	char text[128], reason[160];

	snprintf(reason, sizeof(reason), "its connection broke: %s",
		 errno ? strerror_r(errno, text, sizeof(text)) : "closed");
	rf_control_stream_ended(stream, stream->state == RF_CONTROL_SHUT, reason);
}

static void receive(struct rf_control_stream *stream)
{
	for (int i = 0; i < READS_MAX; i++) {
		bool ended = false;
		int rc = receive_once(stream, &ended);

		if (rc == RF_ERR_AGAIN)
			return;
		if (rc == STREAM_IS_OVER || ended) {
			rf_control_stream_ended(
				stream, rc == STREAM_IS_OVER || stream->state == RF_CONTROL_SHUT,
				"its connection was closed");
			return;
		}
		if (rc == RF_ERR_NETWORK) {
			stream_failed(stream);
			return;
		}
		if (rc != RF_OK) {
			protocol_violated(stream, rc);
			return;
		}
	}
}

void rf_control_stream_ready(struct rf_watch *watch, unsigned events)
{
	struct rf_control_stream *stream = RF_CONTAINER(watch, struct rf_control_stream, watch);
	struct rf_peer *peer = stream->control->peer;

	peer->references++;
	if (events & RF_NET_OUT)
		rf_control_pump(stream->control);
	if (events & RF_NET_IN)
		receive(stream);
	rf_peer_put(peer);
}
