/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers for kernels under test: an inaccessible page on either side, canaries round the payload,
 * and random element patterns to fill them with. */
#ifndef RF_TEST_BUFFERS_H
#define RF_TEST_BUFFERS_H

#include <stdint.h>

#include "engine/kernels/kernels.h"

#define BUFFER_PAYLOAD_MAX 4096
/* As a place in a buffer: the payload ends where the inaccessible page begins. */
#define BUFFER_AT_END (-1)

struct buffer {
	char *pages;   /* the accessible ones */
	char *payload; /* set by buffer_place() */
	size_t bytes;
};

void buffer_create(struct buffer *buffer);
/* Puts a payload at a byte offset from the first page, or at the end, canaries round it. */
void buffer_place(struct buffer *buffer, int at, const void *content, size_t bytes);
/* Whether the canaries are whole. */
int buffer_is_intact(const struct buffer *buffer);

void random_seed(uint64_t seed);
uint64_t random_next(void);
static inline size_t random_below(size_t bound)
{
	return (size_t)(random_next() >> 11) % bound;
}

/* Elements of each type: any bits, special values, and ordinary ones of similar size. */
#define POOL_ELEMENTS 40000
void pool_fill(void);
/* count elements of the pool, beginning somewhere. */
const void *pool_window(rf_dtype dtype, size_t count);

#endif
