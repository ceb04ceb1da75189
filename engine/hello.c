/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first segments of every stream: hello, then welcome or refuse (and proof, where there is a
 * secret). Byte 0 (the version), and bytes 8 to 15 (the mark) of their headers stay where they are
 * in all versions, so that two versions can tell each other apart, and both from garbage.
 */
#include "engine/control.h"

#include <errno.h>
#include <string.h>

static const uint8_t mark[8] = {'r', 'i', 'n', 'g', 'f', 'o', 'l', 'd'};
enum { MARK_OFFSET = 8 };

static void put_header(struct rf_handshake *h, enum rf_segment_type type, size_t payload_bytes)
{
	struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = (uint8_t)type,
		.bytes = (uint32_t)payload_bytes,
	};

	rf_segment_encode(&segment, h->out);
	memcpy(h->out + MARK_OFFSET, mark, sizeof(mark));
	h->out_bytes = RF_SEGMENT_HEADER_BYTES + payload_bytes;
	h->out_sent = 0;
}

void rf_handshake_say(struct rf_handshake *h, enum rf_segment_type type,
		      const struct rf_hello *hello)
{
	uint8_t *payload = h->out + RF_SEGMENT_HEADER_BYTES;
	struct rf_cursor c = {payload, payload + RF_HELLO_BYTES, false};

	rf_put_u64(&c, hello->from.hi);
	rf_put_u64(&c, hello->from.lo);
	rf_put_u64(&c, hello->to.hi);
	rf_put_u64(&c, hello->to.lo);
	rf_put_u8(&c, hello->purpose);
	rf_put_u8(&c, hello->transport);
	rf_put_u16(&c, hello->lane);
	rf_put_u32(&c, 0);
	rf_put_u64(&c, hello->features);
	rf_put_u64(&c, hello->session);
	rf_put_u64(&c, hello->known_session);
	rf_put_u64(&c, hello->received);
	rf_put_bytes(&c, hello->challenge, sizeof(hello->challenge));
	rf_put_bytes(&c, hello->proof, sizeof(hello->proof));
	put_header(h, type, RF_HELLO_BYTES);
}

void rf_handshake_refuse(struct rf_handshake *h, enum rf_refusal refusal, const char *text)
{
	uint8_t *payload = h->out + RF_SEGMENT_HEADER_BYTES;
	struct rf_cursor c = {payload, payload + RF_HANDSHAKE_PAYLOAD_MAX, false};

	rf_put_u16(&c, (uint16_t)refusal);
	rf_put_string(&c, text);
	put_header(h, RF_SEGMENT_REFUSE, (size_t)(c.at - payload));
}

int rf_handshake_send(struct rf_handshake *h, struct rf_stream *stream)
{
	while (h->out_sent < h->out_bytes) {
		struct iovec rest = {h->out + h->out_sent, h->out_bytes - h->out_sent};
		size_t sent = 0;
		int rc = stream->ops->send(stream, &rest, 1, &sent);

		if (rc != RF_OK)
			return rc;
		h->out_sent += sent;
	}
	return RF_OK;
}

/* Reads until there are so many bytes, and no further: what follows belongs to somebody else. */
static int fill(struct rf_handshake *h, struct rf_stream *stream, size_t bytes)
{
	while (h->in_bytes < bytes) {
		struct iovec rest = {h->in + h->in_bytes, bytes - h->in_bytes};
		size_t received = 0;
		int rc = stream->ops->receive(stream, &rest, 1, &received);

		if (rc != RF_OK)
			return rc;
		if (received == 0) {
			errno = 0;
			return RF_ERR_NETWORK;
		}
		h->in_bytes += received;
	}
	return RF_OK;
}

static int judge_header(struct rf_handshake *h)
{
	int rc;

	if (memcmp(h->in + MARK_OFFSET, mark, sizeof(mark)) != 0)
		return RF_ERR_PROTOCOL;
	rc = rf_segment_decode(h->in, &h->segment);
	if (rc == RF_ERR_VERSION)
		h->far_version = h->segment.version;
	if (rc != RF_OK)
		return rc;
	if (h->segment.type < RF_SEGMENT_HELLO || h->segment.type > RF_SEGMENT_REFUSE ||
	    h->segment.bytes > RF_HANDSHAKE_PAYLOAD_MAX)
		return RF_ERR_PROTOCOL;
	return RF_OK;
}

int rf_handshake_receive(struct rf_handshake *h, struct rf_stream *stream)
{
	int rc = fill(h, stream, RF_SEGMENT_HEADER_BYTES);

	if (rc == RF_OK)
		rc = judge_header(h);
	if (rc == RF_OK)
		rc = fill(h, stream, RF_SEGMENT_HEADER_BYTES + h->segment.bytes);
	return rc;
}

int rf_hello_decode(uint8_t *payload, size_t bytes, struct rf_hello *hello)
{
	struct rf_cursor c = {payload, payload + bytes, false};

	hello->from.hi = rf_get_u64(&c);
	hello->from.lo = rf_get_u64(&c);
	hello->to.hi = rf_get_u64(&c);
	hello->to.lo = rf_get_u64(&c);
	hello->purpose = rf_get_u8(&c);
	hello->transport = rf_get_u8(&c);
	hello->lane = rf_get_u16(&c);
	rf_get_u32(&c);
	hello->features = rf_get_u64(&c);
	hello->session = rf_get_u64(&c);
	hello->known_session = rf_get_u64(&c);
	hello->received = rf_get_u64(&c);
	rf_get_bytes(&c, hello->challenge, sizeof(hello->challenge));
	rf_get_bytes(&c, hello->proof, sizeof(hello->proof));
	if (c.failed || rf_process_id_zero(hello->from) ||
	    (hello->purpose != RF_PURPOSE_CONTROL && hello->purpose != RF_PURPOSE_DATA))
		return RF_ERR_PROTOCOL;
	return RF_OK;
}

int rf_handshake_hello(struct rf_handshake *h, struct rf_hello *hello)
{
	return rf_hello_decode(h->in + RF_SEGMENT_HEADER_BYTES, h->segment.bytes, hello);
}

/* The text goes into log lines: nothing but printable ASCII stays in it. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

int rf_handshake_refusal(struct rf_handshake *h, enum rf_refusal *refusal,
			 char text[RF_REFUSAL_TEXT])
{
	uint8_t *payload = h->in + RF_SEGMENT_HEADER_BYTES;
	struct rf_cursor c = {payload, payload + h->segment.bytes, false};

	*refusal = (enum rf_refusal)rf_get_u16(&c);
	rf_get_string(&c, text, RF_REFUSAL_TEXT);
	make_printable(text);
	return c.failed ? RF_ERR_PROTOCOL : RF_OK;
}
