#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Two ranks of one machine in different network namespaces reach each other by TCP alone: that is
# what they use, and whoever insists on shared memory is told.
. "$abs_top_srcdir/tests/tools/lib.sh"

if [ -n "${RINGFOLD_TEST_EMULATED:-}" ]; then
	echo "skipped: starts programs of another processor"
	exit 77
fi
cat >"$scratch/two" <<'EOF'
# In a network namespace of its own; rank 1 is in another one, behind a cable.
set -e
unshare -n sleep 60 &
other=$!
trap 'kill $other' EXIT
ip link set lo up
tries=0
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do
	tries=$((tries + 1))
	[ $tries -lt 1000 ] || exit 99
	sleep 0.01
done
ip link add cable0 type veth peer name cable1 netns $other || exit 99
ip addr add 10.9.0.1/24 dev cable0
ip link set cable0 up
nsenter -t $other -n sh -c \
	'ip link set lo up && ip addr add 10.9.0.2/24 dev cable1 && ip link set cable1 up'
export WORLD_SIZE=2 MASTER_ADDR=10.9.0.1 MASTER_PORT=7799
RANK=0 timeout 30 "$1" &
first=$!
failed=0
RANK=1 timeout 30 nsenter -t $other -n "$1" || failed=$((failed + 1))
wait $first || failed=$((failed + 1))
echo "failed: $failed"
EOF
two() { # TRANSPORT
	RINGFOLD_TRANSPORT=$1 timeout -k 5 60 unshare -n sh "$scratch/two" \
		"$abs_top_builddir/examples/four_rank_sum" >"$scratch/out" 2>"$scratch/err"
}
if ! two auto && ! unshare -n sh -c 'ip link add cable0 type veth peer name cable1' 2>/dev/null; then
	echo "skipped: this user may not make network namespaces, or the kernel has no veth"
	exit 77
fi
promise "ranks in two namespaces use TCP" grep -q '^failed: 0' "$scratch/out"
promise "their sum is right" same 2 "$(grep -c 'after . data 3.0' "$scratch/out")"
promise "nothing is said of it" same "" "$(cat "$scratch/err")"
two shm
promise "whoever insists on shared memory fails" grep -q '^failed: 2' "$scratch/out"
promise "and hears why" grep -q 'network namespaces' "$scratch/err"
finish
