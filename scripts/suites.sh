# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by scripts that run tests. A suite is a name and a command; what it did is a list of
# results, one a line: "PASS name", "FAIL name", "SKIP name | why". A command that writes its
# results to the file $RINGFOLD_RESULTS is counted by them, any other by its exit status (0, 1, or
# 77: skipped, with the last line that it printed as the reason). For use outside: suites_begin,
# suite_run, suite_skip, skips_refuse,
# suites_end, and, inside a suite's command, results_of_make_check.

suites_begin() { # FOLDER: where the logs go
    suites_logs=$1
    mkdir -p "$suites_logs"
    # A script that another one runs hands its results on as well.
    suites_parent=${RINGFOLD_RESULTS:-}
    suites_results=$(mktemp)
    trap 'rm -f "$suites_results"' EXIT
}

result_add() { # RESULT NAME [WHY]
    printf '%s %s%s\n' "$1" "$2" "${3:+ | $3}" >>"$RINGFOLD_RESULTS"
}

suite_skip() { # NAME WHY
    echo "==> $1: skipped: $2"
    RINGFOLD_RESULTS=$suites_results result_add SKIP "$1" "$2"
}

suite_run() { # NAME SECONDS COMMAND...: at most SECONDS
    local name=$1 limit=$2 log=$suites_logs/$1.log start=$SECONDS mine status why
    shift 2
    mine=$(mktemp)
    echo "==> $name"
    # What a person wants to see while it runs: the results, and what the scripts say.
    RINGFOLD_RESULTS=$mine timeout --kill-after=10 "$limit" "$@" </dev/null 2>&1 | tee "$log" |
        grep -E --line-buffered '^ *((PASS|FAIL|SKIP|ERROR|XPASS|failed|skipped): |==>|---- |[|] )' |
        sed -u 's/^/    /'
    status=${PIPESTATUS[0]}
    [ "$status" != 124 ] && [ "$status" != 137 ] || echo "killed after $limit s" | tee -a "$log"
    if [ ! -s "$mine" ] || { [ "$status" != 0 ] && [ "$status" != 77 ] && ! grep -q '^FAIL' "$mine"; }; then
        why=$(grep -v '^$' "$log" | tail -n 1)
        case $status in
            0) echo "PASS $name" ;;
            77) echo "SKIP $name | ${why:-no reason given}" ;;
            *) echo "FAIL $name" ;;
        esac >>"$mine"
    fi
    cat "$mine" >>"$suites_results"
    # A test that failed has shown its own log already.
    if grep -q -x "FAIL $name" "$mine"; then
        echo "    ---- the end of $log"
        tail -n 60 "$log" | sed 's/^/    | /'
    fi
    echo "==> $name: $(grep -c '^PASS' "$mine") passed, $(grep -c '^FAIL' "$mine") failed," \
        "$(grep -c '^SKIP' "$mine") skipped, $((SECONDS - start)) s"
    grep -q '^FAIL' "$mine" && status=1 || status=0
    rm -f "$mine"
    return "$status"
}

# skips_refuse PATTERN...: counts every skip as a failure that matches none of these extended
# regular expressions (over "name | why").
skips_refuse() {
    local allowed line
    allowed=$(printf '|%s' "$@")
    while IFS= read -r line; do
        if [[ $line == SKIP* ]] && ! [[ ${line#SKIP } =~ ${allowed#|} ]]; then
            line="FAIL ${line#SKIP } (skipped)"
        fi
        echo "$line"
    done <"$suites_results" >"$suites_results.new"
    mv "$suites_results.new" "$suites_results"
}

# What was skipped and what failed and why, then the closing line. 1: something failed.
suites_end() {
    local passed failed skipped
    passed=$(grep -c '^PASS' "$suites_results")
    failed=$(grep -c '^FAIL' "$suites_results")
    skipped=$(grep -c '^SKIP' "$suites_results")
    [ -z "$suites_parent" ] || cat "$suites_results" >>"$suites_parent"
    echo
    sed -n 's/^SKIP /skipped: /p' "$suites_results" | sed 's/ | /: /' | sort
    sed -n 's/^FAIL /failed: /p' "$suites_results" | sed 's/ | /: /' | sort
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" != 0 ]
}

# results_of_make_check NAME TARGET MAKE_ARGUMENT...: `make TARGET` (check, check-quick) in the
# current folder, one result a test, and the log of each test that failed.
results_of_make_check() {
    local name=$1 started status trs result test why
    shift
    started=$(mktemp)
    make -k "$@"
    status=$?
    while IFS= read -r trs; do
        test=${trs#./}
        test=${test%.trs}
        result=$(sed -n 's/^:global-test-result: //p' "$trs")
        case $result in
            PASS) result_add PASS "$name/$test" ;;
            SKIP)
                # The driver's own last line, "SKIP tests/x (exit status: 77)", is no reason.
                why=$(grep -v -e '^$' -e "^SKIP ${test}[. ]" "${trs%.trs}.log" | tail -n 1)
                result_add SKIP "$name/$test" "${why:-no reason given}" ;;
            *)
                # What a test says of its failure names a line of source, or says so in words.
                why=$(grep -a -m 1 -E '[.](c|cc|h|sh|py):[0-9]+:|FAILED|ERROR|not ok|[Aa]ssert' \
                    "${trs%.trs}.log")
                result_add FAIL "$name/$test" "${why:-it gives no reason}"
                echo "    ---- $test"
                tail -n 40 "${trs%.trs}.log" | sed 's/^/    | /' ;;
        esac
    done < <(find . -name '*.trs' -newer "$started" -not -path './ringfold-*' | sort)
    rm -f "$started"
    return "$status"
}
export -f result_add results_of_make_check
