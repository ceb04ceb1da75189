/* SPDX-License-Identifier: BSD-3-Clause */
/* Worlds of engines under the simulator: see world.h. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct rf_transport_ops *const sim_transports[] = {&rf_transport_sim, NULL};
static uint64_t current_seed;

static struct world *current_world;

static size_t length(const struct rf_list *list)
{
	size_t count = 0;

	for (const struct rf_list *node = list->next; node != list; node = node->next)
		count++;
	return count;
}

static void dump_call(const struct rf_call *call)
{
	const struct rf_stage *stage = &call->stages[0];
	char text[RF_FINGERPRINT_TEXT];

	fprintf(stderr,
		"    call %llu: %s by %s%s: waits for %d, %zu sends, %zu receives, %zu "
		"blocks%s%s\n",
		(unsigned long long)call->seq, rf_fingerprint_format(&call->fingerprint, text),
		stage->plan.algo->name, call->eager ? ", eager" : "", stage->awaited,
		length(&call->outgoing), length(&call->incoming), length(&call->blocks),
		stage->done ? ", done" : "", call->failed ? ", failed" : "");
}

static void dump_link(const struct rf_link *link)
{
	const struct rf_peer *peer = link->peer;

	fprintf(stderr,
		"    link to %d: granted %llu told %llu wanted %llu asked %llu, eager sent %u "
		"acked %u freed "
		"%u told %u staged %u%s\n",
		link->rank, (unsigned long long)link->granted, (unsigned long long)link->told,
		(unsigned long long)link->wanted, (unsigned long long)link->asked, peer->eager_sent,
		peer->eager_acked, peer->eager_freed, peer->eager_told, peer->eager_staged,
		peer->endpoint ? "" : ", no endpoint");
}

static void dump_comm(const rf_comm *comm)
{
	fprintf(stderr, "  communicator %llx, rank %d of %d, state %d, next call %llu\n",
		(unsigned long long)comm->id, comm->rank, comm->size, comm->state,
		(unsigned long long)comm->next_seq);
	for (const struct rf_list *node = comm->call_list.next; node != &comm->call_list;
	     node = node->next)
		dump_call(RF_CONTAINER(node, struct rf_call, node));
	for (int rank = 0; rank < comm->size && comm->ranks; rank++) {
		if (comm->ranks[rank].link)
			dump_link(comm->ranks[rank].link);
	}
}

/* What every rank is about, for small worlds. */
static void dump_world(void)
{
	if (!current_world || current_world->size > 8)
		return;
	for (int rank = 0; rank < current_world->size; rank++) {
		const rf_context *context = current_world->contexts[rank];

		fprintf(stderr, "rank %d:\n", rank);
		for (const struct rf_list *node = context ? context->comm_list.next : NULL;
		     node && node != &context->comm_list; node = node->next)
			dump_comm(RF_CONTAINER(node, rf_comm, context_node));
	}
}

void world_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "FAILED: seed %llu: ", (unsigned long long)current_seed);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	dump_world();
	exit(1);
}

uint64_t world_seed(void)
{
	const char *text = getenv("RINGFOLD_TEST_SEED");
	struct timespec now;

	if (text && *text)
		return strtoull(text, NULL, 0);
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec;
}

static void keep_log(void *user, rf_log_level level, const char *line)
{
	struct world *world = user;

	snprintf(world->last_log, sizeof(world->last_log), "%s", line);
	if ((int)level <= world->log_level)
		fprintf(stderr, "    %s\n", line);
}

static void configure(rf_context *context, const struct world_setup *setup)
{
	struct rf_config *config = &context->config;

	if (setup->algorithm)
		snprintf(config->algorithm, sizeof(config->algorithm), "%s", setup->algorithm);
	if (setup->chunk_bytes)
		config->chunk_bytes = setup->chunk_bytes;
	if (setup->eager_bytes)
		config->eager_bytes = setup->eager_bytes;
	if (setup->eager_budget_bytes)
		config->eager_budget_bytes = setup->eager_budget_bytes;
	if (setup->deadline_ms)
		config->timeout_ms = setup->deadline_ms;
}

static void create_context(struct world *world, const struct world_setup *setup, int rank)
{
	rf_context_options options = RF_CONTEXT_OPTIONS_INIT;
	struct rf_context_setup how = {.transport_ops = sim_transports,
				       .simulated = true,
				       .no_payload = setup->no_payload,
				       .random_seed = setup->seed * 4096 + (uint64_t)rank + 1};
	unsigned host = (unsigned)(rank / setup->ranks_per_host);

	options.log = keep_log;
	options.log_user = world;
	options.log_level =
		world->log_level > RF_LOG_WARN ? (rf_log_level)world->log_level : RF_LOG_WARN;
	WORLD_CHECK(rf_sim_net_create(world->sim, host, &how.net) == RF_OK, "no net");
	WORLD_CHECK(rf_context_create_with(&options, &how, &world->contexts[rank]) == RF_OK,
		    "rank %d: no context: %s", rank, world->last_log);
	configure(world->contexts[rank], setup);
}

void world_create_contexts(struct world *world, const struct world_setup *setup)
{
	const char *level = getenv("RINGFOLD_TEST_LOG");

	current_seed = setup->seed;
	memset(world, 0, sizeof(*world));
	current_world = world;
	world->size = setup->size;
	world->log_level = level ? atoi(level) : 0;
	world->contexts = calloc((size_t)setup->size, sizeof(*world->contexts));
	world->comms = calloc((size_t)setup->size, sizeof(*world->comms));
	world->dead = calloc((size_t)setup->size, sizeof(*world->dead));
	WORLD_CHECK(world->contexts && world->comms && world->dead, "out of memory");
	WORLD_CHECK(rf_sim_create(setup->seed, setup->params, &world->sim) == RF_OK, "no world");
	for (int rank = 0; rank < setup->size; rank++)
		create_context(world, setup, rank);
}

void world_join_all(struct world *world)
{
	rf_request **requests = calloc((size_t)world->size, sizeof(*requests));

	WORLD_CHECK(requests, "out of memory");
	for (int rank = 0; rank < world->size; rank++) {
		rf_comm_options options = RF_COMM_OPTIONS_INIT;
		int status;

		options.rank = rank;
		options.world_size = world->size;
		options.master_addr = "sim-0";
		options.master_port = 7880;
		status = rf_comm_icreate(world->contexts[rank], &options, &world->comms[rank],
					 &requests[rank]);
		WORLD_CHECK(status == RF_OK, "rank %d cannot begin to join: %s", rank,
			    rf_strerror(status));
	}
	WORLD_CHECK(world_run(world, requests, (size_t)world->size, UINT64_MAX),
		    "the ranks do not find each other: %s", world->last_log);
	for (int rank = 0; rank < world->size; rank++) {
		int status = world_take(&requests[rank]);

		WORLD_CHECK(status == RF_OK, "rank %d did not join: %s: %s", rank,
			    rf_strerror(status), world->last_log);
	}
	free(requests);
}

void world_create(struct world *world, const struct world_setup *setup)
{
	world_create_contexts(world, setup);
	world_join_all(world);
}

bool world_step(struct world *world)
{
	unsigned process;

	switch (rf_sim_next(world->sim, &process)) {
	case RF_SIM_RUN:
		if (rf_context_drive(world->contexts[process]))
			rf_sim_again(world->sim, process);
		rf_sim_set_timer(world->sim, process,
				 rf_context_next_timer(world->contexts[process]));
		return true;
	case RF_SIM_ALARM:
		return true;
	case RF_SIM_LIVELOCK:
		world_fail("turns in circles at %llu ns",
			   (unsigned long long)rf_sim_now(world->sim));
	case RF_SIM_IDLE:
		break;
	}
	return false;
}

void world_pass(struct world *world, uint64_t virtual_ns)
{
	uint64_t until = rf_sim_now(world->sim) + virtual_ns;

	rf_sim_set_alarm(world->sim, until);
	while (rf_sim_now(world->sim) < until && world_step(world))
		;
	rf_sim_set_alarm(world->sim, UINT64_MAX);
}

static rf_request *first_open(struct world *world, rf_request **requests, size_t count, size_t *at)
{
	for (; *at < count; (*at)++) {
		rf_request *request = requests[*at];
		bool gone = false;

		if (!request || request->ended)
			continue;
		for (int rank = 0; rank < world->size; rank++)
			gone |= world->dead[rank] && request->context == world->contexts[rank];
		if (!gone)
			return request;
	}
	return NULL;
}

bool world_run(struct world *world, rf_request **requests, size_t count, uint64_t virtual_ns)
{
	uint64_t begin = rf_sim_now(world->sim);
	size_t at = 0;

	/* Whoever was given a call has something to do. */
	for (int rank = 0; rank < world->size; rank++) {
		if (!world->dead[rank])
			rf_sim_again(world->sim, (unsigned)rank);
	}
	while (first_open(world, requests, count, &at)) {
		if (rf_sim_now(world->sim) - begin > virtual_ns || !world_step(world))
			return false;
	}
	return true;
}

int world_take(rf_request **request)
{
	int status = (*request)->status;

	WORLD_CHECK((*request)->ended, "a request is taken that has not ended");
	WORLD_CHECK(rf_wait(request, 0) == status,
		    "the wait tells another status than the request");
	return status;
}

/* A killed process runs no code any more, so nothing of it is ended or freed: it stays reachable
 * here. */
static void **graves;
static size_t grave_count;

void world_bury(void *object)
{
	graves = realloc(graves, (grave_count + 1) * sizeof(*graves));
	WORLD_CHECK(graves, "out of memory");
	graves[grave_count++] = object;
}

void world_leave(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++) {
		int status = RF_OK;

		if (world->comms[rank] && !world->dead[rank])
			status = rf_comm_destroy(&world->comms[rank]);
		WORLD_CHECK(status == RF_OK, "rank %d cannot leave: %s", rank, rf_strerror(status));
	}
}

void world_destroy(struct world *world)
{
	const char *violation;

	world_leave(world);
	for (int i = 0; i < 20000 && world_step(world); i++)
		;
	violation = rf_sim_violation(world->sim);
	WORLD_CHECK(!violation, "%s", violation);
	for (int rank = 0; rank < world->size; rank++) {
		int status = RF_OK;

		if (world->dead[rank])
			world_bury(world->contexts[rank]);
		else
			status = rf_context_destroy(&world->contexts[rank]);
		WORLD_CHECK(status == RF_OK, "rank %d: the context does not end: %s", rank,
			    rf_strerror(status));
	}
	violation = rf_sim_violation(world->sim);
	WORLD_CHECK(!violation, "%s", violation);
	rf_sim_destroy(world->sim);
	current_world = NULL;
	free(world->contexts);
	free(world->comms);
	free(world->dead);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int world_run_seeds(int argc, char **argv, void (*one)(uint64_t seed))
{
	const char *limit_text = getenv("RINGFOLD_TEST_SECONDS");
	double limit = limit_text ? atof(limit_text) : 20;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : world_seed();
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : UINT64_MAX;
	double begin = seconds();
	uint64_t done = 0;

	printf("first seed %llu (one seed again: %s 1 SEED)\n", (unsigned long long)first, argv[0]);
	while (done < count && (argc > 1 || seconds() - begin < limit)) {
		if (getenv("RINGFOLD_TEST_VERBOSE"))
			fprintf(stderr, "seed %llu\n", (unsigned long long)(first + done));
		one(first + done);
		done++;
	}
	printf("%llu seeds in %.1f s: all right\n", (unsigned long long)done, seconds() - begin);
	return 0;
}
