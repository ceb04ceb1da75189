/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators, and the link: what one communicator has with one peer.
 *
 * The table of ranks is the only thing that grows with the number of ranks; links and peers are
 * made for those ranks that are really talked with.
 */
#ifndef RF_COMM_H
#define RF_COMM_H

#include "engine/algo/algo.h"
#include "engine/peer.h"
#include "engine/segment.h"

/* Between a communicator and a peer. Credit belongs here. */
struct rf_link {
	rf_comm *comm;
	struct rf_peer *peer;
	int rank;      /* the peer's */
	bool lifeline; /* a neighbour in the overlay: holds the peer's control stream */
	bool holds_control;
	bool suspect; /* a data connection broke while the communicator was in use: see data.c */
	struct rf_list peer_node; /* in peer->links */
	uint64_t granted;         /* the peer has started all calls before this sequence number */
	uint64_t told;            /* the peer knows that I have started all calls before this */
	uint64_t wanted;  /* the peer waits to hear of this call (its number + 1; 0: nothing) */
	uint64_t asked;   /* I have sent WANT for calls before this */
	uint64_t wait_ns; /* for rf_comm_peer_wait_ns() */
};

/* A rank, compact. */
struct rf_rank_entry {
	struct rf_process_id id;
	struct rf_link *link; /* NULL until it is talked with; never for this process's own rank */
	uint64_t host; /* the same for ranks that are probably on one host: a hint, no proof */
	struct rf_addr addrs[2];
	uint8_t addr_count;
};

enum rf_comm_state {
	RF_COMM_FORMING, /* rendezvous and lifelines; segments for it are accepted and staged */
	RF_COMM_READY,
	RF_COMM_FAILED,
	RF_COMM_LEFT, /* being destroyed by its owner */
};

enum { RF_ENDED_KEPT = 16 };

struct rf_comm {
	rf_context *context;
	struct rf_list context_node;
	uint64_t id; /* unique to its incarnation, random; key of context->comms */
	uint32_t epoch;
	enum rf_comm_state state;
	int rank;
	int size;
	struct rf_rank_entry *ranks;
	struct rf_config agreed;
	uint64_t agreed_digest;
	int local_ranks; /* with this process's host hint, itself included */
	int64_t deadline_ms;

	/* Calls. A segment of a call that is neither here nor to come belongs to one that has
	 * ended. */
	uint64_t next_seq;   /* of the next call started here */
	struct rf_map calls; /* open calls by sequence number + 1: struct rf_call */
	struct rf_map
		staged; /* eager segments of calls to come, likewise: struct rf_staged, chained */
	struct rf_map early; /* what others said of calls to come, likewise: early.c */
	struct {
		uint64_t seq; /* + 1 */
		struct rf_fingerprint fingerprint;
	} ended[RF_ENDED_KEPT]; /* the last calls that have ended here: early.c */
	size_t open_calls;
	struct rf_list call_list; /* open calls, oldest first */

	/* Failure: failure.c. */
	struct rf_failure_state *failure; /* NULL while there is none */

	/* Overlay: overlay.c. */
	struct rf_link **lifelines;
	int lifeline_count;
	struct rf_query *query; /* failure_query.c: one at a time */
	uint32_t query_round;   /* the highest that this rank knows of */
	/* Ranks that have left, with the number of the first call that they will not make. */
	struct rf_leaver {
		int rank;
		uint64_t seq;
	} * leavers;
	size_t leaver_count;

	struct rf_join *join;      /* while it forms */
	struct rf_attach *attach;  /* while its arena is made, and what belongs to the arena */
	struct rf_arena *arena;    /* memory that all ranks share, or NULL */
	struct rf_traffic traffic; /* through it */
	struct rf_call *spare_call;
	rf_counters counters;
};

/* The link to a rank, made if need be (a peer object, no connection). Not for the own rank. */
int rf_comm_link(rf_comm *comm, int rank, struct rf_link **link);
/* The link of a peer in a communicator, made if the peer is one of its ranks; NULL if it is none.
 */
struct rf_link *rf_peer_link(struct rf_peer *peer, rf_comm *comm);

/* comm.c: an object in state FORMING, registered under its id once that is known. */
int rf_comm_new(rf_context *context, rf_comm **comm);
int rf_comm_set_table(rf_comm *comm, uint64_t id, int rank, int size, struct rf_rank_entry *ranks,
		      const struct rf_config *agreed); /* takes ranks over */
void rf_comm_free(rf_comm *comm);

/* ---- join.c: making communicators ----------------------------------------------------------- */

/* Who meets where. Copied. */
struct rf_join_setup {
	int rank, size;
	/* The leader (rank 0 of the new communicator): found by name, or known already. */
	const char *master_addr; /* or NULL */
	uint16_t master_port;
	const rf_store *store; /* or NULL; its callbacks run in rf_join_store_step() only */
	bool leader_known;
	struct rf_process_id leader_id;
	struct rf_addr leader_addrs[2];
	unsigned leader_addr_count;
	/* Joins meet only under equal keys: a hash of the name, or of (parent, tag, list). */
	uint64_t key;
	uint64_t parent;   /* the communicator that it is made from, whose failure ends it; or 0 */
	uint64_t deadline; /* context clock */
	int64_t call_deadline_ms;
};
struct rf_request;
/* Starts to form comm (made by rf_comm_new()). When it ends, rf_request_end(request, status). */
int rf_join_start(rf_comm *comm, const struct rf_join_setup *setup, struct rf_request *request);
/* The store's part, on the creating thread, without the lock held: RF_ERR_AGAIN until it is done.
 * Called by rf_wait() and rf_test() of the request. */
int rf_join_store_step(rf_comm *comm, int64_t timeout_ms);
bool rf_join_needs_store(const rf_comm *comm);
void rf_join_cancel(rf_comm *comm); /* frees it without ending its request */
void rf_join_peer_died(struct rf_peer *peer, const char *reason);
/* Ends the making of what is made from this communicator: its ranks may never come. */
void rf_join_parent_failed(rf_comm *parent, int error, const char *reason);
/* For the context's end: ranks that came early, for communicators that were never begun here. */
void rf_join_forget_all(rf_context *context);

/* ---- overlay.c: the graph of lifelines ------------------------------------------------------ */

/* rank +- 2^k modulo size: connected, O(log n) neighbours, and connected still after many deaths.
 * Returns how many; neighbours has room for 2 * 32. */
int rf_overlay_neighbours(int rank, int size, int neighbours[64]);
/* Sends a control segment to all lifelines, except the one that it came from (NULL: none). */
void rf_overlay_flood(rf_comm *comm, uint8_t type, uint64_t seq, const void *payload, size_t bytes,
		      const struct rf_link *except);

/* ---- failure.c ------------------------------------------------------------------------------ */

struct rf_failure_state {
	int error;
	char message[512];
	size_t rank_count;
	int *ranks; /* ascending */
	size_t rank_capacity;
};

/* The communicator has failed: records it (the first error stays, ranks are added), floods it, ends
 * its calls by rf_comm_revoke_calls(). type: DEATH, ABORT, MISMATCH, REVOKE. Safe to call again. */
void rf_comm_fail(rf_comm *comm, uint8_t type, int error, const int *ranks, size_t rank_count,
		  const char *message);
/* A call's deadline has passed: asks everybody, and fails the communicator with those that are
 * behind or mute. */
void rf_query_start(rf_comm *comm, uint64_t seq, int awaited_rank);
/* This rank leaves after its last call: floods GOODBYE. */
void rf_comm_say_goodbye(rf_comm *comm);
/* After a call was started: RF_OK, or the error if some rank has left before this call. Fails the
 * communicator then. */
int rf_comm_check_leavers(rf_comm *comm, uint64_t seq);
void rf_failure_free(rf_comm *comm);

/* call.c: ends all open calls with this error. */
void rf_comm_revoke_calls(rf_comm *comm, int error);

#endif
