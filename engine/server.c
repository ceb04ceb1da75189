/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listener, and those who have connected and not yet passed hello: strangers. They are bounded
 * in number, in bytes (one hello) and in time, and whatever they do costs nobody else more than a
 * moment.
 */
#include "engine/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ACCEPTS_MAX = 64, /* in one go */
	DRAIN_READS_MAX = 16,
	LOG_INTERVAL_MS = 1000,
};

enum stranger_state {
	STRANGER_READING,
	STRANGER_WELCOMING, /* the welcome is being sent */
	STRANGER_REFUSING,  /* the refusal is being sent */
	STRANGER_DRAINING,  /* waits for the far end to close, so that the refusal is not lost */
};

struct stranger {
	struct rf_watch watch;
	struct rf_list node;
	struct rf_server *server;
	struct rf_stream *stream;
	struct rf_timer timer;
	enum stranger_state state;
	unsigned drain_reads;
	struct rf_hello hello;
	struct rf_peer *peer; /* with a reference: from a good hello on */
	struct rf_handshake handshake;
};

void rf_server_log_stranger(struct rf_server *server, rf_log_level level, const char *reason,
			    struct rf_stream *stream)
{
	uint64_t now = rf_now(server->context);
	struct rf_addr addr;
	char text[RF_ADDR_TEXT];
	char others[64] = "";

	if (server->last_garbage_ns && now - server->last_garbage_ns < LOG_INTERVAL_MS * RF_MS) {
		server->unlogged++;
		return;
	}
	if (server->unlogged)
		snprintf(others, sizeof(others), " (and %" PRIu64 " more like it)",
			 server->unlogged);
	server->unlogged = 0;
	server->last_garbage_ns = now;
	stream->ops->peer_addr(stream, &addr);
	rf_log(&server->context->logger, level, "turned away a connection from %s: %s%s",
	       rf_addr_format(&addr, text), reason, others);
}

/* ---- strangers ------------------------------------------------------------------------------ */

static void stranger_free(struct stranger *stranger)
{
	struct rf_server *server = stranger->server;
	struct rf_peer *peer = stranger->peer;

	rf_list_remove(&stranger->node);
	server->stranger_count--;
	rf_timer_clear(&server->context->timers, &stranger->timer);
	if (stranger->stream)
		stranger->stream->ops->close(stranger->stream);
	free(stranger);
	if (peer)
		rf_peer_put(peer);
}

static void stranger_late(struct rf_timer *timer)
{
	struct stranger *stranger = RF_CONTAINER(timer, struct stranger, timer);

	if (stranger->state == STRANGER_READING)
		rf_server_log_stranger(stranger->server, RF_LOG_INFO, "it said nothing in time",
				       stranger->stream);
	stranger_free(stranger);
}

static void refuse(struct stranger *stranger, enum rf_refusal refusal, const char *text)
{
	rf_handshake_refuse(&stranger->handshake, refusal, text);
	stranger->state = STRANGER_REFUSING;
}

static void refuse_version(struct stranger *stranger)
{
	char text[128];

	snprintf(text, sizeof(text), "it speaks wire version %u, this process speaks %u",
		 stranger->handshake.far_version, RF_WIRE_VERSION);
	rf_server_log_stranger(stranger->server, RF_LOG_WARN, text, stranger->stream);
	snprintf(text, sizeof(text), "speaks wire version %u, and you speak %u", RF_WIRE_VERSION,
		 stranger->handshake.far_version);
	refuse(stranger, RF_REFUSAL_VERSION, text);
}

/* What is wrong with a hello that was understood. */
static enum rf_refusal judge(const struct stranger *stranger, const char **text)
{
	const rf_context *context = stranger->server->context;
	const struct rf_hello *hello = &stranger->hello;

	if ((!rf_process_id_zero(hello->to) && !rf_process_id_equal(hello->to, context->id)) ||
	    rf_process_id_equal(hello->from, context->id)) {
		*text = "another process listens here";
		return RF_REFUSAL_OTHER_PROCESS;
	}
	if (stranger->server->leaving) {
		*text = "this process is ending";
		return RF_REFUSAL_LEAVING;
	}
	if (hello->features & RF_FEATURE_PROOF) {
		*text = "has no secret, and you demand one";
		return RF_REFUSAL_UNSUPPORTED;
	}
	if (hello->purpose == RF_PURPOSE_DATA && hello->transport >= context->transport_count) {
		*text = "has no such transport";
		return RF_REFUSAL_UNSUPPORTED;
	}
	if (hello->purpose == RF_PURPOSE_CONTROL && !hello->session &&
	    !rf_process_id_zero(hello->to)) {
		*text = "got a hello without a session";
		return RF_REFUSAL_MALFORMED;
	}
	return RF_REFUSAL_NONE;
}

static enum rf_refusal meet(struct stranger *stranger, struct rf_hello *welcome, const char **text)
{
	const struct rf_hello *hello = &stranger->hello;
	int rc = rf_peer_get(stranger->server->context, hello->from, NULL, 0, &stranger->peer);

	if (rc == RF_OK && stranger->peer->state == RF_PEER_DEAD) {
		*text = "takes this process for dead";
		return RF_REFUSAL_DEAD;
	}
	if (rc == RF_OK && hello->purpose == RF_PURPOSE_CONTROL) {
		rc = rf_control_make(stranger->peer);
		if (rc == RF_OK && hello->session)
			rc = rf_control_meet(stranger->peer, hello);
		if (rc == RF_OK)
			rf_control_describe(stranger->peer, welcome);
	}
	if (rc == RF_OK)
		return RF_REFUSAL_NONE;
	*text = rc == RF_ERR_NOMEM ? "is out of memory" : "got a hello that makes no sense";
	return rc == RF_ERR_NOMEM ? RF_REFUSAL_NO_MEMORY : RF_REFUSAL_MALFORMED;
}

/* A hello has come: prepares the answer. */
static void answer(struct stranger *stranger)
{
	struct rf_hello *hello = &stranger->hello;
	struct rf_hello welcome = {.from = stranger->server->context->id};
	enum rf_refusal refusal = RF_REFUSAL_MALFORMED;
	const char *text = "got a hello that makes no sense";

	if (stranger->handshake.segment.type == RF_SEGMENT_HELLO &&
	    rf_handshake_hello(&stranger->handshake, hello) == RF_OK)
		refusal = judge(stranger, &text);
	if (refusal == RF_REFUSAL_NONE) {
		welcome.to = hello->from;
		welcome.purpose = hello->purpose;
		welcome.transport = hello->transport;
		welcome.lane = hello->lane;
		refusal = meet(stranger, &welcome, &text);
	}
	if (refusal != RF_REFUSAL_NONE) {
		rf_server_log_stranger(stranger->server, RF_LOG_INFO, text, stranger->stream);
		refuse(stranger, refusal, text);
		return;
	}
	rf_handshake_say(&stranger->handshake, RF_SEGMENT_WELCOME, &welcome);
	stranger->state = STRANGER_WELCOMING;
}

/* No stranger any more. */
static void hand_over(struct stranger *stranger)
{
	struct rf_peer *peer = stranger->peer;
	struct rf_stream *stream = stranger->stream;
	struct rf_hello hello = stranger->hello;

	stream->ops->watch(stream, RF_NET_CONTROL, &stranger->watch, 0);
	stranger->stream = NULL;
	stranger->peer = NULL;
	stranger_free(stranger);
	/* An error ends the stream, and the far end learns of it by that. */
	if (hello.purpose == RF_PURPOSE_DATA) {
		if (rf_data_accept(peer, hello.transport, hello.lane, stream) == RF_OK)
			rf_control_guest_begins(peer);
	} else {
		(void)rf_control_adopt(peer, stream,
				       hello.session ? RF_ADOPT_MET : RF_ADOPT_AWAIT_HELLO);
	}
	rf_peer_put(peer);
}

/* RF_OK: over; RF_ERR_AGAIN. */
static int drain(struct stranger *stranger)
{
	uint8_t bin[1024];

	while (stranger->drain_reads++ < DRAIN_READS_MAX) {
		struct iovec iov = {bin, sizeof(bin)};
		size_t received = 0;
		int rc = stranger->stream->ops->receive(stranger->stream, &iov, 1, &received);

		if (rc == RF_ERR_AGAIN)
			return rc;
		if (rc != RF_OK || received == 0)
			return RF_OK;
	}
	return RF_OK;
}

/* RF_OK: the stranger is to go; RF_ERR_AGAIN: to wait. *passed: it is none any more. */
static int stranger_advance(struct stranger *stranger, bool *passed)
{
	struct rf_handshake *h = &stranger->handshake;
	int rc = RF_OK;

	if (stranger->state == STRANGER_READING) {
		rc = rf_handshake_receive(h, stranger->stream);
		if (rc == RF_OK)
			answer(stranger);
		else if (rc == RF_ERR_VERSION)
			refuse_version(stranger);
		else
			return rc;
	}
	if (stranger->state == STRANGER_WELCOMING || stranger->state == STRANGER_REFUSING) {
		rc = rf_handshake_send(h, stranger->stream);
		if (rc != RF_OK)
			return rc;
		*passed = stranger->state == STRANGER_WELCOMING;
		if (*passed)
			return RF_OK;
		stranger->stream->ops->shutdown(stranger->stream);
		stranger->state = STRANGER_DRAINING;
	}
	return drain(stranger);
}

static void stranger_ready(struct rf_watch *watch, unsigned events)
{
	struct stranger *stranger = RF_CONTAINER(watch, struct stranger, watch);
	bool passed = false;
	int rc = stranger_advance(stranger, &passed);

	(void)events;
	if (passed) {
		hand_over(stranger);
		return;
	}
	if (rc == RF_ERR_AGAIN) {
		bool sends = stranger->state == STRANGER_WELCOMING ||
			     stranger->state == STRANGER_REFUSING;

		rc = stranger->stream->ops->watch(stranger->stream, RF_NET_CONTROL, watch,
						  sends ? RF_NET_OUT : RF_NET_IN);
		if (rc == RF_OK)
			return;
	}
	if (rc == RF_ERR_PROTOCOL)
		rf_server_log_stranger(stranger->server, RF_LOG_INFO,
				       "what it said is not this library's protocol",
				       stranger->stream);
	stranger_free(stranger);
}

static void stranger_new(struct rf_server *server, struct rf_stream *stream)
{
	struct stranger *stranger = calloc(1, sizeof(*stranger));
	rf_context *context = server->context;

	if (!stranger) {
		stream->ops->close(stream);
		return;
	}
	stranger->server = server;
	stranger->stream = stream;
	stranger->watch.ready = stranger_ready;
	stranger->timer.fire = stranger_late;
	rf_list_append(&server->strangers, &stranger->node);
	server->stranger_count++;
	if (rf_timer_set(&context->timers, &stranger->timer,
			 rf_now(context) + RF_STRANGER_MS * RF_MS) != RF_OK ||
	    stream->ops->watch(stream, RF_NET_CONTROL, &stranger->watch, RF_NET_IN) != RF_OK)
		stranger_free(stranger);
}

/* ---- the listener --------------------------------------------------------------------------- */

static void make_room(struct rf_server *server)
{
	struct stranger *oldest;

	if (server->stranger_count < RF_STRANGERS_MAX)
		return;
	oldest = RF_CONTAINER(server->strangers.next, struct stranger, node);
	rf_server_log_stranger(server, RF_LOG_INFO, "too many wait for their turn", oldest->stream);
	stranger_free(oldest);
}

static void log_no_descriptors(struct rf_server *server)
{
	uint64_t now = rf_now(server->context);
	char text[128];

	if (server->last_garbage_ns && now - server->last_garbage_ns < LOG_INTERVAL_MS * RF_MS)
		return;
	server->last_garbage_ns = now;
	rf_log(&server->context->logger, RF_LOG_WARN,
	       "cannot accept connections: %s; raise the limit of open files (ulimit -n)",
	       strerror_r(errno, text, sizeof(text)));
}

void rf_server_accept(struct rf_server *server, struct rf_listener *listener)
{
	struct rf_stream_tuning tuning = {.dead_after_ms = RF_CONTROL_DEAD_AFTER_MS};
	rf_context *context = server->context;

	for (int i = 0; i < ACCEPTS_MAX; i++) {
		struct rf_stream *stream;
		int rc = context->net->ops->accept(listener, &tuning, &stream);

		if (rc == RF_ERR_AGAIN)
			return;
		if (rc != RF_OK) {
			log_no_descriptors(server);
			return;
		}
		make_room(server);
		stranger_new(server, stream);
	}
}

static void listener_ready(struct rf_watch *watch, unsigned events)
{
	struct rf_server *server = RF_CONTAINER(watch, struct rf_server, watch);

	(void)events;
	rf_server_accept(server, server->context->listener);
}

static int start_listening(rf_context *context)
{
	const char *ports = context->config.port;
	uint16_t first, last;
	char text[128];
	int rc;

	if (!rf_config_ports(ports, &first, &last))
		return RF_ERR_CONFIG;
	errno = 0;
	rc = context->net->ops->listen(context->net, first, last, &context->listener,
				       &context->port);
	if (rc == RF_OK)
		return rc;
	rf_log(&context->logger, RF_LOG_ERROR, "cannot listen on %s%s: %s%s",
	       first ? "port " : "any port", ports,
	       errno ? strerror_r(errno, text, sizeof(text)) : rf_strerror(rc),
	       first == last ? "" : " (of the last one; none of the range is free)");
	return rc;
}

int rf_server_start(rf_context *context)
{
	struct rf_server *server = calloc(1, sizeof(*server));
	int rc;

	if (!server)
		return RF_ERR_NOMEM;
	server->context = context;
	server->watch.ready = listener_ready;
	rf_list_init(&server->strangers);
	rf_list_init(&server->dials);
	rf_list_init(&server->further_listeners);
	rc = start_listening(context);
	if (rc == RF_OK)
		rc = context->net->ops->watch_listener(context->listener, &server->watch);
	if (rc != RF_OK) {
		if (context->listener)
			context->net->ops->close_listener(context->listener);
		context->listener = NULL;
		free(server);
		return rc;
	}
	context->server = server;
	return RF_OK;
}

void rf_server_stop(rf_context *context)
{
	struct rf_server *server = context->server;

	if (!server)
		return;
	server->leaving = true;
	context->net->ops->close_listener(context->listener);
	context->listener = NULL;
	rf_server_close_further(server, false);
	RF_LIST_EACH(node, &server->strangers)
	stranger_free(RF_CONTAINER(node, struct stranger, node));
	rf_control_release_all(context, false);
	rf_dial_cancel_all(server);
	context->server = NULL;
	free(server);
}

void rf_server_abandon(rf_context *context)
{
	struct rf_server *server = context->server;

	if (!server)
		return;
	context->net->ops->abandon_listener(context->listener);
	rf_server_close_further(server, true);
	RF_LIST_EACH(node, &server->strangers)
	{
		struct stranger *stranger = RF_CONTAINER(node, struct stranger, node);

		stranger->stream->ops->abandon(stranger->stream);
	}
	rf_dial_abandon_all(server);
	rf_control_release_all(context, true);
}
