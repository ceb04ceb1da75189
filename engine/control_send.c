/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control segments on their way out: queued, numbered, kept until the peer has acknowledged them,
 * and sent again from the first unacknowledged one when the stream that they went on is another.
 */
#include "engine/control.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 16 };

/* ---- the queue ------------------------------------------------------------------------------ */

static struct rf_control_message *message_of(struct rf_list *node)
{
	return RF_CONTAINER(node, struct rf_control_message, node);
}

static void message_free(struct rf_control_message *message)
{
	rf_list_remove(&message->node);
	free(message);
}

void rf_control_rewind(struct rf_control *control, struct rf_control_stream *stream)
{
	control->sending = stream;
	control->next = control->messages.next;
	control->next_sent = 0;
}

void rf_control_acknowledged(struct rf_control *control, uint64_t upto)
{
	if (upto <= control->acked)
		return;
	control->acked = upto;
	RF_LIST_EACH(node, &control->messages)
	{
		if (message_of(node)->number > upto)
			return;
		if (node == control->next) {
			/* Came by another stream. What was begun on this one must be finished. */
			if (control->next_sent)
				return;
			control->next = node->next;
		}
		message_free(message_of(node));
	}
}

/* The peer knows nothing of what was said before. */
void rf_control_renumber(struct rf_control *control)
{
	uint64_t number = 0;

	RF_LIST_EACH(node, &control->messages)
	message_of(node)->number = ++number;
	control->next_number = number + 1;
	control->acked = 0;
	control->sent_number = 0;
	rf_control_rewind(control, NULL);
}

void rf_control_drop_messages(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->messages)
	message_free(message_of(node));
	rf_control_rewind(control, control->sending);
}

/* ---- the stream to send on ------------------------------------------------------------------ */

static bool can_carry(const struct rf_control_stream *stream)
{
	return !stream->broken && !stream->awaits_hello && !stream->aside_is_bye &&
	       stream->state != RF_CONTROL_SHUT;
}

/* The first that stood; but what was begun on one is finished on it. */
static void choose_stream(struct rf_control *control)
{
	struct rf_control_stream *best = NULL;

	if (control->sending && control->next_sent && can_carry(control->sending))
		return;
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_control_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node);

		if (can_carry(stream) &&
		    (!best || (best->state != RF_CONTROL_OPEN && stream->state == RF_CONTROL_OPEN)))
			best = stream;
	}
	if (best != control->sending)
		rf_control_rewind(control, best);
}

static void set_interest(struct rf_control_stream *stream, unsigned events)
{
	if (stream->interest == events)
		return;
	stream->interest = events;
	if (stream->stream->ops->watch(stream->stream, RF_NET_CONTROL, &stream->watch, events) !=
	    RF_OK)
		stream->broken = true;
}

/* ---- sending -------------------------------------------------------------------------------- */

static void encode(struct rf_control *control, struct rf_segment *segment, uint64_t number,
		   uint8_t header[RF_SEGMENT_HEADER_BYTES])
{
	struct rf_peer *peer = control->peer;

	segment->chunk = (uint32_t)number;
	segment->channel = (uint16_t)control->received;
	segment->eager_freed = peer->eager_freed;
	rf_segment_encode(segment, header);
	control->told = control->received;
	control->untold_bytes = 0;
	peer->eager_told = peer->eager_freed;
}

void rf_control_say_aside(struct rf_control_stream *stream, enum rf_segment_type type,
			  uint8_t stage)
{
	struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = (uint8_t)type,
		.stage = stage,
	};

	if (stream->aside_bytes)
		return;
	encode(stream->control, &segment, 0, stream->aside);
	stream->aside_bytes = RF_SEGMENT_HEADER_BYTES;
	stream->aside_sent = 0;
	stream->aside_is_bye = type == RF_SEGMENT_BYE;
}

/* The last message that went before the BYE. */
static uint64_t flushed_number(const struct rf_control_stream *stream)
{
	const struct rf_control *control = stream->control;

	if (stream != control->sending)
		return 0;
	if (rf_control_has_unsent(control))
		return message_of(control->next)->number - 1;
	return control->next_number - 1;
}

static int send_aside(struct rf_control_stream *stream)
{
	while (stream->aside_sent < stream->aside_bytes) {
		struct iovec rest = {stream->aside + stream->aside_sent,
				     stream->aside_bytes - stream->aside_sent};
		size_t sent = 0;
		int rc = stream->stream->ops->send(stream->stream, &rest, 1, &sent);

		if (rc != RF_OK)
			return rc;
		stream->aside_sent += sent;
	}
	stream->aside_bytes = 0;
	if (stream->aside_is_bye) {
		stream->flushed = flushed_number(stream);
		stream->state = RF_CONTROL_SHUT;
		stream->stream->ops->shutdown(stream->stream);
	}
	return RF_OK;
}

/* The next messages as they lie in memory, without the first `skip` bytes. */
static int gather(struct rf_control *control, struct iovec iov[2 * BATCH])
{
	size_t skip = control->next_sent;
	int count = 0;

	for (struct rf_list *node = control->next;
	     node != &control->messages && count + 2 <= 2 * BATCH; node = node->next) {
		struct rf_control_message *message = message_of(node);
		size_t bytes = message->segment.bytes;

		if (!skip)
			encode(control, &message->segment, message->number, message->header);
		if (skip < RF_SEGMENT_HEADER_BYTES) {
			iov[count++] = (struct iovec){message->header + skip,
						      RF_SEGMENT_HEADER_BYTES - skip};
			skip = RF_SEGMENT_HEADER_BYTES;
		}
		skip -= RF_SEGMENT_HEADER_BYTES;
		if (bytes > skip)
			iov[count++] = (struct iovec){message->payload + skip, bytes - skip};
		skip = 0;
	}
	return count;
}

static void account(struct rf_control *control, size_t sent)
{
	while (sent) {
		struct rf_control_message *message = message_of(control->next);
		size_t rest = RF_SEGMENT_HEADER_BYTES + message->segment.bytes - control->next_sent;

		if (message->number > control->sent_number)
			control->sent_number = message->number;
		if (sent < rest) {
			control->next_sent += sent;
			return;
		}
		sent -= rest;
		control->next = control->next->next;
		control->next_sent = 0;
		if (message->number <= control->acked)
			message_free(message);
	}
}

static int send_messages(struct rf_control *control, struct rf_control_stream *stream)
{
	while (rf_control_has_unsent(control)) {
		struct iovec iov[2 * BATCH];
		int count = gather(control, iov);
		size_t sent = 0;
		int rc = stream->stream->ops->send(stream->stream, iov, count, &sent);

		if (rc != RF_OK)
			return rc;
		account(control, sent);
		control->last_use = rf_now(control->peer->context);
	}
	return RF_OK;
}

static int pump_stream(struct rf_control_stream *stream)
{
	struct rf_control *control = stream->control;
	bool sends = stream == control->sending;
	int rc = RF_OK;

	if (!sends || !control->next_sent)
		rc = send_aside(stream);
	if (rc == RF_OK && sends && stream->state != RF_CONTROL_SHUT) {
		rc = send_messages(control, stream);
		if (rc == RF_OK)
			rc = send_aside(stream);
	}
	if (rc == RF_OK && stream->state == RF_CONTROL_FAREWELL) {
		const struct rf_server *server = control->peer->context->server;

		rf_control_say_aside(stream, RF_SEGMENT_BYE, server->leaving ? RF_BYE_LEAVING : 0);
		rc = send_aside(stream);
	}
	return rc;
}

/* Never tears a stream down: it may be called from within the handling of one. */
void rf_control_pump(struct rf_control *control)
{
	bool broken = false;

	choose_stream(control);
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_control_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node);
		int rc = stream->broken ? RF_OK : pump_stream(stream);

		if (rc == RF_OK || rc == RF_ERR_AGAIN)
			set_interest(stream, RF_NET_IN | (rc == RF_OK ? 0u : RF_NET_OUT));
		else
			stream->broken = true;
		broken |= stream->broken;
	}
	if (broken)
		rf_control_look(control);
}

int rf_control_send(struct rf_peer *peer, struct rf_segment *segment, const void *payload,
		    size_t bytes)
{
	uint8_t header[RF_SEGMENT_HEADER_BYTES];
	struct rf_control_message *message;
	struct rf_control *control;
	struct rf_segment checked;
	int rc;

	if (peer->state != RF_PEER_ALIVE)
		return peer->state == RF_PEER_LEFT ? RF_ERR_RANK_LEFT : RF_ERR_RANK_DEAD;
	segment->version = RF_WIRE_VERSION;
	segment->bytes = (uint32_t)bytes;
	segment->eager_freed = peer->eager_freed;
	rf_segment_encode(segment, header);
	if (bytes > UINT32_MAX || rf_segment_decode(header, &checked) != RF_OK)
		return RF_ERR_INVALID;
	rc = rf_control_make(peer);
	if (rc != RF_OK)
		return rc;
	control = peer->control;
	message = malloc(sizeof(*message) + bytes);
	if (!message)
		return RF_ERR_NOMEM;
	message->number = control->next_number++;
	message->segment = *segment;
	if (bytes)
		memcpy(message->payload, payload, bytes);
	rf_list_append(&control->messages, &message->node);
	if (!rf_control_has_unsent(control))
		control->next = &message->node;
	control->idle_told = false;
	rf_control_pump(control);
	if (!control->sending)
		rf_control_look(control);
	return RF_OK;
}
