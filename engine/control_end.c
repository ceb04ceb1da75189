/* SPDX-License-Identifier: BSD-3-Clause */
/* Control streams at a context's end: the orderly one, the immediate one, and a forked child's. */
#include "engine/control.h"

void rf_control_shutdown(rf_context *context)
{
	if (!context->server)
		return;
	context->server->leaving = true;
	for (size_t i = 0; i < context->peers.capacity; i++) {
		struct rf_peer *peer = context->peers.entries[i].value;

		if (!peer || !peer->control)
			continue;
		rf_control_farewell(peer->control);
		rf_control_look(peer->control);
	}
}

bool rf_control_all_closed(rf_context *context)
{
	for (size_t i = 0; i < context->peers.capacity; i++) {
		const struct rf_peer *peer = context->peers.entries[i].value;

		if (peer && peer->control &&
		    (!rf_list_empty(&peer->control->streams) ||
		     (peer->state == RF_PEER_ALIVE && rf_control_has_unsent(peer->control))))
			return false;
	}
	return true;
}

static bool has_anything(const struct rf_control *control)
{
	return control && (!rf_list_empty(&control->streams) || control->dial ||
			   !rf_list_empty(&control->messages) || control->timer.position ||
			   control->guest_until);
}

static void release(struct rf_peer *peer)
{
	struct rf_control *control = peer->control;

	peer->references++;
	rf_control_guest_ends(control);
	rf_control_call_off(control);
	rf_control_close_streams(control);
	rf_control_drop_messages(control);
	rf_timer_clear(&peer->context->timers, &control->timer);
	/* Nothing is due any more: the last references are the links'. */
	peer->state = peer->state == RF_PEER_ALIVE ? RF_PEER_LEFT : peer->state;
	rf_peer_put(peer);
}

static void abandon(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node)->stream;

		stream->ops->abandon(stream);
	}
}

/* Freeing a peer changes the map: begins anew after each. */
void rf_control_release_all(rf_context *context, bool only_abandon)
{
	for (size_t i = 0; i < context->peers.capacity; i++) {
		struct rf_peer *peer = context->peers.entries[i].value;

		if (!peer || !has_anything(peer->control))
			continue;
		if (only_abandon) {
			abandon(peer->control);
			continue;
		}
		release(peer);
		i = (size_t)-1;
	}
}
