/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire's codec: segment headers, fingerprints, and the bounded cursor that control payloads are
 * written and read with. Everything on the wire is little-endian and is put together byte by byte,
 * so neither alignment nor the host's byte order matters. Nothing here trusts what it reads.
 */
#include "engine/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct segment_kind {
	const char *name;
	uint32_t most; /* payload bytes */
};

static const struct segment_kind kinds[RF_SEGMENT_TYPE_COUNT] = {[RF_SEGMENT_NONE] = {"none", 0},
#define X(NAME, name, lane, most) [RF_SEGMENT_##NAME] = {#name, most},
								 RF_SEGMENT_LIST(X)
#undef X
};

const char *rf_segment_name(enum rf_segment_type type)
{
	return (unsigned)type < RF_SEGMENT_TYPE_COUNT ? kinds[type].name : "unknown";
}

/* ---- little-endian words ---- */

static void store16(uint8_t *at, uint16_t v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
}

static void store32(uint8_t *at, uint32_t v)
{
	store16(at, (uint16_t)v);
	store16(at + 2, (uint16_t)(v >> 16));
}

static void store64(uint8_t *at, uint64_t v)
{
	store32(at, (uint32_t)v);
	store32(at + 4, (uint32_t)(v >> 32));
}

static uint16_t load16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t load32(const uint8_t *at)
{
	return load16(at) | (uint32_t)load16(at + 2) << 16;
}

static uint64_t load64(const uint8_t *at)
{
	return load32(at) | (uint64_t)load32(at + 4) << 32;
}

/* ---- fingerprints ---- */

static const char *const collective_names[] = {
#define X(NAME, name) #name,
	RF_COLLECTIVE_LIST(X)
#undef X
};

static const char *const dtype_names[] = {
#define X(NAME, name, bytes) #name,
	RF_DTYPE_LIST(X)
#undef X
};

static const char *const op_names[] = {
#define X(NAME, name) #name,
	RF_OP_LIST(X)
#undef X
};

/* Fingerprints come from the wire: any value may be in them. */
static const char *name_of(const char *const *names, size_t count, unsigned value)
{
	return value < count ? names[value] : "?";
}
#define NAME_OF(names, value) name_of(names, sizeof(names) / sizeof((names)[0]), value)

bool rf_fingerprint_equal(const struct rf_fingerprint *a, const struct rf_fingerprint *b)
{
	return a->collective == b->collective && a->dtype == b->dtype && a->op == b->op &&
	       a->order_wire == b->order_wire && a->root == b->root && a->count == b->count &&
	       a->digest == b->digest;
}

static bool folds(unsigned collective)
{
	return collective == RF_ALLREDUCE || collective == RF_REDUCE ||
	       collective == RF_REDUCE_SCATTER;
}

static bool has_root(unsigned collective)
{
	return collective == RF_REDUCE || collective == RF_BROADCAST;
}

const char *rf_fingerprint_format(const struct rf_fingerprint *f, char text[RF_FINGERPRINT_TEXT])
{
	char elements[64] = "", op[16] = "", root[32] = "";

	if (f->collective != RF_BARRIER)
		snprintf(elements, sizeof(elements), " of %" PRIu64 " %s", f->count,
			 NAME_OF(dtype_names, f->dtype));
	if (folds(f->collective))
		snprintf(op, sizeof(op), ", %s", NAME_OF(op_names, f->op));
	if (has_root(f->collective))
		snprintf(root, sizeof(root), ", root %" PRIu32, f->root);
	snprintf(text, RF_FINGERPRINT_TEXT, "%s%s%s%s%s%s",
		 NAME_OF(collective_names, f->collective), elements, op, root,
		 (f->order_wire & 15) == RF_ORDER_TREE ? ", tree order" : "",
		 f->order_wire >> 4 == RF_WIRE_FLOAT32 ? ", float32 partials" : "");
	return text;
}

void rf_fingerprint_encode(const struct rf_fingerprint *f, uint8_t bytes[24])
{
	bytes[0] = f->collective;
	bytes[1] = f->dtype;
	bytes[2] = f->op;
	bytes[3] = f->order_wire;
	store32(bytes + 4, f->root);
	store64(bytes + 8, f->count);
	store64(bytes + 16, f->digest);
}

void rf_fingerprint_decode(const uint8_t bytes[24], struct rf_fingerprint *f)
{
	f->collective = bytes[0];
	f->dtype = bytes[1];
	f->op = bytes[2];
	f->order_wire = bytes[3];
	f->root = load32(bytes + 4);
	f->count = load64(bytes + 8);
	f->digest = load64(bytes + 16);
}

/* ---- headers ---- */

void rf_segment_encode(const struct rf_segment *segment, uint8_t header[RF_SEGMENT_HEADER_BYTES])
{
	header[0] = segment->version;
	header[1] = segment->type;
	store16(header + 2, RF_SEGMENT_HEADER_BYTES);
	store32(header + 4, segment->epoch);
	store64(header + 8, segment->comm);
	store64(header + 16, segment->seq);
	header[24] = segment->stage;
	header[25] = segment->flags;
	store16(header + 26, segment->channel);
	store32(header + 28, segment->chunk);
	store32(header + 32, segment->bytes);
	store32(header + 36, segment->eager_freed);
	rf_fingerprint_encode(&segment->fingerprint, header + 40);
}

int rf_segment_decode(const uint8_t header[RF_SEGMENT_HEADER_BYTES], struct rf_segment *segment)
{
	uint8_t type = header[1];
	uint32_t bytes = load32(header + 32);

	if (header[0] != RF_WIRE_VERSION) {
		segment->version = header[0];
		return RF_ERR_VERSION;
	}
	if (type == RF_SEGMENT_NONE || type >= RF_SEGMENT_TYPE_COUNT ||
	    load16(header + 2) != RF_SEGMENT_HEADER_BYTES || bytes > kinds[type].most)
		return RF_ERR_PROTOCOL;
	segment->version = header[0];
	segment->type = type;
	segment->epoch = load32(header + 4);
	segment->comm = load64(header + 8);
	segment->seq = load64(header + 16);
	segment->stage = header[24];
	segment->flags = header[25];
	segment->channel = load16(header + 26);
	segment->chunk = load32(header + 28);
	segment->bytes = bytes;
	segment->eager_freed = load32(header + 36);
	rf_fingerprint_decode(header + 40, &segment->fingerprint);
	return RF_OK;
}

/* ---- cursors ---- */

/* The next count bytes, or NULL: then the cursor has failed for good. */
static uint8_t *take(struct rf_cursor *c, size_t count)
{
	uint8_t *at = c->at;

	if (c->failed || (size_t)(c->end - c->at) < count) {
		c->failed = true;
		return NULL;
	}
	c->at += count;
	return at;
}

void rf_put_u8(struct rf_cursor *c, uint8_t v)
{
	uint8_t *at = take(c, 1);

	if (at)
		*at = v;
}

void rf_put_u16(struct rf_cursor *c, uint16_t v)
{
	uint8_t *at = take(c, 2);

	if (at)
		store16(at, v);
}

void rf_put_u32(struct rf_cursor *c, uint32_t v)
{
	uint8_t *at = take(c, 4);

	if (at)
		store32(at, v);
}

void rf_put_u64(struct rf_cursor *c, uint64_t v)
{
	uint8_t *at = take(c, 8);

	if (at)
		store64(at, v);
}

void rf_put_bytes(struct rf_cursor *c, const void *bytes, size_t count)
{
	uint8_t *at = take(c, count);

	if (at && count)
		memcpy(at, bytes, count);
}

void rf_put_string(struct rf_cursor *c, const char *text)
{
	size_t length = strlen(text);

	if (length > UINT16_MAX) {
		c->failed = true;
		return;
	}
	rf_put_u16(c, (uint16_t)length);
	rf_put_bytes(c, text, length);
}

uint8_t rf_get_u8(struct rf_cursor *c)
{
	const uint8_t *at = take(c, 1);

	return at ? *at : 0;
}

uint16_t rf_get_u16(struct rf_cursor *c)
{
	const uint8_t *at = take(c, 2);

	return at ? load16(at) : 0;
}

uint32_t rf_get_u32(struct rf_cursor *c)
{
	const uint8_t *at = take(c, 4);

	return at ? load32(at) : 0;
}

uint64_t rf_get_u64(struct rf_cursor *c)
{
	const uint8_t *at = take(c, 8);

	return at ? load64(at) : 0;
}

/* What cannot be read is zeros, so that nobody computes with what was never written. */
void rf_get_bytes(struct rf_cursor *c, void *bytes, size_t count)
{
	const uint8_t *at = take(c, count);

	if (!count)
		return;
	if (at)
		memcpy(bytes, at, count);
	else
		memset(bytes, 0, count);
}

void rf_get_string(struct rf_cursor *c, char *text, size_t capacity)
{
	size_t length = rf_get_u16(c);
	const uint8_t *at = take(c, length);

	if (!capacity)
		return;
	if (!at)
		length = 0;
	if (length > capacity - 1)
		length = capacity - 1;
	if (length)
		memcpy(text, at, length);
	text[length] = '\0';
}
