/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file ringfold.h
 * ringfold: reductions of gradient-sized buffers across processes and machines.
 *
 * This header is the whole public API.
 *
 * Errors. Functions that return int return RF_OK (0) or a negative RF_ERR_* constant, which
 * rf_strerror() names. Outputs are written only on success, unless a function says otherwise.
 *
 * Threads. Every function may be called from any thread at any time, except that a communicator's
 * collective calls must be started in the same order on all of its ranks (so a communicator is
 * normally used by one thread), and that an object may not be destroyed while another thread is
 * inside a call on it. rf_comm_abort() is meant to be called from another thread.
 *
 * Signals and exits. The library installs no signal handler, raises no SIGPIPE, and never exits or
 * aborts the process. In a forked child every call on what the parent has made answers
 * RF_ERR_FORKED; the child may make contexts of its own.
 *
 * Options structs begin with their own size, so that they can grow: initialise them with the macro
 * of the same name (RF_COMM_OPTIONS_INIT, ...) and set only what you need.
 */
#ifndef RINGFOLD_H
#define RINGFOLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RF_VERSION_MAJOR 0
#define RF_VERSION_MINOR 1
#define RF_VERSION_PATCH 0

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#else
#define RF_API
#endif

/* ---- lists ---------------------------------------------------------------------------------- */

/** Error constants: X(name, value, what it means). RF_OK is not in the list. */
#define RF_ERROR_LIST(X)                                                           \
	X(AGAIN, -1, "nothing has changed; the call may be made again")            \
	X(INVALID, -2, "an argument is invalid")                                   \
	X(NOMEM, -3, "out of memory")                                              \
	X(TIMEOUT, -4, "the deadline has passed")                                  \
	X(RANK_DEAD, -5, "a rank died")                                            \
	X(RANK_LEFT, -6, "a rank has left the communicator")                       \
	X(MISMATCH, -7, "ranks made calls that do not match")                      \
	X(ABORTED, -8, "the communicator was aborted")                             \
	X(FORKED, -9, "the library cannot be used in a forked child")              \
	X(VERSION, -10, "peers speak different wire versions")                     \
	X(UNSUPPORTED, -11, "not supported for these arguments or in this build")  \
	X(RENDEZVOUS, -12, "ranks are missing, or disagree about the job")         \
	X(CONFIG, -13, "the environment or an option is wrong")                    \
	X(NETWORK, -14, "a connection failed")                                     \
	X(PROTOCOL, -15, "a peer sent something that the protocol does not allow") \
	X(STORE, -16, "the rendezvous store failed")                               \
	X(SYSTEM, -17, "a system call failed")                                     \
	X(BUSY, -18, "the object is in use")

/** Element types: X(NAME, name, bytes). */
#define RF_DTYPE_LIST(X)         \
	X(INT8, int8, 1)         \
	X(UINT8, uint8, 1)       \
	X(INT32, int32, 4)       \
	X(UINT32, uint32, 4)     \
	X(INT64, int64, 8)       \
	X(UINT64, uint64, 8)     \
	X(FLOAT16, float16, 2)   \
	X(BFLOAT16, bfloat16, 2) \
	X(FLOAT32, float32, 4)   \
	X(FLOAT64, float64, 8)   \
	X(BOOL, bool, 1)

/** Reduction operators: X(NAME, name). */
#define RF_OP_LIST(X) \
	X(SUM, sum)   \
	X(PROD, prod) \
	X(MIN, min)   \
	X(MAX, max)   \
	X(AVG, avg)

/** Collectives: X(NAME, name). */
#define RF_COLLECTIVE_LIST(X)             \
	X(ALLREDUCE, allreduce)           \
	X(REDUCE, reduce)                 \
	X(BROADCAST, broadcast)           \
	X(REDUCE_SCATTER, reduce_scatter) \
	X(ALLGATHER, allgather)           \
	X(BARRIER, barrier)

enum rf_error {
	RF_OK = 0,
#define X(name, value, text) RF_ERR_##name = value,
	RF_ERROR_LIST(X)
#undef X
};

/**
 * The type of the elements. Integers wrap. FLOAT16 and BFLOAT16 are folded in fp32. BOOL is one
 * byte, any nonzero value is true, results are 0 or 1: SUM and MAX are logical or, PROD and MIN
 * logical and, AVG is refused.
 */
typedef enum rf_dtype {
#define X(NAME, name, bytes) RF_##NAME,
	RF_DTYPE_LIST(X)
#undef X
		RF_DTYPE_COUNT
} rf_dtype;

/**
 * The operator. MIN and MAX of a NaN are NaN, whichever rank holds it; -0 is less than +0. AVG is
 * the sum divided once by the number of ranks, before the last rounding; of integers it is the
 * wrapped sum divided with truncation toward zero. Every NaN result has the same bits: the type's
 * quiet NaN with a clear sign and a zero payload.
 */
typedef enum rf_op {
#define X(NAME, name) RF_##NAME,
	RF_OP_LIST(X)
#undef X
		RF_OP_COUNT
} rf_op;

typedef enum rf_collective {
#define X(NAME, name) RF_##NAME,
	RF_COLLECTIVE_LIST(X)
#undef X
		RF_COLLECTIVE_COUNT
} rf_collective;

/** In which order the ranks' contributions are folded. */
typedef enum rf_order {
	/** The fastest. Bits are the same on all ranks and on every run of the same layout. */
	RF_ORDER_ANY = 0,
	/**
	 * One fixed binary tree over the ranks (left subtrees perfect; five ranks:
	 * ((0+1)+(2+3))+4), so that the bits do not depend on size, transport or placement. The
	 * cost is described in docs/tuning.md.
	 */
	RF_ORDER_TREE = 1,
} rf_order;

/** In which type 16-bit floats cross the wire while they are being summed. */
typedef enum rf_wire {
	/** The type of the elements: half the bytes, rounded at every hop of a ring. */
	RF_WIRE_SAME = 0,
	/** fp32 partials: rounded once, at twice the bytes. Other types are not changed by it. */
	RF_WIRE_FLOAT32 = 1,
} rf_wire;

/** Log levels, for rf_context_options.log_level and RINGFOLD_LOG. */
typedef enum rf_log_level {
	RF_LOG_ERROR = 1,
	RF_LOG_WARN = 2,
	RF_LOG_INFO = 3,
	RF_LOG_DEBUG = 4,
} rf_log_level;

/** As a send buffer: the input is in the receive buffer. */
#define RF_IN_PLACE ((const void *)-1)

/** As a timeout or deadline: none of its own (a deadline then is the communicator's or the default
 * of 30 minutes; a wait then lasts as long as the call). Other negative times are refused. */
#define RF_NO_TIMEOUT ((int64_t)-1)

typedef struct rf_context rf_context;
typedef struct rf_comm rf_comm;
typedef struct rf_request rf_request;
typedef struct rf_cq rf_cq;

/* ---- library -------------------------------------------------------------------------------- */

/** The library's version, "0.1.0". */
RF_API const char *rf_version(void);
/** "RF_ERR_TIMEOUT: the deadline has passed"; never NULL, valid for ever. */
RF_API const char *rf_strerror(int error);
/** Bytes of one element, 0 for a value that is no dtype. */
RF_API size_t rf_dtype_size(rf_dtype dtype);
/** "float32", "sum", "allreduce"; NULL for a value that is none. */
RF_API const char *rf_dtype_name(rf_dtype dtype);
RF_API const char *rf_op_name(rf_op op);
RF_API const char *rf_collective_name(rf_collective collective);

/* ---- context -------------------------------------------------------------------------------- */

/**
 * Receives the library's log lines: no newline at the end, valid during the call only. May be
 * called from the library's own thread; must not call the library.
 */
typedef void rf_log_fn(void *user, rf_log_level level, const char *line);

/** Whether the library's own thread moves data while nobody waits. */
typedef enum rf_progress {
	/** RINGFOLD_PROGRESS (caller or thread), else the caller. */
	RF_PROGRESS_DEFAULT = 0,
	/** Data moves in rf_wait() and its like. Deaths, aborts and queries are still served. */
	RF_PROGRESS_CALLER = 1,
	/** The library's thread also drives data, so that communication overlaps computation. */
	RF_PROGRESS_THREAD = 2,
} rf_progress;

typedef struct rf_context_options {
	size_t size;
	rf_progress progress;
	rf_log_level log_level; /**< 0: RINGFOLD_LOG, else warnings */
	rf_log_fn *log;         /**< NULL: stderr */
	void *log_user;
	const char *transport; /**< NULL: RINGFOLD_TRANSPORT, else the best there is */
	const char *port;      /**< "7000" or "7000-7010"; NULL: RINGFOLD_PORT, else ephemeral */
} rf_context_options;
#define RF_CONTEXT_OPTIONS_INIT                                                               \
	{                                                                                     \
		sizeof(rf_context_options), RF_PROGRESS_DEFAULT, (rf_log_level)0, NULL, NULL, \
			NULL, NULL                                                            \
	}

/**
 * Makes a context: a listener, its peers, its thread. A process normally needs one, and
 * rf_comm_create_from_env() makes it by itself.
 * @param options may be NULL
 */
RF_API int rf_context_create(const rf_context_options *options, rf_context **context);
/**
 * Ends a context and sets *context to NULL. Its communicators and completion queues must have been
 * destroyed, its requests have ended and been handed out, its memory been freed or unregistered:
 * otherwise RF_ERR_BUSY, and nothing is changed.
 */
RF_API int rf_context_destroy(rf_context **context);

/* ---- rendezvous ----------------------------------------------------------------------------- */

/**
 * A key-value store that carries the rendezvous (torch's store, Redis, etcd, PMIx). The functions
 * run only on the thread that creates the communicator, inside rf_comm_create(), or for
 * rf_comm_icreate() inside the waits and tests of its request. They return RF_OK, RF_ERR_AGAIN
 * (get: the key is not there within timeout_ms), or another error.
 */
typedef struct rf_store {
	size_t size;
	void *user;
	int (*set)(void *user, const char *key, const void *value, size_t bytes);
	/** Writes at most capacity bytes, and the value's length to *bytes. */
	int (*get)(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
		   int64_t timeout_ms);
	/** Adds to a counter that starts at 0, and gives the sum. */
	int (*add)(void *user, const char *key, int64_t amount, int64_t *sum);
} rf_store;

typedef struct rf_comm_options {
	size_t size;
	int rank;                /**< -1: from the environment */
	int world_size;          /**< -1: from the environment */
	const char *master_addr; /**< rank 0's name or address; NULL: from the environment */
	int master_port;         /**< 0: from the environment, else 7880 */
	const rf_store *store;   /**< instead of master_addr and master_port */
	/** Tells apart the communicators that go through one master or store. All ranks give the
	 * same; NULL is "". Names may be used again after the communicator is ready. */
	const char *name;
	int64_t create_timeout_ms; /**< for making it; RF_NO_TIMEOUT: RINGFOLD_TIMEOUT, else 30 min
				    */
	int64_t deadline_ms;       /**< for each of its calls; RF_NO_TIMEOUT: the same default */
} rf_comm_options;
#define RF_COMM_OPTIONS_INIT                                                                       \
	{                                                                                          \
		sizeof(rf_comm_options), -1, -1, NULL, 0, NULL, NULL, RF_NO_TIMEOUT, RF_NO_TIMEOUT \
	}

/**
 * Makes a communicator of all processes of the job, described by the environment (rank, world,
 * MASTER_ADDR, MASTER_PORT and others: see docs/deployment.md). Blocks until all ranks have come,
 * or the deadline; then the error's log line lists every absent rank. A second call makes a second
 * communicator over the same connections.
 */
RF_API int rf_comm_create_from_env(rf_comm **comm);

/**
 * Makes a communicator from options. @param context NULL: the process's shared context.
 * The i form returns at once; *comm may be used when the request has ended well, and is destroyed
 * by the library when it has not (do not keep it).
 */
RF_API int rf_comm_create(rf_context *context, const rf_comm_options *options, rf_comm **comm);
RF_API int rf_comm_icreate(rf_context *context, const rf_comm_options *options, rf_comm **comm,
			   rf_request **request);

/**
 * Splits a communicator by color; ranks of the new ones are ordered by key, then by old rank. A
 * collective call. A negative color takes part and gets no communicator (*comm is NULL). Of the
 * options only the timeouts are read; NULL is allowed.
 */
RF_API int rf_comm_split(rf_comm *parent, int color, int key, const rf_comm_options *options,
			 rf_comm **comm);
RF_API int rf_comm_isplit(rf_comm *parent, int color, int key, const rf_comm_options *options,
			  rf_comm **comm, rf_request **request);

/**
 * Makes a communicator from a list of the parent's ranks. Only those listed call, with the same
 * list and tag; the position in the list is the new rank. Groups that are being made at the same
 * time by the same ranks need different tags.
 */
RF_API int rf_comm_create_group(rf_comm *parent, const int *ranks, int rank_count, uint64_t tag,
				const rf_comm_options *options, rf_comm **comm);
RF_API int rf_comm_icreate_group(rf_comm *parent, const int *ranks, int rank_count, uint64_t tag,
				 const rf_comm_options *options, rf_comm **comm,
				 rf_request **request);

/**
 * Leaves a communicator, orderly, and sets *comm to NULL. Calls that are still in flight are
 * aborted first (on all ranks); if a transport does not let go of their buffers within ten seconds:
 * RF_ERR_BUSY, to be tried again. Not collective: the others may leave later, and a call that they
 * make in the meantime fails with RF_ERR_RANK_LEFT.
 */
RF_API int rf_comm_destroy(rf_comm **comm);

/** This process's rank, and the number of ranks; negative: an error. */
RF_API int rf_comm_rank(const rf_comm *comm);
RF_API int rf_comm_size(const rf_comm *comm);

/** The context that a communicator belongs to: for rf_cq_create(), rf_alloc() and their like. A
 * context that the library made lives as long as anything in it. NULL for NULL. */
RF_API rf_context *rf_comm_context(const rf_comm *comm);

/* ---- failures ------------------------------------------------------------------------------- */

/** What a communicator died of, as far as this rank knows by now (the set of ranks may grow). */
typedef struct rf_failure {
	size_t size;
	int error;         /**< RF_ERR_RANK_DEAD, _TIMEOUT, _MISMATCH, _ABORTED, ... */
	size_t rank_count; /**< how many ranks are named */
	int *ranks;        /**< in: room for the ranks, or NULL; out: filled in ascending order */
	size_t rank_capacity; /**< in: how many fit in ranks */
	char message[512];    /**< one line for a person, with the ranks and the reason */
} rf_failure;
#define RF_FAILURE_INIT                            \
	{                                          \
		sizeof(rf_failure), 0, 0, NULL, 0, \
		{                                  \
			0                          \
		}                                  \
	}

/** 1 and the report if the communicator has failed, 0 if not, or a negative error. */
RF_API int rf_comm_failure(const rf_comm *comm, rf_failure *failure);

/**
 * Ends all calls on the communicator, on all ranks, with RF_ERR_ABORTED; it can only be destroyed
 * afterwards. From any thread.
 */
RF_API int rf_comm_abort(rf_comm *comm);

/* ---- collective calls ----------------------------------------------------------------------- */

typedef struct rf_call_options {
	size_t size;
	int64_t deadline_ms; /**< from posting; RF_NO_TIMEOUT: the communicator's */
	rf_order order;      /**< the same on all ranks */
	rf_wire wire;        /**< the same on all ranks */
	rf_cq *cq;           /**< NULL, or where the completion is queued */
	void *user;          /**< given back in the completion */
} rf_call_options;
#define RF_CALL_OPTIONS_INIT                                                                   \
	{                                                                                      \
		sizeof(rf_call_options), RF_NO_TIMEOUT, RF_ORDER_ANY, RF_WIRE_SAME, NULL, NULL \
	}

/**
 * The blocking calls start and wait. The i calls start and return: buffers (the arrays of counts
 * excepted, which are copied) belong to the library until the request has ended. Counts are in
 * elements and may be 0; buffers may have any alignment; send and receive buffers are the same
 * (RF_IN_PLACE, or equal pointers) or do not overlap. Options may be NULL.
 *
 * A call that fails leaves the receive buffer undefined and the communicator failed (see
 * rf_comm_failure()), except for RF_ERR_INVALID, _NOMEM, _UNSUPPORTED and _FORKED from the starting
 * function, which change nothing.
 */

/** recv[i] on every rank = the fold over all ranks of send[i], for i < count. */
RF_API int rf_allreduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
			rf_op op);
RF_API int rf_iallreduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
			 rf_op op, const rf_call_options *options, rf_request **request);

/** As allreduce, but only root's recv is written; elsewhere recv may be NULL. RF_IN_PLACE at the
 * root only. */
RF_API int rf_reduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
		     rf_op op, int root);
RF_API int rf_ireduce(rf_comm *comm, const void *send, void *recv, size_t count, rf_dtype dtype,
		      rf_op op, int root, const rf_call_options *options, rf_request **request);

/** buffer[i] on every rank = root's buffer[i], for i < count. */
RF_API int rf_broadcast(rf_comm *comm, void *buffer, size_t count, rf_dtype dtype, int root);
RF_API int rf_ibroadcast(rf_comm *comm, void *buffer, size_t count, rf_dtype dtype, int root,
			 const rf_call_options *options, rf_request **request);

/**
 * The fold of the ranks' inputs of sum(recv_counts) elements, cut into one block a rank in rank
 * order; recv gets this rank's block. Without v all blocks have recv_count elements. RF_IN_PLACE:
 * recv holds the whole input, all of it is overwritten, and the block ends at its start.
 */
RF_API int rf_reduce_scatter(rf_comm *comm, const void *send, void *recv, size_t recv_count,
			     rf_dtype dtype, rf_op op);
RF_API int rf_ireduce_scatter(rf_comm *comm, const void *send, void *recv, size_t recv_count,
			      rf_dtype dtype, rf_op op, const rf_call_options *options,
			      rf_request **request);
RF_API int rf_reduce_scatterv(rf_comm *comm, const void *send, void *recv,
			      const size_t *recv_counts, rf_dtype dtype, rf_op op);
RF_API int rf_ireduce_scatterv(rf_comm *comm, const void *send, void *recv,
			       const size_t *recv_counts, rf_dtype dtype, rf_op op,
			       const rf_call_options *options, rf_request **request);

/**
 * recv on every rank = the ranks' send buffers one after the other in rank order. Without v all
 * have send_count elements; counts is indexed by rank. RF_IN_PLACE: this rank's part is already at
 * its place in recv.
 */
RF_API int rf_allgather(rf_comm *comm, const void *send, void *recv, size_t send_count,
			rf_dtype dtype);
RF_API int rf_iallgather(rf_comm *comm, const void *send, void *recv, size_t send_count,
			 rf_dtype dtype, const rf_call_options *options, rf_request **request);
RF_API int rf_allgatherv(rf_comm *comm, const void *send, void *recv, const size_t *counts,
			 rf_dtype dtype);
RF_API int rf_iallgatherv(rf_comm *comm, const void *send, void *recv, const size_t *counts,
			  rf_dtype dtype, const rf_call_options *options, rf_request **request);

/** Returns after all ranks have called it. */
RF_API int rf_barrier(rf_comm *comm);
RF_API int rf_ibarrier(rf_comm *comm, const rf_call_options *options, rf_request **request);

/* ---- waiting -------------------------------------------------------------------------------- */

/**
 * Waits for a call to end. When it has ended its status is returned, the request is freed and
 * *request set to NULL. RF_ERR_AGAIN: it had not ended within timeout_ms (0 polls, RF_NO_TIMEOUT
 * waits for ever); the request is alive. A NULL *request is RF_OK.
 */
RF_API int rf_wait(rf_request **request, int64_t timeout_ms);
/** rf_wait() with a timeout of 0. */
RF_API int rf_test(rf_request **request);
/** Waits until one of the requests has ended, and handles that one as rf_wait() does; its position
 * is written to *index. NULL entries are passed over; if all are NULL: RF_OK and *index = count. */
RF_API int rf_wait_any(rf_request **requests, size_t count, int64_t timeout_ms, size_t *index);
/** Waits until all have ended; then all are freed and set to NULL, and the first error in the order
 * of the array is returned. RF_ERR_AGAIN: some had not ended within timeout_ms, all are alive. */
RF_API int rf_wait_all(rf_request **requests, size_t count, int64_t timeout_ms);
/** Revokes the communicator of a call that has not ended (all its calls end with RF_ERR_ABORTED, on
 * all ranks). The request must still be waited for. */
RF_API int rf_cancel(rf_request *request);

/** One ended call, from a completion queue. */
typedef struct rf_completion {
	void *user; /**< from rf_call_options */
	int status; /**< what rf_wait() would have returned */
} rf_completion;

/**
 * A completion queue. A call that was started with one is not waited for: its request is freed
 * when its completion has been polled (such a call may pass NULL for the request).
 */
RF_API int rf_cq_create(rf_context *context, rf_cq **cq);
/** RF_ERR_BUSY while calls that report to it are in flight. */
RF_API int rf_cq_destroy(rf_cq **cq);
/** Is readable (poll, epoll) while completions are queued. Do not read or write it. */
RF_API int rf_cq_fd(const rf_cq *cq);
/** Waits until there is a completion, driving progress, and takes up to capacity of them; returns
 * how many (0: none came within timeout_ms), or an error. */
RF_API int rf_cq_poll(rf_cq *cq, rf_completion *completions, int capacity, int64_t timeout_ms);

/* ---- memory --------------------------------------------------------------------------------- */

/** Memory that the transports reach best. Aligned to at least 64 bytes. Freed by rf_free(). */
RF_API int rf_alloc(rf_context *context, size_t bytes, void **memory);
RF_API int rf_free(rf_context *context, void *memory);
/** Tells the transports of memory that will be used often; it must outlive its registration. */
RF_API int rf_register(rf_context *context, void *memory, size_t bytes);
RF_API int rf_unregister(rf_context *context, void *memory);

/* ---- counters ------------------------------------------------------------------------------- */

/** Since the communicator was made. */
typedef struct rf_counters {
	size_t size;
	uint64_t calls[RF_COLLECTIVE_COUNT]; /**< started, by collective */
	uint64_t calls_ended;
	uint64_t payload_bytes_sent;     /**< or written to shared memory for others */
	uint64_t payload_bytes_received; /**< or read from it */
	uint64_t segments_sent;          /**< over the network */
	uint64_t segments_received;
	uint64_t retries;      /**< sends that the transport put off (RF_ERR_AGAIN) */
	uint64_t credit_waits; /**< sends that waited for the receiver to start its call */
	uint64_t wait_ns;      /**< that calls waited for data of other ranks */
} rf_counters;
#define RF_COUNTERS_INIT                                         \
	{                                                        \
		sizeof(rf_counters), {0}, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

RF_API int rf_comm_counters(const rf_comm *comm, rf_counters *counters);
/** The time that calls have waited for data of this rank, in nanoseconds. */
RF_API int rf_comm_peer_wait_ns(const rf_comm *comm, int rank, uint64_t *wait_ns);

#ifdef __cplusplus
}
#endif

#endif
