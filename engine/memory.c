/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that transports may know of: handed out by rf_alloc(), or registered by its owner. Regions
 * are offered to every transport that registers; for the others plain memory is enough.
 */
#include "engine/context_shared.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct region {
	struct rf_list node; /* in context->regions */
	char *memory;
	size_t bytes;
	bool mapped; /* by rf_alloc(): bytes is rounded up to pages */
	void *handles[RF_TRANSPORTS_MAX];
};

static struct region *find(rf_context *context, const void *memory, bool mapped)
{
	RF_LIST_EACH(node, &context->regions)
	{
		struct region *region = RF_CONTAINER(node, struct region, node);

		if (region->memory == memory && region->mapped == mapped)
			return region;
	}
	return NULL;
}

static void forget(rf_context *context, struct region *region)
{
	for (unsigned i = 0; i < context->transport_count; i++) {
		struct rf_transport *transport = context->transports[i];

		if (region->handles[i])
			transport->ops->memory_unregister(transport, region->handles[i]);
	}
	rf_list_remove(&region->node);
	free(region);
}

static int add(rf_context *context, void *memory, size_t bytes, bool mapped)
{
	struct region *region = calloc(1, sizeof(*region));

	if (!region)
		return RF_ERR_NOMEM;
	region->memory = memory;
	region->bytes = bytes;
	region->mapped = mapped;
	rf_list_append(&context->regions, &region->node);
	for (unsigned i = 0; i < context->transport_count; i++) {
		struct rf_transport *transport = context->transports[i];
		int status;

		if (!transport->ops->memory_register)
			continue;
		status = transport->ops->memory_register(transport, memory, bytes,
							 &region->handles[i]);
		if (status != RF_OK) {
			forget(context, region);
			return status;
		}
	}
	return RF_OK;
}

int rf_alloc(rf_context *context, size_t bytes, void **memory)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t rounded;
	void *mapped;
	int status;

	if (!context || !memory || bytes > SIZE_MAX - page)
		return RF_ERR_INVALID;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	rounded = bytes ? (bytes + page - 1) / page * page : page;
	mapped = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		rf_leave(context);
		return RF_ERR_NOMEM;
	}
	status = add(context, mapped, rounded, true);
	if (status == RF_OK)
		*memory = mapped;
	else
		munmap(mapped, rounded);
	rf_leave(context);
	return status;
}

int rf_free(rf_context *context, void *memory)
{
	struct region *region;
	size_t bytes;
	int status;

	if (!context)
		return RF_ERR_INVALID;
	if (!memory)
		return RF_OK;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	region = find(context, memory, true);
	if (region) {
		bytes = region->bytes;
		forget(context, region);
		munmap(memory, bytes);
	}
	rf_leave(context);
	rf_context_shared_release(context);
	return region ? RF_OK : RF_ERR_INVALID;
}

int rf_register(rf_context *context, void *memory, size_t bytes)
{
	int status;

	if (!context || !memory || !bytes)
		return RF_ERR_INVALID;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	status = find(context, memory, false) ? RF_ERR_BUSY : add(context, memory, bytes, false);
	rf_leave(context);
	return status;
}

int rf_unregister(rf_context *context, void *memory)
{
	struct region *region;
	int status;

	if (!context || !memory)
		return RF_ERR_INVALID;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	region = find(context, memory, false);
	if (region)
		forget(context, region);
	rf_leave(context);
	rf_context_shared_release(context);
	return region ? RF_OK : RF_ERR_INVALID;
}
