/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases of the collective test: all ranks run all of them in this order. Which rank does what
 * in a case, and for how few ranks it has nothing to do, is its own affair. */
#ifndef TESTS_COLLECTIVE_CASES_H
#define TESTS_COLLECTIVE_CASES_H

/* X(name): the promise that the case keeps */
#define COLLECTIVE_CASES(X)                             \
	X(every_call_takes_every_dtype_and_op)          \
	X(buffers_may_lie_anywhere)                     \
	X(calls_fly_together_on_one_communicator)       \
	X(communicators_do_not_wait_for_one_another)    \
	X(a_split_orders_by_key_and_leaves_out)         \
	X(a_group_is_made_by_its_members_alone)         \
	X(a_wait_that_times_out_leaves_the_call_alive)  \
	X(wait_any_hands_out_each_call_once)            \
	X(wait_all_ends_all)                            \
	X(a_queue_hands_out_each_completion_once)       \
	X(a_queue_can_be_polled_by_its_descriptor)      \
	X(the_thread_moves_data_while_nobody_waits)     \
	X(a_deadline_names_the_late_rank)               \
	X(an_abort_ends_the_calls_of_all_ranks)         \
	X(a_mismatch_is_told_to_all_with_both_views)    \
	X(a_call_after_a_rank_has_left_fails)           \
	X(counters_count)                               \
	X(memory_is_handed_out_and_registered)          \
	X(wrong_arguments_are_refused_and_harm_nothing) \
	X(wrong_communicator_arguments_are_refused)     \
	X(all_ranks_get_the_same_bits_on_every_run)     \
	X(tree_order_follows_the_tree)                  \
	X(half_floats_are_rounded_once_with_fp32_partials)

#define X(name) void name(void);
COLLECTIVE_CASES(X)
#undef X

#endif
