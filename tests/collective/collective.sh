#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The collectives in real processes, for several numbers of ranks and settings, and that the bits of
# results are the same from run to run.
. "$abs_top_srcdir/tests/tools/lib.sh"

program=$abs_top_builddir/tests/collective/collective
: "${RINGFOLD_TEST_SEED:=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"
export RINGFOLD_TEST_SEED
echo "RINGFOLD_TEST_SEED=$RINGFOLD_TEST_SEED"

# on RANKS [CASE...]; the log is not wanted: wrong arguments are part of it.
on() {
	ranks=$1
	shift
	rf run -n "$ranks" -- "$program" "$@"
}
digest() { sed -n "s/.*digest of $1 order: //p" "$scratch/out"; }
bits="all_ranks_get_the_same_bits_on_every_run tree_order_follows_the_tree"

for ranks in 1 2 3 4 7 8; do
	on $ranks
	promise "every case holds on $ranks ranks ($(sed -n 's/.* ranks in //p' "$scratch/out"))" \
		status_is 0
	any=$(digest any)
	tree=$(digest tree)
	[ $ranks = 2 ] || [ $ranks = 4 ] || [ $ranks = 7 ] || continue
	export RINGFOLD_TRANSPORT=tcp
	on $ranks
	promise "every case holds on $ranks ranks without shared memory" status_is 0
	promise "in tree order shared memory changes no bits of $ranks ranks" \
		same "$tree" "$(digest tree)"
	unset RINGFOLD_TRANSPORT
	[ $ranks != 4 ] || continue
	on $ranks $bits
	promise "the bits of $ranks ranks are the same on the next run" same "$any" "$(digest any)"
	for setting in RINGFOLD_ALGORITHM=direct RINGFOLD_ALGORITHM=ring \
		RINGFOLD_ALGORITHM=doubling RINGFOLD_CHUNK_BYTES=1024; do
		export "${setting?}"
		on $ranks $bits
		promise "in tree order $setting changes no bits of $ranks ranks" \
			same "$tree" "$(digest tree)"
		unset "${setting%%=*}"
	done
done

export RINGFOLD_PROGRESS=thread
on 4
promise "every case holds with the library's thread driving" status_is 0
export RINGFOLD_TRANSPORT=tcp
on 4
promise "every case holds so without shared memory" status_is 0
unset RINGFOLD_PROGRESS RINGFOLD_TRANSPORT

# Many ticks, and slots used again and again.
export RINGFOLD_SHM_BYTES=64K RINGFOLD_TRANSPORT=shm
on 3
promise "every case holds with little shared memory" status_is 0
unset RINGFOLD_SHM_BYTES
RINGFOLD_TRANSPORT=tcp

for setting in RINGFOLD_ALGORITHM=ring RINGFOLD_ALGORITHM=direct RINGFOLD_ALGORITHM=doubling \
	RINGFOLD_CHUNK_BYTES=128 RINGFOLD_CHANNELS=3 RINGFOLD_EAGER_BYTES=64; do
	export "${setting?}"
	on 3 every_call_takes_every_dtype_and_op calls_fly_together_on_one_communicator \
		communicators_do_not_wait_for_one_another
	promise "calls are right with $setting" status_is 0
	unset "${setting%%=*}"
done
unset RINGFOLD_TRANSPORT
finish
