#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that share memory are killed at any moment: nothing of them is left, in no file system, no
# list of sockets, no process.
. "$abs_top_srcdir/tests/tools/lib.sh"

if [ -n "${RINGFOLD_TEST_EMULATED:-}" ]; then
	echo "skipped: starts programs of another processor"
	exit 77
fi
# A process by its number and its start: numbers are used again.
identity() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
	set -- "$1" ${stat##*) }
	# The fields after the name: state is the 2nd here, the start the 21st.
	[ "$2" = Z ] || { shift 20; echo "$pid:$1"; }
}
traces() {
	find /dev/shm -iname '*ringfold*' 2>/dev/null
	find /tmp -maxdepth 1 -iname 'ringfold*' -newer "$scratch/begun" 2>/dev/null |
		grep -v '/ringfold-test-' # another test's
	for known in $processes; do
		pid=${known%%:*}
		[ "$(identity "$pid")" != "$known" ] || echo "process $pid"
	done
}
: >"$scratch/begun"
processes=
for round in 1 2 3 4 5 6 7 8; do
	"$ringfold" run -n 3 -- "$ringfold" bench -s 4M --seconds 5 \
		>"$scratch/out" 2>"$scratch/err" </dev/null &
	parent=$!
	# From the first moments on, while memory is handed over, to the midst of calls.
	sleep "0.0$((round * round))"
	ranks=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null)
	for pid in $parent $ranks; do
		processes="$processes $(identity "$pid")"
	done
	kill -9 $ranks $parent 2>/dev/null
	wait $parent 2>/dev/null
done
tries=0
while [ -n "$(traces)" ] && [ $tries -lt 100 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
promise "nothing is left of killed ranks" same "" "$(traces)"
# Sockets tell no process; but what nobody lives to use must be gone, as soon as nobody lives.
tries=0
while [ $tries -lt 100 ]; do
	tries=$((tries + 1))
	sockets=$(grep -c '@ringfold-' /proc/net/unix)
	[ "$sockets" != 0 ] || break
	# Those of another test, which runs at the same time.
	if ls -d /proc/[0-9]*/exe | xargs -n1 readlink 2>/dev/null |
		grep -q -e "$abs_top_builddir" -e python; then
		sockets=0
		break
	fi
	sleep 0.1
done
promise "no socket is left" same 0 "$sockets"
finish
