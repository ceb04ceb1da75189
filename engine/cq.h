/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: ended requests in order, and a descriptor that is readable while there are
 * any. */
#ifndef RF_CQ_H
#define RF_CQ_H

#include "engine/request.h"

void rf_cq_add(rf_cq *cq, rf_request *request); /* lock held; the request has ended */
void rf_cq_expect(rf_cq *cq);                   /* a call that will report to it was started */
rf_context *rf_cq_context(const rf_cq *cq);
void rf_cq_abandon_all(rf_context *context); /* for fork */

#endif
