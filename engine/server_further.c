/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Further listeners of a process. It has one port of its own, chosen before it is known who it will
 * be; a process that then turns out to be rank 0 must also answer on the port that all others were
 * told.
 */
#include "engine/control.h"

#include <errno.h>
#include <stdlib.h>

struct further_listener {
	struct rf_list node; /* in server->further_listeners */
	struct rf_watch watch;
	struct rf_server *server;
	struct rf_listener *listener;
	uint16_t port;
};

static void further_ready(struct rf_watch *watch, unsigned events)
{
	struct further_listener *further = RF_CONTAINER(watch, struct further_listener, watch);

	(void)events;
	rf_server_accept(further->server, further->listener);
}

static bool listens_on(const rf_context *context, uint16_t port)
{
	const struct rf_server *server = context->server;

	if (port == context->port)
		return true;
	RF_LIST_EACH(node, &server->further_listeners)
	if (RF_CONTAINER(node, struct further_listener, node)->port == port)
		return true;
	return false;
}

int rf_server_listen_also(rf_context *context, uint16_t port)
{
	const struct rf_net_ops *ops = context->net->ops;
	struct further_listener *further;
	int rc;

	if (!context->server)
		return RF_ERR_INVALID;
	if (listens_on(context, port))
		return RF_OK;
	further = calloc(1, sizeof(*further));
	if (!further)
		return RF_ERR_NOMEM;
	further->server = context->server;
	further->watch.ready = further_ready;
	errno = 0;
	rc = ops->listen(context->net, port, port, &further->listener, &further->port);
	if (rc != RF_OK)
		goto free_further;
	rc = ops->watch_listener(further->listener, &further->watch);
	if (rc != RF_OK)
		goto close_listener;
	rf_list_append(&context->server->further_listeners, &further->node);
	return RF_OK;

close_listener:
	ops->close_listener(further->listener);
free_further:
	free(further);
	return rc;
}

void rf_server_close_further(struct rf_server *server, bool abandon)
{
	const struct rf_net_ops *ops = server->context->net->ops;

	RF_LIST_EACH(node, &server->further_listeners)
	{
		struct further_listener *further =
			RF_CONTAINER(node, struct further_listener, node);

		if (abandon) {
			ops->abandon_listener(further->listener);
			continue;
		}
		ops->close_listener(further->listener);
		rf_list_remove(node);
		free(further);
	}
}
