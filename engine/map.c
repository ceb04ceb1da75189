/* SPDX-License-Identifier: BSD-3-Clause */
/* The hash table of map.h: open addressing with linear probing, at most three quarters full. */
#include "engine/map.h"
#include "ringfold.h"

#include <stdlib.h>

static size_t home_of(const struct rf_map *map, uint64_t key)
{
	key ^= key >> 32;
	key *= 0x9e3779b97f4a7c15u;
	return (size_t)(key >> 32) & (map->capacity - 1);
}

/* The entry of a key, or the free one where it would go. */
static struct rf_map_entry *find(const struct rf_map *map, uint64_t key)
{
	size_t i = home_of(map, key);

	while (map->entries[i].value && map->entries[i].key != key)
		i = (i + 1) & (map->capacity - 1);
	return &map->entries[i];
}

static int grow(struct rf_map *map)
{
	struct rf_map bigger = {.capacity = map->capacity ? map->capacity * 2 : 16};

	bigger.entries = calloc(bigger.capacity, sizeof(*bigger.entries));
	if (!bigger.entries)
		return RF_ERR_NOMEM;
	bigger.count = map->count;
	for (size_t i = 0; i < map->capacity; i++) {
		if (map->entries[i].value)
			*find(&bigger, map->entries[i].key) = map->entries[i];
	}
	free(map->entries);
	*map = bigger;
	return RF_OK;
}

void *rf_map_get(const struct rf_map *map, uint64_t key)
{
	return map->count ? find(map, key)->value : NULL;
}

int rf_map_put(struct rf_map *map, uint64_t key, void *value)
{
	struct rf_map_entry *entry;

	if (4 * (map->count + 1) > 3 * map->capacity) {
		int status = grow(map);

		if (status != RF_OK)
			return status;
	}
	entry = find(map, key);
	if (!entry->value)
		map->count++;
	entry->key = key;
	entry->value = value;
	return RF_OK;
}

void rf_map_remove(struct rf_map *map, uint64_t key)
{
	size_t mask = map->capacity - 1;
	struct rf_map_entry *entry;
	size_t hole;

	if (!map->count)
		return;
	entry = find(map, key);
	if (!entry->value)
		return;
	map->count--;
	hole = (size_t)(entry - map->entries);
	map->entries[hole].value = NULL;
	/* Close the gap: whatever follows and would no longer be found from its home moves up. */
	for (size_t i = (hole + 1) & mask; map->entries[i].value; i = (i + 1) & mask) {
		size_t home = home_of(map, map->entries[i].key);

		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		map->entries[hole] = map->entries[i];
		map->entries[i].value = NULL;
		hole = i;
	}
}

void rf_map_free(struct rf_map *map)
{
	free(map->entries);
	*map = (struct rf_map){0};
}
