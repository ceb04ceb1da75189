/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call with every dtype, op, size and alignment, many in flight on several communicators. */
#include "tests/collective/cases.h"
#include "tests/collective/sample.h"

#include <stdlib.h>

enum { FLIGHT = 24, COMMS = 4 };

static void end_flight(struct sample *samples, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int status = samples[i].blocking ? samples[i].status
						 : rf_wait(&samples[i].request, RF_NO_TIMEOUT);

		CHECK(!samples[i].request, "a request that has ended is not NULL");
		sample_judge(&samples[i], status);
	}
}

/* Collectives that do not fold are run with each dtype once. */
static bool is_redundant(rf_collective collective, rf_op op, rf_dtype dtype)
{
	bool folds = collective == RF_ALLREDUCE || collective == RF_REDUCE ||
		     collective == RF_REDUCE_SCATTER;

	if (collective == RF_BARRIER)
		return dtype != 0 || op != RF_SUM;
	return !folds && op != RF_SUM;
}

void every_call_takes_every_dtype_and_op(void)
{
	struct sample samples[FLIGHT];
	size_t in_flight = 0;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < RF_COLLECTIVE_COUNT * RF_DTYPE_COUNT * RF_OP_COUNT; i++) {
			struct sample *sample = &samples[in_flight];

			sample->collective = (rf_collective)(i % RF_COLLECTIVE_COUNT);
			sample->dtype = (rf_dtype)(i / RF_COLLECTIVE_COUNT % RF_DTYPE_COUNT);
			sample->op = (rf_op)(i / RF_COLLECTIVE_COUNT / RF_DTYPE_COUNT);
			if (is_redundant(sample->collective, sample->op, sample->dtype))
				continue;
			sample_draw(sample, world, 6000);
			sample_start(sample, NULL);
			if (++in_flight == FLIGHT) {
				end_flight(samples, in_flight);
				in_flight = 0;
			}
		}
	}
	end_flight(samples, in_flight);
}

/* Each of a vector's offsets, for both buffers, and one elsewhere on every rank. */
void buffers_may_lie_anywhere(void)
{
	struct sample samples[FLIGHT];

	for (int i = 0; i < 4 * FLIGHT; i++) {
		struct sample *sample = &samples[i % FLIGHT];

		sample->collective = i % 3 ? RF_ALLREDUCE : RF_REDUCE_SCATTER;
		sample->dtype = (rf_dtype)dice_roll(&common, RF_DTYPE_COUNT);
		sample->op = RF_SUM;
		sample_draw(sample, world, 1000);
		sample->send_shift = (unsigned)(i + 3 * rank) % 64;
		sample->recv_shift = (unsigned)(i * 7 + rank) % 64;
		sample_start(sample, NULL);
		if (i % FLIGHT == FLIGHT - 1)
			end_flight(samples, FLIGHT);
	}
}

/* Large and small ones; more than one chunk of the window. */
void calls_fly_together_on_one_communicator(void)
{
	enum { CALLS = 48 };
	struct sample samples[CALLS];

	for (int i = 0; i < CALLS; i++) {
		sample_draw_any(&samples[i], world, i % 8 ? 3000 : 400000);
		samples[i].blocking = false;
		sample_start(&samples[i], NULL);
	}
	/* From the last to the first: they are independent of who is waited for. */
	for (int i = CALLS - 1; i >= 0; i--)
		sample_judge(&samples[i], rf_wait(&samples[i].request, RF_NO_TIMEOUT));
}

static void make_comms(rf_comm *comms[COMMS])
{
	int *reversed = malloc((size_t)size * sizeof(int));

	CHECK(reversed, "out of memory");
	for (int i = 0; i < size; i++)
		reversed[i] = size - 1 - i;
	comms[0] = world;
	CHECK_OK(rf_comm_split(world, 0, 0, NULL, &comms[1]));
	CHECK_OK(rf_comm_split(world, rank % 2, -rank, NULL, &comms[2]));
	CHECK_OK(rf_comm_create_group(world, reversed, size, 7, NULL, &comms[3]));
	free(reversed);
}

/* Each rank starts the calls of each communicator in order, and the communicators interleaved in an
 * order of its own; then waits for them in another. */
void communicators_do_not_wait_for_one_another(void)
{
	enum { CALLS = 12 };
	static struct sample samples[COMMS][CALLS];
	rf_comm *comms[COMMS];
	int next[COMMS] = {0};

	make_comms(comms);
	for (int comm = 0; comm < COMMS; comm++) {
		/* Of a communicator with other members the dice must be its own. */
		struct dice before = common;

		for (int call = 0; call < CALLS; call++) {
			sample_draw_any(&samples[comm][call], comms[comm],
					call % 4 ? 2000 : 150000);
			samples[comm][call].blocking = false;
		}
		common.state = before.state + 77;
	}
	for (int left = COMMS * CALLS; left;) {
		int comm = (int)dice_roll(&own, COMMS);

		if (next[comm] == CALLS)
			continue;
		sample_start(&samples[comm][next[comm]++], NULL);
		left--;
	}
	for (int i = 0; i < COMMS * CALLS; i++) {
		struct sample *sample = &samples[(i + rank) % COMMS][i / COMMS];

		sample_judge(sample, rf_wait(&sample->request, RF_NO_TIMEOUT));
	}
	for (int comm = 1; comm < COMMS; comm++)
		CHECK_OK(rf_comm_destroy(&comms[comm]));
}

void a_split_orders_by_key_and_leaves_out(void)
{
	rf_comm *comm = NULL;
	rf_request *request;
	int64_t sum = rank;

	CHECK_OK(rf_comm_split(world, rank ? 5 : -1, size - rank, NULL, &comm));
	if (rank == 0) {
		CHECK(!comm, "a negative color has got a communicator");
	} else {
		CHECK(rf_comm_size(comm) == size - 1, "size %d", rf_comm_size(comm));
		CHECK(rf_comm_rank(comm) == size - 1 - rank, "rank %d", rf_comm_rank(comm));
		CHECK_OK(rf_allreduce(comm, RF_IN_PLACE, &sum, 1, RF_INT64, RF_SUM));
		CHECK(sum == (int64_t)size * (size - 1) / 2, "the sum is %lld", (long long)sum);
		CHECK_OK(rf_comm_destroy(&comm));
	}
	/* All in one color by an i form, and all in one of their own. */
	CHECK_OK(rf_comm_isplit(world, 0, 0, NULL, &comm, &request));
	while (rf_test(&request) == RF_ERR_AGAIN)
		CHECK(request, "a request that has not ended is gone");
	CHECK(comm && rf_comm_rank(comm) == rank, "equal keys do not keep the order");
	CHECK_OK(rf_comm_destroy(&comm));
	CHECK_OK(rf_comm_split(world, rank, 0, NULL, &comm));
	CHECK(rf_comm_size(comm) == 1 && rf_comm_rank(comm) == 0, "not alone");
	CHECK_OK(rf_barrier(comm));
	CHECK_OK(rf_comm_destroy(&comm));
}

/* Two groups that overlap, made at once, by members that start them in different orders. */
void a_group_is_made_by_its_members_alone(void)
{
	int low[8], high[8], count = size - 1;
	rf_comm *comms[2] = {NULL, NULL};
	rf_request *requests[2] = {NULL, NULL};

	if (count < 1 || count > 8)
		return;
	for (int i = 0; i < count; i++) {
		low[i] = i;
		high[i] = size - 1 - i; /* the last is the first */
	}
	for (int turn = 0; turn < 2; turn++) {
		bool is_low = turn == rank % 2;

		if (is_low ? rank == size - 1 : rank == 0)
			continue;
		CHECK_OK(rf_comm_icreate_group(world, is_low ? low : high, count, 40, NULL,
					       &comms[is_low], &requests[is_low]));
	}
	CHECK_OK(rf_wait_all(requests, 2, RF_NO_TIMEOUT));
	for (int i = 0; i < 2; i++) {
		int32_t sum = 1;

		if (!comms[i])
			continue;
		CHECK(rf_comm_rank(comms[i]) == (i ? rank : size - 1 - rank), "another rank");
		CHECK_OK(rf_allreduce(comms[i], RF_IN_PLACE, &sum, 1, RF_INT32, RF_SUM));
		CHECK(sum == count, "%d members answered, not %d", sum, count);
	}
	for (int i = 0; i < 2; i++) {
		if (comms[i])
			CHECK_OK(rf_comm_destroy(&comms[i]));
	}
}
