#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The arena's ticks in every interleaving, by spin; and that the model notices when a slot is
# missing.
. "$abs_top_srcdir/tests/tools/lib.sh"

if ! command -v spin >/dev/null; then
	echo "skipped: spin is missing; Debian's package for it is spin"
	exit 77
fi
model=$abs_top_srcdir/tests/arena/arena.pml
check() { # DEPTH
	(cd "$scratch" && spin -DDEPTH="$1" -a "$model" >spin.out 2>&1 &&
		${CC:-cc} -O2 -DSAFETY -DVECTORSZ=2048 -w -o pan pan.c &&
		./pan -m200000 >out 2>err)
	grep -o 'errors: [0-9]*' "$scratch/out"
}
promise "four slots are enough in every interleaving of two ranks" same "errors: 0" "$(check 4)"
promise "with three the model finds an error" same "errors: 1" "$(check 3)"
finish
