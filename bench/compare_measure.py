# SPDX-License-Identifier: BSD-3-Clause
"""The method of bench/compare: blocks of interleaved rounds, and what is made of them."""
import math
import random
import statistics
import sys
import time

from compare_cases import HALVES, SERIES, case_of, size_text
from compare_launched import Unavailable
from compare_peers import Peer, say

BATCH_SECONDS = 0.25  # a peer whose thousand calls take longer is given fewer
QUICK_BATCH_SECONDS = 0.1
NEAR_NS = 110         # a hand-over between near cores takes less, between far ones more
LEAST_BLOCKS = 3


# ---- how many calls --------------------------------------------------------------------------


def last_level_cache():
    """Bytes, as the kernel has it; 32 MiB if it does not say."""
    best = 0
    for index in range(8):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size",
                      encoding="ascii") as file:
                best = max(best, int(file.read().strip().rstrip("K")) << 10)
        except (OSError, ValueError):
            continue
    return best or 32 << 20


def calls_in_round(case, ranks, args):
    """Small: batches of dependent calls. Cold: so many buffers, all written before the first call,
    that the caches have lost the one whose turn it is."""
    if case.heat == "cold":
        return max(1, -(-2 * last_level_cache() // (ranks * case.bytes)))
    calls = max(1, min(1000, (4 << 20) // case.bytes))
    if case.heat == "warm":
        return max(1, min(calls, last_level_cache() // 2 // (ranks * case.bytes)))
    return min(calls, 200) if args.quick else calls


def words_of(case, name):
    words = SERIES[name][4].split()
    if case.heat == "warm":
        words.append("same")
    if case.place == "out" and "out" not in words:
        words.append("out")
    return " ".join(words)


class Runner:
    """One series of a case: a peer, and what it is told."""

    def __init__(self, name, peer, case, calls, args):
        self.name, self.peer, self.limit = name, peer, args.limit
        self.batch_seconds = QUICK_BATCH_SECONDS if args.quick else BATCH_SECONDS
        self.bytes = case.bytes // 2 if name in HALVES else case.bytes
        self.calls, self.words = calls, words_of(case, name)

    def round(self):
        return self.peer.round(self.bytes, self.calls, self.words, self.limit)

    def fit(self):
        """Fewer calls if a batch would take too long, which is so where ranks share cores."""
        all_calls, self.calls = self.calls, min(self.calls, 5)
        each = min(self.round()["us"], self.round()["us"]) / 1e6
        self.calls = max(1, min(all_calls, int(self.batch_seconds / max(each, 1e-9))))
        if each * self.calls > self.limit / 3:
            raise TooSlow(f"a single call takes {each:.1f} s")


class TooSlow(Exception):
    pass


# ---- blocks ----------------------------------------------------------------------------------


def start_peers(peers, names, ranks, args, folder, report):
    """Adds the processes of these series to peers; one that is not to be had is named in the
    report."""
    for name in dict.fromkeys(SERIES[name][3] for name in names):
        say(f"  starting {SERIES[name][0]}, {ranks} ranks")
        try:
            peers[name] = Peer(name, ranks, args, folder)
            peers[name].round(8, 1, "", args.limit)
            peers[name].watch_idle()
        except Unavailable as why:
            if name in peers:
                peers.pop(name).kill()
            leave_out(report, ranks, name, None, str(why))


def leave_out(report, ranks, name, case, why):
    where = f"{ranks} ranks" + (f" from {size_text(case.bytes)} on" if case else "")
    report["absent"].append({"peer": name, "where": where, "why": why})
    say(f"  left out, {where}: {SERIES[name][0]}: {why}")


def progress(done, total, text):
    if sys.stderr.isatty():
        print(f"\r  {done}/{total} blocks  {text}\033[K", end="", file=sys.stderr, flush=True)
        if done == total:
            print(file=sys.stderr)
    elif done == total or done % 10 == 0:
        say(f"  {done}/{total} blocks  {text}")


def drop(peers, runners, name, report, ranks, case, why):
    leave_out(report, ranks, name, case, why)
    if name in peers:
        peers.pop(name).kill()
    runners[:] = [runner for runner in runners if runner.peer.name != name]


def make_runners(case, ranks, peers, args, report):
    calls = calls_in_round(case, ranks, args)
    runners = [Runner(name, peers[SERIES[name][3]], case, calls, args)
               for name in case.names if SERIES[name][3] in peers]
    for runner in runners[:]:
        if runner not in runners:
            continue
        try:
            if case.heat:
                runner.fit()
        except TooSlow as why:
            leave_out(report, ranks, runner.name, case, f"{why}; smaller sizes are measured")
            runners.remove(runner)
        except Unavailable as why:
            drop(peers, runners, runner.peer.name, report, ranks, case, str(why))
    return runners


def enough(case, blocks, args, end):
    """As many rounds as were asked for; those in which the cores moved are made up for."""
    if not case.heat:
        return len(blocks) >= args.rounds
    kept = [mode_of(block, NEAR_NS) for block in blocks]
    if max(kept.count("near"), kept.count("far")) >= args.rounds:
        return True
    if len(blocks) >= args.rounds * 3 // 2:
        return True
    if end is None:
        return False
    late = time.monotonic() > args.quick_end
    return len(blocks) >= (1 if late else LEAST_BLOCKS) and time.monotonic() > end


def measure(case, ranks, peers, probe, args, report, end=None):
    """The blocks of one case: each with its probes and every series' round."""
    runners = make_runners(case, ranks, peers, args, report)
    calls = {runner.name: runner.calls for runner in runners}
    blocks, number = [], 0
    while runners and not enough(case, blocks, args, end):
        order = runners[:]
        random.Random(number).shuffle(order)
        block = {"before": probe.look(), "peers": {}}
        for runner in order:
            if runner not in runners:
                continue
            try:
                block["peers"][runner.name] = runner.round()
            except Unavailable as why:
                drop(peers, runners, runner.peer.name, report, ranks, case, str(why))
        block["after"] = probe.look()
        if number:  # the first one warms up
            blocks.append(block)
        number += 1
        progress(min(len(blocks), args.rounds), args.rounds, f"{size_text(case.bytes)} "
                 f"{'' if case.place == 'in' else 'out of place '}{case.heat}".strip())
    return {"key": case.key(), "calls": calls, "blocks": blocks}


# ---- summaries -------------------------------------------------------------------------------


def split_modes(looks):
    """Where hand-overs fall into two groups, the time between the groups; else None."""
    times = sorted(looks)
    gaps = [(b / a, math.sqrt(a * b)) for a, b in zip(times, times[1:])]
    widest = max(gaps, default=(1, 0))
    return widest[1] if widest[0] > 1.5 and times[-1] / times[0] > 2 else None


def mode_of(block, border):
    """near, far, or None for a block in which it changed."""
    if border is None:
        return "one"
    sides = {"near" if look[0] < border else "far" for look in (block["before"], block["after"])}
    return sides.pop() if len(sides) == 1 else None


def percentile(ordered, share):
    """Between the neighbours."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarize(measured, names, fixed_border=None):
    """For each distance of the cores and each case every series' median, and ratios within
    blocks."""
    looks = [look[0] for one in measured for block in one["blocks"]
             for look in (block["before"], block["after"])]
    border = fixed_border or split_modes(looks)
    modes = {}
    for one in measured:
        for block in one["blocks"]:
            modes.setdefault(mode_of(block, border), {}).setdefault(one["key"], []).append(block)
    thrown = sum(len(blocks) for blocks in modes.pop(None, {}).values())
    return thrown, border, {
        mode: {key: summary_of(blocks, names) for key, blocks in
               sorted(cases.items(), key=lambda one: case_of(one[0]).bytes)}
        for mode, cases in sorted(modes.items(), reverse=True)
    }


def summary_of(blocks, names):
    peers = {}
    for name in names:
        rounds = [block["peers"][name] for block in blocks if name in block["peers"]]
        if rounds:
            times = sorted(one["us"] for one in rounds)
            peers[name] = {
                "median_us": statistics.median(times), "min_us": times[0],
                "p90_us": percentile(times, 0.9), "p99_us": percentile(times, 0.99),
                "cpu_us": statistics.median(one["cpu_us"] for one in rounds),
                "wrong": sum(one["wrong"] for one in rounds), "rounds": len(rounds),
            }
    ratios = {}
    for first in peers:
        for second in peers:
            both = [block["peers"][second]["us"] / block["peers"][first]["us"] for block in blocks
                    if first in block["peers"] and second in block["peers"]]
            if first != second and both:
                ratios[f"{second}/{first}"] = statistics.median(both)
    looks = [look for block in blocks for look in (block["before"], block["after"])]
    return {"blocks": len(blocks), "peers": peers, "ratios": ratios,
            "hand_over_ns": statistics.median(look[0] for look in looks),
            "pull_gbs": statistics.median(look[1] for look in looks)}
