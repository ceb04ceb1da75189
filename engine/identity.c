/* SPDX-License-Identifier: BSD-3-Clause */
/* Process identity from options and the environment: lists of variables, and the rules by which
 * the first one that is set wins. */
#include "engine/identity.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* First found wins. A node-level row counts only if no process-level one is there. */
const struct rf_identity_row rf_identity_rows[] = {
	{"RINGFOLD_RANK", "RINGFOLD_WORLD_SIZE", false},
	{"rank", "world", false},
	{"RANK", "WORLD_SIZE", false},
	{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", false},
	{"PMIX_RANK", "PMIX_SIZE", false},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false},
	{"PMI_RANK", "PMI_SIZE", false},
	{"SLURM_PROCID", "SLURM_NTASKS", false},
	{"JOB_COMPLETION_INDEX", NULL, true},
	{"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", true},
	{"PET_NODE_RANK", "PET_NNODES", true},
};
const size_t rf_identity_row_count = COUNT(rf_identity_rows);

/* For a rank whose own size is not set. */
static const char *const general_sizes[] = {"RINGFOLD_WORLD_SIZE", "world", "WORLD_SIZE"};

static const char *const master_addrs[] = {"RINGFOLD_MASTER_ADDR", "MASTER_ADDR", "PET_MASTER_ADDR",
					   "LWS_LEADER_ADDRESS"};
static const char *const master_ports[] = {"RINGFOLD_MASTER_PORT", "MASTER_PORT",
					   "PET_MASTER_PORT"};
static const char *const node_lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
					 "SLURM_NODELIST"};
/* How many of the ranks are on this host: if all of them are, rank 0 is here. */
static const struct {
	const char *local_size, *size;
} local_sizes[] = {
	{"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
	{"MPI_LOCALNRANKS", "PMI_SIZE"},
};

/* What a number must be, for messages. */
static const char RANK_TEXT[] = "a rank, a whole number from 0";
static const char SIZE_TEXT[] = "the number of ranks, a whole number from 1";
static const char PORT_TEXT[] = "a port, from 1 to 65535";

struct lookup {
	rf_identity_getenv *getenv_fn;
	void *user;
	char *message;
};

static const char *environment(void *user, const char *variable)
{
	(void)user;
	return getenv(variable);
}

static const char *get(const struct lookup *lookup, const char *variable)
{
	return lookup->getenv_fn(lookup->user, variable);
}

__attribute__((format(printf, 2, 3))) static int wrong(const struct lookup *lookup,
						       const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(lookup->message, RF_IDENTITY_TEXT, format, arguments);
	va_end(arguments);
	return RF_ERR_CONFIG;
}

/* Digits only, up to INT_MAX. */
static bool parse_number(const char *text, int *number)
{
	long long value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (*text - '0');
		if (value > INT_MAX)
			return false;
	}
	*number = (int)value;
	return true;
}

/* what: "a rank, a whole number from 0". */
static int get_number(const struct lookup *lookup, const char *variable, const char *what,
		      int *number)
{
	const char *text = get(lookup, variable);

	if (!text || !*text)
		return wrong(lookup, "%s is %s: it must be %s", variable,
			     text ? "empty" : "not set", what);
	if (!parse_number(text, number))
		return wrong(lookup, "%s=%.64s is not a number: it must be %s", variable, text,
			     what);
	return RF_OK;
}

/* ---- rank and size -------------------------------------------------------------------------- */

/* Several processes on this node, so that what is said of the node does not tell them apart. */
static const char *node_is_shared(const struct lookup *lookup)
{
	const char *processes = get(lookup, "PET_NPROC_PER_NODE");

	return processes && strcmp(processes, "1") ? processes : NULL;
}

/* The size that goes with a rank: its own variable, else a general one, else that of another
 * process-level row with the same rank. NULL: none. */
static const char *find_size(const struct lookup *lookup, const struct rf_identity_row *row)
{
	const char *rank = get(lookup, row->rank);

	if (row->size && get(lookup, row->size))
		return row->size;
	for (size_t i = 0; i < COUNT(general_sizes); i++)
		if (get(lookup, general_sizes[i]))
			return general_sizes[i];
	for (size_t i = 0; i < rf_identity_row_count && !row->node_level; i++) {
		const struct rf_identity_row *other = &rf_identity_rows[i];
		const char *same = get(lookup, other->rank);

		if (!other->node_level && same && !strcmp(same, rank) && get(lookup, other->size))
			return other->size;
	}
	return NULL;
}

static const struct rf_identity_row *find_row(const struct lookup *lookup)
{
	for (int node_level = 0; node_level < 2; node_level++) {
		const struct rf_identity_row *without_size = NULL;

		for (size_t i = 0; i < rf_identity_row_count; i++) {
			const struct rf_identity_row *row = &rf_identity_rows[i];

			if (row->node_level != node_level || !get(lookup, row->rank))
				continue;
			/* Two rows may have one rank variable and differ in the size's. */
			if (row->size && get(lookup, row->size))
				return without_size && strcmp(without_size->rank, row->rank)
					       ? without_size
					       : row;
			if (!without_size)
				without_size = row;
		}
		if (without_size)
			return without_size;
	}
	return NULL;
}

/* A rank and its size, without complaint. */
static bool read_quietly(const struct lookup *lookup, const struct rf_identity_row *row, int *rank,
			 int *size)
{
	const char *rank_text = get(lookup, row->rank);
	const char *size_text = row->size ? get(lookup, row->size) : NULL;

	return rank_text && size_text && parse_number(rank_text, rank) &&
	       parse_number(size_text, size);
}

static void warn_of_others(const struct lookup *lookup, const struct rf_identity_row *chosen,
			   struct rf_identity *identity)
{
	for (size_t i = 0; i < rf_identity_row_count; i++) {
		const struct rf_identity_row *row = &rf_identity_rows[i];
		size_t length = strlen(identity->warning);
		int rank, size;

		if (row == chosen || row->node_level || !read_quietly(lookup, row, &rank, &size) ||
		    (rank == identity->rank && size == identity->world_size))
			continue;
		if (!length)
			length = (size_t)snprintf(identity->warning, RF_IDENTITY_TEXT,
						  "%s say rank %d of %d and are followed, but",
						  identity->source, identity->rank,
						  identity->world_size);
		snprintf(identity->warning + length, RF_IDENTITY_TEXT - length,
			 "%s %s, %s say rank %d of %d",
			 strstr(identity->warning, " but ") ? "," : "", row->rank, row->size, rank,
			 size);
	}
}

static int from_environment(const struct lookup *lookup, const struct rf_identity_options *options,
			    struct rf_identity *identity)
{
	const struct rf_identity_row *row = find_row(lookup);
	const char *size_variable;
	int status;

	if (!row && options->rank >= 0)
		return wrong(lookup,
			     "options.rank is %d, but nothing says how many ranks there are: set "
			     "options.world_size, or WORLD_SIZE (or RINGFOLD_WORLD_SIZE)",
			     options->rank);
	if (!row && options->world_size >= 0)
		return wrong(lookup,
			     "options.world_size is %d, but nothing says which rank this process "
			     "is: set options.rank, or RANK (or RINGFOLD_RANK)",
			     options->world_size);
	if (!row)
		return wrong(lookup, "which rank is this process? Set RANK and WORLD_SIZE (or "
				     "RINGFOLD_RANK and RINGFOLD_WORLD_SIZE), or start it with a "
				     "launcher such as torchrun, mpirun, srun or ringfold run");
	if (row->node_level && node_is_shared(lookup))
		return wrong(
			lookup,
			"%s tells nodes apart, but PET_NPROC_PER_NODE=%.32s says that there are "
			"several processes on each: set RANK and WORLD_SIZE for each process",
			row->rank, node_is_shared(lookup));
	size_variable = find_size(lookup, row);
	if (options->rank < 0) {
		status = get_number(lookup, row->rank, RANK_TEXT, &identity->rank);
		if (status != RF_OK)
			return status;
	}
	if (options->world_size < 0) {
		if (!size_variable)
			return wrong(lookup,
				     "%s=%.32s is set, but nothing says how many ranks there "
				     "are: set %s",
				     row->rank, get(lookup, row->rank),
				     row->size ? row->size : "RINGFOLD_WORLD_SIZE");
		status = get_number(lookup, size_variable, SIZE_TEXT, &identity->world_size);
		if (status != RF_OK)
			return status;
	}
	snprintf(identity->source, sizeof(identity->source), "%s, %s",
		 options->rank < 0 ? row->rank : "options",
		 options->world_size < 0 ? size_variable : "options");
	if (!row->node_level && options->rank < 0 && options->world_size < 0)
		warn_of_others(lookup, row, identity);
	return RF_OK;
}

static int find_rank(const struct lookup *lookup, const struct rf_identity_options *options,
		     struct rf_identity *identity)
{
	identity->rank = options->rank;
	identity->world_size = options->world_size;
	if (options->rank >= 0 && options->world_size >= 0) {
		snprintf(identity->source, sizeof(identity->source), "options");
	} else {
		int status = from_environment(lookup, options, identity);

		if (status != RF_OK)
			return status;
	}
	if (identity->world_size < 1 || identity->rank >= identity->world_size)
		return wrong(lookup,
			     "rank %d of %d (from %s) cannot be: there is at least one rank, and "
			     "ranks go from 0 to the world size less one",
			     identity->rank, identity->world_size, identity->source);
	return RF_OK;
}

/* ---- rank 0's place ------------------------------------------------------------------------- */

int rf_identity_first_host(const char *list, char *host, size_t capacity)
{
	size_t length = 0;
	bool in_bracket = false, skipping = false;

	for (; *list && (in_bracket || *list != ','); list++) {
		if (*list == '[' && !in_bracket) {
			in_bracket = true;
			skipping = false;
		} else if (*list == ']' && in_bracket) {
			in_bracket = false;
		} else if (*list == '[' || *list == ']') {
			return RF_ERR_CONFIG;
		} else if (in_bracket && (*list == '-' || *list == ',')) {
			skipping = true;
		} else if (!in_bracket || !skipping) {
			if (length + 1 >= capacity)
				return RF_ERR_CONFIG;
			host[length++] = *list;
		}
	}
	if (in_bracket || !length)
		return RF_ERR_CONFIG;
	host[length] = '\0';
	return RF_OK;
}

static bool all_ranks_are_here(const struct lookup *lookup, const char **variable)
{
	for (size_t i = 0; i < COUNT(local_sizes); i++) {
		const char *here = get(lookup, local_sizes[i].local_size);
		const char *all = get(lookup, local_sizes[i].size);

		*variable = local_sizes[i].local_size;
		if (here && all && !strcmp(here, all))
			return true;
	}
	return false;
}

/* name: what the person wrote the address behind. */
static int set_master(const struct lookup *lookup, struct rf_identity *identity, const char *name,
		      const char *addr)
{
	const size_t most = sizeof(identity->master_addr) - 1;

	if (!*addr)
		return wrong(lookup, "%s is empty: it must be the name or address of rank 0's host",
			     name);
	if (strlen(addr) > most)
		return wrong(lookup, "%s has %zu bytes: the name of a host has at most %zu", name,
			     strlen(addr), most);
	strcpy(identity->master_addr, addr);
	snprintf(identity->master_source, sizeof(identity->master_source), "%s", name);
	return RF_OK;
}

static int set_master_of_options(const struct lookup *lookup, struct rf_identity *identity,
				 const char *addr)
{
	int status = set_master(lookup, identity, "options.master_addr", addr);

	if (status == RF_OK)
		strcpy(identity->master_source, "options");
	return status;
}

static int find_master_addr(const struct lookup *lookup, const struct rf_identity_options *options,
			    struct rf_identity *identity)
{
	const char *variable;
	char host[RF_IDENTITY_NAME];

	if (options->master_addr)
		return set_master_of_options(lookup, identity, options->master_addr);
	for (size_t i = 0; i < COUNT(master_addrs); i++)
		if (get(lookup, master_addrs[i]))
			return set_master(lookup, identity, master_addrs[i],
					  get(lookup, master_addrs[i]));
	for (size_t i = 0; i < COUNT(node_lists); i++) {
		const char *list = get(lookup, node_lists[i]);

		if (!list)
			continue;
		if (rf_identity_first_host(list, host, sizeof(host)) != RF_OK)
			return wrong(lookup,
				     "%s=%.200s is not a list of hosts such as node[01-04],login: "
				     "set MASTER_ADDR to the name or address of rank 0's host",
				     node_lists[i], list);
		return set_master(lookup, identity, node_lists[i], host);
	}
	if (all_ranks_are_here(lookup, &variable))
		return set_master(lookup, identity, variable, "127.0.0.1");
	return wrong(lookup,
		     "where is rank 0? Set MASTER_ADDR to the name or address of its host (and "
		     "MASTER_PORT, if %d is not free there) on all ranks; this build cannot ask "
		     "PMIx",
		     RF_IDENTITY_MASTER_PORT);
}

static int find_master_port(const struct lookup *lookup, const struct rf_identity_options *options,
			    struct rf_identity *identity)
{
	int port = RF_IDENTITY_MASTER_PORT;
	const char *variable = NULL;

	for (size_t i = 0; i < COUNT(master_ports) && !variable && !options->master_port; i++)
		if (get(lookup, master_ports[i]))
			variable = master_ports[i];
	if (variable) {
		int status = get_number(lookup, variable, PORT_TEXT, &port);

		if (status != RF_OK)
			return status;
	} else if (options->master_port) {
		port = options->master_port;
	}
	if (port < 1 || port > 65535)
		return wrong(lookup, "%s=%d is not a port: it must be from 1 to 65535",
			     variable ? variable : "options.master_port", port);
	identity->master_port = (uint16_t)port;
	return RF_OK;
}

int rf_identity_find(const struct rf_identity_options *options, rf_identity_getenv *getenv_fn,
		     void *user, struct rf_identity *identity, char message[RF_IDENTITY_TEXT])
{
	const struct lookup lookup = {getenv_fn ? getenv_fn : environment, user, message};
	struct rf_identity found;
	int status;

	memset(&found, 0, sizeof(found));
	message[0] = '\0';
	status = find_rank(&lookup, options, &found);
	if (status == RF_OK && options->needs_master && found.world_size > 1) {
		status = find_master_addr(&lookup, options, &found);
		if (status == RF_OK)
			status = find_master_port(&lookup, options, &found);
	}
	if (status == RF_OK)
		*identity = found;
	return status;
}
