#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that do nothing, or wait for one that is late, use no CPU time.
. "$abs_top_srcdir/tests/tools/lib.sh"

if [ -n "${RINGFOLD_TEST_EMULATED:-}" ]; then
	echo "skipped: starts programs of another processor"
	exit 77
fi
if [ -n "${RINGFOLD_SANITIZER:-}" ]; then
	echo "skipped: the sanitizer's own time would be counted"
	exit 77
fi
for transport in shm tcp; do
	RINGFOLD_TRANSPORT=$transport
	export RINGFOLD_TRANSPORT
	rf run -n 4 -- "$abs_top_builddir/tests/arena/idle"
	promise "idle and waiting ranks sleep ($transport)" status_is 0
done
finish
