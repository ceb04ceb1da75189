#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ringfold bench: measures what it was asked for, and the results are right.
. "$abs_top_srcdir/tests/tools/lib.sh"

quick="--samples 2 --batch 2"
column() { cut -d, -f"$1" "$scratch/out" | tail -n +2; }

rf bench -n 3 -c all -d int8,bfloat16,float32,float64 -o sum,avg,max -s 8,4099,100K --buffers warm \
	--csv $quick
promise "bench goes through its cases" status_is 0
promise "every result is right" same "$(column 16 | sort -u)" 0
promise "all collectives, each with what it has" same "$(column 1 | sort | uniq -c | tr -s ' \n' ' ')" \
	" 12 allgather 36 allreduce 1 barrier 12 broadcast 36 reduce 36 reduce_scatter "
promise "as many samples as were asked for, in batches" \
	same "$(column 9,10 | awk -F, '$1 < 2 || $2 != 2' | wc -l)" 0
promise "times that can be" \
	same "$(column 11-13 | awk -F, '!($3 > 0 && $3 <= $1 && $1 <= $2)' | wc -l)" 0
promise "bus bandwidth follows from algorithm bandwidth" \
	same "$(awk -F, '$1 == "allreduce" && $6 > 100000 && $14 > 0.02 && ($15 / $14 > 1.35 || $15 / $14 < 1.32)' \
		"$scratch/out" | wc -l)" 0

rf bench -n 2 -c all -s 8,4099 --csv $quick
promise "warm and cold" same "$(column 8 | sort | uniq -c | tr -s ' \n' ' ')" " 11 cold 11 warm "
promise "are both right" same "$(column 16 | sort -u)" 0

rf bench -n 2 -b 8 -e 512 -f 4 --buffers warm --csv $quick
promise "sizes from, to, by" same "$(column 6 | tr '\n' ' ')" "8 32 128 512 "
rf bench -n 2 -s 1K --buffers cold --in-place -c reduce,reduce_scatter --csv --samples 2
promise "in place" same "$(column 16 | sort -u)" 0
rf bench -n 3 --over 1,2,3 -s 1K --buffers warm --csv $quick
promise "over the first ranks" same "$(column 3 | tr '\n' ' ')" "1 2 3 "
rf bench -n 2 -t auto,tcp -s 1K --buffers warm --csv $quick
promise "one transport after the other" same "$(column 2 | tr '\n' ' ')" "auto tcp "
rf run -n 2 --no-prefix "$ringfold" bench -s 1K $quick
promise "a launcher may have started it" has out '^allreduce '
rf bench -n 2 -s 1K --no-verify --csv $quick
promise "what was not verified is not said to be right" same "$(column 16 | sort -u)" ""
rf bench -n 2 -s 1K --json $quick
promise "JSON" ${PYTHON:-python3} -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert [row["wrong"] for row in rows] == [0, 0] and rows[0]["bytes"] == 1024' "$scratch/out"

rf bench -n 2 -d float31
promise "a wrong type is answered with the right ones" has err 'float31.*$'
promise "and is a typing error" status_is 2
rf bench -n 2 --over 3 $quick
promise "more ranks than there are is an error" status_is 2
RINGFOLD_TIMEOUT=200ms rf bench $quick
promise "without a launcher it fails" status_is 1
promise "and says how to start some" has err '-n 2'
finish
