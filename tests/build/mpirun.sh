#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The C example runs under mpirun as it is: the launcher's variables say who is who.
set -eu
command -v mpirun >/dev/null || { echo "mpirun is not installed (package openmpi-bin)"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
unset RANK WORLD_SIZE rank world MASTER_ADDR RINGFOLD_RANK RINGFOLD_WORLD_SIZE
# Only so that two tests at once do not meet at the default port.
MASTER_PORT=$("$abs_top_builddir/ringfold" run -n 1 --no-prefix sh -c 'echo $MASTER_PORT')
export MASTER_PORT
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout 120 mpirun --oversubscribe -n 4 "$abs_top_builddir/examples/four_rank_sum" \
    >"$out" 2>&1 </dev/null || { cat "$out"; exit 1; }
for rank in 0 1 2 3; do
    grep -qx "after $rank data 10.0" "$out" || { cat "$out"; echo "rank $rank lacks the sum"; exit 1; }
done
echo "four ranks under $(mpirun --version | head -n 1): 10.0"
