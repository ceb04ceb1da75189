# SPDX-License-Identifier: BSD-3-Clause
"""The picture of bench/compare: time against size, a line a library, the bounds as a floor."""
import json
import os
import subprocess
import sys
import tempfile

from compare_cases import BOUNDS, HALVES, SERIES, TORCH, case_of, size_text
from compare_launched import Unavailable
from compare_peers import say, torch_python

COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare")
WAYS = {"tcp": "over loopback TCP", "shm": "within one host"}


def most_seen(modes):
    """Of each size, in place, what was measured at the distance of the cores that had the most
    blocks."""
    best = {}
    for one in modes.values():
        for key, case in one.items():
            about = case_of(key)
            old = best.get(about.bytes)
            if about.place == "in" and (old is None or case["blocks"] > old["blocks"]):
                best[about.bytes] = case
    return dict(sorted(best.items()))


def plot_elsewhere(report, path, installed):
    """By the python in the cache, which gets matplotlib if it can and may."""
    try:
        python = torch_python(installed)
    except Unavailable as why:
        say(f"no plot: matplotlib is not there ({why})")
        return
    get = [python, "-c", "import matplotlib"] if installed else \
        [python, "-m", "pip", "install", "-q", "matplotlib"]
    if python == sys.executable or subprocess.run(get, stderr=subprocess.DEVNULL,
                                                  check=False).returncode:
        say("no plot: matplotlib is not to be had")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(report, file)
        file.flush()
        subprocess.run([python, COMPARE, "--replot", file.name, "--plot", path],
                       stdout=subprocess.DEVNULL, check=False)


def drawn(report, name):
    """The rest would only crowd the picture."""
    return report["transport"] == "tcp" or name not in HALVES + TORCH + ("ringfold-alloc",)


def draw_floor(axis, sizes):
    """The better of the bounds, and what is below it shaded."""
    points = []
    for bytes_, case in sizes.items():
        known = [case["peers"][name]["median_us"] for name in BOUNDS if name in case["peers"]]
        if known:
            points.append((bytes_, min(known)))
    if points:
        axis.plot(*zip(*points), ":", color="#333333", linewidth=1.4,
                  label="floor: every rank copies as many bytes, all at once")
        axis.fill_between([x for x, _ in points], [y for _, y in points], 1e-3, color="#eeeeee",
                          zorder=0)


def draw(axis, report, ranks):
    sizes = most_seen(report["ranks"][ranks]["modes"])
    lowest, highest = [], []
    for name, (label, colour, dash, *_) in SERIES.items():
        points = [(bytes_, case["peers"][name]["median_us"]) for bytes_, case in sizes.items()
                  if name in case["peers"]]
        if not points or name in BOUNDS or not drawn(report, name):
            continue
        mine = name == "ringfold"
        axis.plot(*zip(*points), dash, color=colour, marker="o", markersize=5 if mine else 3.5,
                  linewidth=2.6 if mine else 1.4, label=label, zorder=3 if mine else 2)
        lowest.append(min(us for _, us in points))
        highest.append(max(us for _, us in points))
    draw_floor(axis, sizes)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = sorted(bytes_ for bytes_, case in sizes.items()
                   if any(drawn(report, name) for name in case["peers"]))
    axis.set_xticks(ticks, [size_text(bytes_) for bytes_ in ticks], rotation=45, ha="right",
                    fontsize=8)
    axis.minorticks_off()
    axis.set_title(f"{ranks} ranks")
    axis.set_xlabel("size of the array")
    axis.grid(True, color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return min(lowest, default=1), max(highest, default=1)


def plot(report, path, installed=False):
    try:
        import matplotlib
    except ImportError:
        plot_elsewhere(report, path, installed)
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    counts = list(report["ranks"])
    figure, axes = pyplot.subplots(1, len(counts), figsize=(max(7, 5.2 * len(counts)), 5.8),
                                   squeeze=False, sharey=True)
    ranges = [draw(axis, report, ranks) for axis, ranks in zip(axes[0], counts)]
    axes[0][0].set_ylim(min(low for low, _ in ranges) / 2, max(high for _, high in ranges) * 2)
    axes[0][0].set_ylabel("microseconds a call (less is better)")
    seen = {}
    for axis in axes[0]:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            seen.setdefault(label, handle)
    figure.legend(seen.values(), seen.keys(), frameon=False, fontsize=9, ncols=4,
                  loc="lower center")
    about = report["machine"]
    figure.suptitle(f"allreduce of fp32 {WAYS[report['transport']]}  ·  {about['cpu']}, "
                    f"{about['cores']} cores")
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=110)
    say(f"plot: {path}")
