/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that processes share: a sealed file without a name. */
#ifndef RF_REGION_H
#define RF_REGION_H

#include <stddef.h>

enum { RF_REGION_TEXT = 200 };

/* A new one of so many zero bytes, all of them there: no later access fails for want of memory.
 * On an error why[] says what was too small, and what helps. */
int rf_region_make(size_t bytes, int *fd, void **memory, char why[RF_REGION_TEXT]);
/* Maps one that somebody else made, if it is what was said. The descriptor stays the caller's. */
int rf_region_map(int fd, size_t bytes, void **memory, char why[RF_REGION_TEXT]);
void rf_region_unmap(void *memory, size_t bytes);

#endif
