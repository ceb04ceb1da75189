#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ringfold run: the ranks' output and input.
. "$abs_top_srcdir/tests/tools/lib.sh"

rf run -n 2 sh -c 'echo "to out $RANK"; echo "to err $RANK" >&2'
promise "stdout goes to stdout, line by line behind the rank" \
	same "$(sort "$scratch/out")" "[0] to out 0
[1] to out 1"
promise "stderr goes to stderr" same "$(sort "$scratch/err")" "[0] to err 0
[1] to err 1"

rf run -n 1 sh -c 'printf one; printf " line\n\nand no end"'
promise "a line in pieces is one line; the last needs no end" \
	same "$(cat "$scratch/out")" "[0] one line
[0] 
[0] and no end"

# 40 lines of 1000 bytes from each of 8 ranks, written in small pieces.
rf run -n 8 awk 'BEGIN { for (line = 0; line < 40; line++) {
	for (i = 0; i < 100; i++) { printf "%d123456789", ENVIRON["RANK"]; fflush() }
	print "" } }'
promise "lines of different ranks do not mix" \
	same "$(awk 'length($0) != 1004 || substr($0, 5) !~ "^(" substr($0, 2, 1) "123456789)+$"' \
		"$scratch/out" | wc -l) of $(wc -l <"$scratch/out")" "0 of 320"

rf run -n 1 awk 'BEGIN { for (i = 0; i < 3000000; i++) printf "x"; print "" }'
promise "no byte of a very long line is lost" \
	same "$(sed 's/^\[0\] //' "$scratch/out" | tr -d '\n' | wc -c)" 3000000

rf run -n 2 --no-prefix sh -c 'printf abc'
promise "--no-prefix changes nothing" same "$(cat "$scratch/out")" abcabc

# Much more than any buffer, to a reader that looks at its leisure.
timeout 60 "$ringfold" run -n 2 sh -c 'yes 1234567890123456789012345678901 | head -n 200000' |
	(sleep 0.3; wc -l) >"$scratch/out"
promise "a slow reader gets everything" same "$(cat "$scratch/out")" 400000

{ timeout 60 "$ringfold" run -n 2 yes; echo $? >"$scratch/status"; } 2>"$scratch/err" | head -n 1 \
	>"$scratch/out"
promise "when the reader has gone the ranks are told as usual" same "$(cat "$scratch/status")" 141

mkfifo "$scratch/fifo"
{ timeout 60 "$ringfold" run -n 2 sh -c 'until [ -e "$0" ]; do sleep 0.05; done; echo late' \
	"$scratch/gone" >"$scratch/fifo" 2>"$scratch/err"; echo $? >"$scratch/status"; } &
: <"$scratch/fifo"
touch "$scratch/gone"
wait
promise "output that nobody reads any more is not a success" same "$(cat "$scratch/status")" 141

# Whatever prints ends with an error if what it printed is lost.
if [ -c /dev/full ]; then
	for words in --help --version "run --help" "run -n 2 echo lost" "run -n 2 --no-prefix echo lost" \
		"bench --help" "bench -n 1 -s 8" "bench -n 2 -s 8" "bench -n 2 -s 8 --json" "info --help" \
		info "info --json" "info --config" "info --algorithms --json" "info --scale 8"; do
		timeout -k 5 60 "$ringfold" $words >/dev/full 2>"$scratch/err" </dev/null
		status=$?
		promise "ringfold $words: lost output is a failure" status_is 1
		promise "which is said" has err 'cannot write to stdout\|[Ee]rror'
	done
	timeout -k 5 60 "$ringfold" run -n 2 sh -c 'echo lost >&2' 2>/dev/full
	status=$?
	promise "so it is if stderr is lost" status_is 1
fi

timeout 60 "$ringfold" run -n 3 sh -c 'cat; exit 0' <<-X >"$scratch/out"
	lost
X
promise "no rank reads stdin unless asked" same "$(cat "$scratch/out")" ""
printf 'first\nsecond\n' | timeout 60 "$ringfold" run -n 3 --stdin 1 cat >"$scratch/out"
promise "the one that is asked reads it" same "$(cat "$scratch/out")" "[1] first
[1] second"
rf run -n 3 --stdin 3 cat
promise "it must be one of the ranks" status_is 2

if command -v "${PYTHON:-python3}" >/dev/null; then
	promise "what is typed at a terminal reaches that rank, an interrupt all" \
		"${PYTHON:-python3}" "$abs_top_srcdir/tests/tools/terminal.py" "$ringfold"
fi

timeout 60 "$ringfold" run -n 2 sh -c 'echo $RANK' >&- 2>"$scratch/err"
status=$?
promise "a closed stdout harms nobody" status_is 0
finish
