/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The making of communicators: what its files share. The protocol is described in
 * docs/rendezvous.md.
 *
 *   leader (rank 0)                        every other rank
 *   GATHERING   <- JOIN ------------------ REACHING: by name, store or known process
 *                                          ASKED
 *   LINKING     -- TABLE ----------------> LINKING
 *               <- READY ----------------- STANDING: its lifelines stand
 *   RETIRING    (takes its entry out of the store)
 *   done        -- GO -------------------> done
 */
#ifndef RF_JOIN_H
#define RF_JOIN_H

#include "engine/failure.h"
#include "engine/request.h"

enum {
	RF_JOIN_TRIED_ADDRS = 8,  /* of the leader */
	RF_JOIN_OWN_ADDRS = 4,    /* that a rank advertises, beside those it is seen by */
	RF_JOIN_ADDR_BYTES = 19,  /* at most, encoded */
	RF_JOIN_TEXT = 480,       /* of explanations */
	RF_JOIN_LOBBIES = 1024,   /* of one process */
	RF_JOIN_WAITING = 1 << 16 /* ranks in all of them */
};

enum rf_join_state {
	RF_JOIN_LOBBY,     /* no join of this process yet: ranks that came early wait here */
	RF_JOIN_REACHING,  /* looks for the leader */
	RF_JOIN_ASKED,     /* JOIN is sent */
	RF_JOIN_GATHERING, /* the leader: ranks come */
	RF_JOIN_LINKING,   /* has the table; lifelines rise */
	RF_JOIN_STANDING,  /* READY is sent */
	RF_JOIN_RETIRING,  /* the leader: everybody is ready, the store's entry must go first */
};

/* A rank that has come to the leader. */
struct rf_join_arrival {
	struct rf_list node;  /* in join->arrivals */
	struct rf_peer *peer; /* referenced, its control stream held */
	struct rf_addr seen;  /* its address as the leader sees it, with its listening port */
	struct rf_addr own[RF_JOIN_OWN_ADDRS]; /* as it says, best first, no loopback */
	unsigned own_count;
	uint64_t host;
	int rank, size;
	bool is_seen; /* `seen` is set */
	bool ready;
};

struct rf_join {
	struct rf_list node; /* context->joins */
	rf_context *context;
	rf_comm *comm; /* NULL in a lobby */
	rf_request *request;
	enum rf_join_state state;
	uint64_t key;
	uint64_t parent; /* id of the communicator that it is made from, or 0 */
	int rank, size;
	uint64_t started;
	struct rf_timer deadline, progress;
	bool expired; /* the deadline has passed, the leader has a last moment to say why */

	/* REACHING, ASKED: join_reach.c */
	char *master_addr; /* NULL: by store, or known */
	uint16_t master_port;
	bool leader_known;
	struct rf_process_id leader_id; /* known, or from the store */
	struct rf_addr tried[RF_JOIN_TRIED_ADDRS];
	int tried_count;
	void *resolve;
	struct rf_dial *dial;
	struct rf_timer retry;
	uint64_t backoff;          /* ns */
	char reason[RF_JOIN_TEXT]; /* why the leader is not reached yet */
	struct rf_peer *leader;    /* reached: referenced and held */

	/* join_store.c */
	rf_store store; /* size 0: none */
	char *store_key;
	bool store_wanted; /* rf_join_store_step() has something to do */

	/* LOBBY, GATHERING and later at the leader: join_leader.c */
	struct rf_list arrivals;
	size_t arrival_count;
	struct rf_join_arrival **by_rank; /* [0] stays NULL; NULL in a lobby */
	bool *gave_up;                    /* by rank: its deadline passed before this one's */
	size_t ready_count;

	/* LINKING */
	bool *standing; /* by lifeline */
	int standing_count;
};

/* ---- join.c --------------------------------------------------------------------------------- */

/* An empty one, in the context's list; NULL: no memory. */
struct rf_join *rf_join_new(rf_context *context, uint64_t key);
void rf_join_free_lobby(struct rf_join *lobby);
uint64_t rf_join_new_comm_id(rf_context *context);
/* Ends the making of a communicator that is still forming with an error: tells the ranks that have
 * come, logs (unless the communicator's failure report has), ends the request. */
void rf_join_fail(rf_comm *comm, int error, const char *message);
void rf_join_succeed(struct rf_join *join);
/* The table has come (or was made): links, lifelines. Takes ranks over. */
void rf_join_link(struct rf_join *join, uint64_t id, struct rf_rank_entry *ranks,
		  const struct rf_config *agreed);
void rf_join_log_differences(struct rf_join *join, const struct rf_config *agreed);
/* "14 s" since the join was started; returns text. */
enum { RF_JOIN_TIME_TEXT = 32 };
const char *rf_join_elapsed(const struct rf_join *join, char text[RF_JOIN_TIME_TEXT]);

/* ---- join_reach.c --------------------------------------------------------------------------- */

void rf_reach_start(struct rf_join *join);
void rf_reach_dial(struct rf_join *join); /* join->tried is filled: dial them */
void rf_reach_again(struct rf_join *join, const char *reason); /* after a backoff, from the start */
void rf_reach_stop(struct rf_join *join);   /* resolving and dialling, not the leader */
void rf_reach_let_go(struct rf_join *join); /* of the leader */
/* "rank 0 at master.example:7880 (10.0.0.1:7880)"; returns text. */
const char *rf_reach_target(const struct rf_join *join, char text[RF_JOIN_TEXT]);
int rf_reach_on_table(struct rf_join *join, const struct rf_segment *segment,
		      const uint8_t *payload);

/* ---- join_leader.c -------------------------------------------------------------------------- */

int rf_leader_start(struct rf_join *join);
/* JOIN, into the join of its key or into a lobby. */
int rf_leader_on_join(struct rf_peer *peer, const struct rf_segment *segment,
		      const uint8_t *payload);
/* A rank gives up, and says why. */
void rf_leader_on_withdrawal(struct rf_peer *peer, uint64_t key, int error, const char *reason);
void rf_leader_peer_died(struct rf_join *join, struct rf_peer *peer, const char *reason);
void rf_leader_on_ready(struct rf_join *join, struct rf_peer *peer); /* NULL: its own lifelines */
void rf_leader_go(struct rf_join *join);
void rf_leader_tell_failure(struct rf_join *join, int error, const char *message);
void rf_leader_forget_all(struct rf_join *join);
/* Those that have not come, or are not ready; "ranks 2-3 of 4". Returns text. */
const char *rf_leader_absent(const struct rf_join *join, char *text, size_t capacity);

/* ---- join_table.c: the wire ----------------------------------------------------------------- */

void rf_join_put_addr(struct rf_cursor *c, const struct rf_addr *addr);
void rf_join_get_addr(struct rf_cursor *c, struct rf_addr *addr);
bool rf_join_is_link_local(const struct rf_addr *addr);
/* This process's addresses with its port, best first; loopback ones last, or not at all. */
unsigned rf_join_own_addrs(rf_context *context, bool with_loopback, struct rf_addr *addrs,
			   unsigned capacity);
uint64_t rf_join_host(rf_context *context);

void rf_join_send_join(struct rf_join *join);
int rf_join_read_join(const uint8_t *payload, size_t bytes, uint64_t *key,
		      struct rf_join_arrival *arrival);
void rf_join_send_failed(struct rf_peer *peer, uint64_t key, int error, const char *message);
void rf_join_send_ready(struct rf_peer *peer, const rf_comm *comm);
/* The table, as it is for everybody but for the receiver's rank and whether it was seen on
 * loopback: those are patched in. NULL: no memory. */
uint8_t *rf_join_write_table(const struct rf_join *join, const struct rf_rank_entry *ranks,
			     size_t *bytes);
void rf_join_patch_table(uint8_t *table, int rank, bool on_loopback);
int rf_join_read_table(const struct rf_join *join, const uint8_t *payload, size_t bytes,
		       struct rf_rank_entry **ranks, struct rf_config *agreed);

/* ---- join_store.c --------------------------------------------------------------------------- */

int rf_join_store_setup(struct rf_join *join, const rf_store *store);

#endif
