/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cores by affinity and by cgroup quota. The quota that binds may be that of any group between this
 * process's and the root, so that each is looked at. Files that are absent mean no limit.
 */
#include "engine/cpu.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int affinity_cores(void)
{
	/* Sets larger than the default cpu_set_t, for machines with more cores than it holds. */
	for (int cpus = 1024; cpus <= 1 << 16; cpus *= 2) {
		cpu_set_t *set = CPU_ALLOC(cpus);
		size_t bytes = CPU_ALLOC_SIZE(cpus);
		int count = 0;

		if (!set)
			return 1;
		if (sched_getaffinity(0, bytes, set) == 0)
			count = CPU_COUNT_S(bytes, set);
		CPU_FREE(set);
		if (count > 0)
			return count;
	}
	return 1;
}

/* Cores that a quota allows; 0: no limit. */
static int quota_to_cores(long long quota, long long period)
{
	if (quota <= 0 || period <= 0)
		return 0;
	return quota < period ? 1 : (int)(quota / period);
}

static int read_v2(const char *folder)
{
	char path[1200];
	long long quota, period;
	FILE *file;
	int fields;

	snprintf(path, sizeof(path), "%s/cpu.max", folder);
	file = fopen(path, "re");
	if (!file)
		return 0;
	fields = fscanf(file, "%lld %lld", &quota, &period); /* "max 100000" gives no number */
	fclose(file);
	return fields == 2 ? quota_to_cores(quota, period) : 0;
}

static long long read_number(const char *folder, const char *name)
{
	char path[1200];
	long long value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%lld", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static int read_v1(const char *folder)
{
	return quota_to_cores(read_number(folder, "cpu.cfs_quota_us"),
			      read_number(folder, "cpu.cfs_period_us"));
}

/* The smallest limit from a group up to the root of its hierarchy. */
static int walk_up(const char *root, const char *group, int (*read)(const char *), int cores)
{
	char folder[1100];
	size_t root_length = strlen(root);

	snprintf(folder, sizeof(folder), "%s%s", root, group);
	for (;;) {
		int limit = read(folder);
		char *slash;

		if (limit && limit < cores)
			cores = limit;
		slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < root_length)
			return cores;
		*slash = '\0';
	}
}

static bool names_controller(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += length) {
		bool starts = at == list || at[-1] == ',';

		if (starts && (at[length] == ',' || at[length] == '\0'))
			return true;
	}
	return false;
}

int rf_cpu_cores(void)
{
	int cores = affinity_cores();
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[1024];

	if (!file)
		return cores;
	while (fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[1] == '\0')
			cores = walk_up("/sys/fs/cgroup", group, read_v2, cores);
		else if (names_controller(controllers + 1, "cpu"))
			cores = walk_up("/sys/fs/cgroup/cpu", group, read_v1, cores);
	}
	fclose(file);
	return cores;
}

int rf_cpu_here(void)
{
	return sched_getcpu();
}

void rf_cpu_leave(int core)
{
	cpu_set_t all, others;

	/* Fails where there are more cores than the set has room for: then it stays. */
	if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	others = all;
	CPU_CLR(core, &others);
	if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
		(void)sched_setaffinity(0, sizeof(all), &all);
}
