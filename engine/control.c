/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between two processes: control streams, and whether the far end lives.
 *
 * Both sides may dial, at the same time too: then two streams stand, each side sends on the first
 * that stood and reads both, and neither is closed for being the second. A stream that ends without
 * a BYE is lost: whoever knows an address dials again until redial_ms are over, and then the peer
 * is dead. Streams that nobody needs are closed when both sides have said so.
 */
#include "engine/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	IDLE_MS = 1000,
	GUEST_MS = 60000,
	FIRST_DIAL_MS = 10000, /* where nothing answers at all; refusals count for redial_ms */
};

/* ---- making --------------------------------------------------------------------------------- */

static void control_due(struct rf_timer *timer);

int rf_control_make(struct rf_peer *peer)
{
	struct rf_control *control;

	if (peer->control)
		return RF_OK;
	if (!peer->context->server)
		return RF_ERR_INVALID;
	control = calloc(1, sizeof(*control));
	if (!control)
		return RF_ERR_NOMEM;
	control->peer = peer;
	control->session = ++peer->context->server->sessions;
	control->next_number = 1;
	control->timer.fire = control_due;
	rf_list_init(&control->streams);
	rf_list_init(&control->messages);
	control->next = &control->messages;
	control->last_use = rf_now(peer->context);
	peer->control = control;
	return RF_OK;
}

void rf_control_free(struct rf_peer *peer)
{
	struct rf_control *control = peer->control;

	if (!control)
		return;
	rf_timer_clear(&peer->context->timers, &control->timer);
	rf_control_drop_messages(control);
	free(control);
	peer->control = NULL;
}

static bool leaving(const struct rf_control *control)
{
	const struct rf_server *server = control->peer->context->server;

	return !server || server->leaving;
}

bool rf_control_needed(const struct rf_control *control)
{
	if (leaving(control))
		return rf_control_has_unsent(control);
	return control->holds || !rf_list_empty(&control->peer->links) ||
	       rf_control_has_unsent(control) || control->suspected;
}

/* A stream must be made now. */
static bool dial_wanted(const struct rf_control *control)
{
	if (leaving(control))
		return rf_control_has_unsent(control);
	return (control->holds && control->dial_now) || rf_control_has_unsent(control) ||
	       control->suspected;
}

void rf_control_guest_begins(struct rf_peer *peer)
{
	/* Only the making may fail: then the lane goes with the peer, and is dialled again. */
	if (!rf_list_empty(&peer->links) || rf_control_make(peer) != RF_OK)
		return;
	if (!peer->control->guest_until)
		peer->references++;
	peer->control->guest_until = rf_now(peer->context) + GUEST_MS * RF_MS;
	rf_control_look(peer->control);
}

void rf_control_guest_ends(struct rf_control *control)
{
	if (!control->guest_until)
		return;
	control->guest_until = 0;
	control->peer->references--;
}

/* ---- streams come and go -------------------------------------------------------------------- */

/* The peer stays only if somebody else refers to it. */
static void stream_close(struct rf_control_stream *stream)
{
	struct rf_control *control = stream->control;

	if (control->sending == stream)
		rf_control_rewind(control, NULL);
	rf_list_remove(&stream->node);
	stream->stream->ops->close(stream->stream);
	free(stream->payload);
	free(stream);
	rf_peer_put(control->peer);
}

/* The caller has a reference to the peer. */
void rf_control_close_streams(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	stream_close(RF_CONTAINER(node, struct rf_control_stream, node));
}

static void say_hello(struct rf_control_stream *stream)
{
	struct rf_peer *peer = stream->control->peer;
	struct rf_handshake handshake;
	struct rf_hello hello = {
		.from = peer->context->id,
		.to = peer->id,
		.purpose = RF_PURPOSE_CONTROL,
	};

	rf_control_describe(peer, &hello);
	rf_handshake_say(&handshake, RF_SEGMENT_HELLO, &hello);
	memcpy(stream->aside, handshake.out, handshake.out_bytes);
	stream->aside_bytes = handshake.out_bytes;
}

int rf_control_adopt(struct rf_peer *peer, struct rf_stream *base, enum rf_adopt how)
{
	struct rf_control *control = peer->control;
	struct rf_control_stream *stream = NULL;
	bool was_up = control->sending != NULL;

	if (peer->state != RF_PEER_DEAD)
		stream = calloc(1, sizeof(*stream));
	if (!stream) {
		base->ops->close(base);
		return peer->state == RF_PEER_DEAD ? RF_ERR_RANK_DEAD : RF_ERR_NOMEM;
	}
	stream->control = control;
	stream->stream = base;
	stream->watch.ready = rf_control_stream_ready;
	stream->state = leaving(control) ? RF_CONTROL_FAREWELL : RF_CONTROL_OPEN;
	stream->awaits_hello = how == RF_ADOPT_AWAIT_HELLO;
	if (how == RF_ADOPT_SAY_HELLO)
		say_hello(stream);
	rf_list_append(&control->streams, &stream->node);
	peer->references++;
	control->redial_until = 0;
	control->suspected = false;
	control->idle_told = false;
	control->heard = false;
	control->stood_at = control->last_use = rf_now(peer->context);
	rf_control_pump(control);
	rf_control_look(control);
	if (!was_up && control->sending)
		rf_join_peer_up(peer);
	return RF_OK;
}

/* Older streams belong to a numbering that is over. */
static void forget_session(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_control_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node);

		if (!stream->awaits_hello)
			stream_close(stream);
	}
	rf_control_renumber(control);
}

int rf_control_meet(struct rf_peer *peer, const struct rf_hello *hello)
{
	struct rf_control *control = peer->control;

	if (!hello->session || hello->session < control->peer_session)
		return RF_ERR_PROTOCOL;
	if (hello->session > control->peer_session) {
		if (control->peer_session)
			forget_session(control);
		control->peer_session = hello->session;
		control->received = control->told = control->untold_bytes = 0;
		control->peer_idle = false;
	}
	if (hello->known_session != control->session)
		return RF_OK;
	if (hello->received > control->sent_number)
		return RF_ERR_PROTOCOL;
	rf_control_acknowledged(control, hello->received);
	return RF_OK;
}

void rf_control_describe(struct rf_peer *peer, struct rf_hello *hello)
{
	hello->session = peer->control->session;
	hello->known_session = peer->control->peer_session;
	hello->received = peer->control->received;
}

/* ---- the end of a peer ---------------------------------------------------------------------- */

void rf_control_end(struct rf_peer *peer, enum rf_peer_state state, const char *reason)
{
	struct rf_control *control = peer->control;
	struct rf_dial *dial = control->dial;

	peer->references++;
	rf_control_guest_ends(control);
	peer->state = state;
	control->dial = NULL;
	if (dial)
		rf_dial_cancel(dial);
	rf_control_close_streams(control);
	rf_control_drop_messages(control);
	control->redial_until = 0;
	control->suspected = false;
	rf_log(&peer->context->logger, RF_LOG_DEBUG, "process %016llx %s: %s",
	       (unsigned long long)peer->id.hi, state == RF_PEER_LEFT ? "has left" : "is dead",
	       reason);
	rf_peer_died(peer, reason);
	rf_peer_put(peer);
}

static void dial_done(void *user, int status, struct rf_stream *stream,
		      const struct rf_hello *welcome, const char *reason);

static int dial_start(struct rf_control *control, uint64_t deadline, uint64_t patience_ns)
{
	return rf_dial_control(control->peer, deadline, patience_ns, dial_done, control,
			       &control->dial);
}

/* The last stream went without a goodbye. */
static void lost(struct rf_control *control, const char *reason)
{
	struct rf_peer *peer = control->peer;

	uint64_t now = rf_now(peer->context);
	uint64_t redial_ns = (uint64_t)peer->context->config.redial_ms * RF_MS;

	snprintf(control->lost_reason, sizeof(control->lost_reason), "%s", reason);
	/* A stream that stands and falls without a word is the same loss still. */
	if (!control->lost_at || control->heard || now >= control->stood_at + redial_ns)
		control->lost_at = now;
	control->redial_until = control->lost_at + redial_ns;
	if (control->dial)
		rf_dial_cancel(control->dial);
	control->dial = NULL;
	/* Where no dial can be started the far end may still dial us. */
	if (peer->addr_count)
		(void)dial_start(control, control->redial_until, UINT64_MAX);
}

static bool is_final(int status)
{
	return status == RF_ERR_RANK_DEAD || status == RF_ERR_VERSION ||
	       status == RF_ERR_UNSUPPORTED;
}

static void dial_failed(struct rf_control *control, int status, const char *reason)
{
	struct rf_peer *peer = control->peer;
	char whole[sizeof(control->lost_reason) + 300];

	if (!rf_list_empty(&control->streams) || peer->state != RF_PEER_ALIVE)
		return;
	snprintf(whole, sizeof(whole), "%s%s%s", control->redial_until ? control->lost_reason : "",
		 control->redial_until ? "; " : "", reason);
	if (!control->redial_until || is_final(status) ||
	    rf_now(peer->context) >= control->redial_until)
		rf_control_end(peer, RF_PEER_DEAD, whole);
	else
		snprintf(control->lost_reason, sizeof(control->lost_reason), "%.*s",
			 (int)sizeof(control->lost_reason) - 1, whole);
}

static void dial_done(void *user, int status, struct rf_stream *stream,
		      const struct rf_hello *welcome, const char *reason)
{
	struct rf_control *control = user;
	struct rf_peer *peer = control->peer;

	peer->references++;
	control->dial = NULL;
	if (status == RF_OK) {
		status = rf_control_meet(peer, welcome);
		if (status == RF_OK)
			status = rf_control_adopt(peer, stream, RF_ADOPT_MET);
		else
			stream->ops->close(stream);
		reason = "its welcome could not be taken";
	}
	if (status != RF_OK)
		dial_failed(control, status, reason);
	rf_control_look(control);
	rf_peer_put(peer);
}

void rf_control_stream_ended(struct rf_control_stream *stream, bool orderly, const char *reason)
{
	struct rf_control *control = stream->control;
	struct rf_peer *peer = control->peer;

	peer->references++;
	/* The far end closes only after it has read the BYE, and all that was before it. */
	if (orderly && stream->state == RF_CONTROL_SHUT && !stream->bye_came)
		rf_control_acknowledged(control, stream->flushed);
	stream_close(stream);
	if (peer->state == RF_PEER_ALIVE) {
		if (!rf_list_empty(&control->streams))
			rf_control_pump(control);
		else if (control->peer_left)
			rf_control_end(peer, RF_PEER_LEFT, "it has left");
		else if (!orderly && rf_control_needed(control))
			lost(control, reason);
	}
	rf_control_look(control);
	rf_peer_put(peer);
}

void rf_control_farewell(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_control_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node);

		if (stream->state == RF_CONTROL_OPEN)
			stream->state = RF_CONTROL_FAREWELL;
	}
	rf_control_pump(control);
}

/* ---- what is due ---------------------------------------------------------------------------- */

static bool has_broken(const struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	if (RF_CONTAINER(node, struct rf_control_stream, node)->broken)
		return true;
	return false;
}

static bool is_idle(const struct rf_control *control)
{
	return !control->idle_told && !leaving(control) && !rf_control_needed(control);
}

/* Neither a stream nor a reason to have one: whatever was under way is called off. */
static bool is_moot(const struct rf_control *control)
{
	return !rf_control_needed(control) && (control->dial || control->redial_until);
}

static uint64_t stream_due_at(const struct rf_control *control)
{
	if (control->peer->state != RF_PEER_ALIVE)
		return UINT64_MAX;
	if (has_broken(control))
		return 0;
	if (!rf_list_empty(&control->streams))
		return is_idle(control) ? control->last_use + IDLE_MS * RF_MS : UINT64_MAX;
	if (is_moot(control))
		return 0;
	if (control->dial)
		return UINT64_MAX; /* it has a deadline of its own */
	if (control->redial_until)
		return control->redial_until;
	return dial_wanted(control) ? 0 : UINT64_MAX;
}

static uint64_t due_at(const struct rf_control *control)
{
	uint64_t at = stream_due_at(control);

	return control->guest_until && control->guest_until < at ? control->guest_until : at;
}

void rf_control_look(struct rf_control *control)
{
	rf_context *context = control->peer->context;
	uint64_t at = due_at(control);

	if (at == UINT64_MAX) {
		rf_timer_clear(&context->timers, &control->timer);
		return;
	}
	if (control->timer.position && control->timer.at == at)
		return;
	/* 0 is at once: by the next round of progress. */
	if (rf_timer_set(&context->timers, &control->timer, at) == RF_OK)
		rf_context_wake(context);
}

static void end_broken(struct rf_control *control)
{
	RF_LIST_EACH(node, &control->streams)
	{
		struct rf_control_stream *stream =
			RF_CONTAINER(node, struct rf_control_stream, node);

		if (stream->broken) {
			rf_control_stream_ended(stream, false, "its connection broke");
			return;
		}
	}
}

void rf_control_call_off(struct rf_control *control)
{
	struct rf_dial *dial = control->dial;

	control->dial = NULL;
	control->redial_until = 0;
	if (dial)
		rf_dial_cancel(dial);
}

static void go_idle(struct rf_control *control)
{
	control->idle_told = true;
	if (control->peer_idle)
		rf_control_farewell(control);
	else if (control->sending)
		rf_control_say_aside(control->sending, RF_SEGMENT_ACK, RF_ACK_IDLE);
	rf_control_pump(control);
}

static void first_dial(struct rf_control *control)
{
	struct rf_peer *peer = control->peer;
	uint64_t redial_ns = (uint64_t)peer->context->config.redial_ms * RF_MS;
	int rc;

	if (!peer->addr_count) {
		lost(control, "no address of it is known, and it has not connected");
		return;
	}
	rc = dial_start(control, rf_now(peer->context) + FIRST_DIAL_MS * RF_MS, redial_ns);
	if (rc != RF_OK)
		rf_control_end(peer, RF_PEER_DEAD, rf_strerror(rc));
}

static void control_due(struct rf_timer *timer)
{
	struct rf_control *control = RF_CONTAINER(timer, struct rf_control, timer);
	struct rf_peer *peer = control->peer;
	uint64_t now = rf_now(peer->context);

	peer->references++;
	if (control->guest_until && now >= control->guest_until) {
		if (rf_list_empty(&peer->links))
			rf_control_guest_ends(control);
		else
			control->guest_until = now + GUEST_MS * RF_MS;
	}
	if (now >= due_at(control)) {
		if (has_broken(control))
			end_broken(control);
		else if (!rf_list_empty(&control->streams))
			go_idle(control);
		else if (is_moot(control))
			rf_control_call_off(control);
		else if (control->redial_until)
			rf_control_end(peer, RF_PEER_DEAD, control->lost_reason);
		else
			first_dial(control);
	}
	rf_control_look(control);
	rf_peer_put(peer);
}

/* ---- for others ----------------------------------------------------------------------------- */

int rf_control_hold(struct rf_peer *peer, bool dial_now)
{
	int rc = rf_control_make(peer);

	if (rc != RF_OK)
		return rc;
	peer->control->holds++;
	peer->control->dial_now |= dial_now;
	peer->control->idle_told = false;
	rf_control_look(peer->control);
	return RF_OK;
}

void rf_control_release(struct rf_peer *peer)
{
	struct rf_control *control = peer->control;

	if (!control || !control->holds)
		return;
	if (--control->holds == 0)
		control->dial_now = false;
	rf_control_look(control);
}

bool rf_control_is_up(const struct rf_peer *peer)
{
	return peer->control && peer->control->sending &&
	       peer->control->sending->state == RF_CONTROL_OPEN;
}

int rf_control_addrs(const struct rf_peer *peer, struct rf_addr *local, struct rf_addr *remote)
{
	const struct rf_control *control = peer->control;
	struct rf_stream *stream;

	if (!control || rf_list_empty(&control->streams))
		return RF_ERR_AGAIN;
	stream = control->sending
			 ? control->sending->stream
			 : RF_CONTAINER(control->streams.next, struct rf_control_stream, node)
				   ->stream;
	stream->ops->local_addr(stream, local);
	stream->ops->peer_addr(stream, remote);
	return RF_OK;
}

void rf_control_suspect(struct rf_peer *peer, const char *reason)
{
	struct rf_control *control;

	if (peer->state != RF_PEER_ALIVE || rf_control_make(peer) != RF_OK)
		return;
	control = peer->control;
	rf_log(&peer->context->logger, RF_LOG_DEBUG, "is process %016llx alive? %s",
	       (unsigned long long)peer->id.hi, reason);
	if (control->sending) {
		/* Whether it arrives shows; a dead process's end of file comes by itself. */
		rf_control_say_aside(control->sending, RF_SEGMENT_ACK, 0);
		rf_control_pump(control);
		return;
	}
	control->suspected = true;
	rf_control_look(control);
}
