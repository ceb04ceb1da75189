#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test.sh [--quick] [--only NAME]: installs what the tests need (as root or with sudo), builds into
# build/, and runs every test that this machine can run. --quick is for the edit loop: under three
# minutes. The last line counts; each test that was skipped is named before it, with the reason.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
. scripts/packages.sh
. scripts/suites.sh

quick=no
only=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=yes ;;
        --only) only=${2:-}; shift ;;
        *) sed -n '3,5s/^# //p' "$0"; exit 2 ;;
    esac
    shift
done

build=$top/build

check=check
if [ $quick = yes ]; then
    check=check-quick
    export RINGFOLD_TEST_SECONDS=5 # of each test that tries random seeds
fi

# name | all: not with --quick | seconds at most | command, run in the top folder
suites_table() {
    cat <<TABLE
build   | quick | 600  | scripts/build.sh $build
check   | quick | 900  | cd $build && results_of_make_check check $check -j2 PYTHON=$python
demo    | all   | 300  | scripts/demo.sh
sim     | all   | 400  | make -C $build check-sim
aarch64 | all   | 1200 | scripts/aarch64.sh
debian  | all   | 1800 | scripts/debian13.sh
TABLE
}

packages_need build || exit 1
packages_need test mpi aarch64 || echo "==> going on without; the tests that need it are skipped"
suites_begin "$build/test-logs"
# The Python tests want numpy and torch, from an environment in the cache.
[ $quick = yes ] || suite_run python-env 1200 scripts/python_env.sh
python=$(scripts/python_env.sh --path)

while IFS='|' read -r name when limit command; do
    name=${name// /} when=${when// /} limit=${limit// /}
    [ -z "$only" ] || [ "$only" = "$name" ] || continue
    [ "$quick" = no ] || [ "$when" = quick ] || continue
    suite_run "$name" "$limit" bash -c "$command" || [ "$name" != build ] || break
done < <(suites_table)
suites_end
