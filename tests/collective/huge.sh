#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# More than 2^32 elements between two processes.
. "$abs_top_srcdir/tests/tools/lib.sh"

if [ -n "${RINGFOLD_SANITIZER:-}" ]; then
	echo "skipped: too slow under a sanitizer"
	exit 77
fi
timeout -k 5 300 "$ringfold" run -n 2 -- "$abs_top_builddir/tests/collective/huge" \
	>"$scratch/out" 2>"$scratch/err" </dev/null
status=$?
promise "a call moves more than 2^32 elements ($(sed -n 's/.*elements in //p' "$scratch/out"))" \
	status_is 0
finish
