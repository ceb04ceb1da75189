# SPDX-License-Identifier: BSD-3-Clause
"""The picture of bench/compare: time against size, a line a library."""
import json
import os
import subprocess
import sys
import tempfile

COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare")


def print_error(text):
    print(text, file=sys.stderr, flush=True)


def most_seen(modes):
    """Of each size what was measured at the distance of the cores that had the most blocks."""
    sizes = {}
    for one in modes.values():
        for bytes_, size in one.items():
            if bytes_ not in sizes or size["blocks"] > sizes[bytes_]["blocks"]:
                sizes[bytes_] = size
    return dict(sorted(sizes.items()))


def plot_elsewhere(report, path, torch_python):
    """By the python in the cache, which gets matplotlib if it can."""
    try:
        python = torch_python()
    except Unavailable as why:
        print_error(f"no plot: matplotlib is not there ({why})")
        return
    if python == sys.executable or subprocess.run(
            [python, "-m", "pip", "install", "-q", "matplotlib"], check=False).returncode:
        print_error("no plot: matplotlib is not to be had")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(report, file)
        file.flush()
        subprocess.run([python, COMPARE, "--replot", file.name, "--plot", path],
                       stdout=subprocess.DEVNULL, check=False)


def plot(report, path, peers, size_text, torch_python):
    """peers: of each name its label, colour and dash."""
    try:
        import matplotlib
    except ImportError:
        plot_elsewhere(report, path, torch_python)
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    counts = list(report["ranks"])
    figure, axes = pyplot.subplots(1, len(counts), figsize=(5.6 * len(counts), 5.2), squeeze=False,
                                   sharey=True)
    for axis, ranks in zip(axes[0], counts):
        sizes = most_seen(report["ranks"][ranks]["modes"])
        for name, (label, colour, dash) in peers.items():
            points = [(bytes_, size["peers"][name]["median_us"]) for bytes_, size in sizes.items()
                      if name in size["peers"]]
            if points:
                axis.plot(*zip(*points), dash, color=colour, marker="o", markersize=4, label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        ticks = sorted(sizes)
        axis.set_xticks(ticks, [size_text(bytes_) for bytes_ in ticks], rotation=30)
        axis.minorticks_off()
        axis.set_title(f"{ranks} ranks")
        axis.set_xlabel("size of the array")
        axis.grid(True, color="#dddddd", linewidth=0.6)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0][0].set_ylabel("microseconds a call (less is better)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=3,
                  loc="lower center")
    about = report["machine"]
    way = {"tcp": "over loopback TCP", "shm": "within one host"}[report["transport"]]
    figure.suptitle(f"allreduce of fp32 {way}  ·  {about['cpu']}, {about['cores']} cores")
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(path, dpi=110)
    print_error(f"plot: {path}")
