/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: a call, or the making of a communicator, in flight; and completion queues.
 */
#ifndef RF_REQUEST_H
#define RF_REQUEST_H

#include "engine/comm.h"

enum rf_request_kind { RF_REQUEST_CALL, RF_REQUEST_CREATE };

struct rf_request {
	rf_context *context;
	rf_comm *comm; /* CREATE: the one being made */
	enum rf_request_kind kind;
	bool ended;
	int status; /* once ended */
	struct rf_timer deadline;
	rf_cq *cq; /* or NULL */
	void *user;
	struct rf_list cq_node;
	bool *watcher; /* set to true at the end, for rf_wait_any(); or NULL */
	void (*then)(
		struct rf_request *request); /* at the end, instead of handing out: own calls */
	rf_comm **result;                    /* CREATE: where the communicator is handed out */
	rf_comm *parent; /* CREATE by split: the parent, until its part is done */
};

/* Ends a request: status, completion queue, wake-ups. Once. */
void rf_request_end(rf_request *request, int status);
/* Whoever waits for it has to look: it has ended, or its store is needed. */
void rf_request_stir(rf_request *request);

/* Frees a request that has ended, hands out what it made, and returns its status. */
int rf_request_finish(rf_request *request);
/* A timeout as a time of the context's clock. */
uint64_t rf_until(rf_context *context, int64_t timeout_ms);

#endif
