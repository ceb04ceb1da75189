/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed memory files. They count against the memory cgroup of whoever touches a page first, not
 * against /dev/shm; and what cannot be had is found out here, by posix_fallocate() and by a look at
 * the limit of the cgroup (which would end the process rather than answer), not by a SIGBUS later.
 */
#include "engine/arena/region.h"
#include "ringfold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static bool read_number(const char *path, uint64_t *value)
{
	FILE *file = fopen(path, "re");
	bool known;

	if (!file)
		return false;
	known = fscanf(file, "%lu", value) == 1; /* "max" is no number */
	fclose(file);
	return known;
}

/* What the memory cgroup still allows, as far as it is seen from inside. */
static uint64_t cgroup_room(void)
{
	static const char *const pairs[][2] = {
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
		 "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	};
	uint64_t room = UINT64_MAX;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		uint64_t most, used;

		if (!read_number(pairs[i][0], &most) || !read_number(pairs[i][1], &used))
			continue;
		if (most < used)
			most = used;
		if (most - used < room)
			room = most - used;
	}
	return room;
}

static int too_small(size_t bytes, int error, char why[RF_REGION_TEXT])
{
	snprintf(why, RF_REGION_TEXT,
		 "%zu bytes of shared memory cannot be had (%s): raise the memory limit of the "
		 "container, or lower RINGFOLD_SHM_BYTES",
		 bytes, strerror(error));
	return RF_ERR_NOMEM;
}

static int region_fill(int fd, size_t bytes, char why[RF_REGION_TEXT])
{
	struct rlimit limit;
	uint64_t room = cgroup_room();
	int error;

	/* Past this limit the process would be sent a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
		snprintf(why, RF_REGION_TEXT,
			 "the limit on the size of files (ulimit -f) is below the %zu bytes of the "
			 "shared memory",
			 bytes);
		return RF_ERR_NOMEM;
	}
	/* A margin of as much again for the caller. */
	if (room / 2 < bytes) {
		snprintf(
			why, RF_REGION_TEXT,
			"the memory cgroup has only %llu bytes left, and %zu are wanted: raise the "
			"memory limit of the container, or lower RINGFOLD_SHM_BYTES",
			(unsigned long long)room, bytes);
		return RF_ERR_NOMEM;
	}
	if (ftruncate(fd, (off_t)bytes) != 0)
		return too_small(bytes, errno, why);
	error = posix_fallocate(fd, 0, (off_t)bytes);
	if (error)
		return too_small(bytes, error, why);
	if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
		snprintf(why, RF_REGION_TEXT, "memory files cannot be sealed: %s", strerror(errno));
		return RF_ERR_SYSTEM;
	}
	return RF_OK;
}

static int region_mmap(int fd, size_t bytes, void **memory, char why[RF_REGION_TEXT])
{
	void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (mapped == MAP_FAILED) {
		snprintf(why, RF_REGION_TEXT, "the shared memory cannot be mapped: %s",
			 strerror(errno));
		return RF_ERR_SYSTEM;
	}
	/* A forked child has no business in it. */
	(void)madvise(mapped, bytes, MADV_DONTFORK);
	*memory = mapped;
	return RF_OK;
}

int rf_region_make(size_t bytes, int *fd, void **memory, char why[RF_REGION_TEXT])
{
	int status;

	*fd = memfd_create("ringfold", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0) {
		snprintf(why, RF_REGION_TEXT, "memory files cannot be made: %s", strerror(errno));
		return RF_ERR_SYSTEM;
	}
	status = region_fill(*fd, bytes, why);
	if (status == RF_OK)
		status = region_mmap(*fd, bytes, memory, why);
	if (status != RF_OK) {
		close(*fd);
		*fd = -1;
	}
	return status;
}

int rf_region_map(int fd, size_t bytes, void **memory, char why[RF_REGION_TEXT])
{
	struct stat file;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &file) != 0 ||
	    (uint64_t)file.st_size != bytes) {
		snprintf(why, RF_REGION_TEXT, "what came is no sealed memory of %zu bytes", bytes);
		return RF_ERR_PROTOCOL;
	}
	return region_mmap(fd, bytes, memory, why);
}

void rf_region_unmap(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}
