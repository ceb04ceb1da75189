#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that share memory are killed at any moment: nothing of them is left, in no file system, no
# list of sockets, no process.
. "$abs_top_srcdir/tests/tools/lib.sh"

if [ -n "${RINGFOLD_TEST_EMULATED:-}" ]; then
	echo "skipped: starts programs of another processor"
	exit 77
fi
traces() {
	find /dev/shm /tmp -maxdepth 1 -iname '*ringfold*' 2>/dev/null | grep -v "^$scratch" | sort
	# Of this test's own processes only: others may run at the same time.
	for pid in $pids; do
		[ ! -d "/proc/$pid" ] || [ "$(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null)" = Z ] ||
			echo "process $pid"
	done
}
before=$(find /dev/shm /tmp -maxdepth 1 -iname '*ringfold*' 2>/dev/null | grep -v "^$scratch" | sort)
pids=
for round in 1 2 3 4 5 6 7 8; do
	"$ringfold" run -n 3 -- "$ringfold" bench -s 4M --seconds 5 \
		>"$scratch/out" 2>"$scratch/err" </dev/null &
	parent=$!
	# From the first moments on, while memory is handed over, to the midst of calls.
	sleep "0.0$((round * round))"
	ranks=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null)
	pids="$pids $parent $ranks"
	kill -9 $ranks $parent 2>/dev/null
	wait $parent 2>/dev/null
done
sleep 1
promise "nothing is left of killed ranks" same "$before" "$(traces)"
sockets=$(grep -c '@ringfold-' /proc/net/unix)
live=$(ls -d /proc/[0-9]*/exe 2>/dev/null | xargs -n1 readlink 2>/dev/null | grep -c "$abs_top_builddir")
[ "$live" -gt 0 ] || promise "no socket is left" same 0 "$sockets"
finish
