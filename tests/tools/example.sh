#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The four-rank sum, started as the documentation says.
. "$abs_top_srcdir/tests/tools/lib.sh"
sum=$abs_top_builddir/examples/four_rank_sum

rf run -n 4 --no-prefix "$sum"
promise "four ranks have the sum" same "$(sort "$scratch/out")" "after 0 data 10.0
after 1 data 10.0
after 2 data 10.0
after 3 data 10.0
before 0 data 1.0
before 1 data 2.0
before 2 data 3.0
before 3 data 4.0"
promise "and end well" status_is 0

RINGFOLD_TIMEOUT=300ms rank=0 world=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 timeout 60 "$sum" \
	>"$scratch/out" 2>"$scratch/err"
promise "what is wrong is said" has err 'cannot join the other ranks: RF_ERR_CONFIG'

RINGFOLD_TIMEOUT=300ms rf run -n 2 sh -c '[ $RANK = 1 ] || exec "$1"; exec sleep 60' sh "$sum"
promise "a rank that is absent is named" has err 'rank.* 1'
promise "and the sum fails" status_is 1
finish
