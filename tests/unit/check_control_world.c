/* SPDX-License-Identifier: BSD-3-Clause */
/* The rest of the engine, and contexts without it. */
#include "tests/unit/check_control_world.h"

#include <signal.h>

enum { WATCHDOG_S = 60 };

const char *current = "";
struct rf_sim *sim;
struct world worlds[CONTEXTS];
static unsigned processes; /* made in the present simulation */

/* ---- the rest of the engine ----------------------------------------------------------------- */

static struct world *world_of(rf_context *context)
{
	return RF_CONTAINER(context, struct world, context);
}

void rf_context_wake(rf_context *context)
{
	context->net->ops->wake(context->net);
}

void rf_data_init(struct rf_peer *peer)
{
	rf_list_init(&peer->blocked_calls);
}

void rf_data_close(struct rf_peer *peer)
{
	(void)peer;
}

int rf_data_accept(struct rf_peer *peer, unsigned transport_index, unsigned lane,
		   struct rf_stream *stream)
{
	CHECK(transport_index == 0 && lane == 3);
	world_of(peer->context)->lanes++;
	stream->ops->close(stream);
	return RF_OK;
}

void rf_data_on_eager_freed(struct rf_peer *peer, uint32_t eager_freed)
{
	world_of(peer->context)->eager_seen = eager_freed;
}

int rf_call_on_credit(struct rf_peer *peer, const struct rf_segment *segment)
{
	struct world *world = world_of(peer->context);

	CHECK(segment->type == RF_SEGMENT_CREDIT || segment->type == RF_SEGMENT_WANT);
	if (world->refuse_segments)
		return RF_ERR_PROTOCOL;
	CHECK(segment->seq == world->next_seq);
	world->next_seq++;
	world->received++;
	return RF_OK;
}

int rf_failure_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
			  const uint8_t *payload)
{
	(void)payload;
	CHECK(segment->type >= RF_SEGMENT_DEATH && segment->type <= RF_SEGMENT_ANSWER);
	world_of(peer->context)->received++;
	return RF_OK;
}

uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

int rf_join_on_segment(struct rf_peer *peer, const struct rf_segment *segment,
		       const uint8_t *payload)
{
	struct world *world = world_of(peer->context);

	world->big_bytes = segment->bytes;
	world->big_right = true;
	for (size_t i = 0; i < segment->bytes; i++)
		world->big_right &= payload[i] == pattern(i);
	world->received++;
	return RF_OK;
}

void rf_peer_died(struct rf_peer *peer, const char *reason)
{
	struct world *world = world_of(peer->context);

	world->deaths++;
	world->last_state = peer->state;
	snprintf(world->death_reason, sizeof(world->death_reason), "%s", reason);
}

void rf_join_peer_up(struct rf_peer *peer)
{
	world_of(peer->context)->ups++;
}

/* ---- contexts ------------------------------------------------------------------------------- */

void on_log(void *user, rf_log_level level, const char *line)
{
	struct world *world = user;

	(void)level;
	world->log_lines++;
	world->log_bytes += (size_t)snprintf(world->log + world->log_bytes,
					     sizeof(world->log) - world->log_bytes, "%s\n", line);
	if (world->log_bytes > sizeof(world->log) - 1024)
		world->log_bytes = 0;
}

struct world *world_start(int i, const char *port)
{
	struct world *world = &worlds[i];
	rf_context *context = &world->context;

	memset(world, 0, sizeof(*world));
	context->id = (struct rf_process_id){0x1000u + (unsigned)i, 0x2000u + (unsigned)i};
	context->config.redial_ms = 300;
	snprintf(context->config.port, sizeof(context->config.port), "%s", port);
	context->logger = (struct rf_logger){RF_LOG_INFO, on_log, world};
	context->transport_count = 1;
	rf_list_init(&context->comm_list);
	if (sim) {
		CHECK(rf_sim_net_create(sim, (unsigned)i, &context->net) == RF_OK);
		world->process = processes++;
	} else {
		CHECK(rf_net_posix_create(&context->net) == RF_OK);
	}
	CHECK(rf_server_start(context) == RF_OK);
	return world;
}

void world_stop(struct world *world)
{
	rf_context *context = &world->context;

	rf_server_stop(context);
	context->net->ops->destroy(context->net);
	rf_map_free(&context->peers);
	rf_timers_free(&context->timers);
	context->net = NULL;
}

static void turn_one(rf_context *context, uint64_t timeout_ns)
{
	struct rf_net_event events[64];
	int count = 0;

	CHECK(context->net->ops->poll(context->net, false, timeout_ns, events, 64, &count) ==
	      RF_OK);
	rf_net_dispatch(context->net, events, count);
	rf_timers_run(&context->timers, rf_now(context));
}

/* Nothing happens for this long, of virtual time: what is awaited will never come. */
enum { IDLE_STEP_MS = 1, IDLE_STEPS_MAX = 60000 };

static void turn_sim(void)
{
	static unsigned idle;
	unsigned process = 0;
	enum rf_sim_state state = rf_sim_next(sim, &process);

	CHECK(state != RF_SIM_LIVELOCK);
	if (state == RF_SIM_IDLE) {
		CHECK(idle++ < IDLE_STEPS_MAX);
		rf_sim_set_alarm(sim, rf_sim_now(sim) + IDLE_STEP_MS * RF_MS);
	}
	if (state != RF_SIM_RUN)
		return;
	idle = 0;
	for (int i = 0; i < CONTEXTS; i++) {
		rf_context *context = &worlds[i].context;

		if (!context->net || worlds[i].process != process)
			continue;
		turn_one(context, 0);
		rf_sim_set_timer(sim, process, rf_timers_next(&context->timers));
	}
}

void turn(void)
{
	if (sim) {
		turn_sim();
		return;
	}
	for (int i = 0; i < CONTEXTS; i++)
		if (worlds[i].context.net)
			turn_one(&worlds[i].context, 100000);
}

uint64_t now_ms(void)
{
	return (sim ? rf_sim_now(sim) : rf_now(&worlds[0].context)) / RF_MS;
}

void turn_for(uint64_t ms)
{
	uint64_t end = now_ms() + ms;

	if (sim)
		rf_sim_set_alarm(sim, end * RF_MS);
	UNTIL(now_ms() >= end);
}

struct rf_addr addr_of(const struct world *world)
{
	if (sim)
		return rf_sim_addr((unsigned)(world - worlds), world->context.port);
	return (struct rf_addr){.family = 4, .port = world->context.port, .ip = {127, 0, 0, 1}};
}

struct rf_peer *peer_of(struct world *at, struct world *of, bool dialable)
{
	struct rf_addr addr = addr_of(of);
	struct rf_peer *peer;

	CHECK(rf_peer_get(&at->context, of->context.id, &addr, dialable ? 1 : 0, &peer) == RF_OK);
	return peer;
}

void send_seq(struct rf_peer *peer, uint64_t seq)
{
	struct rf_segment segment = {.type = RF_SEGMENT_CREDIT, .seq = seq};

	CHECK(rf_control_send(peer, &segment, NULL, 0) == RF_OK);
}

int streams_of(struct rf_peer *peer)
{
	int count = 0;

	if (!peer->control)
		return 0;
	for (struct rf_list *node = peer->control->streams.next; node != &peer->control->streams;
	     node = node->next)
		count++;
	return count;
}

void cut(struct rf_peer *peer)
{
	unsigned here = world_of(peer->context)->process;
	unsigned there = worlds[peer->id.hi - 0x1000].process;

	/* A stream resets at both ends, or all end at this one. */
	if (sim && rf_sim_random(sim, 2)) {
		(void)rf_sim_cut(sim, here, there);
		return;
	}
	RF_LIST_EACH(node, &peer->control->streams)
	RF_CONTAINER(node, struct rf_control_stream, node)->broken = true;
	rf_control_look(peer->control);
}

void on_rendezvous(void *user, int status, struct rf_peer *peer, const char *reason)
{
	struct outcome *outcome = user;

	CHECK(!outcome->done);
	outcome->done = true;
	outcome->status = status;
	outcome->peer = peer;
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
}

void on_data(void *user, unsigned lane, int status, struct rf_stream *stream, const char *reason)
{
	struct outcome *outcome = user;

	CHECK(!outcome->done && lane == 3);
	outcome->done = true;
	outcome->status = status;
	outcome->stream = stream;
	snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
}

/* ---- running -------------------------------------------------------------------------------- */

static void too_late(int number)
{
	(void)number;
	(void)!write(2, "watchdog: ", 10);
	(void)!write(2, current, strlen(current));
	(void)!write(2, "\n", 1);
	_exit(1);
}

void start_simulation(uint64_t seed)
{
	struct rf_sim_params params;

	rf_sim_params_hostile(&params, seed);
	CHECK(rf_sim_create(seed, &params, &sim) == RF_OK);
	processes = 0;
}

void run_tests(const struct named_test *tests, size_t count, int name_count, char **names)
{
	signal(SIGALRM, too_late);
	for (size_t i = 0; i < count; i++) {
		bool wanted = name_count == 0;

		for (int n = 0; n < name_count; n++)
			wanted |= strcmp(names[n], tests[i].name) == 0;
		if (!wanted)
			continue;
		current = tests[i].name;
		alarm(WATCHDOG_S);
		tests[i].run();
		if (!sim)
			printf("ok %s\n", current);
		fflush(stdout);
	}
	alarm(0);
}
