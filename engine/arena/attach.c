/* SPDX-License-Identifier: BSD-3-Clause */
/* The chain by which a communicator gets its arena: attach.h. */
#include "engine/arena/attach.h"
#include "engine/arena/arena.h"
#include "engine/arena/doorbell.h"
#include "engine/arena/fetch.h"
#include "engine/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	NONCE_BYTES = 16,
	VISITS_MS = 2000, /* for all ranks to come and fetch: far more than it takes */
};

/* What a rank tells the others: in host order, since they are of one host or fail at mapping. */
struct offer {
	uint8_t can;
	uint8_t must; /* RINGFOLD_TRANSPORT=shm */
	uint8_t unused[6];
	uint8_t nonce[NONCE_BYTES];
	uint8_t doorbell[RF_DOORBELL_NAME_BYTES];
	struct rf_fetch_place place; /* rank 0's */
	uint64_t region_bytes;       /* likewise */
};

struct rf_attach {
	rf_comm *comm;
	struct rf_request *request; /* NULL once it has ended */
	uint64_t until;
	struct offer mine;
	struct offer *all;
	uint8_t agreed, mine_agreed;
	bool agreeing;  /* the last step has begun */
	bool cancelled; /* by its user */

	void *region;
	size_t region_bytes;
	int memory_fd; /* rank 0's, until all have fetched it */
	struct rf_fetch_server *server;
	struct rf_fetch *fetch;
	int good_visits, bad_visits;
	struct rf_timer visits;
	struct rf_arena arena;
	uint8_t *doorbells; /* RF_DOORBELL_NAME_BYTES a rank */
	char why[RF_REGION_TEXT];
};

static bool insists(const rf_comm *comm)
{
	return !strcmp(comm->context->config.transport, "shm");
}

bool rf_attach_wanted(const rf_comm *comm)
{
	return comm->size > 1 && !comm->context->simulated &&
	       (comm->local_ranks == comm->size || insists(comm));
}

bool rf_attach_is_running(const rf_comm *comm)
{
	return comm->attach && comm->attach->request;
}

void rf_attach_cancel(rf_comm *comm)
{
	comm->attach->cancelled = true;
	rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_ABORTED, &comm->rank, 1,
		     "its making was cancelled by its user");
}

void rf_attach_abandon(rf_comm *comm)
{
	struct rf_attach *attach = comm->attach;

	if (!attach)
		return;
	rf_fetch_server_abandon(attach->server);
	rf_fetch_abandon(attach->fetch);
	if (attach->memory_fd >= 0)
		close(attach->memory_fd);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void stop_serving(struct rf_attach *attach)
{
	rf_timer_clear(&attach->comm->context->timers, &attach->visits);
	rf_fetch_server_close(attach->server);
	rf_fetch_close(attach->fetch);
	attach->server = NULL;
	attach->fetch = NULL;
	if (attach->memory_fd >= 0)
		close(attach->memory_fd);
	attach->memory_fd = -1;
}

void rf_attach_free(rf_comm *comm)
{
	struct rf_attach *attach = comm->attach;

	if (!attach)
		return;
	stop_serving(attach);
	if (comm->arena && attach->arena.armed)
		rf_arena_disarm(&attach->arena);
	comm->arena = NULL;
	comm->attach = NULL;
	rf_region_unmap(attach->region, attach->region_bytes);
	free(attach->arena.sources);
	free(attach->doorbells);
	free(attach->all);
	free(attach);
}

/* Quicker ranks have their communicator already, and have made calls on it that do not match, or
 * have aborted it: then this rank gets it too, and the report with its first call. */
static bool has_failed_in_use(const struct rf_attach *attach, int status)
{
	return attach->comm->failure && !attach->cancelled &&
	       (status == RF_ERR_MISMATCH || status == RF_ERR_ABORTED ||
		status == RF_ERR_RANK_LEFT);
}

static void end(struct rf_attach *attach, int status)
{
	struct rf_request *request = attach->request;
	rf_comm *comm = attach->comm;

	attach->request = NULL;
	if (status == RF_ERR_UNSUPPORTED && attach->why[0])
		rf_log(&comm->context->logger, RF_LOG_ERROR, "rank %d of %d: no shared memory: %s",
		       comm->rank, comm->size, attach->why);
	if (has_failed_in_use(attach, status))
		status = RF_OK;
	stop_serving(attach);
	free(attach->all);
	attach->all = NULL;
	if (!comm->arena)
		rf_attach_free(comm);
	if (status != RF_OK)
		comm->state = RF_COMM_FAILED;
	/* Of the user's calls only. */
	comm->counters = (rf_counters){.size = sizeof(comm->counters)};
	rf_request_end(request, status);
}

static bool any_must(const struct rf_attach *attach)
{
	for (int rank = 0; rank < attach->comm->size; rank++) {
		if (attach->all[rank].must)
			return true;
	}
	return false;
}

/* All ranks come here with the same answer, but not at once: where it is an error, whoever is first
 * tells the others, who would else take its end for a death. */
static void end_without(struct rf_attach *attach)
{
	rf_comm *comm = attach->comm;

	if (any_must(attach)) {
		rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_UNSUPPORTED, &comm->rank,
			     attach->why[0] ? 1 : 0,
			     attach->why[0]
				     ? attach->why
				     : "RINGFOLD_TRANSPORT=shm, but a rank cannot share memory");
		end(attach, RF_ERR_UNSUPPORTED);
		return;
	}
	if (attach->why[0])
		rf_log(&comm->context->logger, RF_LOG_WARN,
		       "rank %d of %d: no shared memory: %s; this communicator uses TCP",
		       comm->rank, comm->size, attach->why);
	else
		rf_log(&comm->context->logger, RF_LOG_INFO,
		       "rank %d of %d: no shared memory, by another rank's choice or means",
		       comm->rank, comm->size);
	end(attach, RF_OK);
}

/* ---- the agreement -------------------------------------------------------------------------- */

static int64_t time_left_ms(const struct rf_attach *attach)
{
	uint64_t now = rf_now(attach->comm->context);

	if (attach->until == UINT64_MAX)
		return INT64_MAX / 2000000;
	return attach->until > now ? (int64_t)((attach->until - now) / 1000000) : 0;
}

static void start_call(struct rf_attach *attach, const struct rf_task *task,
		       void (*then)(struct rf_request *request))
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	struct rf_call_setup setup = {
		.task = *task, .options = &options, .then = then, .user = attach};
	struct rf_call *call;
	int status;

	options.deadline_ms = time_left_ms(attach);
	status = rf_call_start(attach->comm, &setup, &call);
	if (status != RF_OK)
		end(attach, status);
}

static void ring_rank(void *user, int rank)
{
	struct rf_attach *attach = user;

	rf_doorbell_ring(attach->comm->context,
			 attach->doorbells + (size_t)rank * RF_DOORBELL_NAME_BYTES);
}

static void agreed(struct rf_request *request)
{
	struct rf_attach *attach = request->user;
	rf_comm *comm = attach->comm;
	int status = rf_request_finish(request);

	if (status != RF_OK) {
		end(attach, status);
		return;
	}
	if (!attach->agreed) {
		end_without(attach);
		return;
	}
	attach->arena.ring = ring_rank;
	attach->arena.ring_user = attach;
	comm->arena = &attach->arena;
	rf_log(&comm->context->logger, RF_LOG_DEBUG,
	       "rank %d of %d: %zu bytes of shared memory, %zu a part", comm->rank, comm->size,
	       attach->region_bytes, attach->arena.part_bytes);
	end(attach, RF_OK);
}

/* This rank has the arena, or why[] says why not. */
static void agree(struct rf_attach *attach, bool good)
{
	struct rf_task task = {.collective = RF_ALLREDUCE,
			       .dtype = RF_UINT8,
			       .op = RF_MIN,
			       .count = 1,
			       .send = &attach->mine_agreed,
			       .recv = &attach->agreed};

	if (attach->agreeing)
		return;
	attach->agreeing = true;
	stop_serving(attach);
	attach->mine_agreed = good;
	start_call(attach, &task, agreed);
}

static bool open_arena(struct rf_attach *attach)
{
	const rf_comm *comm = attach->comm;
	size_t size = (size_t)comm->size;

	attach->doorbells = malloc(size * RF_DOORBELL_NAME_BYTES);
	if (!attach->doorbells ||
	    rf_arena_open(&attach->arena, attach->region, attach->region_bytes, comm->rank,
			  comm->size) != RF_OK) {
		snprintf(attach->why, sizeof(attach->why), "the shared memory is not usable");
		return false;
	}
	attach->arena.sources = calloc(size, sizeof(*attach->arena.sources));
	for (size_t rank = 0; rank < size; rank++)
		memcpy(attach->doorbells + rank * RF_DOORBELL_NAME_BYTES,
		       attach->all[rank].doorbell, RF_DOORBELL_NAME_BYTES);
	return attach->arena.sources != NULL;
}

/* ---- rank 0 --------------------------------------------------------------------------------- */

static bool nonces_are_there(const struct rf_attach *attach)
{
	for (int rank = 1; rank < attach->comm->size; rank++) {
		if (memcmp(rf_arena_rank(&attach->arena, rank)->nonce, attach->all[rank].nonce,
			   NONCE_BYTES))
			return false;
	}
	return true;
}

static void visited(void *user, int good, int bad)
{
	struct rf_attach *attach = user;

	attach->good_visits = good;
	attach->bad_visits = bad;
	/* They may be quicker than the allgather's end is here. */
	if (!attach->doorbells || good + bad < attach->comm->size - 1)
		return;
	if (bad)
		snprintf(attach->why, sizeof(attach->why),
			 "another rank could not map it, and says why");
	else if (!nonces_are_there(attach))
		snprintf(attach->why, sizeof(attach->why),
			 "another rank has mapped other memory: the ranks are not on one host");
	agree(attach, !attach->why[0]);
}

static void visits_over(struct rf_timer *timer)
{
	struct rf_attach *attach = RF_CONTAINER(timer, struct rf_attach, visits);

	snprintf(attach->why, sizeof(attach->why),
		 attach->server ? "other ranks have not come to fetch it within %d s"
				: "rank 0 has not handed it over within %d s",
		 VISITS_MS / 1000);
	agree(attach, false);
}

/* The hand-over itself is no call that could fail or miss a deadline. */
static int limit_time(struct rf_attach *attach)
{
	rf_context *context = attach->comm->context;
	uint64_t at = rf_now(context) + VISITS_MS * 1000000ull;

	attach->visits.fire = visits_over;
	return rf_timer_set(&context->timers, &attach->visits,
			    at < attach->until ? at : attach->until);
}

void rf_attach_comm_failed(rf_comm *comm)
{
	struct rf_attach *attach = comm->attach;

	/* Not from here: the agreement, which ends it, begins in the caller's next step. A timer
	 * that is set can be moved. */
	if (rf_attach_is_running(comm) && attach->visits.position)
		(void)rf_timer_set(&comm->context->timers, &attach->visits, 0);
}

/* Before the offers are exchanged, so that nobody comes too early. */
static int make_region(struct rf_attach *attach)
{
	const rf_comm *comm = attach->comm;
	struct rf_fetch_server_setup setup = {.net = comm->context->net,
					      .visitors = comm->size - 1,
					      .progress = visited,
					      .user = attach};
	size_t part;
	int status;

	attach->region_bytes = rf_arena_region_bytes(comm->size, comm->agreed.shm_bytes, &part);
	if (!attach->region_bytes) {
		snprintf(attach->why, sizeof(attach->why),
			 "RINGFOLD_SHM_BYTES (%zu) is too small for %d ranks",
			 comm->agreed.shm_bytes, comm->size);
		return RF_ERR_NOMEM;
	}
	status = rf_region_make(attach->region_bytes, &attach->memory_fd, &attach->region,
				attach->why);
	if (status != RF_OK)
		return status;
	rf_arena_format(attach->region, comm->size, part, attach->mine.nonce);
	setup.memory_fd = attach->memory_fd;
	status = rf_fetch_serve(&setup, &attach->mine.place, &attach->server);
	if (status != RF_OK)
		snprintf(attach->why, sizeof(attach->why), "no local socket: %s", strerror(errno));
	attach->mine.region_bytes = attach->region_bytes;
	return status;
}

static void await_visits(struct rf_attach *attach)
{
	if (!open_arena(attach) || limit_time(attach) != RF_OK)
		agree(attach, false);
	else
		visited(attach, attach->good_visits, attach->bad_visits);
}

/* ---- the others ----------------------------------------------------------------------------- */

static void memory_came(void *user, int status, int memory_fd)
{
	struct rf_attach *attach = user;
	const struct offer *host = &attach->all[0];
	bool good = false;

	if (status != RF_OK) {
		snprintf(attach->why, sizeof(attach->why), "rank 0 did not hand it over");
	} else {
		status = rf_region_map(memory_fd, host->region_bytes, &attach->region, attach->why);
		close(memory_fd);
	}
	if (status == RF_OK) {
		attach->region_bytes = host->region_bytes;
		good = open_arena(attach);
	}
	if (good && memcmp(attach->arena.base->nonce, host->nonce, NONCE_BYTES)) {
		snprintf(attach->why, sizeof(attach->why), "what came is not rank 0's memory");
		good = false;
	}
	if (good)
		memcpy(rf_arena_rank(&attach->arena, attach->comm->rank)->nonce, attach->mine.nonce,
		       NONCE_BYTES);
	rf_fetch_acknowledge(attach->fetch, good);
	agree(attach, good);
}

static void go_and_fetch(struct rf_attach *attach)
{
	struct rf_fetch_setup setup = {.net = attach->comm->context->net,
				       .place = attach->all[0].place,
				       .came = memory_came,
				       .user = attach};

	if (limit_time(attach) != RF_OK) {
		agree(attach, false);
		return;
	}
	if (rf_fetch_start(&setup, &attach->fetch) == RF_OK)
		return;
	snprintf(attach->why, sizeof(attach->why),
		 "rank 0's local socket is not reached (%s): the ranks are in different network "
		 "namespaces",
		 strerror(errno));
	agree(attach, false);
}

/* ---- the beginning -------------------------------------------------------------------------- */

static void offers_came(struct rf_request *request)
{
	struct rf_attach *attach = request->user;
	int status = rf_request_finish(request);

	if (status != RF_OK) {
		end(attach, status);
		return;
	}
	for (int rank = 0; rank < attach->comm->size; rank++) {
		if (!attach->all[rank].can) {
			end_without(attach);
			return;
		}
	}
	if (attach->comm->rank == 0)
		await_visits(attach);
	else
		go_and_fetch(attach);
}

static void make_offer(struct rf_attach *attach)
{
	rf_context *context = attach->comm->context;
	struct offer *mine = &attach->mine;

	mine->must = insists(attach->comm);
	if (strcmp(context->config.transport, "auto") && !mine->must)
		return;
	if (rf_local_random(mine->nonce, NONCE_BYTES) != RF_OK ||
	    rf_doorbell_get(context, mine->doorbell) != RF_OK) {
		snprintf(attach->why, sizeof(attach->why), "no local socket: %s", strerror(errno));
		return;
	}
	mine->can = attach->comm->rank != 0 || make_region(attach) == RF_OK;
}

/* Ranks of several hosts. Those that do not insist hear of it as of any abort. */
static void refuse_hosts(rf_comm *comm, struct rf_request *request)
{
	static const char why[] = "RINGFOLD_TRANSPORT=shm, but the ranks are of several hosts or "
				  "network namespaces: auto uses TCP between them";

	rf_log(&comm->context->logger, RF_LOG_ERROR, "rank %d of %d: no shared memory: %s",
	       comm->rank, comm->size, why);
	rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_UNSUPPORTED, &comm->rank, 1, why);
	rf_request_end(request, RF_ERR_UNSUPPORTED);
}

static void attach_start(rf_comm *comm, struct rf_request *request, uint64_t until)
{
	struct rf_attach *attach = calloc(1, sizeof(*attach));
	struct rf_task task = {.collective = RF_ALLGATHER,
			       .dtype = RF_UINT8,
			       .op = RF_SUM,
			       .count = sizeof(struct offer) * (size_t)comm->size};

	if (attach)
		attach->all = calloc((size_t)comm->size, sizeof(*attach->all));
	if (!attach || !attach->all) {
		free(attach);
		rf_comm_fail(comm, RF_SEGMENT_ABORT, RF_ERR_NOMEM, &comm->rank, 1,
			     "out of memory while its shared memory was made");
		rf_request_end(request, RF_ERR_NOMEM);
		return;
	}
	attach->comm = comm;
	attach->request = request;
	attach->until = until;
	attach->memory_fd = -1;
	comm->attach = attach;
	make_offer(attach);
	task.send = &attach->mine;
	task.recv = attach->all;
	start_call(attach, &task, offers_came);
}

void rf_attach_start(rf_comm *comm, struct rf_request *request, uint64_t until)
{
	if (comm->local_ranks != comm->size)
		refuse_hosts(comm, request);
	else
		attach_start(comm, request, until);
}
