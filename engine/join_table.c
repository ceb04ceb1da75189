/* SPDX-License-Identifier: BSD-3-Clause */
/* What the making of communicators puts on the wire, and reads from it without trusting it; the
 * addresses of this process among it. The layouts are drawn in docs/rendezvous.md. */
#include "engine/interface.h"
#include "engine/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	AGREED_BYTES = 2048,   /* room for the agreed configuration */
	JOIN_BYTES = 4096,     /* the segment's limit */
	TABLE_RANK_OFFSET = 8, /* see rf_join_patch_table() */
	TABLE_ENTRY_BYTES = 16 + 8 + 1 + 2 * RF_JOIN_ADDR_BYTES,
};

/* ---- addresses ------------------------------------------------------------------------------ */

void rf_join_put_addr(struct rf_cursor *c, const struct rf_addr *addr)
{
	rf_put_u8(c, addr->family);
	rf_put_u16(c, addr->port);
	rf_put_bytes(c, addr->ip, addr->family == 4 ? 4 : 16);
}

void rf_join_get_addr(struct rf_cursor *c, struct rf_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->family = rf_get_u8(c);
	addr->port = rf_get_u16(c);
	if (addr->family != 4 && addr->family != 6 && addr->family != RF_ADDR_SIM)
		c->failed = true;
	else
		rf_get_bytes(c, addr->ip, addr->family == 4 ? 4 : 16);
}

bool rf_join_is_link_local(const struct rf_addr *addr)
{
	return addr->family == 6 && rf_addr_is_link_local(addr);
}

unsigned rf_join_own_addrs(rf_context *context, bool with_loopback, struct rf_addr *addrs,
			   unsigned capacity)
{
	struct rf_interface all[RF_INTERFACES_MOST];
	struct rf_interface_choice choices[RF_INTERFACES_MOST];
	char message[RF_INTERFACE_MESSAGE];
	int all_count = 0;
	unsigned count = 0;

	if (context->net->ops->interfaces(context->net, all, RF_INTERFACES_MOST, &all_count) !=
		    RF_OK ||
	    rf_interfaces_choose(context->config.interface, all, all_count, choices, message) !=
		    RF_OK)
		return 0;
	for (int i = 0; i < all_count && count < capacity; i++) {
		const struct rf_addr *addr = &choices[i].interface.addr;

		if (rf_addr_is_loopback(addr) ? !with_loopback : !choices[i].chosen)
			continue;
		addrs[count] = *addr;
		addrs[count++].port = context->port;
	}
	return count;
}

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ at[i]) * 0x100000001b3ull;
	return hash;
}

uint64_t rf_join_host(rf_context *context)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	struct stat namespace;
	char boot_id[64];
	FILE *file;

	if (context->simulated) {
		struct rf_addr addr;

		memset(&addr, 0, sizeof(addr));
		rf_join_own_addrs(context, true, &addr, 1);
		return fnv1a(hash, addr.ip, sizeof(addr.ip));
	}
	file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file) {
		hash = fnv1a(hash, boot_id, fread(boot_id, 1, sizeof(boot_id), file));
		fclose(file);
	}
	if (stat("/proc/self/ns/net", &namespace) == 0)
		hash = fnv1a(hash, &namespace.st_ino, sizeof(namespace.st_ino));
	return hash;
}

/* ---- small ones ----------------------------------------------------------------------------- */

static void send_to(struct rf_peer *peer, enum rf_segment_type type, uint64_t comm,
		    const void *payload, size_t bytes)
{
	struct rf_segment segment = {
		.version = RF_WIRE_VERSION,
		.type = (uint8_t)type,
		.comm = comm,
		.bytes = (uint32_t)bytes,
	};

	/* A peer that is dead is reported by rf_peer_died(); short of memory, the deadline ends it.
	 */
	(void)rf_control_send(peer, &segment, payload, bytes);
}

void rf_join_send_failed(struct rf_peer *peer, uint64_t key, int error, const char *message)
{
	uint8_t payload[16 + RF_JOIN_TEXT];
	struct rf_cursor c = {payload, payload + sizeof(payload), false};
	char cut[RF_JOIN_TEXT];

	snprintf(cut, sizeof(cut), "%s", message);
	rf_put_u64(&c, key);
	rf_put_u32(&c, (uint32_t)error);
	rf_put_string(&c, cut);
	send_to(peer, RF_SEGMENT_JOIN_FAILED, 0, payload, (size_t)(c.at - payload));
}

void rf_join_send_ready(struct rf_peer *peer, const rf_comm *comm)
{
	send_to(peer, RF_SEGMENT_READY, comm->id, NULL, 0);
}

/* ---- JOIN ----------------------------------------------------------------------------------- */

void rf_join_send_join(struct rf_join *join)
{
	uint8_t payload[JOIN_BYTES];
	struct rf_cursor c = {payload, payload + sizeof(payload), false};
	struct rf_addr own[RF_JOIN_OWN_ADDRS];
	unsigned own_count = rf_join_own_addrs(join->context, false, own, RF_JOIN_OWN_ADDRS);

	rf_put_u64(&c, join->key);
	rf_put_u32(&c, (uint32_t)join->rank);
	rf_put_u32(&c, (uint32_t)join->size);
	rf_put_u64(&c, rf_join_host(join->context));
	rf_put_u16(&c, join->context->port);
	rf_put_u8(&c, (uint8_t)own_count);
	for (unsigned i = 0; i < own_count; i++)
		rf_join_put_addr(&c, &own[i]);
	send_to(join->leader, RF_SEGMENT_JOIN, 0, payload, (size_t)(c.at - payload));
}

int rf_join_read_join(const uint8_t *payload, size_t bytes, uint64_t *key,
		      struct rf_join_arrival *arrival)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + bytes, false};
	uint32_t rank, size;
	uint16_t port;

	*key = rf_get_u64(&c);
	rank = rf_get_u32(&c);
	size = rf_get_u32(&c);
	arrival->host = rf_get_u64(&c);
	port = rf_get_u16(&c);
	arrival->own_count = rf_get_u8(&c);
	if (c.failed || size < 2 || size > INT32_MAX || rank < 1 || rank >= size ||
	    arrival->own_count > RF_JOIN_OWN_ADDRS)
		return RF_ERR_PROTOCOL;
	for (unsigned i = 0; i < arrival->own_count; i++)
		rf_join_get_addr(&c, &arrival->own[i]);
	if (c.failed)
		return RF_ERR_PROTOCOL;
	arrival->rank = (int)rank;
	arrival->size = (int)size;
	arrival->seen.port = port;
	return RF_OK;
}

/* ---- TABLE ---------------------------------------------------------------------------------- */

uint8_t *rf_join_write_table(const struct rf_join *join, const struct rf_rank_entry *ranks,
			     size_t *bytes)
{
	size_t capacity = 32 + AGREED_BYTES + (size_t)join->size * TABLE_ENTRY_BYTES;
	uint8_t *payload = malloc(capacity), agreed[AGREED_BYTES];
	struct rf_cursor c = {payload, payload + capacity, false};
	size_t agreed_bytes = rf_config_agreed_encode(&join->context->config, agreed, AGREED_BYTES);

	if (!payload)
		return NULL;
	rf_put_u64(&c, join->key);
	rf_put_u32(&c, 0);
	rf_put_u8(&c, 0);
	rf_put_u32(&c, (uint32_t)join->size);
	rf_put_u16(&c, (uint16_t)agreed_bytes);
	rf_put_bytes(&c, agreed, agreed_bytes);
	for (int i = 0; i < join->size; i++) {
		rf_put_u64(&c, ranks[i].id.hi);
		rf_put_u64(&c, ranks[i].id.lo);
		rf_put_u64(&c, ranks[i].host);
		rf_put_u8(&c, ranks[i].addr_count);
		for (unsigned k = 0; k < ranks[i].addr_count; k++)
			rf_join_put_addr(&c, &ranks[i].addrs[k]);
	}
	*bytes = (size_t)(c.at - payload);
	return payload;
}

void rf_join_patch_table(uint8_t *table, int rank, bool on_loopback)
{
	struct rf_cursor c = {table + TABLE_RANK_OFFSET, table + TABLE_RANK_OFFSET + 5, false};

	rf_put_u32(&c, (uint32_t)rank);
	rf_put_u8(&c, on_loopback);
}

/* A link-local address is on the link by which the leader was reached, or of no use. */
static void set_scope(const struct rf_join *join, struct rf_addr *addr)
{
	struct rf_addr local, remote;

	if (rf_join_is_link_local(addr) && rf_control_addrs(join->leader, &local, &remote) == RF_OK)
		addr->scope = remote.scope;
}

static void read_entry(const struct rf_join *join, struct rf_cursor *c, struct rf_rank_entry *entry,
		       bool with_loopback)
{
	unsigned addr_count;

	entry->id.hi = rf_get_u64(c);
	entry->id.lo = rf_get_u64(c);
	entry->host = rf_get_u64(c);
	addr_count = rf_get_u8(c);
	if (addr_count > 2)
		c->failed = true;
	for (unsigned i = 0; i < addr_count && !c->failed; i++) {
		struct rf_addr *addr = &entry->addrs[entry->addr_count];

		rf_join_get_addr(c, addr);
		set_scope(join, addr);
		if (with_loopback || !rf_addr_is_loopback(addr))
			entry->addr_count++;
	}
}

/* The size is checked against the caller's before anything is allocated by it. */
int rf_join_read_table(const struct rf_join *join, const uint8_t *payload, size_t bytes,
		       struct rf_rank_entry **result, struct rf_config *agreed)
{
	struct rf_cursor c = {(uint8_t *)payload, (uint8_t *)payload + bytes, false};
	uint64_t key = rf_get_u64(&c);
	uint32_t rank = rf_get_u32(&c);
	bool on_loopback = rf_get_u8(&c);
	uint32_t size = rf_get_u32(&c);
	size_t agreed_bytes = rf_get_u16(&c);
	uint8_t agreed_payload[AGREED_BYTES];
	struct rf_rank_entry *ranks;

	if (c.failed || key != join->key || rank != (uint32_t)join->rank ||
	    size != (uint32_t)join->size || agreed_bytes > AGREED_BYTES)
		return RF_ERR_PROTOCOL;
	rf_get_bytes(&c, agreed_payload, agreed_bytes);
	if (c.failed || rf_config_agreed_decode(agreed, agreed_payload, agreed_bytes) != RF_OK)
		return RF_ERR_PROTOCOL;
	ranks = calloc(size, sizeof(*ranks));
	if (!ranks)
		return RF_ERR_NOMEM;
	for (uint32_t i = 0; i < size && !c.failed; i++)
		read_entry(join, &c, &ranks[i], on_loopback);
	if (c.failed || !rf_process_id_equal(ranks[join->rank].id, join->context->id)) {
		free(ranks);
		return RF_ERR_PROTOCOL;
	}
	*result = ranks;
	return RF_OK;
}
