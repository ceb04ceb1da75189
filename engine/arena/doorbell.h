/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells: a datagram socket for each context, in the abstract name space. Whoever sends a byte
 * to it wakes its context. A stranger who does so costs a wake-up, nothing else.
 */
#ifndef RF_DOORBELL_H
#define RF_DOORBELL_H

#include "engine/context.h"

enum { RF_DOORBELL_NAME_BYTES = 32 };

/* This context's, made when it is first asked for. RF_ERR_SYSTEM: errno tells. */
int rf_doorbell_get(rf_context *context, uint8_t name[RF_DOORBELL_NAME_BYTES]);
/* Never blocks; a queue that is full wakes as well. */
void rf_doorbell_ring(rf_context *context, const uint8_t name[RF_DOORBELL_NAME_BYTES]);
void rf_doorbell_close(rf_context *context);
void rf_doorbell_abandon(rf_context *context); /* for fork: the descriptor only */

#endif
