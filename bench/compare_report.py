# SPDX-License-Identifier: BSD-3-Clause
"""What bench/compare prints: times, ratios, bars, and the same in a page of the documentation."""
import os
import re
import statistics

from compare_cases import (BOUNDS, RIVALS, SERIES, TCP_BARS, bar_against_rivals, case_of,
                           other_bars, size_text)

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MODES = {"one": "", "near": ", cores near (fast)", "far": ", cores far (slow)"}
WAYS = {"tcp": "loopback TCP", "shm": "shared memory"}


def number(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def case_text(key):
    case = case_of(key)
    return size_text(case.bytes) + (f" {case.heat}" if case.heat else "") + (
        ", out of place" if case.place == "out" else "")


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table_head(first, others):
    return [row(first + others), "|" + "---|" * len(first) + "---:|" * len(others)]


# ---- loopback TCP ----------------------------------------------------------------------------


def tcp_times(title, cases, names):
    lines = ["", f"{title}: microseconds a call, median over blocks (in brackets: CPU a rank)", ""]
    lines += table_head(["size"], list(names))
    for key, one in cases.items():
        cells = [case_text(key)]
        for name in names:
            peer = one["peers"].get(name)
            cells.append(f"{peer['median_us']:.1f} ({peer['cpu_us']:.1f})" if peer else "-")
        lines.append(row(cells))
    return lines


def tcp_bars(report):
    """Every bar and what was reached, and how many are missed."""
    missed = 0
    lines = ["", "Bars: how many times as fast", "",
             "| ranks | size | of | than | bar | reached | |", "|---:|---|---|---|---:|---:|---|"]
    for ranks, bytes_, first, second, least in TCP_BARS:
        for mode, cases in report["ranks"].get(str(ranks), {}).get("modes", {}).items():
            ratio = cases.get(f"{bytes_} in", {}).get("ratios", {}).get(f"{second}/{first}")
            if ratio is None:
                continue
            met = ratio >= least
            missed += not met
            where = "" if mode == "one" else f" (cores {mode})"
            lines.append(row([str(ranks), size_text(bytes_), first, second, f"{least:.2f}",
                              f"{ratio:.2f}", ("met" if met else "MISSED") + where]))
    return lines, missed


# ---- shared memory ---------------------------------------------------------------------------


def pull_us(one, case):
    """Two ranks: each pulls the other's half of the inputs, and the other's half of the sums."""
    return case.bytes / one["pull_gbs"] / 1e3


def shm_times(title, ranks, cases, names):
    lines = ["", f"{title}: microseconds a call, median over rounds of the slowest rank "
             "(in brackets: 99th percentile)", ""]
    names = [name for name in names if any(name in one["peers"] for one in cases.values())]
    lines += table_head(["size"], names + (["pull"] if ranks == 2 else []) + ["rounds"])
    for key, one in cases.items():
        case, cells = case_of(key), [case_text(key)]
        for name in names:
            peer = one["peers"].get(name)
            cells.append(f"{number(peer['median_us'])} ({number(peer['p99_us'])})" if peer
                         else "-")
        if ranks == 2:
            cells.append(number(pull_us(one, case)) if case.bytes >= 4096 else "-")
        lines.append(row(cells + [str(one["blocks"])]))
    return lines


def best_of(one, group):
    """The quickest of these series: its median and name."""
    known = [(one["peers"][name]["median_us"], name) for name in group if name in one["peers"]]
    return min(known, default=(None, None))


def ratio_rows(ranks, mode, key, one):
    """(series, held against, ratio, bar or None) of one case."""
    case, rows = case_of(key), []
    mine = one["peers"].get("ringfold")
    best, name = best_of(one, RIVALS)
    if mine and best:
        rows.append(("ringfold", name, mine["median_us"] / best,
                     bar_against_rivals(ranks, case, mode)))
    for series, against, bar in other_bars(ranks, case, mode):
        best, name = best_of(one, (against,) if isinstance(against, str) else against)
        if series in one["peers"] and best:
            rows.append((series, name, one["peers"][series]["median_us"] / best, bar))
    return rows


def shm_ratios(report):
    """The table of ratios, and how many bars are missed."""
    missed = 0
    lines = ["", "Ratios of medians: how long it takes, of what the best of the others (or the "
             "better of the bounds) takes; less is better", ""]
    lines += ["| ranks | cores | size | of | than | rounds | ratio | bar | |",
              "|---:|---|---|---|---|---:|---:|---:|---|"]
    for ranks, one in report["ranks"].items():
        for mode, cases in one["modes"].items():
            for key, case in cases.items():
                for series, name, ratio, bar in ratio_rows(int(ranks), mode, key, case):
                    met = bar is None or ratio <= bar
                    missed += not met
                    lines.append(row([
                        ranks, mode, case_text(key), series, name,
                        str(case["peers"][series]["rounds"]), f"{ratio:.3f}",
                        "-" if bar is None else f"{bar:.2f}",
                        "" if bar is None else "met" if met else "MISSED"]))
    return lines, missed


# ---- the whole -------------------------------------------------------------------------------


def report_lines(report):
    """Lines, how many bars are missed, how many elements were wrong."""
    about, shm = report["machine"], report["transport"] == "shm"
    lines = [f"{about['cpu']}, {about['cores']} cores, last-level cache "
             f"{about.get('cache', 0) >> 20} MiB, Linux {about['kernel']}, load "
             f"{about['load']:.1f} at the start, {about['date']}; allreduce of fp32, sum, in place "
             f"unless it says otherwise, {WAYS[report['transport']]}."]
    if report.get("versions"):
        lines += ["", "Versions: " + ", ".join(report["versions"]) + "."]
    wrong = 0
    for ranks, one in report["ranks"].items():
        for mode, cases in one["modes"].items():
            title = f"{ranks} ranks{MODES[mode]}"
            lines += shm_times(title, int(ranks), cases, one["names"]) if shm else \
                tcp_times(title, cases, one["names"])
        wrong += sum(peer["wrong"] for case in one["measured"] for block in case["blocks"]
                     for peer in block["peers"].values())
        lines += probe_lines(one)
    bars, missed = shm_ratios(report) if shm else tcp_bars(report)
    lines += bars
    for one in report["absent"]:
        lines += ["", f"Left out, {one['where']}: {SERIES[one['peer']][0]}: {one['why']}"]
    burning = report.get("burning", [])
    if burning:
        lines += ["", f"Stopped between their turns, because they burn CPU while idle: "
                  f"{', '.join(burning)}."]
    lines += together_lines(report) + few_calls(report)
    lines += ["", "Every element of every result was " + (
        "right." if not wrong else f"NOT right: {wrong} wrong.")]
    return lines, missed, wrong


def probe_lines(one):
    looks = [look for case in one["measured"] for block in case["blocks"]
             for look in (block["before"], block["after"])]
    if not looks:
        return ["", "Nothing was measured."]
    return ["", f"Probes: hand-over {statistics.median(look[0] for look in looks):.0f} ns "
            f"({min(look[0] for look in looks):.0f} to {max(look[0] for look in looks):.0f}), "
            f"pull {statistics.median(look[1] for look in looks):.0f} GB/s; "
            f"{one['thrown']} blocks thrown away because it changed."]


def together_lines(report):
    """Ranks that had a core each and did not use it: that is the scheduler's doing, or comes of
    how a library waits, and it makes two sorts of rounds."""
    said = []
    for ranks, one in report["ranks"].items():
        if int(ranks) > report["machine"]["cores"]:
            continue
        for name in one["names"]:
            rounds = [block["peers"][name] for case in one["measured"] for block in case["blocks"]
                      if name in block["peers"]]
            count = sum(round_.get("together", False) for round_ in rounds)
            if count:
                said.append(f"{name} {100 * count / len(rounds):.0f} %")
    return ["", "Rounds that ranks ended on one core although each could have had its own: "
            + ", ".join(said) + "."] if said else []


def few_calls(report):
    """Who was given fewer calls a round than the others."""
    few = {}
    for ranks, one in report["ranks"].items():
        for case in one["measured"]:
            calls = case["calls"]
            most = max(calls.values(), default=0)
            for name, own in calls.items():
                if own < most:
                    few.setdefault(name, []).append(
                        f"{size_text(case_of(case['key']).bytes)} at {ranks} ranks ({own})")
    if not few:
        return []
    return ["", "Fewer calls a round than the others, so that a batch does not take too "
            "long: " + "; ".join(f"{name}: {', '.join(where)}"
                                        for name, where in few.items()) + "."]


def write_doc(path, report, command, picture):
    """Puts the report between the marks of a page; the rest of it stays."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{path} has no lines {BEGIN} and {END}")
    lines = [BEGIN, f"Measured by `{command}`.", ""]
    if picture:
        lines += [f"![time against size]({os.path.relpath(picture, os.path.dirname(path) or '.')})",
                  ""]
    lines += report_lines(report)[0] + [END]
    page = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: "\n".join(lines), page,
                  flags=re.DOTALL)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
