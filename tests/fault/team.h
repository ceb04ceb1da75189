/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as processes on loopback, and a driver that kills, stops and questions them. The driver
 * forks each rank before it has touched the library, hears its reports over a socket pair, and
 * keeps its stderr in memory. Nothing waits for a fixed time: all waits are for a report, with a
 * limit.
 */
#ifndef TESTS_FAULT_TEAM_H
#define TESTS_FAULT_TEAM_H

#include "ringfold.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TEAM_MAX = 64, HOST_BYTES = 64 };

/* What a rank says. */
struct report {
	char word[24];
	int64_t at_ns;  /* CLOCK_MONOTONIC, which all processes share */
	int64_t number; /* up to the word */
	int status;
	uint64_t ranks; /* that the failure names */
	char text[480]; /* the failure's, or the last error line of the log */
};

/* ---- the rank's side ------------------------------------------------------------------------ */

struct seat {
	int rank, size, port;
	int channel;
};

/* Runs in a process of its own, whose exit status is what it returns. */
typedef int role(struct seat *seat);

/* comm may be NULL; its failure is reported with it. */
void seat_say(struct seat *seat, const char *word, int status, const rf_comm *comm, int64_t number);
/* Waits for the driver's word, without calling the library. */
void seat_await(struct seat *seat, const char *word);
/* True if the driver has said something; it is read by seat_await(). */
bool seat_is_told(struct seat *seat);
/* Makes the communicator from the environment, says "joined" with the status; NULL on failure. */
rf_comm *seat_join(struct seat *seat);
/* Waits, without driving, until the communicator has failed; says "failed". */
void seat_watch(struct seat *seat, const rf_comm *comm);

/* ---- the driver's side ---------------------------------------------------------------------- */

struct member {
	pid_t pid; /* 0: none, or reaped */
	int channel;
	int log; /* memfd: its stderr */
};

struct team {
	int size;
	int port;   /* of rank 0 */
	int holder; /* keeps it bound, so that nobody is given it */
	char host[HOST_BYTES];
	struct member members[TEAM_MAX];
};

/* A team without members yet; 127.0.0.1 unless told otherwise. Environment variables that are set
 * by team_set() are those of the members that are started later, in this case only. */
void team_init(struct team *team, int size);
void team_set(const char *variable, const char *value);
void team_start(struct team *team, int rank, role *what);
void team_start_all(struct team *team, role *what);
void team_tell(struct team *team, int rank, const char *word);
void team_tell_all(struct team *team, const char *word);
/* The member's next report, which must be this word, within the time; stalls of this machine are
 * added to it. */
struct report team_hear(struct team *team, int rank, const char *word, int64_t within_ms);
/* All members, "joined" and RF_OK. */
void team_joined(struct team *team);
void team_signal(struct team *team, int rank, int number);
/* Kills a member and reaps it; returns the time just before. */
int64_t team_kill(struct team *team, int rank);
/* Waits for a member's end; its exit status, or 128 + signal. */
int team_reap(struct team *team, int rank, int64_t within_ms);
/* All that are left must end well; nothing may be left: no process, no listener. */
void team_end(struct team *team);
/* What the member has written to stderr; valid until the next call. */
const char *team_log(const struct team *team, int rank);

/* "failed" from a survivor: this error, this culprit, and not later than this after the fault. */
void team_hear_failed(struct team *team, int rank, int error, int culprit, int64_t since_ns,
		      int64_t within_ms);

/* ---- both ----------------------------------------------------------------------------------- */

int64_t now_ns(void);
int64_t stalled_ns(void); /* how long this machine has kept the driver waiting, in this case */
bool is_sanitized(void);

void fault_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));
#define CHECK(condition, ...)                                        \
	do {                                                         \
		if (!(condition))                                    \
			fault_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define CHECK_STATUS(call, expected)                                                   \
	do {                                                                           \
		int check_status = (call);                                             \
		if (check_status != (expected))                                        \
			fault_fail(__FILE__, __LINE__, "%s answers %s, not %s", #call, \
				   rf_strerror(check_status), rf_strerror(expected));  \
	} while (0)
#define CHECK_OK(call) CHECK_STATUS(call, RF_OK)

#endif
