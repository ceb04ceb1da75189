#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed's all_reduce, with any backend.

Every rank runs it, under a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:

    ringfold run -n 2 --no-prefix -- python3 bench/torch_allreduce.py --backend gloo --json -

A round is a batch of blocking calls, each on a buffer of its own that was written anew just before,
begun after a barrier, and timed by every rank; its time is that of the slowest rank. Reported is
the median over the rounds, divided by the calls of a batch. Every element of every result is
compared with what it must be.

With --serve the rounds are begun from outside, so that programs can take turns: for each line "run
BYTES CALLS" on standard input every rank answers "SECONDS CPU_SECONDS WRONG" for one round.
"""
import argparse
import json
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text):
    """Bytes, with K, M or G for powers of 1024."""
    unit = text[-1:].upper() if text[-1:].upper() in ("K", "M", "G") else ""
    return int(text[: len(text) - len(unit)]) * UNITS[unit]


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="ringfold", help="gloo, ringfold (default), ...")
    parser.add_argument("--sizes", default="8,4K,32K,256K,2M,16M", help="bytes, comma separated")
    parser.add_argument("--dtype", default="float32", help="a torch dtype (default float32)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count, per size")
    parser.add_argument("--warmup", type=int, default=3, help="rounds that do not")
    parser.add_argument("--calls", type=int, default=0, help="calls in a batch (0: by size)")
    parser.add_argument(
        "--pool", type=size_of, default=0,
        help="rotate through buffers of this many bytes together (more than the last-level cache: "
        "cold buffers; 0: those of one batch)",
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds for any one call")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes JSON there (-: stdout)")
    parser.add_argument("--serve", action="store_true", help="rounds on command, see above")
    parser.add_argument("--no-samples", action="store_true", help="leave single rounds out of it")
    return parser.parse_args()


def calls_in_batch(bytes_):
    """A thousand small calls, or one large one."""
    return max(1, min(1000, (4 << 20) // max(bytes_, 1)))


class Buffers:
    """Tensors to be summed; what each rank puts in differs by rank, element and round."""

    def __init__(self, count, elements, dtype, rank, world):
        # Sums of these stay exact in every dtype up to 30 ranks or so, in bfloat16 too.
        self.pattern = torch.arange(elements).remainder(3).to(dtype)
        self.total = self.pattern * world
        self.tensors = [torch.empty(elements, dtype=dtype) for _ in range(count)]
        self.rank, self.world = rank, world
        self.next = 0

    def take(self, calls):
        """The next buffers in turn, by position."""
        taken = [(self.next + i) % len(self.tensors) for i in range(calls)]
        self.next = (self.next + calls) % len(self.tensors)
        return taken

    def part(self, rank, position, round_):
        return (rank + position + round_) % 3

    def write(self, positions, round_):
        for position in positions:
            tensor = self.tensors[position]
            tensor.copy_(self.pattern)
            tensor.add_(self.part(self.rank, position, round_))

    def wrong(self, positions, round_):
        """How many elements are not what they must be."""
        count = 0
        for position in positions:
            constant = sum(self.part(rank, position, round_) for rank in range(self.world))
            expected = self.total + constant
            count += int((self.tensors[position] != expected).sum())
        return count


def measure(args, bytes_, dtype, rank, world):
    """This rank's seconds for each round, the calls in each, and how many elements were wrong."""
    elements = max(1, bytes_ // torch.empty(0, dtype=dtype).element_size())
    calls = args.calls or calls_in_batch(bytes_)
    buffers = Buffers(max(calls, args.pool // max(bytes_, 1)), elements, dtype, rank, world)
    seconds, wrong = [], 0
    for round_ in range(args.warmup + args.rounds):
        positions = buffers.take(calls)
        buffers.write(positions, round_)
        tensors = [buffers.tensors[position] for position in positions]
        dist.barrier()
        start = time.perf_counter()
        for tensor in tensors:
            dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - start)
        wrong += buffers.wrong(positions, round_)
    return seconds[args.warmup:], calls, wrong


def serve(dtype, rank, world):
    """One round for each line."""
    print("ready", flush=True)
    kept = {}
    for round_, line in enumerate(sys.stdin):
        bytes_, calls = (int(word) for word in line.split()[1:3])
        if (bytes_, calls) not in kept:
            elements = max(1, bytes_ // torch.empty(0, dtype=dtype).element_size())
            kept = {(bytes_, calls): Buffers(2 * calls, elements, dtype, rank, world)}
        buffers = kept[(bytes_, calls)]
        positions = buffers.take(calls)
        buffers.write(positions, round_)
        tensors = [buffers.tensors[position] for position in positions]
        dist.all_reduce(torch.zeros(1))
        start, cpu = time.perf_counter(), time.process_time()
        for tensor in tensors:
            dist.all_reduce(tensor)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(f"{seconds:.9f} {cpu:.9f} {buffers.wrong(positions, round_)}", flush=True)


def collect(store, key, mine, rank, world):
    """Every rank's value, on rank 0; not through the backend that is being measured."""
    store.set(f"{key}/{rank}", json.dumps(mine))
    if rank != 0:
        return None
    return [json.loads(store.get(f"{key}/{other}")) for other in range(world)]


def summary(bytes_, calls, everyone, with_samples):
    rounds = [max(times) * 1e6 / calls for times in zip(*(one["seconds"] for one in everyone))]
    rounds_sorted = sorted(rounds)
    result = {
        "bytes": bytes_,
        "calls": calls,
        "rounds": len(rounds),
        "median_us": statistics.median(rounds),
        "min_us": rounds_sorted[0],
        "p90_us": rounds_sorted[min(len(rounds) - 1, int(len(rounds) * 0.9))],
        "wrong": sum(one["wrong"] for one in everyone),
    }
    result["verified"] = result["wrong"] == 0
    if with_samples:
        result["samples_us"] = rounds
    return result


def main():
    args = parse()
    dtype = getattr(torch, args.dtype)
    # The sum is what is timed: torch's own threads would only stand in its way.
    torch.set_num_threads(1)
    if args.backend == "ringfold":
        import ringfold.torch  # noqa: F401  (registers the backend)

    timeout = timedelta(seconds=args.timeout)
    store, rank, world = next(dist.rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    dist.init_process_group(
        args.backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world,
        timeout=timeout,
    )
    if args.serve:
        serve(dtype, rank, world)
        dist.barrier()
        dist.destroy_process_group()
        return 0
    results = []
    for number, bytes_ in enumerate(size_of(text) for text in args.sizes.split(",")):
        seconds, calls, wrong = measure(args, bytes_, dtype, rank, world)
        everyone = collect(
            store, f"result/{number}", {"seconds": seconds, "wrong": wrong}, rank, world
        )
        if everyone:
            result = summary(bytes_, calls, everyone, not args.no_samples)
            results.append(result)
            if args.json != "-":
                print(
                    f"{args.backend:10} {world} ranks {bytes_:>11} bytes "
                    f"{result['median_us']:12.2f} us  (min {result['min_us']:.2f}, "
                    f"p90 {result['p90_us']:.2f}, {calls} calls x {args.rounds})"
                    f"{'' if result['verified'] else '  WRONG'}",
                    flush=True,
                )
    if rank == 0 and args.json:
        report = {
            "program": "torch_allreduce", "backend": args.backend, "ranks": world,
            "dtype": args.dtype, "pool": args.pool, "torch": torch.__version__,
            "results": results,
        }
        text = json.dumps(report)
        if args.json == "-":
            print(text, flush=True)
        else:
            with open(args.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
    # The store lives in rank 0: it must not end before the others have done with it.
    dist.barrier()
    dist.destroy_process_group()
    return 1 if rank == 0 and not all(result["verified"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
