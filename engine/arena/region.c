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
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, PATH_TEXT = 4096 };

/* The first number of a file; "max" is none. */
static bool read_number(const char *folder, const char *name, uint64_t *value)
{
	char path[PATH_TEXT];
	FILE *file;
	bool known;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	known = fscanf(file, "%" SCNu64, value) == 1;
	fclose(file);
	return known;
}

/* What a group uses only to remember files: the kernel gives it back before it ends anybody. */
static uint64_t read_reclaimable(const char *folder, const char *row)
{
	char path[PATH_TEXT], name[64];
	uint64_t value, found = 0;
	FILE *file;

	if (snprintf(path, sizeof(path), "%s/memory.stat", folder) >= (int)sizeof(path))
		return 0;
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fscanf(file, "%63s %" SCNu64, name, &value) == 2) {
		if (!strcmp(name, row))
			found = value;
	}
	fclose(file);
	return found;
}

struct hierarchy {
	const char *root, *most, *used, *reclaimable;
};

static uint64_t group_room(const struct hierarchy *of, const char *folder)
{
	uint64_t most, used, reclaimable;

	if (!read_number(folder, of->most, &most) || !read_number(folder, of->used, &used))
		return UINT64_MAX;
	reclaimable = read_reclaimable(folder, of->reclaimable);
	used -= reclaimable < used ? reclaimable : used;
	return most > used ? most - used : 0;
}

/* The least of a group's and its parents'. In a container the path may be one of the host, of which
 * only the root is seen. */
static uint64_t hierarchy_room(const struct hierarchy *of, const char *group)
{
	size_t root = strlen(of->root);
	uint64_t least = UINT64_MAX, room;
	char folder[PATH_TEXT];

	if (snprintf(folder, sizeof(folder), "%s%s", of->root, group) >= (int)sizeof(folder))
		snprintf(folder, sizeof(folder), "%s", of->root);
	for (;;) {
		room = group_room(of, folder);
		least = room < least ? room : least;
		if (strlen(folder) <= root)
			return least;
		*strrchr(folder, '/') = '\0';
	}
}

/* What the memory cgroups still allow, as far as they are seen from inside. */
static uint64_t cgroup_room(void)
{
	static const struct hierarchy one = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
					     "memory.usage_in_bytes", "total_inactive_file"};
	static const struct hierarchy two = {"/sys/fs/cgroup", "memory.max", "memory.current",
					     "inactive_file"};
	FILE *file = fopen("/proc/self/cgroup", "re");
	uint64_t least = UINT64_MAX, room;
	char line[PATH_TEXT];

	/* NUMBER:CONTROLLERS:/PATH */
	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group || group[1] != '/')
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (!controllers[1])
			room = hierarchy_room(&two, group);
		else if (!strcmp(controllers + 1, "memory"))
			room = hierarchy_room(&one, group);
		else
			continue;
		least = room < least ? room : least;
	}
	if (file)
		fclose(file);
	return least;
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

	*fd = memfd_create("ringfold", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (*fd < 0 && errno == EINVAL) /* Linux before 6.3 */
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
