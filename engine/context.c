/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts: made over a network and its transports, ended orderly, and cut off in a forked child.
 * The registry of contexts is the library's only mutable global.
 */
#include "engine/arena/attach.h"
#include "engine/arena/doorbell.h"
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/cpu.h"
#include "engine/cq.h"
#include "engine/interface.h"
#include "engine/kernels/kernels.h"
#include "engine/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ORDERLY_END_MS = 2000 };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rf_list registry = {&registry, &registry};
static _Atomic(rf_context *) shared_context;
static unsigned shared_pins;
static pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

/* ---- fork ----------------------------------------------------------------------------------- */

/* All locks are taken, so that the child finds every object in a whole state. */
static void before_fork(void)
{
	pthread_mutex_lock(&registry_lock);
	RF_LIST_EACH(node, &registry)
	{
		rf_context *context = RF_CONTAINER(node, rf_context, registry);

		atomic_fetch_add_explicit(&context->entering, 1, memory_order_relaxed);
		pthread_mutex_lock(&context->lock);
		atomic_fetch_sub_explicit(&context->entering, 1, memory_order_relaxed);
	}
}

static void after_fork_in_parent(void)
{
	RF_LIST_EACH(node, &registry)
	{
		pthread_mutex_unlock(&RF_CONTAINER(node, rf_context, registry)->lock);
	}
	pthread_mutex_unlock(&registry_lock);
}

/*
 * Descriptors are closed, else a dead parent would look alive through its child. Nothing is freed
 * and no lock is touched: the memory stays as the parent left it.
 */
static void after_fork_in_child(void)
{
	RF_LIST_EACH(node, &registry)
	{
		rf_context *context = RF_CONTAINER(node, rf_context, registry);

		atomic_store_explicit(&context->forked, true, memory_order_release);
		rf_server_abandon(context);
		for (unsigned i = 0; i < context->transport_count; i++)
			context->transports[i]->ops->abandon(context->transports[i]);
		rf_cq_abandon_all(context);
		RF_LIST_EACH(at, &context->comm_list)
		{
			rf_attach_abandon(RF_CONTAINER(at, rf_comm, context_node));
		}
		rf_doorbell_abandon(context);
		context->net->ops->abandon(context->net);
	}
	/* The child makes contexts of its own. */
	rf_list_init(&registry);
	shared_context = NULL;
	shared_pins = 0;
	pthread_mutex_init(&registry_lock, NULL);
}

static void install_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- making --------------------------------------------------------------------------------- */

static void log_unknown(void *user, const char *variable)
{
	const rf_context *context = user;

	rf_log(&context->logger, RF_LOG_WARN,
	       "%s is set, but nothing reads it (ringfold info --config)", variable);
}

static void log_from_transport(void *user, rf_log_level level, const char *line)
{
	const rf_context *context = user;

	rf_log(&context->logger, level, "%s", line);
}

static rf_log_level level_of(const char *word)
{
	switch (word[0]) {
	case 'e':
		return RF_LOG_ERROR;
	case 'i':
		return RF_LOG_INFO;
	case 'd':
		return RF_LOG_DEBUG;
	default:
		return RF_LOG_WARN;
	}
}

static int check_options(const rf_context *context, const rf_context_options *options)
{
	const struct rf_logger *logger = &context->logger;

	if ((unsigned)options->progress > RF_PROGRESS_THREAD) {
		rf_log(logger, RF_LOG_ERROR, "options.progress is %d: there are 0 (default) to %d",
		       (int)options->progress, RF_PROGRESS_THREAD);
		return RF_ERR_INVALID;
	}
	if ((unsigned)options->log_level > RF_LOG_DEBUG) {
		rf_log(logger, RF_LOG_ERROR,
		       "options.log_level is %d: there are 0 (default), %d (errors) to %d (debug)",
		       (int)options->log_level, RF_LOG_ERROR, RF_LOG_DEBUG);
		return RF_ERR_INVALID;
	}
	return RF_OK;
}

/* Environment first, then the options, which win. */
static int configure(rf_context *context, const rf_context_options *options)
{
	char message[256] = "";
	int status;

	context->logger.level = RF_LOG_WARN;
	if (options) {
		context->logger.write = options->log;
		context->logger.user = options->log_user;
		status = check_options(context, options);
		if (status != RF_OK)
			return status;
	}
	status = rf_config_load(&context->config, message);
	if (status == RF_OK && options && options->transport)
		status = rf_config_set_as(&context->config, "RINGFOLD_TRANSPORT",
					  "options.transport", options->transport, message);
	if (status == RF_OK && options && options->port)
		status = rf_config_set_as(&context->config, "RINGFOLD_PORT", "options.port",
					  options->port, message);
	if (status == RF_OK && options && options->progress)
		status = rf_config_set(
			&context->config, "RINGFOLD_PROGRESS",
			options->progress == RF_PROGRESS_THREAD ? "thread" : "caller", message);
	if (status != RF_OK) {
		rf_log(&context->logger, RF_LOG_ERROR, "%s", message);
		return status;
	}
	if (context->config.isa[0])
		(void)rf_kernels_force(context->config.isa); /* the configuration has checked it */
	context->logger.level =
		options && options->log_level ? options->log_level : level_of(context->config.log);
	rf_config_unknown(log_unknown, context);
	return RF_OK;
}

/* That RINGFOLD_INTERFACE leaves an address to tell the other ranks. */
static int check_interfaces(rf_context *context)
{
	struct rf_interface all[RF_INTERFACES_MOST];
	struct rf_interface_choice choices[RF_INTERFACES_MOST];
	char message[RF_INTERFACE_MESSAGE];
	int count, status;

	if (!context->config.interface[0] || context->simulated)
		return RF_OK;
	status = context->net->ops->interfaces(context->net, all, RF_INTERFACES_MOST, &count);
	if (status != RF_OK)
		return status;
	status = rf_interfaces_choose(context->config.interface, all, count, choices, message);
	if (status != RF_OK)
		rf_log(&context->logger, RF_LOG_ERROR, "%s", message);
	return status;
}

static int make_identity(rf_context *context, uint64_t seed)
{
	if (seed) {
		context->random = seed;
		context->id.hi = rf_context_random(context) | 1;
		context->id.lo = rf_context_random(context);
		return RF_OK;
	}
	if (getrandom(&context->id, sizeof(context->id), 0) != sizeof(context->id) ||
	    getrandom(&context->random, sizeof(context->random), 0) != sizeof(context->random))
		return RF_ERR_SYSTEM;
	context->id.hi |= 1; /* an id of zero means "anybody" in a hello */
	return RF_OK;
}

uint64_t rf_context_random(rf_context *context)
{
	/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
	uint64_t z = context->random += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Plans are made for what all transports carry. */
static void limit_segments(rf_context *context, const struct rf_transport *transport)
{
	size_t *most = &context->config.segment_max_bytes;

	if (!*most || *most > transport->caps.segment_max_bytes)
		*most = transport->caps.segment_max_bytes;
}

static int make_transports(rf_context *context, const struct rf_transport_ops *const *ops)
{
	struct rf_transport_env env = {
		.net = context->net,
		.lanes = (unsigned)context->config.channels,
		.receive_buffer_bytes = context->config.receive_buffer_bytes,
		.no_payload = context->no_payload,
		.log = log_from_transport,
		.log_user = context,
	};

	for (; *ops; ops++) {
		int status;

		if (context->transport_count == RF_TRANSPORTS_MAX)
			return RF_ERR_UNSUPPORTED;
		status = (*ops)->create(&env, &context->transports[context->transport_count]);
		if (status != RF_OK)
			return status;
		limit_segments(context, context->transports[context->transport_count]);
		context->transport_count++;
	}
	return RF_OK;
}

static void init_conditions(rf_context *context)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&context->seat_free, &monotonic);
	pthread_cond_init(&context->thread_wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static rf_context *new_context(const struct rf_context_setup *setup)
{
	rf_context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->net = setup->net;
	context->simulated = setup->simulated;
	context->no_payload = setup->no_payload;
	context->thread_sleeps_until = UINT64_MAX;
	context->caller_sleeps_until = UINT64_MAX;
	rf_list_init(&context->comm_list);
	rf_list_init(&context->cqs);
	rf_list_init(&context->regions);
	rf_list_init(&context->ready_calls);
	rf_list_init(&context->word_calls);
	rf_list_init(&context->free_incoming);
	rf_list_init(&context->free_outgoing);
	rf_list_init(&context->free_blocks);
	rf_list_init(&context->joins);
	rf_list_init(&context->registry);
	pthread_mutex_init(&context->lock, NULL);
	init_conditions(context);
	return context;
}

static void free_context(rf_context *context);

int rf_context_create_with(const rf_context_options *options, const struct rf_context_setup *setup,
			   rf_context **out)
{
	rf_context *context = new_context(setup);
	int status;

	if (!context) {
		setup->net->ops->destroy(setup->net);
		return RF_ERR_NOMEM;
	}
	status = configure(context, options);
	if (status == RF_OK)
		status = check_interfaces(context);
	if (status == RF_OK)
		status = make_identity(context, setup->random_seed);
	if (status == RF_OK) {
		context->cores = context->simulated ? 1 : rf_cpu_cores();
		status = make_transports(context, setup->transport_ops);
	}
	if (status == RF_OK)
		status = rf_server_start(context);
	if (status == RF_OK && !context->simulated)
		status = rf_drive_start_thread(context);
	if (status != RF_OK) {
		free_context(context);
		return status;
	}
	pthread_once(&fork_handlers, install_fork_handlers);
	pthread_mutex_lock(&registry_lock);
	rf_list_append(&registry, &context->registry);
	pthread_mutex_unlock(&registry_lock);
	*out = context;
	return RF_OK;
}

int rf_context_create(const rf_context_options *options, rf_context **context)
{
	static const struct rf_transport_ops *const transports[] = {&rf_transport_tcp, NULL};
	struct rf_context_setup setup = {.transport_ops = transports};
	int status;

	if (!context || (options && !RF_OPTIONS_FIT(options)))
		return RF_ERR_INVALID;
	status = rf_net_posix_create(&setup.net);
	if (status != RF_OK) {
		struct rf_logger logger = {.level = RF_LOG_ERROR,
					   .write = options ? options->log : NULL,
					   .user = options ? options->log_user : NULL};

		rf_log(&logger, RF_LOG_ERROR,
		       "a context cannot be made: %m (for open files see ulimit -n)");
		return status;
	}
	return rf_context_create_with(options, &setup, context);
}

/* ---- ending --------------------------------------------------------------------------------- */

static void free_record_lists(rf_context *context)
{
	RF_LIST_EACH(node, &context->free_incoming)
	{
		free(RF_CONTAINER(node, struct rf_incoming, node));
	}
	RF_LIST_EACH(node, &context->free_outgoing)
	{
		free(RF_CONTAINER(node, struct rf_outgoing, node));
	}
	RF_LIST_EACH(node, &context->free_blocks)
	{
		free(RF_CONTAINER(node, struct rf_block, call_node));
	}
}

static void free_context(rf_context *context)
{
	rf_drive_stop_thread(context);
	rf_join_forget_all(context);
	rf_server_stop(context);
	rf_doorbell_close(context);
	for (unsigned i = 0; i < context->transport_count; i++)
		context->transports[i]->ops->destroy(context->transports[i]);
	context->net->ops->destroy(context->net);
	free_record_lists(context);
	rf_map_free(&context->peers);
	rf_map_free(&context->comms);
	rf_timers_free(&context->timers);
	pthread_cond_destroy(&context->seat_free);
	pthread_cond_destroy(&context->thread_wake);
	pthread_mutex_destroy(&context->lock);
	free(context);
}

static bool is_unused(const rf_context *context)
{
	return rf_list_empty(&context->comm_list) && rf_list_empty(&context->cqs) &&
	       rf_list_empty(&context->regions) && !context->open_requests;
}

/* Says goodbye, and gives what was said the time to arrive: a reset could overtake it. */
static void end_orderly(rf_context *context)
{
	uint64_t until = rf_now(context) + (uint64_t)ORDERLY_END_MS * 1000000;
	bool never = false;

	rf_control_shutdown(context);
	while (!context->simulated && !rf_control_all_closed(context) && rf_now(context) < until)
		rf_drive_until(context, &never, rf_now(context) + 1000000);
}

static void unregister(rf_context *context)
{
	pthread_mutex_lock(&registry_lock);
	rf_list_remove(&context->registry);
	pthread_mutex_unlock(&registry_lock);
}

int rf_context_destroy(rf_context **out)
{
	rf_context *context;
	int status;

	if (!out || !*out)
		return RF_ERR_INVALID;
	context = *out;
	status = rf_enter(context);
	if (status != RF_OK)
		return status;
	if (!is_unused(context)) {
		rf_leave(context);
		return RF_ERR_BUSY;
	}
	end_orderly(context);
	rf_leave(context);
	unregister(context);
	free_context(context);
	*out = NULL;
	return RF_OK;
}

/* ---- the shared context --------------------------------------------------------------------- */

int rf_context_shared_pin(rf_context **out)
{
	rf_context *made = NULL;
	int status = RF_OK;

	pthread_mutex_lock(&registry_lock);
	if (shared_context) {
		shared_pins++;
		*out = shared_context;
		pthread_mutex_unlock(&registry_lock);
		return RF_OK;
	}
	pthread_mutex_unlock(&registry_lock);
	status = rf_context_create(NULL, &made);
	if (status != RF_OK)
		return status;
	pthread_mutex_lock(&registry_lock);
	if (!shared_context) {
		shared_context = made;
		made = NULL;
	}
	shared_pins++;
	*out = shared_context;
	pthread_mutex_unlock(&registry_lock);
	if (made) /* another thread was quicker */
		rf_context_destroy(&made);
	return RF_OK;
}

void rf_context_shared_unpin(rf_context *context)
{
	pthread_mutex_lock(&registry_lock);
	shared_pins--;
	pthread_mutex_unlock(&registry_lock);
	rf_context_shared_release(context);
}

/* The pointer is compared before it is followed: another thread may have released it already. */
void rf_context_shared_release(rf_context *context)
{
	bool release;

	if (atomic_load_explicit(&shared_context, memory_order_relaxed) != context)
		return;
	pthread_mutex_lock(&registry_lock);
	release = shared_context == context && !shared_pins && rf_enter(context) == RF_OK;
	if (release) {
		release = is_unused(context);
		rf_leave(context);
	}
	if (release)
		shared_context = NULL;
	pthread_mutex_unlock(&registry_lock);
	if (release)
		rf_context_destroy(&context);
}
