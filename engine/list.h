/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Intrusive doubly linked lists. A node that is in no list points to itself, so that removing it
 * again is harmless.
 */
#ifndef RF_LIST_H
#define RF_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct rf_list {
	struct rf_list *next, *prev;
};

#define RF_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void rf_list_init(struct rf_list *list)
{
	list->next = list->prev = list;
}

static inline bool rf_list_empty(const struct rf_list *list)
{
	return list->next == list;
}

static inline void rf_list_append(struct rf_list *list, struct rf_list *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

static inline void rf_list_remove(struct rf_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	rf_list_init(node);
}

/* The body may remove `node` itself, but no other. */
#define RF_LIST_EACH(node, list)                                                             \
	for (struct rf_list *node = (list)->next, *node##_next = node->next; node != (list); \
	     node = node##_next, node##_next = node->next)

#endif
