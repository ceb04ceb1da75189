/* SPDX-License-Identifier: BSD-3-Clause */
/* RINGFOLD_INTERFACE: a list of names, addresses and networks, matched with what this host has. */
#include "engine/interface.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An item of the list. */
struct item {
	char text[64];
	int family; /* of an address or a network; 0: a name */
	unsigned bits;
	uint8_t ip[16];
	bool whole; /* a name in full */
	const char *name;
};

/* False: there is none any more. */
static bool next_item(const char **list, char text[64])
{
	const size_t length = strcspn(*list, ",");

	if (!**list)
		return false;
	snprintf(text, 64, "%.*s", (int)length, *list);
	*list += length + ((*list)[length] == ',');
	return true;
}

static bool parse_bits(const char *text, unsigned most, unsigned *bits)
{
	char *end;
	const unsigned long value = strtoul(text, &end, 10);

	*bits = (unsigned)value;
	return text[0] >= '0' && text[0] <= '9' && !*end && value <= most;
}

/* A slash is in no interface's name: behind it must be the bits of a network. */
static bool parse_item(struct item *item)
{
	char address[64];
	const size_t length = strcspn(item->text, "/");
	const char *slash = item->text + length;

	item->family = 0;
	item->whole = item->text[0] == '=';
	item->name = item->text + item->whole;
	snprintf(address, sizeof(address), "%.*s", (int)length, item->text);
	if (inet_pton(AF_INET, address, item->ip) == 1)
		item->family = 4;
	else if (inet_pton(AF_INET6, address, item->ip) == 1)
		item->family = 6;
	item->bits = item->family == 4 ? 32 : 128;
	if (*slash)
		return item->family && parse_bits(slash + 1, item->bits, &item->bits);
	return item->name[0] != '\0';
}

static bool in_network(const struct item *item, const struct rf_addr *addr)
{
	const unsigned bytes = item->bits / 8, rest = item->bits % 8;

	if (addr->family != item->family || memcmp(addr->ip, item->ip, bytes) != 0)
		return false;
	return !rest || (addr->ip[bytes] ^ item->ip[bytes]) >> (8 - rest) == 0;
}

static bool matches(const struct item *item, const struct rf_interface *interface)
{
	if (item->family)
		return in_network(item, &interface->addr);
	if (item->whole)
		return strcmp(interface->name, item->name) == 0;
	return strncmp(interface->name, item->name, strlen(item->name)) == 0;
}

static void say_what_there_is(const struct rf_interface *all, int count,
			      char message[RF_INTERFACE_MESSAGE])
{
	for (int i = 0; i < count; i++) {
		const size_t used = strlen(message);
		struct rf_addr addr = all[i].addr;
		char text[RF_ADDR_TEXT];

		addr.port = 0;
		rf_addr_format(&addr, text);
		text[strlen(text) - 2] = '\0'; /* ":0" */
		snprintf(message + used, RF_INTERFACE_MESSAGE - used, "%s%s %s", i ? ", " : "",
			 all[i].name, text);
	}
}

/* Where nothing is wanted, link-local addresses serve if there is nothing better. */
static bool is_of_use(const struct rf_interface *all, int i)
{
	const struct rf_addr *first = &all[0].addr;

	if (rf_addr_is_loopback(&all[i].addr))
		return false;
	return !rf_addr_is_link_local(&all[i].addr) || rf_addr_is_link_local(first) ||
	       rf_addr_is_loopback(first);
}

__attribute__((format(printf, 3, 4))) static void note(struct rf_interface_choice *choice,
						       bool chosen, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	choice->chosen = chosen;
	vsnprintf(choice->why, sizeof(choice->why), format, arguments);
	va_end(arguments);
}

/* By what they are. */
static void choose_by_kind(const struct rf_interface *all, int i,
			   struct rf_interface_choice *choice)
{
	if (is_of_use(all, i))
		note(choice, true, "it reaches other hosts");
	else if (rf_addr_is_loopback(&all[i].addr))
		note(choice, false, "loopback: for this host alone");
	else
		note(choice, false, "link-local, and there is better");
}

/* The list matches each interface at most once: with the first item that does. */
static bool find_item(const char *list, const struct rf_interface *interface, struct item *found,
		      int *place)
{
	for (*place = 0; next_item(&list, found->text); ++*place)
		if (parse_item(found) && matches(found, interface))
			return true;
	return false;
}

static bool is_list(const char *list, char bad[64])
{
	struct item item;

	while (next_item(&list, item.text)) {
		snprintf(bad, 64, "%s", item.text);
		if (!parse_item(&item))
			return false;
	}
	return true;
}

/* Chosen ones to the front, each group in the order of its places. */
static void sort(struct rf_interface_choice *choices, const int *places, int count)
{
	struct rf_interface_choice *sorted = calloc((size_t)count, sizeof(*sorted));
	int filled = 0;

	if (!sorted)
		return;
	for (int place = 0; place <= 64; place++)
		for (int i = 0; i < count; i++)
			if (choices[i].chosen && places[i] == place)
				sorted[filled++] = choices[i];
	for (int i = 0; i < count; i++)
		if (!choices[i].chosen)
			sorted[filled++] = choices[i];
	memcpy(choices, sorted, (size_t)filled * sizeof(*choices));
	free(sorted);
}

static int refuse(const char *wanted, const char *why, const char *item,
		  const struct rf_interface *all, int count, char message[RF_INTERFACE_MESSAGE])
{
	snprintf(message, RF_INTERFACE_MESSAGE,
		 "RINGFOLD_INTERFACE is \"%s\", but %s%s; there are ", wanted, why, item);
	say_what_there_is(all, count, message);
	return RF_ERR_CONFIG;
}

int rf_interfaces_choose(const char *wanted, const struct rf_interface *all, int count,
			 struct rf_interface_choice *choices, char message[RF_INTERFACE_MESSAGE])
{
	const bool excludes = wanted[0] == '^';
	const char *list = wanted + excludes;
	int places[RF_INTERFACES_MOST] = {0};
	char bad[64] = "";
	bool any = false;

	message[0] = '\0';
	if (count > RF_INTERFACES_MOST)
		count = RF_INTERFACES_MOST;
	if (!is_list(list, bad) || (excludes && !list[0]))
		return refuse(wanted, "this is no name, address or network: ", bad, all, count,
			      message);
	for (int i = 0; i < count; i++) {
		struct item item;
		const bool matched = find_item(list, &all[i], &item, &places[i]);

		choices[i] = (struct rf_interface_choice){.interface = all[i]};
		if (matched)
			note(&choices[i], !excludes,
			     excludes ? "excluded by \"^%s\"" : "matches \"%s\"", item.text);
		else if (list[0] && !excludes)
			note(&choices[i], false, "RINGFOLD_INTERFACE does not name it");
		else
			choose_by_kind(all, i, &choices[i]);
		if (!matched)
			places[i] = 0;
		any = any || choices[i].chosen;
	}
	if (list[0] && !any)
		return refuse(wanted, excludes ? "this leaves none" : "this matches none", "", all,
			      count, message);
	sort(choices, places, count);
	return RF_OK;
}
