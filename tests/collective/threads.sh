#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Threads of real processes.
. "$abs_top_srcdir/tests/tools/lib.sh"

: "${RINGFOLD_TEST_SEED:=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"
export RINGFOLD_TEST_SEED
echo "RINGFOLD_TEST_SEED=$RINGFOLD_TEST_SEED"
for ranks in 1 2 4; do
	for progress in caller thread; do
		RINGFOLD_PROGRESS=$progress
		export RINGFOLD_PROGRESS
		timeout -k 5 150 "$ringfold" run -n $ranks -- \
			"$abs_top_builddir/tests/collective/threads" \
			>"$scratch/out" 2>"$scratch/err" </dev/null
		status=$?
		promise "threads of $ranks ranks, $progress drives ($(sed -n 's/.*ranks in //p' \
			"$scratch/out"))" status_is 0
	done
done
finish
