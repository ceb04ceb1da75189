/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floating-point environment of the kernels: round to nearest even, denormals kept, no traps.
 * Entering remembers the caller's; leaving restores it, exception flags included. The control
 * register is written only where it differs.
 */
#ifndef RF_KERNELS_FPENV_H
#define RF_KERNELS_FPENV_H

#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

#define RF_MXCSR_DEFAULT 0x1f80u
#define RF_MXCSR_FLAGS   0x003fu

typedef unsigned rf_fpenv;

static inline rf_fpenv rf_fpenv_enter(void)
{
	rf_fpenv saved = _mm_getcsr();

	if ((saved & ~RF_MXCSR_FLAGS) != RF_MXCSR_DEFAULT)
		_mm_setcsr(RF_MXCSR_DEFAULT);
	return saved;
}

static inline void rf_fpenv_leave(rf_fpenv saved)
{
	if (_mm_getcsr() != saved)
		_mm_setcsr(saved);
}

#elif defined(__aarch64__)

typedef struct rf_fpenv {
	uint64_t control, status;
} rf_fpenv;

static inline rf_fpenv rf_fpenv_read(void)
{
	rf_fpenv env;

	__asm__ volatile("mrs %0, fpcr" : "=r"(env.control));
	__asm__ volatile("mrs %0, fpsr" : "=r"(env.status));
	return env;
}

static inline rf_fpenv rf_fpenv_enter(void)
{
	rf_fpenv saved = rf_fpenv_read();

	if (saved.control != 0)
		__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
	return saved;
}

static inline void rf_fpenv_leave(rf_fpenv saved)
{
	rf_fpenv now = rf_fpenv_read();

	if (now.status != saved.status)
		__asm__ volatile("msr fpsr, %0" : : "r"(saved.status));
	if (now.control != saved.control)
		__asm__ volatile("msr fpcr, %0" : : "r"(saved.control));
}

#else

#include <fenv.h>

typedef fenv_t rf_fpenv;

static inline rf_fpenv rf_fpenv_enter(void)
{
	rf_fpenv saved;

	fegetenv(&saved);
	fesetenv(FE_DFL_ENV);
	return saved;
}

static inline void rf_fpenv_leave(rf_fpenv saved)
{
	fesetenv(&saved);
}

#endif

#endif
