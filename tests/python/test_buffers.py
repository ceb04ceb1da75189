#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collective calls on numpy arrays and other buffers."""
import array
import os
import select
import unittest

import support
from support import on_ranks

support.needs("numpy")

import numpy as np

import ringfold

NUMPY_TYPES = [name for name in ringfold.DTYPES if name != "bfloat16"]
FOLDS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def input_of(rank, count, dtype):
    """Small numbers, the same everywhere for a rank."""
    random = np.random.default_rng([support.SEED, rank, count])
    return random.integers(0, 4, count).astype(dtype)


def expected(op, size, count, dtype):
    inputs = [input_of(rank, count, dtype) for rank in range(size)]
    if dtype == "bool":
        return np.logical_and.reduce(inputs) if op in ("prod", "min") else np.any(inputs, axis=0)
    if op == "avg":
        total = FOLDS["sum"].reduce(inputs, dtype=dtype)
        # What is rounded once, here and there.
        return (total / size).astype(dtype) if dtype[0] == "f" else total // dtype_of(dtype, size)
    return FOLDS[op].reduce(inputs, dtype=dtype)


def is_running(pid):
    """Not when it is a zombie either."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def dtype_of(dtype, value):
    return np.dtype(dtype).type(value)


class Calls(unittest.TestCase):
    @on_ranks(4)
    def test_every_type_and_operator(self):
        with ringfold.Comm.from_env() as comm:
            for dtype in NUMPY_TYPES:
                for op in ringfold.OPS:
                    if (dtype, op) == ("bool", "avg"):
                        continue
                    for count in (0, 1, 7, 1000):
                        want = expected(op, comm.size, count, dtype)
                        mine = input_of(comm.rank, count, dtype)
                        what = f"{op} of {count} {dtype}"
                        out = np.empty_like(mine)
                        np.testing.assert_array_equal(
                            comm.allreduce(mine, out, op=op), want, what)
                        request = comm.iallreduce(mine, op=op)
                        np.testing.assert_array_equal(request.result(60), want, what)
                        self.assertTrue(request.test())
            sixteen = np.full(9, 0x3FC0, np.uint16)  # 1.5 in bfloat16
            comm.allreduce(sixteen, dtype="bfloat16")
            self.assertEqual(sixteen.tolist(), [0x40C0] * 9)

    @on_ranks(4)
    def test_every_collective(self):
        with ringfold.Comm.from_env() as comm:
            rank, size = comm.rank, comm.size
            mine = np.arange(6, dtype=np.float32) + rank
            total = np.arange(6, dtype=np.float32) * 4 + 6
            got = comm.reduce(mine, np.empty_like(mine) if rank == 2 else None, root=2)
            if rank == 2:
                np.testing.assert_array_equal(got, total)
            else:
                self.assertIsNone(got)
            np.testing.assert_array_equal(
                comm.broadcast(np.full(5, rank), root=3), np.full(5, 3))
            block = comm.reduce_scatter(np.tile(mine, 4), np.empty(6, np.float32))
            np.testing.assert_array_equal(block, total)
            counts = [3, 0, 5, 1]
            whole = np.arange(9.0)
            block = comm.reduce_scatter(whole, np.empty(counts[rank]), counts=counts)
            at = sum(counts[:rank])
            np.testing.assert_array_equal(block, 4 * whole[at : at + counts[rank]])
            parts = comm.allgather(np.full(counts[rank], rank), np.empty(9, int), counts=counts)
            self.assertEqual(parts.tolist(), [0] * 3 + [2] * 5 + [3])
            equal = comm.allgather(np.full((2, 2), rank), np.empty((4, 2, 2), int))
            self.assertEqual(equal[:, 1, 1].tolist(), [0, 1, 2, 3])
            placed = np.zeros(4, int)
            placed[rank] = rank
            self.assertEqual(comm.allgather(placed).tolist(), [0, 1, 2, 3])
            comm.barrier()
            requests = [comm.iallreduce(np.ones(n)) for n in (1, 100000, 10)]
            requests.append(comm.ibarrier())
            self.assertTrue(ringfold.wait_all(requests, 60))
            tree = comm.allreduce(np.float32([0.1 * rank]), order="tree", deadline=60)
            self.assertEqual(tree.dtype, np.float32)
            counted = comm.counters()
            self.assertEqual(counted.calls["reduce_scatter"], 2)
            self.assertEqual(counted.calls["barrier"], 2)
            self.assertGreater(counted.payload_bytes_sent, 100000)
            self.assertGreaterEqual(comm.peer_wait_ns((rank + 1) % size), 0)

    @on_ranks(4)
    def test_groups(self):
        with ringfold.Comm.from_env() as comm:
            half = comm.split(comm.rank % 2, key=-comm.rank)
            self.assertEqual((half.size, half.rank), (2, 1 - comm.rank // 2))
            self.assertEqual(half.allreduce(np.array([comm.rank]))[0], 2 + 2 * (comm.rank % 2))
            none = comm.split(-1 if comm.rank else 0)
            self.assertEqual(none is None, comm.rank != 0)
            if comm.rank in (1, 3):
                two = comm.group([3, 1], tag=9)
                self.assertEqual(two.broadcast(np.array([comm.rank]), root=0)[0], 3)
                two.destroy()
            half.destroy()
            with self.assertRaises(ValueError):
                half.barrier()

    @on_ranks(4)
    def test_the_root_of_a_broadcast_may_end_at_once(self):
        comm = ringfold.Comm.from_env()
        pids = comm.allgather(np.full(1, os.getpid()), np.empty(4, int))
        if comm.rank:
            # Its data is here, or on the way, when the call begins.
            support.wait_until(lambda: not is_running(pids[0]))
        self.assertEqual(comm.broadcast(np.full(1, comm.rank + 7))[0], 7)
        comm.destroy()

    @on_ranks(2)
    def test_buffers_that_are_not_arrays(self):
        with ringfold.Comm.from_env() as comm:
            self.assertEqual(comm.allreduce(array.array("i", [1, 2])).tolist(), [2, 4])
            self.assertEqual(comm.allreduce(bytearray(b"\1\2")), b"\2\4")
            floats = memoryview(bytearray(8)).cast("f")
            floats[1] = 2.5
            comm.allreduce(floats)
            self.assertEqual(floats.tolist(), [0, 5])
            out = bytearray(4)
            comm.allgather(b"ab" if comm.rank else b"cd", out)
            self.assertEqual(out, b"cdab")
            held = bytearray(4)
            request = comm.iallreduce(held) if comm.rank else None
            if request:
                with self.assertRaises(BufferError):
                    held.extend(b"more")  # the library has it
            else:
                comm.allreduce(held)
            if request:
                request.wait()
                held.extend(b"more")

    @on_ranks(2)
    def test_what_cannot_be_right_is_refused_and_changes_nothing(self):
        with ringfold.Comm.from_env() as comm:
            for wrong, error in (
                (lambda: comm.allreduce(b"read-only"), BufferError),
                (lambda: comm.allreduce(np.ones((4, 4))[:, ::2]), (BufferError, ValueError)),
                (lambda: comm.allreduce(np.ones(3, ">f4")), TypeError),
                (lambda: comm.allreduce(np.ones(3, complex)), TypeError),
                (lambda: comm.allreduce(np.ones(3, np.int16)), TypeError),
                (lambda: comm.allreduce(np.ones(3), op="xor"), ValueError),
                (lambda: comm.allreduce(np.ones(3), np.ones(4)), ValueError),
                (lambda: comm.allreduce(np.ones(3), np.ones(3, "f")), TypeError),
                (lambda: comm.allreduce(np.ones(3, bool), op="avg"), ringfold.Error),
                (lambda: comm.allgather(np.ones(3), np.ones(5)), ValueError),
                (lambda: comm.reduce_scatter(np.ones(5), np.ones(2)), ValueError),
                (lambda: comm.broadcast(np.ones(3), root=2), ringfold.InvalidError),
                (lambda: comm.allreduce([1, 2]), TypeError),
                (lambda: comm.allreduce(np.ones(3), deadline=-1), ValueError),
            ):
                with self.assertRaises(error):
                    wrong()
            self.assertEqual(comm.allreduce(np.ones(1))[0], 2)

    @on_ranks(3)
    def test_completion_queue(self):
        with ringfold.Comm.from_env() as comm:
            queue = ringfold.CompletionQueue(comm)
            arrays = [np.ones(n) for n in (1, 10, 50000)]
            for number, one in enumerate(arrays):
                self.assertIsNone(comm.iallreduce(one, cq=queue, user=number))
            seen = []
            while len(queue):
                # Progress is the caller's by default: so it is the queue that is waited on.
                seen += queue.poll(timeout=60)
            self.assertEqual(sorted(seen), [(0, None), (1, None), (2, None)])
            self.assertTrue(all((one == 3).all() for one in arrays))
            self.assertEqual(queue.poll(), [])
            self.assertEqual(select.select([queue], [], [], 0), ([], [], []))
            queue.destroy()

    @on_ranks(2)
    def test_thread_progress_and_the_queue_s_descriptor(self):
        with ringfold.Context(progress="thread") as context:
            with ringfold.Comm(context=context) as comm:
                queue = ringfold.CompletionQueue(context)
                large = np.ones(1 << 20)
                comm.iallreduce(large, cq=queue, user="large")
                self.assertEqual(select.select([queue], [], [], 60), ([queue], [], []))
                self.assertEqual(queue.poll(), [("large", None)])
                self.assertTrue((large == 2).all())
                queue.destroy()


if __name__ == "__main__":
    support.main()
