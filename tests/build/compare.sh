#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# bench/compare within one host, with whatever peers are installed already: results are right, who
# is not there is named, and a page gets its tables. Says nothing of speed.
set -eu
python=$(command -v python3) || { echo "python3 is missing"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
series=ringfold,ringfold-alloc,ringfold-bf16,ringfold-fp16,openmpi,mpich,impi,oneccl,gloo,copy,copy-stream
compare() { # ARGUMENT...; missed bars (status 1) are no failure here
    status=0
    timeout -k 5 240 "$python" "$abs_top_srcdir/bench/compare" --transport shm \
        --build "$abs_top_builddir" "$@" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
    [ "$status" -le 1 ] || { cat "$folder/out" "$folder/err"; echo "compare: status $status"; exit 1; }
}

printf 'before\n<!-- measured: begin -->\nstale figures\n<!-- measured: end -->\nafter\n' >"$folder/page.md"
compare --installed --quick --ranks 2,3 --sizes 8,2M --rounds 1 --only $series --json "$folder/json"
compare --installed --replot "$folder/json" --doc "$folder/page.md" --plot "$folder/plot.png"
"$python" - "$folder" $series <<'CHECK' || { cat "$folder/out" "$folder/err"; exit 1; }
import json, sys
folder, series = sys.argv[1], sys.argv[2].split(",")
report = json.load(open(f"{folder}/json"))
absent = {one["peer"] for one in report["absent"]}
# A peer that is slow or missing may be left out, and then says so; these may not.
assert not absent & {"ringfold", "copy", "copy-stream"}, report["absent"]
assert all(one["why"] for one in report["absent"])
assert list(report["ranks"]) == ["2", "3"]
for ranks, one in report["ranks"].items():
    cases = {case["key"]: case for case in one["measured"]}
    assert set(cases) == {"8 in warm", "2097152 in warm"} | (
        {"2097152 out warm"} if ranks == "2" else set()), list(cases)
    for key, case in cases.items():
        must = [name for name in series if name.split("-")[0] == "ringfold" and (
            name == "ringfold" or ranks == "2" and key.endswith("in warm") and (
                name != "ringfold-alloc" or key.startswith("2097152")))]
        for block in case["blocks"]:
            assert set(must) <= set(block["peers"]), (ranks, key, must, list(block["peers"]))
            for name, round_ in block["peers"].items():
                assert round_["wrong"] == 0, (ranks, key, name, round_)
                assert 0 < round_["us"] < 60e6, (ranks, key, name, round_)
page = open(f"{folder}/page.md").read()
assert page.startswith("before\n") and page.endswith("after\n") and "stale" not in page, page
assert "| 2 MiB warm, out of place |" in page and "Every element" in page, page
print(f"measured beside: {sorted(set(series) - absent)}; left out: {sorted(absent)}")
CHECK
grep -q 'Every element of every result was right' "$folder/out"
