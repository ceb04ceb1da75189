/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreed part of the configuration: what rank 0 hands to all ranks, so that all make the same
 * plans. On the wire: a digest of the list itself (u64), then the agreed rows in its order, numbers
 * as u64 and words as strings.
 */
#include "engine/config.h"
#include "engine/segment.h"

#include <stdio.h>
#include <string.h>

#define FNV_OFFSET 0xcbf29ce484222325u
#define FNV_PRIME  0x100000001b3u

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;

	while (count--)
		hash = (hash ^ *at++) * FNV_PRIME;
	return hash;
}

/* Ranks of versions with different rows must not take one row for another. */
static uint64_t list_digest(void)
{
	uint64_t hash = FNV_OFFSET;

	for (size_t i = 0; i < rf_config_row_count; i++) {
		const struct rf_config_row *row = &rf_config_rows[i];
		const uint8_t kind = (uint8_t)row->kind;

		if (!row->agreed)
			continue;
		hash = fnv1a(hash, row->variable, strlen(row->variable) + 1);
		hash = fnv1a(hash, &kind, 1);
	}
	return hash;
}

static void put_row(struct rf_cursor *c, const struct rf_config *config,
		    const struct rf_config_row *row)
{
	const void *field = (const char *)config + row->offset;

	switch (row->kind) {
	case RF_CONFIG_SIZE:
		rf_put_u64(c, *(const size_t *)field);
		break;
	case RF_CONFIG_COUNT:
	case RF_CONFIG_TIME:
		rf_put_u64(c, (uint64_t) * (const int64_t *)field);
		break;
	case RF_CONFIG_PORTS:
	case RF_CONFIG_ISA:
	case RF_CONFIG_TEXT:
	case RF_CONFIG_CHOICE:
		rf_put_string(c, field);
		break;
	}
}

/* The value as text that rf_config_set() checks as it checks what a person has typed. */
static void get_row(struct rf_cursor *c, const struct rf_config_row *row,
		    char text[RF_CONFIG_TEXT_BYTES])
{
	switch (row->kind) {
	case RF_CONFIG_SIZE:
		snprintf(text, RF_CONFIG_TEXT_BYTES, "%llu", (unsigned long long)rf_get_u64(c));
		break;
	case RF_CONFIG_COUNT:
		snprintf(text, RF_CONFIG_TEXT_BYTES, "%lld", (long long)(int64_t)rf_get_u64(c));
		break;
	case RF_CONFIG_TIME:
		snprintf(text, RF_CONFIG_TEXT_BYTES, "%lldms", (long long)(int64_t)rf_get_u64(c));
		break;
	case RF_CONFIG_PORTS:
	case RF_CONFIG_ISA:
	case RF_CONFIG_TEXT:
	case RF_CONFIG_CHOICE:
		rf_get_string(c, text, RF_CONFIG_TEXT_BYTES);
		break;
	}
}

size_t rf_config_agreed_encode(const struct rf_config *config, uint8_t *bytes, size_t capacity)
{
	struct rf_cursor c = {.at = bytes, .end = bytes + capacity};

	rf_put_u64(&c, list_digest());
	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (rf_config_rows[i].agreed)
			put_row(&c, config, &rf_config_rows[i]);
	}
	return c.failed ? 0 : (size_t)(c.at - bytes);
}

int rf_config_agreed_decode(struct rf_config *config, const uint8_t *bytes, size_t count)
{
	/* The cursor serves writing too; nothing is written through it here. */
	struct rf_cursor c = {.at = (uint8_t *)(uintptr_t)bytes,
			      .end = (uint8_t *)(uintptr_t)bytes + count};
	struct rf_config decoded = *config;
	char text[RF_CONFIG_TEXT_BYTES], message[256];
	const uint64_t digest = rf_get_u64(&c);

	if (c.failed)
		return RF_ERR_PROTOCOL;
	if (digest != list_digest())
		return RF_ERR_VERSION;
	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (!rf_config_rows[i].agreed)
			continue;
		get_row(&c, &rf_config_rows[i], text);
		if (c.failed || rf_config_set(&decoded, rf_config_rows[i].variable, text, message))
			return RF_ERR_PROTOCOL;
	}
	if (c.at != c.end)
		return RF_ERR_PROTOCOL;
	*config = decoded;
	return RF_OK;
}

uint64_t rf_config_agreed_digest(const struct rf_config *config)
{
	uint8_t bytes[RF_CONFIG_AGREED_MAX];

	return fnv1a(FNV_OFFSET, bytes, rf_config_agreed_encode(config, bytes, sizeof(bytes)));
}

const char *rf_config_agreed_differences(const struct rf_config *mine,
					 const struct rf_config *theirs, char *text,
					 size_t capacity)
{
	char here[RF_CONFIG_TEXT_BYTES], there[RF_CONFIG_TEXT_BYTES];
	size_t used = 0;

	if (capacity)
		text[0] = '\0';
	for (size_t i = 0; i < rf_config_row_count && used < capacity; i++) {
		const struct rf_config_row *row = &rf_config_rows[i];

		if (!row->agreed || strcmp(rf_config_format(mine, row, here),
					   rf_config_format(theirs, row, there)) == 0)
			continue;
		used += (size_t)snprintf(text + used, capacity - used,
					 "%s%s (here %s, rank 0 has %s)", used ? ", " : "",
					 row->variable, here[0] ? here : "nothing",
					 there[0] ? there : "nothing");
	}
	return text;
}
