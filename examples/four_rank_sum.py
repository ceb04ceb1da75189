#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The four-rank sum through torch.distributed: every rank brings ones * (rank + 1), and after the
call every rank has 1 + 2 + 3 + 4 = 10. On four machines, the first being the master:

    MASTER_ADDR=master.bigdata19 MASTER_PORT=7880 rank=0 world=4 python3 four_rank_sum.py
    MASTER_ADDR=master.bigdata19 MASTER_PORT=7880 rank=1 world=4 python3 four_rank_sum.py
    ...

On one machine: ringfold run -n 4 python3 four_rank_sum.py, or torchrun --nproc-per-node 4.
"""
import os

import torch
import torch.distributed as dist

import ringfold.torch  # registers the backend


def identity():
    """The rank and the number of ranks, as a person gives them or as launchers do."""
    env = os.environ
    return int(env.get("rank") or env["RANK"]), int(env.get("world") or env["WORLD_SIZE"])


def say(line):
    """In one write, so that ranks that share an output do not mix their lines."""
    print(line + "\n", end="", flush=True)


def main():
    rank, world = identity()
    dist.init_process_group(ringfold.torch.BACKEND, rank=rank, world_size=world)
    group = dist.new_group(list(range(world)))

    data = torch.ones(1) * (rank + 1)
    say(f"before {rank} data {data.item()}")
    dist.all_reduce(data, op=dist.ReduceOp.SUM, group=group)
    say(f"after {rank} data {data.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
