/* SPDX-License-Identifier: BSD-3-Clause */
/* How the pieces of the kernels are inlined: always, so that their constants are constants; but
 * for what is rare and long. */
#ifndef RF_KERNELS_INLINE_H
#define RF_KERNELS_INLINE_H

#ifndef RF_INLINE
#define RF_INLINE __attribute__((always_inline, unused)) static inline
#endif

#define RF_OUTLINE __attribute__((noinline, unused)) static

#endif
