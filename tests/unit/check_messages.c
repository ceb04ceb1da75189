/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is refused is named as the person wrote it, an argument, an option or a variable, with what
 * it may be.
 */
#include "ringfold.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[1024];
static int failures;
static rf_context *context;
static rf_comm *comm; /* of one rank */

static void keep(void *user, rf_log_level level, const char *line)
{
	(void)user;
	if (level == RF_LOG_ERROR)
		snprintf(said, sizeof(said), "%s", line);
}

static void says(int line, int status, int expected, const char *text)
{
	if (status != expected || !strstr(said, text)) {
		fprintf(stderr, "%s:%d: %s, and \"%s\", which must say \"%s\"\n", __FILE__, line,
			rf_strerror(status), said, text);
		failures++;
	}
	said[0] = '\0';
}

#define SAYS(call, text)       says(__LINE__, call, RF_ERR_INVALID, text)
#define CONFIGURED(call, text) says(__LINE__, call, RF_ERR_CONFIG, text)

static void arguments(void)
{
	float values[4] = {0};

	SAYS(rf_broadcast(comm, NULL, 1, RF_FLOAT32, 0), "broadcast: buffer is NULL");
	SAYS(rf_broadcast(comm, (void *)RF_IN_PLACE, 1, RF_FLOAT32, 0), "buffer is RF_IN_PLACE");
	SAYS(rf_allreduce(comm, values, NULL, 3, RF_FLOAT32, RF_SUM), "recv is NULL, for 3");
	SAYS(rf_allreduce(comm, NULL, values, 3, RF_FLOAT32, RF_SUM), "send is NULL, for 3");
	SAYS(rf_allgather(comm, NULL, values, 1, RF_FLOAT32), "allgather: send is NULL");
	SAYS(rf_reduce_scatter(comm, values, NULL, 1, RF_FLOAT32, RF_SUM), "recv is NULL");
	SAYS(rf_reduce(comm, values, values, 1, RF_FLOAT32, RF_SUM, 1),
	     "root is 1: the communicator has the ranks 0 to 0");
	SAYS(rf_allreduce(comm, values, values, 1, (rf_dtype)99, RF_SUM), "dtype is 99");
	SAYS(rf_allreduce(comm, values, values, 1, RF_FLOAT32, (rf_op)77), "op is 77");
	SAYS(rf_allreduce(comm, values, values, SIZE_MAX, RF_FLOAT32, RF_SUM),
	     "elements of 4 bytes");
	SAYS(rf_allgatherv(comm, values, values, NULL, RF_FLOAT32), "one for each of the 1 ranks");
	SAYS(rf_ibarrier(comm, NULL, NULL), "request is NULL");
}

static void call_options(void)
{
	rf_call_options options = RF_CALL_OPTIONS_INIT;
	rf_request *request;

	options.order = (rf_order)5;
	SAYS(rf_ibarrier(comm, &options, &request), "options.order is 5");
	options = (rf_call_options)RF_CALL_OPTIONS_INIT;
	options.wire = (rf_wire)6;
	SAYS(rf_ibarrier(comm, &options, &request), "options.wire is 6");
	options.size = 3;
	SAYS(rf_ibarrier(comm, &options, &request), "options.size is 3");
}

static int create_context(const char *transport, const char *port, int progress, int level)
{
	rf_context_options options = RF_CONTEXT_OPTIONS_INIT;
	rf_context *never;

	options.log = keep;
	options.transport = transport;
	options.port = port;
	options.progress = (rf_progress)progress;
	options.log_level = (rf_log_level)level;
	return rf_context_create(&options, &never);
}

static void context_options(void)
{
	CONFIGURED(create_context("pigeons", NULL, 0, 0),
		   "options.transport is \"pigeons\", but must be one of auto|");
	CONFIGURED(create_context(NULL, "70000", 0, 0),
		   "options.port is \"70000\", but must be a number from 1 to 65535");
	CONFIGURED(create_context(NULL, "7010-7000", 0, 0), "options.port is \"7010-7000\"");
	SAYS(create_context(NULL, NULL, 9, 0), "options.progress is 9");
	SAYS(create_context(NULL, NULL, 0, 9), "options.log_level is 9");
	setenv("RINGFOLD_PORT", "0", 1);
	CONFIGURED(create_context(NULL, NULL, 0, 0), "RINGFOLD_PORT is \"0\"");
	unsetenv("RINGFOLD_PORT");
	setenv("RINGFOLD_ISA", "abacus", 1);
	CONFIGURED(create_context(NULL, NULL, 0, 0),
		   "RINGFOLD_ISA is \"abacus\", but must be one that this processor runs: "
		   "reference");
	unsetenv("RINGFOLD_ISA");
	setenv("RINGFOLD_INTERFACE", "=wire7", 1);
	CONFIGURED(create_context(NULL, NULL, 0, 0),
		   "RINGFOLD_INTERFACE is \"=wire7\", but this matches none; there are ");
	unsetenv("RINGFOLD_INTERFACE");
	setenv("RINGFOLD_CHANNELS", "-1", 1);
	CONFIGURED(create_context(NULL, NULL, 0, 0),
		   "RINGFOLD_CHANNELS is \"-1\", but must be a whole number from 0");
	unsetenv("RINGFOLD_CHANNELS");
}

static int create_comm(int rank, int size, const char *addr, int port)
{
	rf_comm_options options = RF_COMM_OPTIONS_INIT;
	rf_comm *never;

	options.rank = rank;
	options.world_size = size;
	options.master_addr = addr;
	options.master_port = port;
	return rf_comm_create(context, &options, &never);
}

static void comm_options(void)
{
	char long_name[400] = "";

	memset(long_name, 'h', sizeof(long_name) - 1);
	CONFIGURED(create_comm(0, 2, "", 0), "options.master_addr is empty");
	CONFIGURED(create_comm(0, 2, long_name, 0), "options.master_addr has 399 bytes");
	CONFIGURED(create_comm(0, 2, "host", 65536), "options.master_port=65536");
	CONFIGURED(create_comm(0, 2, "host", -1), "options.master_port=-1");
	CONFIGURED(create_comm(0, -1, NULL, 0), "set options.world_size, or WORLD_SIZE");
	CONFIGURED(create_comm(-1, 2, NULL, 0), "set options.rank, or RANK");
	setenv("RANK", "1", 1);
	setenv("WORLD_SIZE", "few", 1);
	CONFIGURED(create_comm(-1, -1, NULL, 0), "WORLD_SIZE=few is not a number: it must be the");
	setenv("WORLD_SIZE", "2", 1);
	setenv("MASTER_ADDR", "host", 1);
	setenv("MASTER_PORT", "http", 1);
	CONFIGURED(create_comm(-1, -1, NULL, 0), "MASTER_PORT=http is not a number: it must be a "
						 "port");
}

int main(void)
{
	static const char *const launchers[] = {"RANK",          "WORLD_SIZE",         "rank",
						"world",         "PMIX_RANK",          "PMI_RANK",
						"MASTER_ADDR",   "MASTER_PORT",        "PMI_SIZE",
						"RINGFOLD_RANK", "RINGFOLD_WORLD_SIZE"};
	rf_context_options options = RF_CONTEXT_OPTIONS_INIT;
	rf_comm_options alone = RF_COMM_OPTIONS_INIT;

	alarm(60);
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		unsetenv(launchers[i]);
	options.log = keep;
	alone.rank = 0;
	alone.world_size = 1;
	if (rf_context_create(&options, &context) || rf_comm_create(context, &alone, &comm)) {
		fprintf(stderr, "no communicator of one rank: %s\n", said);
		return 1;
	}
	arguments();
	call_options();
	context_options();
	comm_options();
	if (rf_comm_destroy(&comm) || rf_context_destroy(&context))
		return 1;
	return failures != 0;
}
