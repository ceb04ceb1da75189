#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# demo.sh: installs what is missing (as root or with sudo), builds into build/, and runs the
# four-rank sum: each of four processes holds its rank + 1, and all end with 10.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
. scripts/packages.sh
log=build/demo.log

packages_need build
mkdir -p build
scripts/build.sh build >"$log" 2>&1 || { tail -n 40 "$log"; echo "the build failed; see $log"; exit 1; }
grep '^==>' "$log" || true

echo "==> build/ringfold run -n 4 build/examples/four_rank_sum"
build/ringfold run -n 4 -- build/examples/four_rank_sum 2>&1 | tee "$log"
[ "$(grep -c 'after [0-3] data 10\.0' "$log")" = 4 ] ||
    { echo "four ranks should have printed 10.0"; exit 1; }
