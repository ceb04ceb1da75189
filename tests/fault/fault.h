/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases of the fault test. */
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

/* X(name): the promise that the case keeps */
#define FAULT_CASES(X)                                  \
	X(a_killed_rank_is_known_while_idle)            \
	X(a_killed_rank_is_known_in_a_large_call)       \
	X(a_killed_rank_is_known_among_small_calls)     \
	X(a_killed_master_is_known_as_any_other)        \
	X(a_stopped_rank_is_named_by_the_deadline)      \
	X(an_exit_without_leaving_is_a_death)           \
	X(leaving_and_exiting_is_no_death)              \
	X(a_rank_killed_in_rendezvous_may_come_again)   \
	X(a_master_killed_in_rendezvous_may_come_again) \
	X(absent_ranks_are_listed_by_all)               \
	X(the_master_may_come_last_or_first)            \
	X(a_wrong_world_size_fails_all)                 \
	X(two_ranks_of_one_number_fail_all)             \
	X(strangers_do_no_harm_in_rendezvous)           \
	X(strangers_do_no_harm_in_a_run)                \
	X(thousands_of_strangers_do_no_harm)            \
	X(another_jobs_rank_is_turned_away)             \
	X(another_wire_version_is_shown_to_both)        \
	X(a_port_range_serves_several_ranks)            \
	X(a_busy_port_is_said)                          \
	X(ipv6_alone_is_enough)                         \
	X(a_forked_child_is_told_so)                    \
	X(a_dead_parent_is_seen_while_its_child_lives)  \
	X(a_forked_child_makes_a_context_of_its_own)    \
	X(no_sigpipe_is_raised)                         \
	X(a_low_limit_of_descriptors_is_said)           \
	X(an_idle_rank_uses_no_cpu)                     \
	X(ranks_that_outnumber_cores_do_not_spin)       \
	X(a_rank_of_many_has_few_descriptors)

#define X(name) void name(void);
FAULT_CASES(X)
#undef X

const char *fault_case_name(void);

#endif
