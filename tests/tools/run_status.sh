#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ringfold run: what ranks are given, and what is made of how they end.
. "$abs_top_srcdir/tests/tools/lib.sh"

rf run -n 3 sh -c 'exit 0'
promise "0 when all ranks have ended well" status_is 0
promise "and nothing is said then" same "$(cat "$scratch/err")" ""

rf run -n 3 sh -c '[ $RANK = 1 ] && exit 7; exec sleep 60'
promise "the status of the rank that failed first" status_is 7
promise "a line names it" has err '^ringfold run: rank 1 exited with status 7; the others were ended$'

rf run -n 3 sh -c '[ $RANK = 2 ] && kill -9 $$; exec sleep 60'
promise "128 + the signal that ended it" status_is 137
promise "a line names rank and signal" has err '^ringfold run: rank 2 was ended by signal 9 (Killed)'

# Rank 0 fails as a consequence, but is the lower number.
rf run -n 2 sh -c 'if [ $RANK = 1 ]; then exit 5; fi; trap "exit 6" TERM; while :; do sleep 0.05; done'
promise "ranks that were ended because of another do not count" status_is 5

rf run -n 2 --grace 0.2 sh -c 'if [ $RANK = 1 ]; then trap "" TERM; : >"$1/deaf"; fi
	while [ ! -e "$1/deaf" ]; do sleep 0.05; done
	[ $RANK = 0 ] && exit 3
	while :; do sleep 0.05; done' sh "$scratch"
promise "a rank that does not end is killed after the grace time" status_is 3
promise "and that is said" has err 'exited with status 3; 1 of the others had to be killed$'

rf run -n 4 "$scratch/no such program"
promise "127 when there is no such program" status_is 127
promise "it is named, once" same "$(grep -c 'no such program: No such file' "$scratch/err")" 1
rf run -n 4 "$scratch"
promise "126 when it cannot be run" status_is 126

(
	ulimit -n 40
	rf run -n 30 sh -c 'echo $$ >>"$1/ranks"; exec sleep 60' sh "$scratch"
	exit $status
)
status=$?
promise "126 when there is no room for all of them" status_is 126
promise "and those that had been started are gone" until_true all_gone "$scratch/ranks"

rf run --port
promise "2 after a typing error" status_is 2
rf run --prot 1 true
promise "an unknown option is answered with what there is" has err '--port PORT'
promise "and nothing is run" status_is 2
rf run -n 0 true
promise "a wrong argument is explained" has err 'cannot be "0".*1 to 65536'
rf run -n 2
promise "without a program nothing is run" status_is 2
rf run -n2 -- sh -c 'exit 4'
promise "-n2 and -- are understood" status_is 4
rf run --ranks=2 sh -c '[ $1 = --ranks=3 ]' sh --ranks=3
promise "the program's own options are left alone" status_is 0

MASTER_ADDR=elsewhere RINGFOLD_MASTER_PORT=1 SLURM_PROCID=5 PMIX_RANK=9 timeout 60 \
	"$ringfold" run -n 2 --no-prefix sh -c 'echo "$RINGFOLD_RANK $RANK $LOCAL_RANK $rank" \
	"$RINGFOLD_WORLD_SIZE $WORLD_SIZE $LOCAL_WORLD_SIZE $world $MASTER_ADDR" \
	"${RINGFOLD_MASTER_PORT-none} ${SLURM_PROCID-none} ${PMIX_RANK-none}"' >"$scratch/out"
promise "ranks are given who they are, and nothing that contradicts it" \
	same "$(sort "$scratch/out")" "0 0 0 0 2 2 2 2 127.0.0.1 none none none
1 1 1 1 2 2 2 2 127.0.0.1 none none none"

rf run -n 3 --no-prefix sh -c 'echo $MASTER_PORT'
promise "all have the same port" same "$(sort -u "$scratch/out" | wc -l)" 1
rf run -n 1 --no-prefix --port 7123 sh -c 'echo $MASTER_PORT'
promise "or the one that was given" same "$(cat "$scratch/out")" 7123

rf run -n 300 sh -c 'echo $RANK'
promise "300 ranks" same "$(sed 's/.* //' "$scratch/out" | sort -n | tr '\n' ' ')" "$(seq -s ' ' 0 299) "
finish
