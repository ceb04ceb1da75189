/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public ways to make a communicator: from the environment and options, by split, and from a
 * list of ranks. All end in the same join (join.c); a split first gathers colors and keys by an
 * allgather on the parent.
 */
#include "engine/call.h"
#include "engine/context_shared.h"
#include "engine/identity.h"
#include "engine/options.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a, a word at a time: keys under which joins meet. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
	for (int i = 0; i < 8; i++) {
		hash ^= (word >> (8 * i)) & 0xff;
		hash *= 0x100000001b3u;
	}
	return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = mix(hash, (uint8_t)*text);
	return hash;
}

enum { KEY_NAME = 1, KEY_SPLIT = 2, KEY_GROUP = 3 };
static const uint64_t KEY_SEED = 0xcbf29ce484222325u;

static int check_options(const rf_comm_options *options)
{
	if (!options)
		return RF_OK;
	if (!RF_OPTIONS_FIT(options) || !rf_timeout_fits(options->create_timeout_ms) ||
	    !rf_timeout_fits(options->deadline_ms))
		return RF_ERR_INVALID;
	return RF_OK;
}

static uint64_t create_deadline(rf_context *context, const rf_comm_options *options)
{
	int64_t ms = options && options->create_timeout_ms != RF_NO_TIMEOUT
			     ? options->create_timeout_ms
			     : context->config.timeout_ms;

	return rf_until(context, ms);
}

static int64_t call_deadline(rf_context *context, const rf_comm_options *options)
{
	return options && options->deadline_ms != RF_NO_TIMEOUT ? options->deadline_ms
								: context->config.timeout_ms;
}

/* A request for a communicator that does not exist yet. */
static int new_request(rf_context *context, rf_comm **result, rf_request **out)
{
	rf_request *request = calloc(1, sizeof(*request));
	int status;

	if (!request)
		return RF_ERR_NOMEM;
	request->context = context;
	request->kind = RF_REQUEST_CREATE;
	request->result = result;
	rf_list_init(&request->cq_node);
	status = rf_comm_new(context, &request->comm);
	if (status != RF_OK) {
		free(request);
		return status;
	}
	context->open_requests++;
	*out = request;
	return RF_OK;
}

/* Takes a request back that was not started. */
static int give_up(rf_request *request, int status)
{
	request->context->open_requests--;
	rf_comm_free(request->comm);
	free(request);
	return status;
}

/* ---- from the environment and options ------------------------------------------------------- */

static int find_identity(rf_context *context, const rf_comm_options *options,
			 struct rf_identity *identity)
{
	struct rf_identity_options wanted = {
		.rank = options ? options->rank : -1,
		.world_size = options ? options->world_size : -1,
		.master_addr = options ? options->master_addr : NULL,
		.master_port = options ? options->master_port : 0,
		.needs_master = !(options && options->store),
	};
	char message[RF_IDENTITY_TEXT];
	int status = rf_identity_find(&wanted, NULL, NULL, identity, message);

	if (status == RF_OK && identity->warning[0])
		rf_log(&context->logger, RF_LOG_WARN, "%s", identity->warning);
	if (status != RF_OK)
		rf_log(&context->logger, RF_LOG_ERROR, "%s", message);
	return status;
}

static int start_create(rf_context *context, const rf_comm_options *options, rf_comm **comm,
			rf_request **out)
{
	const char *name = options && options->name ? options->name : "";
	struct rf_identity identity;
	struct rf_join_setup setup = {0};
	rf_request *request;
	int status = find_identity(context, options, &identity);

	if (status != RF_OK)
		return status;
	status = new_request(context, comm, &request);
	if (status != RF_OK)
		return status;
	setup.rank = identity.rank;
	setup.size = identity.world_size;
	setup.store = options ? options->store : NULL;
	setup.master_addr = setup.store ? NULL : identity.master_addr;
	setup.master_port = identity.master_port;
	setup.key = mix_text(mix(KEY_SEED, KEY_NAME), name);
	setup.deadline = create_deadline(context, options);
	setup.call_deadline_ms = call_deadline(context, options);
	status = rf_join_start(request->comm, &setup, request);
	if (status != RF_OK)
		return give_up(request, status);
	*out = request;
	return RF_OK;
}

int rf_comm_icreate(rf_context *context, const rf_comm_options *options, rf_comm **comm,
		    rf_request **request)
{
	rf_context *shared = NULL;
	int status = check_options(options);

	if (status != RF_OK || !comm || !request)
		return RF_ERR_INVALID;
	if (!context) {
		status = rf_context_shared_pin(&shared);
		if (status != RF_OK)
			return status;
		context = shared;
	}
	status = rf_enter(context);
	if (status == RF_OK) {
		status = start_create(context, options, comm, request);
		rf_leave(context);
	}
	if (shared)
		rf_context_shared_unpin(shared);
	return status;
}

int rf_comm_create(rf_context *context, const rf_comm_options *options, rf_comm **comm)
{
	rf_request *request;
	int status = rf_comm_icreate(context, options, comm, &request);

	return status == RF_OK ? rf_wait(&request, RF_NO_TIMEOUT) : status;
}

int rf_comm_create_from_env(rf_comm **comm)
{
	return rf_comm_create(NULL, NULL, comm);
}

/* ---- by split ------------------------------------------------------------------------------- */

/* What each rank tells the others: in host order, like all that calls carry. */
struct split_entry {
	int32_t color;
	int32_t key;
	int32_t rank; /* in the parent */
	int32_t reserved;
};

struct split {
	rf_request *request;
	rf_comm *parent;
	struct split_entry mine;
	struct split_entry *all;
	uint64_t seq; /* of the allgather: tells splits apart */
	uint64_t deadline;
	int64_t call_deadline_ms;
};

static int by_color_key_rank(const void *left, const void *right)
{
	const struct split_entry *a = left, *b = right;

	if (a->color != b->color)
		return a->color < b->color ? -1 : 1;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return (a->rank > b->rank) - (a->rank < b->rank);
}

/* The leader of a new communicator is a rank of the parent. */
static void set_leader(struct rf_join_setup *setup, const rf_comm *parent, int rank)
{
	const struct rf_rank_entry *entry = &parent->ranks[rank];

	setup->leader_known = true;
	setup->leader_id = entry->id;
	setup->leader_addr_count = entry->addr_count;
	memcpy(setup->leader_addrs, entry->addrs, sizeof(setup->leader_addrs));
}

static int start_split_join(struct split *split)
{
	struct rf_join_setup setup = {.parent = split->parent->id,
				      .deadline = split->deadline,
				      .call_deadline_ms = split->call_deadline_ms};
	const rf_comm *parent = split->parent;
	int first = 0;

	qsort(split->all, (size_t)parent->size, sizeof(*split->all), by_color_key_rank);
	while (split->all[first].color != split->mine.color)
		first++;
	for (int i = first; i < parent->size && split->all[i].color == split->mine.color; i++) {
		if (split->all[i].rank == parent->rank)
			setup.rank = i - first;
		setup.size++;
	}
	setup.key = mix(mix(mix(KEY_SEED, KEY_SPLIT), parent->id), split->seq);
	setup.key = mix(setup.key, (uint64_t)split->mine.color);
	set_leader(&setup, parent, split->all[first].rank);
	return rf_join_start(split->request->comm, &setup, split->request);
}

static void split_gathered(rf_request *gather)
{
	struct split *split = gather->user;
	rf_request *request = split->request;
	int status = rf_request_finish(gather);

	request->parent = NULL;
	if (status == RF_OK && split->mine.color >= 0) {
		status = start_split_join(split);
		if (status != RF_OK)
			rf_request_end(request, status);
	} else {
		if (status == RF_OK) {
			rf_comm_free(request->comm);
			request->comm = NULL;
		}
		rf_request_end(request, status);
	}
	free(split->all);
	free(split);
}

static int gather_colors(rf_comm *parent, struct split *split, const rf_comm_options *options)
{
	rf_call_options call_options = RF_CALL_OPTIONS_INIT;
	struct rf_call_setup setup = {
		.options = &call_options, .then = split_gathered, .user = split};
	struct rf_call *call;

	if (options)
		call_options.deadline_ms = options->create_timeout_ms;
	setup.task = (struct rf_task){.collective = RF_ALLGATHER,
				      .dtype = RF_UINT8,
				      .op = RF_SUM,
				      .count = sizeof(split->mine) * (size_t)parent->size,
				      .send = &split->mine,
				      .recv = split->all};
	split->seq = parent->next_seq;
	return rf_call_start(parent, &setup, &call);
}

static int start_split(rf_comm *parent, int color, int key, const rf_comm_options *options,
		       rf_comm **comm, rf_request **out)
{
	struct split *split = calloc(1, sizeof(*split));
	rf_request *request;
	int status = RF_ERR_NOMEM;

	if (!split)
		return status;
	split->all = calloc((size_t)parent->size, sizeof(*split->all));
	if (!split->all)
		goto fail;
	split->parent = parent;
	split->mine = (struct split_entry){color < 0 ? -1 : color, key, parent->rank, 0};
	split->deadline = create_deadline(parent->context, options);
	split->call_deadline_ms = call_deadline(parent->context, options);
	status = new_request(parent->context, comm, &request);
	if (status != RF_OK)
		goto fail;
	request->parent = parent;
	split->request = request;
	/* May end at once, with a parent of one rank: then split is gone, but not the request. */
	status = gather_colors(parent, split, options);
	if (status != RF_OK) {
		give_up(request, status);
		goto fail;
	}
	*out = request;
	return RF_OK;

fail:
	free(split->all);
	free(split);
	return status;
}

int rf_comm_isplit(rf_comm *parent, int color, int key, const rf_comm_options *options,
		   rf_comm **comm, rf_request **request)
{
	int status;

	if (!parent || !comm || !request || check_options(options) != RF_OK)
		return RF_ERR_INVALID;
	status = rf_enter(parent->context);
	if (status != RF_OK)
		return status;
	status = start_split(parent, color, key, options, comm, request);
	rf_leave(parent->context);
	return status;
}

int rf_comm_split(rf_comm *parent, int color, int key, const rf_comm_options *options,
		  rf_comm **comm)
{
	rf_request *request;
	int status = rf_comm_isplit(parent, color, key, options, comm, &request);

	return status == RF_OK ? rf_wait(&request, RF_NO_TIMEOUT) : status;
}

/* ---- from a list of ranks ------------------------------------------------------------------- */

static int compare_ints(const void *left, const void *right)
{
	int a = *(const int *)left, b = *(const int *)right;

	return (a > b) - (a < b);
}

/* In range, none twice, and this rank among them. */
static bool is_group(const rf_comm *parent, const int *ranks, int count, int *my_rank)
{
	int *sorted = malloc((size_t)count * sizeof(int));
	bool good = sorted != NULL;

	*my_rank = -1;
	if (!sorted)
		return false;
	memcpy(sorted, ranks, (size_t)count * sizeof(int));
	qsort(sorted, (size_t)count, sizeof(int), compare_ints);
	for (int i = 0; i < count; i++) {
		if (ranks[i] == parent->rank)
			*my_rank = i;
		if (sorted[i] < 0 || sorted[i] >= parent->size || (i && sorted[i] == sorted[i - 1]))
			good = false;
	}
	free(sorted);
	return good && *my_rank >= 0;
}

static int start_group(rf_comm *parent, const int *ranks, int count, uint64_t tag,
		       const rf_comm_options *options, rf_comm **comm, rf_request **out)
{
	struct rf_join_setup setup = {.size = count, .parent = parent->id};
	rf_request *request;
	int status;

	if (parent->state != RF_COMM_READY)
		return parent->failure ? parent->failure->error : RF_ERR_INVALID;
	if (count > parent->size || !is_group(parent, ranks, count, &setup.rank)) {
		rf_log(&parent->context->logger, RF_LOG_ERROR,
		       "the list of ranks must hold this rank (%d) and ranks of the parent (0 to "
		       "%d), each "
		       "once",
		       parent->rank, parent->size - 1);
		return RF_ERR_INVALID;
	}
	status = new_request(parent->context, comm, &request);
	if (status != RF_OK)
		return status;
	setup.key = mix(mix(mix(KEY_SEED, KEY_GROUP), parent->id), tag);
	for (int i = 0; i < count; i++)
		setup.key = mix(setup.key, (uint64_t)ranks[i]);
	setup.deadline = create_deadline(parent->context, options);
	setup.call_deadline_ms = call_deadline(parent->context, options);
	set_leader(&setup, parent, ranks[0]);
	status = rf_join_start(request->comm, &setup, request);
	if (status != RF_OK)
		return give_up(request, status);
	*out = request;
	return RF_OK;
}

int rf_comm_icreate_group(rf_comm *parent, const int *ranks, int rank_count, uint64_t tag,
			  const rf_comm_options *options, rf_comm **comm, rf_request **request)
{
	int status;

	if (!parent || !ranks || rank_count < 1 || !comm || !request ||
	    check_options(options) != RF_OK)
		return RF_ERR_INVALID;
	status = rf_enter(parent->context);
	if (status != RF_OK)
		return status;
	status = start_group(parent, ranks, rank_count, tag, options, comm, request);
	rf_leave(parent->context);
	return status;
}

int rf_comm_create_group(rf_comm *parent, const int *ranks, int rank_count, uint64_t tag,
			 const rf_comm_options *options, rf_comm **comm)
{
	rf_request *request;
	int status = rf_comm_icreate_group(parent, ranks, rank_count, tag, options, comm, &request);

	return status == RF_OK ? rf_wait(&request, RF_NO_TIMEOUT) : status;
}
