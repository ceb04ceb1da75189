/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration: every RINGFOLD_* variable of the engine is one row of this list, which makes the
 * struct, the parser, `ringfold info --config`, the manual's table, and, for agreed rows, what rank
 * 0 hands to all ranks.
 *
 * Kinds: SIZE ("65536", "64K", "1M"), COUNT (a number; negative only where the default is -1), TIME
 * ("1800", "1800s", "500ms", "30m", "2h"; kept in milliseconds), PORTS ("7000" or "7000-7010"),
 * ISA (a set of kernels that this processor runs), TEXT, CHOICE (one of a list of words separated
 * by '|'). A variable that is set to nothing counts
 * as not set.
 */
#ifndef RF_CONFIG_H
#define RF_CONFIG_H

#include "ringfold.h"

#include <stdbool.h>

/* X(field, VARIABLE, KIND, default, agreed, choices, what it is) */
#define RF_CONFIG_LIST(X)                                                                         \
	X(algorithm, "RINGFOLD_ALGORITHM", TEXT, "", true, NULL,                                  \
	  "forces an algorithm where it can do the call: see info --algorithms")                  \
	X(chunk_bytes, "RINGFOLD_CHUNK_BYTES", SIZE, "0", true, NULL,                             \
	  "bytes of a chunk on the wire; 0: chosen by the plan")                                  \
	X(segment_max_bytes, "RINGFOLD_SEGMENT_MAX_BYTES", SIZE, "0", true, NULL,                 \
	  "largest segment; 0: what rank 0's transports carry")                                   \
	X(channels, "RINGFOLD_CHANNELS", COUNT, "0", true, NULL,                                  \
	  "ordered lanes between two ranks; 0: chosen by the plan")                               \
	X(eager_bytes, "RINGFOLD_EAGER_BYTES", SIZE, "256K", true, NULL,                          \
	  "largest segment that is sent before the receiver has started its call")                \
	X(eager_budget_bytes, "RINGFOLD_EAGER_BUDGET_BYTES", SIZE, "1M", true, NULL,              \
	  "bytes a peer may send ahead of its receiver's calls")                                  \
	X(doubling_max_bytes, "RINGFOLD_DOUBLING_MAX_BYTES", SIZE, "64K", true, NULL,             \
	  "allreduce up to this is done by recursive doubling")                                   \
	X(direct_max_bytes, "RINGFOLD_DIRECT_MAX_BYTES", SIZE, "0", true, NULL,                   \
	  "allreduce up to this (and above doubling) is done pairwise; 0: never by itself")       \
	X(pairwise_max_bytes, "RINGFOLD_PAIRWISE_MAX_BYTES", SIZE, "8K", true, NULL,              \
	  "reduce_scatter and allgather of up to 32 ranks and this (of all) are done pairwise")   \
	X(tree_max_bytes, "RINGFOLD_TREE_MAX_BYTES", SIZE, "64K", true, NULL,                     \
	  "broadcast and reduce up to this go along a binomial tree, above along a chain")        \
	X(timeout_ms, "RINGFOLD_TIMEOUT", TIME, "30m", false, NULL,                               \
	  "deadline of each call, and of making a communicator")                                  \
	X(mute_ms, "RINGFOLD_MUTE", TIME, "500ms", true, NULL,                                    \
	  "how long a query waits for answers before a rank counts as silent")                    \
	X(redial_ms, "RINGFOLD_REDIAL", TIME, "300ms", true, NULL,                                \
	  "how long a lost lifeline is dialled again before its end counts as dead")              \
	X(transport, "RINGFOLD_TRANSPORT", CHOICE, "auto", false, "auto|shm|tcp",                 \
	  "how data moves; shm: through the memory of one host, or an error; tcp: by TCP alone")  \
	X(shm_bytes, "RINGFOLD_SHM_BYTES", SIZE, "16M", true, NULL,                               \
	  "most that the ranks of a host may share for a communicator")                           \
	X(port, "RINGFOLD_PORT", PORTS, "", false, NULL,                                          \
	  "the port to listen on, a number or a range such as 7000-7010; default: ephemeral")     \
	X(progress, "RINGFOLD_PROGRESS", CHOICE, "caller", false, "caller|thread",                \
	  "who moves data while nobody waits")                                                    \
	X(log, "RINGFOLD_LOG", CHOICE, "warn", false, "error|warn|info|debug", "the log level")   \
	X(spin_us, "RINGFOLD_SPIN_US", COUNT, "-1", false, NULL,                                  \
	  "microseconds that a wait polls before it sleeps; -1: by cores and ranks on this host") \
	X(receive_buffer_bytes, "RINGFOLD_RECEIVE_BUFFER_BYTES", SIZE, "0", false, NULL,          \
	  "receive buffer a connection, from which folds read; 0: the transport's choice")        \
	X(socket_buffer_bytes, "RINGFOLD_SOCKET_BUFFER_BYTES", SIZE, "0", false, NULL,            \
	  "SO_SNDBUF and SO_RCVBUF of data connections; 0: the system's")                         \
	X(isa, "RINGFOLD_ISA", ISA, "", false, NULL,                                              \
	  "forces the instruction set of the kernels; default: the best here (info shows which)") \
	X(interface, "RINGFOLD_INTERFACE", TEXT, "", false, NULL,                                 \
	  "the interfaces to be reached by: names such as eth0 or eth (all eth...), =eth0 (that " \
	  "one "                                                                                  \
	  "alone), addresses, networks (10.1.0.0/16), in a list; ^docker,lo: all but those")

/* The RINGFOLD_* variables that other rooms read by themselves, before or without a configuration:
 * X(VARIABLE, what it is). Here so that info lists them and a typo is told from them. A '*' at the
 * end stands for any ending. */
#define RF_CONFIG_OTHER_LIST(X)                                                             \
	X("RINGFOLD_RANK", "this process's rank")                                           \
	X("RINGFOLD_WORLD_SIZE", "the number of ranks")                                     \
	X("RINGFOLD_MASTER_ADDR", "rank 0's name or address; overrides MASTER_ADDR")        \
	X("RINGFOLD_MASTER_PORT", "rank 0's port; overrides MASTER_PORT, defaults to 7880") \
	X("RINGFOLD_LIBRARY", "where the Python package finds the library")                 \
	X("RINGFOLD_TEST_*", "the project's own tests: RINGFOLD_TEST_SEED is the seed")     \
	X("RINGFOLD_SANITIZER", "the project's own tests: the sanitizer of this build")     \
	X("RINGFOLD_RESULTS", "the project's own scripts: where results are kept")          \
	X("RINGFOLD_PIP_ARGS", "the project's own scripts: arguments of pip")

#define RF_CONFIG_TYPE_SIZE   size_t
#define RF_CONFIG_TYPE_COUNT  int64_t
#define RF_CONFIG_TYPE_TIME   int64_t
#define RF_CONFIG_TYPE_PORTS  char
#define RF_CONFIG_TYPE_ISA    char
#define RF_CONFIG_TYPE_TEXT   char
#define RF_CONFIG_TYPE_CHOICE char

enum { RF_CONFIG_TEXT_BYTES = 64 };

struct rf_config {
#define RF_CONFIG_FIELD_SIZE(field)                                    size_t field;
#define RF_CONFIG_FIELD_COUNT(field)                                   int64_t field;
#define RF_CONFIG_FIELD_TIME(field)                                    int64_t field;
#define RF_CONFIG_FIELD_PORTS(field)                                   char field[RF_CONFIG_TEXT_BYTES];
#define RF_CONFIG_FIELD_ISA(field)                                     char field[RF_CONFIG_TEXT_BYTES];
#define RF_CONFIG_FIELD_TEXT(field)                                    char field[RF_CONFIG_TEXT_BYTES];
#define RF_CONFIG_FIELD_CHOICE(field)                                  char field[RF_CONFIG_TEXT_BYTES];
#define X(field, variable, kind, default_value, agreed, choices, text) RF_CONFIG_FIELD_##kind(field)
	RF_CONFIG_LIST(X)
#undef X
};

/* A row of the list at run time. */
enum rf_config_kind {
	RF_CONFIG_SIZE,
	RF_CONFIG_COUNT,
	RF_CONFIG_TIME,
	RF_CONFIG_PORTS,
	RF_CONFIG_ISA,
	RF_CONFIG_TEXT,
	RF_CONFIG_CHOICE
};
struct rf_config_row {
	const char *variable;
	enum rf_config_kind kind;
	const char *default_value;
	bool agreed;
	const char *choices;
	const char *text;
	size_t offset; /* of the field in struct rf_config */
};
extern const struct rf_config_row rf_config_rows[];
extern const size_t rf_config_row_count;

struct rf_config_other {
	const char *variable;
	const char *text;
};
extern const struct rf_config_other rf_config_others[];
extern const size_t rf_config_other_count;

/* Defaults, then the environment. RF_ERR_CONFIG: `message` says which variable, its value, and what
 * it may be. Unknown RINGFOLD_* variables are not errors; rf_config_unknown() finds them. */
int rf_config_load(struct rf_config *config, char message[256]);
/* Sets one row from text; for options and tests. */
int rf_config_set(struct rf_config *config, const char *variable, const char *value,
		  char message[256]);
/* The same for what did not come from the variable: the message says `name` ("options.port"). */
int rf_config_set_as(struct rf_config *config, const char *variable, const char *name,
		     const char *value, char message[256]);
/* The value as text, as it could be set again. Returns text. */
const char *rf_config_format(const struct rf_config *config, const struct rf_config_row *row,
			     char text[RF_CONFIG_TEXT_BYTES]);
/* The range of a PORTS row; 0 to 0: any. False if the text is none. */
bool rf_config_ports(const char *text, uint16_t *first, uint16_t *last);
/* Calls visit for each RINGFOLD_* variable that is set, and that nothing reads (a typo). */
void rf_config_unknown(void (*visit)(void *user, const char *variable), void *user);

/* The agreed rows, for the wire: encoded length, or 0 if it does not fit. Decoding checks all, and
 * leaves the rows that are not agreed as they are. RF_ERR_VERSION: the far end's list of agreed
 * rows is another one; RF_ERR_PROTOCOL: no such encoding. config is written on success only. */
enum { RF_CONFIG_AGREED_MAX = 1024 };
size_t rf_config_agreed_encode(const struct rf_config *config, uint8_t *bytes, size_t capacity);
int rf_config_agreed_decode(struct rf_config *config, const uint8_t *bytes, size_t count);
/* FNV-1a over the agreed rows: part of every call's fingerprint. */
uint64_t rf_config_agreed_digest(const struct rf_config *config);
/* Variables whose agreed values differ, "RINGFOLD_CHUNK_BYTES (here 64K, rank 0 has 1M), ...";
 * empty if none. Returns text. */
const char *rf_config_agreed_differences(const struct rf_config *mine,
					 const struct rf_config *theirs, char *text,
					 size_t capacity);

#endif
