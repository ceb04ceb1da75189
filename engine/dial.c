/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dials: from addresses to a stream that has passed hello. The addresses are tried in turn; the
 * next one starts when the one before fails or has not answered within a moment, and the first
 * that passes hello wins. Rounds are repeated, ever less often, until the deadline.
 */
#include "engine/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NEXT_ADDRESS_MS = 250,
	ATTEMPT_MS = 3000, /* then it is made anew: its packets may have gone nowhere */
	BACKOFF_FIRST_MS = 5,
	BACKOFF_MOST_MS = 200,
};

enum attempt_state {
	ATTEMPT_CONNECTING,
	ATTEMPT_HELLO,   /* connected: hello is being sent */
	ATTEMPT_WELCOME, /* waits for the answer */
};

struct attempt {
	struct rf_watch watch;
	struct rf_list node;
	struct rf_dial *dial;
	struct rf_stream *stream;
	struct rf_addr addr;
	uint64_t started;
	enum attempt_state state;
	struct rf_handshake handshake;
};

struct rf_dial {
	struct rf_list node; /* in server->dials */
	rf_context *context;
	struct rf_peer *peer; /* NULL: whoever listens there. With a reference: CONTROL only */
	struct rf_hello hello;
	struct rf_addr addrs[RF_DIAL_ADDRS];
	unsigned addr_count;
	uint64_t deadline;
	uint64_t patience_ns;   /* how long refusals mean "not yet" */
	uint64_t first_refusal; /* 0: none */
	unsigned next_addr;     /* addr_count: this round is over */
	uint64_t next_start;
	uint64_t backoff_ns;
	struct rf_list attempts;
	struct rf_timer timer;
	char reason[256]; /* of the last failure */

	/* How it ends: by purpose. */
	void (*finish)(struct rf_dial *dial, int status, struct attempt *winner,
		       const struct rf_hello *welcome);
	union {
		rf_dial_done *data;
		rf_dial_rendezvous_done *rendezvous;
		rf_dial_control_done *control;
	} done;
	void *user;
};

static void note_reason(struct rf_dial *dial, const struct rf_addr *addr, const char *what)
{
	char text[RF_ADDR_TEXT];

	snprintf(dial->reason, sizeof(dial->reason), "%s: %.180s", rf_addr_format(addr, text),
		 what);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void attempt_free(struct attempt *attempt)
{
	rf_list_remove(&attempt->node);
	if (attempt->stream)
		attempt->stream->ops->close(attempt->stream);
	free(attempt);
}

static void close_attempts(struct rf_dial *dial)
{
	RF_LIST_EACH(node, &dial->attempts)
	attempt_free(RF_CONTAINER(node, struct attempt, node));
}

static void dial_free(struct rf_dial *dial)
{
	struct rf_peer *peer = dial->hello.purpose == RF_PURPOSE_CONTROL ? dial->peer : NULL;

	close_attempts(dial);
	rf_timer_clear(&dial->context->timers, &dial->timer);
	rf_list_remove(&dial->node);
	free(dial);
	if (peer)
		rf_peer_put(peer);
}

void rf_dial_cancel(struct rf_dial *dial)
{
	dial_free(dial);
}

/* The winner, if any, has left the list of attempts. */
static void dial_finish(struct rf_dial *dial, int status, struct attempt *winner,
			const struct rf_hello *welcome)
{
	close_attempts(dial);
	rf_timer_clear(&dial->context->timers, &dial->timer);
	rf_list_remove(&dial->node);
	dial->finish(dial, status, winner, welcome);
	if (winner)
		attempt_free(winner);
	dial_free(dial);
}

static struct rf_stream *take_stream(struct attempt *winner)
{
	struct rf_stream *stream = winner ? winner->stream : NULL;

	if (stream) {
		stream->ops->watch(stream, RF_NET_CONTROL, &winner->watch, 0);
		winner->stream = NULL;
	}
	return stream;
}

static void finish_data(struct rf_dial *dial, int status, struct attempt *winner,
			const struct rf_hello *welcome)
{
	(void)welcome;
	dial->done.data(dial->user, dial->hello.lane, status, take_stream(winner), dial->reason);
}

static void finish_control(struct rf_dial *dial, int status, struct attempt *winner,
			   const struct rf_hello *welcome)
{
	dial->done.control(dial->user, status, take_stream(winner), welcome, dial->reason);
}

static void finish_rendezvous(struct rf_dial *dial, int status, struct attempt *winner,
			      const struct rf_hello *welcome)
{
	struct rf_peer *peer = NULL;

	if (status == RF_OK)
		status = rf_peer_get(dial->context, welcome->from, &winner->addr, 1, &peer);
	if (status == RF_OK) {
		status = rf_control_make(peer);
		if (status == RF_OK)
			status = rf_control_meet(peer, welcome);
		if (status == RF_OK)
			status = rf_control_adopt(peer, take_stream(winner), RF_ADOPT_SAY_HELLO);
		if (status != RF_OK) {
			note_reason(dial, &winner->addr, "its welcome could not be taken");
			rf_peer_put(peer);
			peer = NULL;
		}
	}
	dial->done.rendezvous(dial->user, status, peer, dial->reason);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* One address has failed for now. Goes on with the next at once; after the last, rests. */
static void attempt_failed(struct attempt *attempt, const char *what, bool refused)
{
	struct rf_dial *dial = attempt->dial;
	uint64_t now = rf_now(dial->context);

	note_reason(dial, &attempt->addr, what);
	if (refused && !dial->first_refusal)
		dial->first_refusal = now;
	attempt_free(attempt);
	if (dial->next_addr < dial->addr_count) {
		dial->next_start = now;
	} else if (rf_list_empty(&dial->attempts)) {
		dial->next_addr = 0;
		dial->next_start = now + dial->backoff_ns;
		dial->backoff_ns *= 2;
		if (dial->backoff_ns > BACKOFF_MOST_MS * RF_MS)
			dial->backoff_ns = BACKOFF_MOST_MS * RF_MS;
	}
}

static const char *errno_text(char text[128])
{
	return errno ? strerror_r(errno, text, 128) : "the connection was closed";
}

/* Whether the dial has ended by it. */
static bool on_refusal(struct attempt *attempt)
{
	struct rf_dial *dial = attempt->dial;
	enum rf_refusal refusal;
	char text[RF_REFUSAL_TEXT];

	if (rf_handshake_refusal(&attempt->handshake, &refusal, text) != RF_OK) {
		attempt_failed(attempt, "sent a refusal that makes no sense", true);
		return false;
	}
	if (refusal == RF_REFUSAL_DEAD || refusal == RF_REFUSAL_VERSION ||
	    refusal == RF_REFUSAL_UNSUPPORTED) {
		note_reason(dial, &attempt->addr, text);
		dial_finish(dial,
			    refusal == RF_REFUSAL_DEAD      ? RF_ERR_RANK_DEAD
			    : refusal == RF_REFUSAL_VERSION ? RF_ERR_VERSION
							    : RF_ERR_UNSUPPORTED,
			    NULL, NULL);
		return true;
	}
	attempt_failed(attempt, text, true);
	return false;
}

static bool on_other_version(struct attempt *attempt)
{
	struct rf_dial *dial = attempt->dial;
	char what[128];

	snprintf(what, sizeof(what), "speaks wire version %u, this process speaks %u",
		 attempt->handshake.far_version, RF_WIRE_VERSION);
	note_reason(dial, &attempt->addr, what);
	rf_log(&dial->context->logger, RF_LOG_WARN,
	       "%s: the same version of ringfold is needed everywhere", dial->reason);
	dial_finish(dial, RF_ERR_VERSION, NULL, NULL);
	return true;
}

static bool on_welcome(struct attempt *attempt)
{
	struct rf_dial *dial = attempt->dial;
	struct rf_hello welcome;

	if (rf_handshake_hello(&attempt->handshake, &welcome) != RF_OK ||
	    !rf_process_id_equal(welcome.to, dial->hello.from) ||
	    rf_process_id_equal(welcome.from, dial->hello.from)) {
		attempt_failed(attempt, "sent a welcome that makes no sense", true);
		return false;
	}
	if (dial->peer && !rf_process_id_equal(welcome.from, dial->peer->id)) {
		attempt_failed(attempt, "another process listens there", true);
		return false;
	}
	if (welcome.features & RF_FEATURE_PROOF) {
		note_reason(dial, &attempt->addr, "demands a secret, and this process has none");
		dial_finish(dial, RF_ERR_UNSUPPORTED, NULL, NULL);
		return true;
	}
	rf_list_remove(&attempt->node);
	dial_finish(dial, RF_OK, attempt, &welcome);
	return true;
}

/* ---- an attempt's way ----------------------------------------------------------------------- */

static void watch_attempt(struct attempt *attempt, unsigned events)
{
	if (attempt->stream->ops->watch(attempt->stream, RF_NET_CONTROL, &attempt->watch, events) !=
	    RF_OK)
		attempt_failed(attempt, "out of memory", false);
}

static void prepare_hello(struct attempt *attempt)
{
	struct rf_dial *dial = attempt->dial;
	struct rf_hello hello = dial->hello;

	if (dial->peer && hello.purpose == RF_PURPOSE_CONTROL)
		rf_control_describe(dial->peer, &hello);
	rf_handshake_say(&attempt->handshake, RF_SEGMENT_HELLO, &hello);
	attempt->state = ATTEMPT_HELLO;
}

/* RF_OK: the answer has come. */
static int attempt_advance(struct attempt *attempt)
{
	int rc = RF_OK;

	if (attempt->state == ATTEMPT_CONNECTING) {
		rc = attempt->stream->ops->connected(attempt->stream);
		if (rc == RF_OK)
			prepare_hello(attempt);
	}
	if (rc == RF_OK && attempt->state == ATTEMPT_HELLO) {
		rc = rf_handshake_send(&attempt->handshake, attempt->stream);
		if (rc == RF_OK)
			attempt->state = ATTEMPT_WELCOME;
	}
	if (rc == RF_OK)
		rc = rf_handshake_receive(&attempt->handshake, attempt->stream);
	return rc;
}

/* Whether the dial has ended by it. */
static bool attempt_answered(struct attempt *attempt)
{
	if (attempt->handshake.segment.type == RF_SEGMENT_WELCOME)
		return on_welcome(attempt);
	if (attempt->handshake.segment.type == RF_SEGMENT_REFUSE)
		return on_refusal(attempt);
	attempt_failed(attempt, "is no ringfold process, or a broken one", true);
	return false;
}

static void dial_plan(struct rf_dial *dial);

static void attempt_ready(struct rf_watch *watch, unsigned events)
{
	struct attempt *attempt = RF_CONTAINER(watch, struct attempt, watch);
	struct rf_dial *dial = attempt->dial;
	char text[128];
	bool over = false;
	int rc = attempt_advance(attempt);

	(void)events;
	if (rc == RF_OK)
		over = attempt_answered(attempt);
	else if (rc == RF_ERR_AGAIN)
		watch_attempt(attempt, attempt->state == ATTEMPT_WELCOME ? RF_NET_IN : RF_NET_OUT);
	else if (rc == RF_ERR_VERSION)
		over = on_other_version(attempt);
	else if (rc == RF_ERR_PROTOCOL)
		attempt_failed(attempt, "is no ringfold process", true);
	else
		attempt_failed(attempt, errno_text(text), true);
	if (!over)
		dial_plan(dial);
}

static void attempt_start(struct rf_dial *dial, const struct rf_addr *addr)
{
	struct rf_net *net = dial->context->net;
	struct rf_stream_tuning tuning = {.dead_after_ms = RF_CONTROL_DEAD_AFTER_MS};
	struct attempt *attempt = calloc(1, sizeof(*attempt));
	char text[128];
	int rc;

	if (!attempt) {
		note_reason(dial, addr, "out of memory");
		dial->next_start = rf_now(dial->context) + dial->backoff_ns;
		return;
	}
	attempt->dial = dial;
	attempt->addr = *addr;
	attempt->watch.ready = attempt_ready;
	attempt->started = rf_now(dial->context);
	rf_list_append(&dial->attempts, &attempt->node);
	if (dial->hello.purpose == RF_PURPOSE_DATA) {
		tuning.send_buffer_bytes = (int)dial->context->config.socket_buffer_bytes;
		tuning.receive_buffer_bytes = (int)dial->context->config.socket_buffer_bytes;
	}
	dial->next_start = attempt->started + NEXT_ADDRESS_MS * RF_MS;
	errno = 0;
	rc = net->ops->connect(net, addr, &tuning, &attempt->stream);
	if (rc == RF_OK)
		watch_attempt(attempt, RF_NET_OUT);
	else
		attempt_failed(attempt, errno ? errno_text(text) : "no way to this address",
			       rc == RF_ERR_NETWORK);
}

/* ---- the dial's clock ----------------------------------------------------------------------- */

static void fail_old_attempts(struct rf_dial *dial, uint64_t now)
{
	RF_LIST_EACH(node, &dial->attempts)
	{
		struct attempt *attempt = RF_CONTAINER(node, struct attempt, node);

		if (now >= attempt->started + ATTEMPT_MS * RF_MS)
			attempt_failed(attempt, "no answer", false);
	}
}

/* Refusals have lasted for too long, or time is over. */
static bool dial_is_over(const struct rf_dial *dial, uint64_t now)
{
	if (now >= dial->deadline)
		return true;
	return dial->first_refusal && rf_list_empty(&dial->attempts) &&
	       now - dial->first_refusal >= dial->patience_ns;
}

static uint64_t dial_next_time(const struct rf_dial *dial)
{
	uint64_t at = dial->deadline;

	if (dial->next_addr < dial->addr_count && dial->next_start < at)
		at = dial->next_start;
	RF_LIST_EACH(node, &dial->attempts)
	{
		uint64_t old = RF_CONTAINER(node, struct attempt, node)->started;

		if (old + ATTEMPT_MS * RF_MS < at)
			at = old + ATTEMPT_MS * RF_MS;
	}
	if (dial->first_refusal && rf_list_empty(&dial->attempts) &&
	    dial->patience_ns != UINT64_MAX && dial->first_refusal + dial->patience_ns < at)
		at = dial->first_refusal + dial->patience_ns;
	return at;
}

/* Starts what is due, and sets the timer for what is not. */
static void dial_plan(struct rf_dial *dial)
{
	uint64_t now = rf_now(dial->context);

	fail_old_attempts(dial, now);
	for (unsigned starts = 0; starts < RF_DIAL_ADDRS && !dial_is_over(dial, now) &&
				  dial->next_addr < dial->addr_count && now >= dial->next_start;
	     starts++)
		attempt_start(dial, &dial->addrs[dial->next_addr++]);
	if (dial_is_over(dial, now)) {
		if (!dial->reason[0])
			note_reason(dial, &dial->addrs[0], "no answer");
		dial_finish(dial, RF_ERR_TIMEOUT, NULL, NULL);
		return;
	}
	if (rf_timer_set(&dial->context->timers, &dial->timer, dial_next_time(dial)) != RF_OK) {
		note_reason(dial, &dial->addrs[0], "out of memory");
		dial_finish(dial, RF_ERR_NOMEM, NULL, NULL);
	}
}

static void dial_fire(struct rf_timer *timer)
{
	dial_plan(RF_CONTAINER(timer, struct rf_dial, timer));
}

/* ---- starting ------------------------------------------------------------------------------- */

static struct rf_dial *dial_make(rf_context *context, struct rf_peer *peer,
				 const struct rf_addr *addrs, unsigned addr_count,
				 uint64_t deadline)
{
	struct rf_dial *dial;

	if (!context->server)
		return NULL;
	dial = calloc(1, sizeof(*dial));
	if (!dial)
		return NULL;
	dial->context = context;
	dial->hello.from = context->id;
	dial->addr_count = addr_count < RF_DIAL_ADDRS ? addr_count : RF_DIAL_ADDRS;
	memcpy(dial->addrs, addrs, dial->addr_count * sizeof(*addrs));
	dial->deadline = deadline;
	dial->patience_ns = UINT64_MAX;
	dial->backoff_ns = BACKOFF_FIRST_MS * RF_MS;
	dial->timer.fire = dial_fire;
	rf_list_init(&dial->attempts);
	rf_list_append(&context->server->dials, &dial->node);
	if (peer) {
		dial->peer = peer;
		dial->hello.to = peer->id;
	}
	return dial;
}

/* From progress, never from within the call: done() may not come before the handle is known. */
static int dial_start(struct rf_dial *dial, struct rf_dial **result)
{
	if (rf_timer_set(&dial->context->timers, &dial->timer, rf_now(dial->context)) != RF_OK) {
		dial_free(dial);
		return RF_ERR_NOMEM;
	}
	rf_context_wake(dial->context);
	*result = dial;
	return RF_OK;
}

int rf_dial_data(struct rf_peer *peer, unsigned transport_index, unsigned lane, uint64_t deadline,
		 rf_dial_done *done, void *user, struct rf_dial **result)
{
	struct rf_dial *dial;

	if (!peer->addr_count || transport_index > UINT8_MAX || lane > UINT16_MAX)
		return peer->addr_count ? RF_ERR_INVALID : RF_ERR_NETWORK;
	dial = dial_make(peer->context, peer, peer->addrs, peer->addr_count, deadline);
	if (!dial)
		return RF_ERR_NOMEM;
	dial->hello.purpose = RF_PURPOSE_DATA;
	dial->hello.transport = (uint8_t)transport_index;
	dial->hello.lane = (uint16_t)lane;
	dial->finish = finish_data;
	dial->done.data = done;
	dial->user = user;
	return dial_start(dial, result);
}

int rf_dial_control(struct rf_peer *peer, uint64_t deadline, uint64_t patience_ns,
		    rf_dial_control_done *done, void *user, struct rf_dial **result)
{
	struct rf_dial *dial =
		dial_make(peer->context, peer, peer->addrs, peer->addr_count, deadline);

	if (!dial)
		return RF_ERR_NOMEM;
	peer->references++;
	dial->patience_ns = patience_ns;
	dial->hello.purpose = RF_PURPOSE_CONTROL;
	dial->finish = finish_control;
	dial->done.control = done;
	dial->user = user;
	return dial_start(dial, result);
}

int rf_dial_rendezvous(rf_context *context, const struct rf_addr *addrs, unsigned addr_count,
		       uint64_t deadline, rf_dial_rendezvous_done *done, void *user,
		       struct rf_dial **result)
{
	struct rf_dial *dial;

	if (!addr_count)
		return RF_ERR_INVALID;
	dial = dial_make(context, NULL, addrs, addr_count, deadline);
	if (!dial)
		return RF_ERR_NOMEM;
	dial->hello.purpose = RF_PURPOSE_CONTROL;
	dial->finish = finish_rendezvous;
	dial->done.rendezvous = done;
	dial->user = user;
	return dial_start(dial, result);
}

void rf_dial_cancel_all(struct rf_server *server)
{
	RF_LIST_EACH(node, &server->dials)
	rf_dial_cancel(RF_CONTAINER(node, struct rf_dial, node));
}

void rf_dial_abandon_all(struct rf_server *server)
{
	RF_LIST_EACH(node, &server->dials)
	{
		struct rf_dial *dial = RF_CONTAINER(node, struct rf_dial, node);

		RF_LIST_EACH(at, &dial->attempts)
		{
			struct attempt *attempt = RF_CONTAINER(at, struct attempt, node);

			if (attempt->stream)
				attempt->stream->ops->abandon(attempt->stream);
		}
	}
}
