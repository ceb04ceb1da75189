#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The four-rank sum through torch, started in the ways that people start it."""
import os
import re
import sys
import tempfile
import time
import unittest

import support
from support import Process, environment, finish, free_port

support.needs("numpy", "torch")

SUM = os.path.join(support.TOP, "examples", "four_rank_sum.py")
EXPECTED = [f"before {rank} data {rank + 1}.0\nafter {rank} data 10.0\n" for rank in range(4)]
LATE_SECONDS = float(os.environ.get("RINGFOLD_TEST_LATE_SECONDS", "15"))


def maps_of(process):
    with open(f"/proc/{process.pid}/maps", encoding="ascii") as file:
        return file.read()


def can_have_hosts_file():
    try:
        return os.system("unshare -m true 2>/dev/null") == 0
    except OSError:
        return False


class FourRankSum(unittest.TestCase):
    def test_separately_started_in_any_order(self):
        port = free_port()
        ranks = [None] * 4
        for rank in (2, 0, 3, 1):
            ranks[rank] = Process([sys.executable, SUM], environment(
                rank=rank, world=4, MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
        self.assertEqual(finish(self, ranks), EXPECTED)

    @unittest.skipUnless(can_have_hosts_file(), "needs the right to make a mount namespace")
    def test_the_others_late_and_the_name_later_still(self):
        """As in pods: the master first, the others after a while, names that resolve late."""
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            hosts, resolver = os.path.join(folder, "hosts"), os.path.join(folder, "resolv.conf")
            with open(hosts, "w", encoding="ascii") as file:
                file.write("127.0.0.1 localhost\n")
            with open(resolver, "w", encoding="ascii") as file:
                file.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            inside = (
                f"mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf && "
                'exec "$@"')

            def start(rank):
                return Process(
                    ["unshare", "-m", "sh", "-c", inside, "sh", sys.executable, SUM],
                    environment(rank=rank, world=4, MASTER_ADDR="master.bigdata19",
                                MASTER_PORT=port))

            ranks = [start(0)]
            try:
                begin = time.monotonic()
                support.wait_until(
                    lambda: time.monotonic() - begin >= LATE_SECONDS
                    or ranks[0].process.poll() is not None)
                ranks += [start(rank) for rank in (1, 2, 3)]
                # The name comes when all of them are looking for it.
                support.wait_until(lambda: all(
                    "torch" in maps_of(one) or one.process.poll() is not None for one in ranks[1:]))
                begin = time.monotonic()
                support.wait_until(
                    lambda: time.monotonic() - begin >= LATE_SECONDS / 5
                    or any(one.process.poll() is not None for one in ranks))
                with open(hosts, "a", encoding="ascii") as file:
                    file.write("127.0.0.1 master.bigdata19\n")
            finally:
                outputs = finish(self, ranks)
            for rank in range(4):
                said = re.findall(r"^(?:before|after) .*\n", outputs[rank], re.M)
                self.assertEqual("".join(said), EXPECTED[rank], outputs[rank])

    def test_under_torchrun(self):
        run = Process(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4",
             f"--master-port={free_port()}", SUM],
            environment())
        [output] = finish(self, [run])
        said = sorted(re.findall(r"(?:before|after) \d data [\d.]+", output))
        self.assertEqual(said, sorted("".join(EXPECTED).splitlines()))

    def test_under_ringfold_run(self):
        run = Process(
            [os.path.join(support.BUILD, "ringfold"), "run", "-n", "4", "--no-prefix", "--",
             sys.executable, SUM], environment(PYTHONUNBUFFERED=1))
        [output] = finish(self, [run])
        self.assertEqual(sorted(output.splitlines()), sorted("".join(EXPECTED).splitlines()))


if __name__ == "__main__":
    support.main()
