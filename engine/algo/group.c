/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What algorithms do with memory, so that calls of simulated sizes touch none.
 */
#include "engine/algo/group.h"
#include "engine/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP_ALIGN = 64 };

/* What stands for memory where there is none: never read or written, only counted from. */
#define GROUP_NO_MEMORY ((void *)(uintptr_t)GROUP_ALIGN)

int rf_group_alloc(struct rf_group *group, size_t bytes, void **memory)
{
	void *block = GROUP_NO_MEMORY;

	if (bytes > SIZE_MAX - GROUP_ALIGN)
		return RF_ERR_NOMEM;
	if (!group->no_payload) {
		block = aligned_alloc(GROUP_ALIGN, (bytes / GROUP_ALIGN + 1) * GROUP_ALIGN);
		if (!block)
			return RF_ERR_NOMEM;
	}
	*memory = block;
	return RF_OK;
}

void rf_group_free(struct rf_group *group, void *memory)
{
	if (!group->no_payload)
		free(memory);
}

void rf_group_copy(struct rf_group *group, void *dst, const void *src, size_t bytes)
{
	if (!group->no_payload && bytes && dst != src)
		memmove(dst, src, bytes);
}

void rf_group_fold2(struct rf_group *group, rf_op op, rf_dtype dst_type, void *dst, rf_dtype a_type,
		    const void *a, rf_dtype b_type, const void *b, size_t count)
{
	if (!group->no_payload && count)
		rf_fold2(op, dst_type, dst, a_type, a, b_type, b, count);
}

void rf_group_foldp(struct rf_group *group, rf_op op, rf_dtype dst_type, void *dst,
		    rf_dtype source_type, const void *const *sources, size_t source_count,
		    size_t count, uint64_t divisor)
{
	if (!group->no_payload && count)
		rf_foldp(op, dst_type, dst, source_type, sources, source_count, count, divisor);
}

void rf_group_finish(struct rf_group *group, rf_dtype dst_type, void *dst, rf_dtype src_type,
		     const void *src, size_t count, uint64_t divisor)
{
	if (!group->no_payload && count)
		rf_finish(dst_type, dst, src_type, src, count, divisor);
}

void rf_group_alone(struct rf_group *group, const struct rf_task *task)
{
	switch (task->collective) {
	case RF_ALLREDUCE:
	case RF_REDUCE:
	case RF_REDUCE_SCATTER:
		rf_group_foldp(group, task->op, task->dtype, task->recv, task->dtype, &task->send,
			       1, task->count, task->divisor);
		break;
	case RF_ALLGATHER:
		rf_group_copy(group, task->recv, task->send,
			      task->count * rf_dtype_size(task->dtype));
		break;
	default:
		break;
	}
}
