#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ringfold run: signals, and that nobody is left behind.
. "$abs_top_srcdir/tests/tools/lib.sh"

# Ranks that note the signals that they get in $scratch/signals, and end when told to.
cat >"$scratch/noter" <<'X'
for name in HUP USR1 USR2 QUIT; do
	trap "echo $name >>$1/signals" $name
done
trap "echo INT >>$1/signals; [ $2 = obey ] && exit 0" INT
trap "echo TERM >>$1/signals; [ $2 = obey ] && exit 0" TERM
echo $$ >>$1/ranks
while :; do sleep 0.05; done
X

begin() {
	rm -f "$scratch/signals" "$scratch/ranks" "$scratch/others"
	: >"$scratch/signals"
	: >"$scratch/ranks"
	: >"$scratch/others"
}

begin
rf_start run -n 3 sh "$scratch/noter" "$scratch" obey
until_true lines_are "$scratch/ranks" 3
for name in USR1 USR2 HUP; do
	kill -$name "$pid"
	until_true sh -c "[ \$(grep -c $name $scratch/signals) -eq 3 ]"
	promise "$name is passed on to every rank" same "$(grep -c "$name" "$scratch/signals")" 3
done
kill -TERM "$pid"
rf_end
promise "TERM is passed on to every rank" same "$(grep -c TERM "$scratch/signals")" 3
promise "ranks that end well on a signal have ended well" status_is 0

begin
rf_start run -n 2 sh -c 'echo $$ >>$1/ranks; exec sleep 60' sh "$scratch"
until_true lines_are "$scratch/ranks" 2
kill -TERM "$pid"
rf_end
promise "143 when TERM ends the ranks" status_is 143

# The shells of scripts start background commands with INT and QUIT ignored, which run honours: so
# it is started by one that does not.
cat >"$scratch/interruptible" <<'X'
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
X
if command -v python3 >/dev/null; then
	begin
	real=$ringfold
	ringfold=python3
	rf_start "$scratch/interruptible" "$real" run -n 3 sh "$scratch/noter" "$scratch" stay
	ringfold=$real
	until_true lines_are "$scratch/ranks" 3
	for name in QUIT INT; do
		kill -$name "$pid"
		until_true sh -c "[ \$(grep -c $name $scratch/signals) -eq 3 ]"
		promise "$name is passed on to every rank" same "$(grep -c "$name" "$scratch/signals")" 3
	done
	kill -INT "$pid"
	rf_end
	promise "a second INT kills" status_is 130
	promise "all of them" all_gone "$scratch/ranks"
fi

# nohup
begin
(trap '' HUP; exec "$ringfold" run -n 1 sh -c 'echo $$ >>$1/ranks; exec env --default-signal=HUP sleep 60' \
	sh "$scratch") \
	>"$scratch/out" 2>"$scratch/err" &
pid=$!
until_true lines_are "$scratch/ranks" 1
until_true grep -q ^sleep "/proc/$(cat "$scratch/ranks")/cmdline"
kill -HUP "$pid"
kill -TERM "$pid"
rf_end
promise "a signal that run was told to ignore stays ignored" status_is 143

# Grandchildren that outlive their parents, in every way that a run can end.
family='sleep 300 & echo $! >>$1/others; echo $$ >>$1/ranks'
begin
rf run -n 2 sh -c "$family" sh "$scratch"
promise "what a rank leaves behind ends with a run that ends well" \
	until_true all_gone "$scratch/others"
begin
rf run -n 2 --grace 0.2 sh -c "$family"'; trap "" TERM; [ $RANK = 1 ] && exit 1; wait' sh "$scratch"
promise "and with one that fails" until_true all_gone "$scratch/others" "$scratch/ranks"
begin
rf_start run -n 3 sh -c "$family; wait" sh "$scratch"
until_true lines_are "$scratch/ranks" 3
kill -KILL "$pid"
rf_end
promise "and with one that is killed" until_true all_gone "$scratch/ranks" "$scratch/others"

# Without the guard, which kills the groups.
begin
rf_start run -n 3 sh -c 'echo $$ >>$1/ranks; exec sleep 60' sh "$scratch"
until_true lines_are "$scratch/ranks" 3
guard=$(cat /proc/[0-9]*/stat 2>/dev/null |
	awk -v launcher="$pid" '$2 == "(ringfold-guard)" && $4 == launcher { print $1 }')
kill -KILL "$guard"
kill -KILL "$pid"
rf_end
promise "ranks end with their launcher even alone" until_true all_gone "$scratch/ranks"
finish
