/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all providers of the network seam share: addresses as text, and the dispatch of events.
 */
#include "engine/net.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

const char *rf_addr_format(const struct rf_addr *addr, char text[RF_ADDR_TEXT])
{
	char ip[INET6_ADDRSTRLEN];
	char scope[16] = "";

	switch (addr->family) {
	case 4:
		inet_ntop(AF_INET, addr->ip, ip, sizeof(ip));
		snprintf(text, RF_ADDR_TEXT, "%s:%u", ip, addr->port);
		break;
	case 6:
		inet_ntop(AF_INET6, addr->ip, ip, sizeof(ip));
		if (addr->scope)
			snprintf(scope, sizeof(scope), "%%%u", addr->scope);
		snprintf(text, RF_ADDR_TEXT, "[%.39s%.11s]:%u", ip, scope, addr->port);
		break;
	case RF_ADDR_SIM:
		snprintf(text, RF_ADDR_TEXT, "sim-%u:%u",
			 addr->ip[0] | (unsigned)addr->ip[1] << 8 | (unsigned)addr->ip[2] << 16 |
				 (unsigned)addr->ip[3] << 24,
			 addr->port);
		break;
	default:
		snprintf(text, RF_ADDR_TEXT, "(address of family %u)", addr->family);
	}
	return text;
}

bool rf_addr_is_loopback(const struct rf_addr *addr)
{
	static const uint8_t v6_loopback[16] = {[15] = 1};
	static const uint8_t v4_mapped_127[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};

	if (addr->family == 4)
		return addr->ip[0] == 127;
	if (addr->family == 6)
		return memcmp(addr->ip, v6_loopback, sizeof(v6_loopback)) == 0 ||
		       memcmp(addr->ip, v4_mapped_127, sizeof(v4_mapped_127)) == 0;
	return false;
}

bool rf_addr_is_link_local(const struct rf_addr *addr)
{
	if (addr->family == 4)
		return addr->ip[0] == 169 && addr->ip[1] == 254;
	return addr->family == 6 && addr->ip[0] == 0xfe && (addr->ip[1] & 0xc0) == 0x80;
}

bool rf_addr_equal(const struct rf_addr *a, const struct rf_addr *b)
{
	size_t ip_bytes = a->family == 4 ? 4 : sizeof(a->ip);

	return a->family == b->family && a->port == b->port && a->scope == b->scope &&
	       memcmp(a->ip, b->ip, ip_bytes) == 0;
}

void rf_net_dispatch(struct rf_net *net, struct rf_net_event *events, int count)
{
	for (int i = 0; i < count; i++) {
		unsigned wanted = events[i].events;
		struct rf_watch *watch = net->ops->lookup(net, events[i].token, &wanted);

		if (watch && wanted)
			watch->ready(watch, wanted);
	}
}
