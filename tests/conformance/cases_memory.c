/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the other end reaches by itself, for the transports whose capabilities say so. */
#include "tests/conformance/world.h"

#include <stdlib.h>
#include <string.h>

enum { REGION = 1 << 20 };

static uint8_t *region_of(struct world *world, unsigned end)
{
	uint8_t *region = aligned_alloc(4096, REGION);

	(void)world;
	(void)end;
	REQUIRE(region != NULL);
	memset(region, 0, REGION);
	return region;
}

static const struct rf_transport_ops *ops_of(struct world *world)
{
	return world->ends[0].transport->ops;
}

static bool put_is_done(struct world *world)
{
	return world->ends[0].put_done;
}

static void put_and_wait(struct world *world, const uint8_t *local, uint64_t key, uint64_t offset,
			 size_t bytes)
{
	struct end *end = &world->ends[0];
	const struct rf_transport_put put = {
		.local = local, .bytes = bytes, .key = key, .offset = offset, .cookie = PUT_COOKIE};
	int status;

	end->put_done = false;
	while ((status = ops_of(world)->put(end->to[1], &put)) == RF_ERR_AGAIN)
		if (!world_step(world))
			world->harness->idle(world);
	REQUIRE(status == RF_OK || status == RF_SENT_AT_ONCE);
	if (status == RF_OK)
		world_until(world, put_is_done, "SENT comes for a put");
}

/* The segment behind a put on the same lane arrives after it. */
static void what_is_put_is_there_before_the_segment_behind_it(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);
	uint8_t *region, *local;
	uint64_t key;

	if (world->ends[0].transport->caps.put) {
		region = region_of(world, 1);
		local = region_of(world, 0);
		for (size_t i = 0; i < REGION; i++)
			local[i] = (uint8_t)(i * 7 + 1);
		REQUIRE(ops_of(world)->expose(world->ends[1].transport, region, REGION, &key) ==
			RF_OK);
		put_and_wait(world, local + 100, key, 100, REGION - 200);
		world_send(world, 0, 1, 0, 8, false);
		world_until(world, all_delivered, "the segment behind a put arrives");
		REQUIRE(!memcmp(region + 100, local + 100, REGION - 200));
		REQUIRE(region[99] == 0 && region[REGION - 100] == 0);
		ops_of(world)->unexpose(world->ends[1].transport, key);
		free(region);
		free(local);
	}
	world_destroy(world);
}

static void mapped_memory_is_one_memory(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);
	void *region, *mapped = NULL;
	uint64_t key;

	if (world->ends[0].transport->caps.load_store) {
		region = region_of(world, 1);
		REQUIRE(ops_of(world)->expose(world->ends[1].transport, region, REGION, &key) ==
			RF_OK);
		REQUIRE(ops_of(world)->map(world->ends[0].to[1], key, REGION, &mapped) == RF_OK);
		memset(mapped, 0x17, REGION);
		REQUIRE(!memcmp(region, mapped, REGION));
		ops_of(world)->unmap(world->ends[0].to[1], mapped, REGION);
		ops_of(world)->unexpose(world->ends[1].transport, key);
		free(region);
	}
	world_destroy(world);
}

/* What a transport does not offer is not in its table, so that nobody calls it by mistake. */
static void capabilities_and_operations_agree(const struct harness *harness)
{
	struct world *world = world_make(harness, 2, 1, 0);
	const struct rf_transport_caps *caps = &world->ends[0].transport->caps;
	const struct rf_transport_ops *ops = ops_of(world);

	REQUIRE(!caps->put || (ops->put && ops->expose && ops->unexpose));
	REQUIRE(!caps->load_store || (ops->map && ops->unmap && ops->expose && ops->doorbell));
	REQUIRE(!caps->uses_streams || (ops->attach && ops->accept));
	REQUIRE(caps->segment_max_bytes > 0 && caps->segment_max_bytes <= RF_SEGMENT_PAYLOAD_MAX);
	REQUIRE(caps->inline_bytes <= caps->segment_max_bytes);
	REQUIRE(!strcmp(ops->name, world->harness->ops->name));
	world_destroy(world);
}

const struct conformance_case memory_cases[] = {
	{"capabilities_and_operations_agree", capabilities_and_operations_agree, false},
	{"what_is_put_is_there_before_the_segment_behind_it",
	 what_is_put_is_there_before_the_segment_behind_it, false},
	{"mapped_memory_is_one_memory", mapped_memory_is_one_memory, false},
	{NULL, NULL, false},
};
