/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table from 64-bit keys to pointers: open addressing, linear probing, grows by doubling.
 * Keys are random (process ids, communicator ids) or mixed here.
 */
#ifndef RF_MAP_H
#define RF_MAP_H

#include <stddef.h>
#include <stdint.h>

struct rf_map_entry {
	uint64_t key;
	void *value; /* NULL: free */
};
struct rf_map {
	struct rf_map_entry *entries;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
};

void *rf_map_get(const struct rf_map *map, uint64_t key);      /* NULL: not there */
int rf_map_put(struct rf_map *map, uint64_t key, void *value); /* value not NULL; RF_ERR_NOMEM */
void rf_map_remove(struct rf_map *map, uint64_t key);
void rf_map_free(struct rf_map *map);

#endif
