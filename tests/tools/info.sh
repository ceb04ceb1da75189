#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ringfold: the command itself, and info.
. "$abs_top_srcdir/tests/tools/lib.sh"

is_json() { ${PYTHON:-python3} -c 'import json, sys; json.load(open(sys.argv[1]))' "$scratch/out"; }
have_python=$(command -v "${PYTHON:-python3}" || :)

rf --version
version=$(sed -n 's/^#define RF_VERSION_[A-Z]* //p' "$abs_top_srcdir/include/ringfold.h" | paste -sd.)
promise "--version is the header's" same "$(cat "$scratch/out")" "ringfold $version"
rf --help
promise "--help lists the verbs" has out '^  run '
rf walk
promise "an unknown verb is answered with what there is" has err '^  run '
promise "and is a typing error" status_is 2
for verb in $("$ringfold" --help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
	rf "$verb" --help
	promise "$verb --help explains it" has out "^Usage: ringfold $verb"
	promise "and is no error" status_is 0
done
"$ringfold" info >/dev/full 2>"$scratch/err"
promise "output that cannot be written is a failure" same $? 1

rf info
promise "info has the version" has out "^ringfold $version"
promise "and the kernels in use" has out '^kernels .*(in use)'
promise "and the transports" has out '^transports .*tcp'

promise "and that nothing says who this is" has out '^identity  *none: '
RANK=2 WORLD_SIZE=4 MASTER_ADDR=leader MASTER_PORT=77 rf info
promise "or who it is, and from where" \
	has out '^identity  *rank 2 of 4 (from RANK, WORLD_SIZE), master leader port 77 (from MASTER_ADDR'
RANK=2 WORLD_SIZE=4 PMI_RANK=1 PMI_SIZE=4 MASTER_ADDR=leader rf info
promise "sources that contradict each other are named" has out 'PMI_RANK'

rf info --config
for variable in $(sed -n 's/.*X([a-z_]*, "\(RINGFOLD_[A-Z_]*\)".*/\1/p' "$abs_top_srcdir/engine/config.h"); do
	promise "$variable is listed" has out "^$variable "
done
promise "values not set are the defaults" has out '^RINGFOLD_MUTE  *500ms  *500ms  *default '
RINGFOLD_EAGER_BYTES=1048576 RINGFOLD_EAGER_BITES=1 rf info --config
promise "values of the environment are shown as such" \
	has out '^RINGFOLD_EAGER_BYTES  *1M  *[0-9]*K  *environment '
promise "a variable that nothing reads is marked" has out '^RINGFOLD_EAGER_BITES  *1 .*NOTHING READS'
RINGFOLD_LOG=loud rf info --config
promise "a wrong value is a failure" status_is 1
promise "which says what may be" has err 'RINGFOLD_LOG is "loud".*error|warn|info|debug'

RINGFOLD_INTERFACE=lo rf info
promise "the interface that is named is told, and why" \
	has out 'lo 127.0.0.1: told to the ranks of this host, matches "lo"'
RINGFOLD_INTERFACE=127.0.0.0/8 rf info
promise "a network does it too" has out 'lo 127.0.0.1: told.*matches "127.0.0.0/8"'
RINGFOLD_INTERFACE=wire7 rf info
promise "an interface that there is not is a failure" status_is 1
promise "which lists those that there are" has err 'RINGFOLD_INTERFACE is "wire7".*lo 127.0.0.1'
RINGFOLD_INTERFACE=lo timeout 60 "$ringfold" bench -n 2 -s 8 --samples 2 >"$scratch/out" 2>"$scratch/err"
status=$?
promise "ranks meet over an interface that is named" status_is 0

RINGFOLD_ISA=reference rf info
promise "the kernels that are forced are marked" has out 'reference (in use, by RINGFOLD_ISA)'
RINGFOLD_ISA=abacus rf info
promise "kernels that there are not are a failure" status_is 1
promise "which lists those that there are" has err 'RINGFOLD_ISA is "abacus".*: reference'

rf info --algorithms
promise "the algorithms are listed" has out '^ring '
promise "small gathers of few ranks are pairwise" \
	has out '^reduce_scatter allgather  *any  *8192  *32  *direct '
RINGFOLD_DOUBLING_MAX_BYTES=12345 rf info --algorithms
promise "with the thresholds in force" has out '12345'
RINGFOLD_DOUBLING_MAX_BYTES=many rf info --algorithms
promise "or a failure if they are wrong" status_is 1

rf info --scale 1024
promise "a rank of 1024 has O(log n) lifelines" has out '^lifelines  *19 '
rf info --scale none
promise "a number of ranks that is none is refused" status_is 2

if [ -n "$have_python" ]; then
	for part in "" --config --algorithms "--scale 64"; do
		rf info $part --json
		promise "info $part --json is JSON" is_json
	done
	RINGFOLD_PORT='a"b\' rf info --config --json
	promise "whatever is in it" is_json
fi
finish
