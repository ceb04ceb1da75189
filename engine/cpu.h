/* SPDX-License-Identifier: BSD-3-Clause */
/* How many cores this process may really use: affinity, and the quota of its cgroup (v1 and v2). */
#ifndef RF_CPU_H
#define RF_CPU_H

/* At least 1. A quota of one and a half cores counts as one: the half would be throttled. */
int rf_cpu_cores(void);

/* The core that the calling thread runs on; -1: not known. */
int rf_cpu_here(void);
/* Moves the calling thread to another core than this one, if its affinity has another; its affinity
 * stays as it is. */
void rf_cpu_leave(int core);

/* In a loop that waits for another core: leaves it the shared parts of this one. */
static inline void rf_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
