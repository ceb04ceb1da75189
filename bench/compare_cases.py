# SPDX-License-Identifier: BSD-3-Clause
"""What bench/compare measures: the series, the cases, and the bars that they are held against."""

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
KIB, MIB = 1 << 10, 1 << 20

# Name: what it is, colour and dash of its line; whose processes run it, with which words a round.
SERIES = {
    "ringfold": ("ringfold, from C", "#0b6e4f", "-", "ringfold", ""),
    "ringfold-alloc": ("ringfold, buffers of rf_alloc", "#0b6e4f", ":", "ringfold", "alloc"),
    "ringfold-bf16": ("ringfold, bfloat16", "#55a630", "--", "ringfold", "bfloat16"),
    "ringfold-fp16": ("ringfold, float16", "#80b918", "--", "ringfold", "float16"),
    "ringfold-torch": ("ringfold, through torch", "#0b6e4f", "--", "ringfold-torch", ""),
    "openmpi": ("Open MPI", "#1f5fa8", "-", "openmpi", ""),
    "mpich": ("MPICH", "#7a3e9d", "-", "mpich", ""),
    "impi": ("Intel MPI", "#b8860b", "-", "impi", ""),
    "oneccl": ("oneCCL", "#d6336c", "-", "oneccl", ""),
    "gloo": ("Gloo (C++ library)", "#c1440e", "-", "gloo", ""),
    "gloo-torch": ("Gloo, through torch", "#c1440e", "--", "gloo-torch", ""),
    "bare": ("bare ring of streams, folding", "#333333", "-", "bare", ""),
    "bare-no-fold": ("bare ring of streams, no folding", "#999999", ":", "bare-no-fold", ""),
    "copy": ("bound: all ranks copy at once", "#333333", ":", "copy", "out"),
    "copy-stream": ("bound: the same, past the caches", "#999999", ":", "copy-stream", "out"),
}
BY_TRANSPORT = {
    "tcp": ("ringfold", "ringfold-torch", "gloo", "gloo-torch", "bare", "bare-no-fold"),
    "shm": ("ringfold", "ringfold-alloc", "ringfold-bf16", "ringfold-fp16", "openmpi", "mpich",
            "impi", "oneccl", "gloo", "copy", "copy-stream", "ringfold-torch", "gloo-torch"),
}
BOUNDS = ("copy", "copy-stream")
RIVALS = ("openmpi", "mpich", "impi", "oneccl", "gloo")
TORCH = ("ringfold-torch", "gloo-torch")
HALVES = ("ringfold-bf16", "ringfold-fp16")  # as many elements as the others, in half the bytes

TCP_SIZES = {2: "8,4K,64K,1M,16M", 4: "8,4K,64K,1M,4M,25M"}
SHM_SIZES = {2: "8,64,512,4K,32K,256K,2M,16M,64M", 4: "8,512,4K,32K,256K,2M,16M"}
OUT_OF_PLACE = (2 * MIB, 16 * MIB, 64 * MIB)  # measured so too, with 2 ranks
LARGE = 4 * MIB  # from here on buffers are cold: rotated through more than the caches hold
TORCH_BYTES = 25 * MIB

# Over TCP: at these ranks and bytes, `first` is at least `least` times as fast as `second`.
TCP_BARS = [
    (2, 16 << 20, "ringfold", "bare", 0.95),
    (4, 25 << 20, "ringfold", "bare", 0.95),
    (2, 16 << 20, "ringfold-torch", "gloo-torch", 1.2),
    (4, 25 << 20, "ringfold-torch", "gloo-torch", 1.1),
    (2, 8, "ringfold-torch", "gloo-torch", 3.0),
    (4, 8, "ringfold-torch", "gloo-torch", 3.0),
    (2, 8, "ringfold", "gloo", 2.0),
    (4, 8, "ringfold", "gloo", 2.0),
]


class Case:
    """An array of so many bytes of float32, in place or out of place, its buffers warm or cold."""

    def __init__(self, bytes_, place="in", heat="", names=()):
        self.bytes, self.place, self.heat, self.names = bytes_, place, heat, list(names)

    def key(self):
        return " ".join(word for word in (str(self.bytes), self.place, self.heat) if word)


def case_of(key):
    words = key.split()
    return Case(int(words[0]), words[1], words[2] if len(words) > 2 else "")


def size_of(text):
    unit = UNITS.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def size_text(bytes_):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= unit and bytes_ % unit == 0:
            return f"{bytes_ // unit} {name}"
    return f"{bytes_} B"


def tcp_cases(ranks, sizes, names):
    return [Case(size_of(text), names=names)
            for text in (sizes or TCP_SIZES.get(ranks, TCP_SIZES[4])).split(",")]


def shm_cases(ranks, sizes, names):
    asked = [size_of(text) for text in (sizes or SHM_SIZES.get(ranks, SHM_SIZES[4])).split(",")]
    plain = [name for name in names if name not in TORCH]
    cases = []
    for bytes_ in asked:
        heat = "cold" if bytes_ > LARGE else "warm"
        here = [name for name in plain if name not in HALVES or bytes_ % 8 == 0]
        if bytes_ < 2 * MIB or ranks > 2:
            here = [name for name in here if name != "ringfold-alloc"]
        if ranks > 2:
            here = [name for name in here if name not in HALVES]
        cases.append(Case(bytes_, "in", heat, here))
        if ranks == 2 and bytes_ in OUT_OF_PLACE:
            here = [name for name in here if name not in HALVES + ("ringfold-alloc",)]
            cases.append(Case(bytes_, "out", heat, here))
    through_torch = [name for name in names if name in TORCH]
    if through_torch and ranks <= 4 and (not sizes or TORCH_BYTES in asked):
        case = Case(TORCH_BYTES, "in", "cold", through_torch)
        # Measured anyhow, then with these too.
        same = [other for other in cases if other.key() == case.key()]
        if same:
            same[0].names += through_torch
        else:
            cases.append(case)
    return [case for case in cases if case.names]


CASES = {"tcp": tcp_cases, "shm": shm_cases}


def bar_against_rivals(ranks, case, mode):
    """What the time of ringfold may be of the best rival's; None: none was set."""
    if case.place != "in":
        return None
    if ranks > 2:
        return 0.65 if ranks == 4 and case.bytes == 16 * MIB else 1.0
    if case.bytes >= 2 * MIB and mode == "far":
        return 1.0
    for most, bar in ((512, 0.6), (32 * KIB, 0.7), (2 * MIB, 0.6), (64 * MIB, 0.5)):
        if case.bytes <= most:
            return bar
    return None


def other_bars(ranks, case, mode):
    """(series, series or group that it is held against, bar) besides the rivals."""
    bars = []
    if case.bytes == TORCH_BYTES and ranks in (2, 4):
        bars.append(("ringfold-torch", "gloo-torch", {2: 1 / 4, 4: 1 / 3}[ranks]))
    if ranks != 2:
        return bars
    if case.heat == "cold" and mode == "near":
        bars.append(("ringfold", BOUNDS, 1.2))
        bars.append(("ringfold-alloc", BOUNDS, 1.1))
    if case.bytes == 2 * MIB and mode == "near" and case.place == "in":
        bars.append(("ringfold", BOUNDS, 3.0))
    for name in HALVES:
        bars.append((name, "ringfold", 0.65 if case.bytes >= 16 * MIB else 1.0))
    return bars
