/* SPDX-License-Identifier: BSD-3-Clause */
/* The context that the process shares among communicators that were made without one. */
#ifndef RF_CONTEXT_SHARED_H
#define RF_CONTEXT_SHARED_H

#include "engine/context.h"

/* Finds it, or makes it; it is kept from being released until rf_context_shared_unpin(). */
int rf_context_shared_pin(rf_context **context);
void rf_context_shared_unpin(rf_context *context);
/* Destroys it if it is the shared one and nothing lives in it any more. Lock not held. */
void rf_context_shared_release(rf_context *context);

#endif
