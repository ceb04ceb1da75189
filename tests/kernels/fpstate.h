/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A caller's floating-point environment, for tests: the control register with the exception flags,
 * as one word that can be compared.
 */
#ifndef RF_TEST_FPSTATE_H
#define RF_TEST_FPSTATE_H

#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

#define FPSTATE_DEFAULT 0x1f80u

static inline uint64_t fpstate_read(void)
{
	return _mm_getcsr();
}

static inline void fpstate_write(uint64_t state)
{
	_mm_setcsr((unsigned)state);
}

/* Any rounding mode, FTZ, DAZ, flags set (for masked exceptions only) and exceptions unmasked. */
static inline uint64_t fpstate_foreign(uint64_t random)
{
	const uint64_t masks = random & 0x1f80, flags = random >> 13 & masks >> 7;

	return masks | flags | (random >> 20 & 3) << 13 | (random >> 22 & 1) << 15 |
	       (random >> 23 & 1) << 6;
}

#elif defined(__aarch64__)

#define FPSTATE_DEFAULT 0

static inline uint64_t fpstate_read(void)
{
	uint64_t control, status;

	__asm__ volatile("mrs %0, fpcr" : "=r"(control));
	__asm__ volatile("mrs %0, fpsr" : "=r"(status));
	return control << 32 | (uint32_t)status;
}

static inline void fpstate_write(uint64_t state)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(state >> 32));
	__asm__ volatile("msr fpsr, %0" : : "r"(state & 0xffffffff));
}

/* Any rounding mode, FZ, DN, alternative half precision, and flags set. */
static inline uint64_t fpstate_foreign(uint64_t random)
{
	return (random & 0x7c00000) << 32 | (random >> 32 & 0x1f);
}

#else

#define FPSTATE_DEFAULT 0

static inline uint64_t fpstate_read(void)
{
	return 0;
}

static inline void fpstate_write(uint64_t state)
{
	(void)state;
}

static inline uint64_t fpstate_foreign(uint64_t random)
{
	(void)random;
	return 0;
}

#endif

#endif
