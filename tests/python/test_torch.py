#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over ringfold: every public call, in torch's own terms."""
import os
import signal
import time
import unittest
import warnings
from datetime import timedelta

import support
from support import on_ranks

support.needs("numpy", "torch")

import torch
import torch.distributed as dist

import ringfold.torch

# torch's own, about older names of its calls, which are called here as well.
warnings.simplefilter("ignore")
SOON = 5
REDUCED = [torch.int8, torch.uint8, torch.int32, torch.uint32, torch.int64, torch.uint64,
           torch.float16, torch.bfloat16, torch.float32, torch.float64]


def begin(**options):
    rank, world = int(os.environ["rank"]), int(os.environ["world"])
    dist.init_process_group("ringfold", rank=rank, world_size=world, **options)
    return rank, world


def ranks_twice(world):
    return [float(rank) for rank in range(world) for _ in range(2)]


class Calls(unittest.TestCase):
    """One start of the processes for many calls, for starting them is what takes long."""

    def all_equal(self, tensor, value):
        self.assertTrue((tensor == value).all(), f"{tensor} is not {value}")

    @on_ranks(4)
    def test_every_call(self):
        rank, world = begin()
        self.assertEqual(dist.get_backend(), "ringfold")
        for check in (self.all_reduce, self.shapes, self.futures, self.coalesced, self.reduce,
                      self.broadcast, self.all_gather, self.reduce_scatter, self.gather_scatter,
                      self.objects, self.groups, self.functional, self.refused):
            check(rank, world)
            dist.barrier()
        dist.destroy_process_group()

    def all_reduce(self, rank, world):
        for dtype in REDUCED:
            for asynchronous in (False, True):
                tensor = torch.ones(7).to(dtype)
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if asynchronous:
                    self.assertTrue(work.wait())
                    self.assertTrue(work.is_completed() and work.is_success())
                self.assertEqual(tensor.to(torch.float64).tolist(), [world] * 7, dtype)
        for op, value in ((dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.MIN, 0), (dist.ReduceOp.MAX, 3),
                          (dist.ReduceOp.PRODUCT, 0)):
            tensor = torch.full((3,), float(rank))
            dist.all_reduce(tensor, op=op)
            self.all_equal(tensor, value)
        tensor = torch.tensor([rank == 0, False, True])
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [True, False, True])
        tensor = torch.ones(3, dtype=torch.complex64)
        dist.all_reduce(tensor)
        self.all_equal(tensor, world)

    def shapes(self, rank, world):
        numbers = torch.arange(24.0)
        for asynchronous in (False, True):
            for make in (lambda x: x[:0], lambda x: x[3], lambda x: x.view(4, 6).t(),
                         lambda x: x[::3], lambda x: x.view(2, 3, 4).permute(2, 0, 1),
                         lambda x: x.view(4, 6)[:, 1:3]):
                whole = numbers.clone()
                view = make(whole)
                want = numbers.clone()
                make(want).mul_(world)  # and nothing outside of it
                work = dist.all_reduce(view, async_op=asynchronous)
                if work:
                    work.wait()
                self.assertEqual(whole.tolist(), want.tolist())
        with torch.inference_mode():
            tensor = torch.ones(4, 4)[:, ::2]
            dist.all_reduce(tensor, async_op=True).wait()
            self.all_equal(tensor, world)

    def futures(self, rank, world):
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        self.all_equal(future.wait()[0], world)
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        self.all_equal(future.then(lambda it: it.value()[0] / world).wait(), 1)
        works = [dist.all_reduce(torch.ones(1000) * n, async_op=True) for n in range(20)]
        for number, work in reversed(list(enumerate(works))):
            work.wait()
            self.all_equal(work.result()[0], number * world)

    def coalesced(self, rank, world):
        for size in (3, 100000):
            tensors = [torch.ones(size) * (i + 1) for i in range(4)]
            dist.all_reduce_coalesced(tensors)
            dist.all_reduce_coalesced(tensors, async_op=True).wait()
            with dist._coalescing_manager():
                for tensor in tensors:
                    dist.all_reduce(tensor)
            with dist._coalescing_manager(async_ops=True) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            manager.wait()
            for i, tensor in enumerate(tensors):
                self.all_equal(tensor, (i + 1) * world**4)
        gathered = [torch.zeros(2 * world) for _ in range(2)]
        scattered = [torch.zeros(2) for _ in range(2)]
        with dist._coalescing_manager():
            for tensor in gathered:
                dist.all_gather_into_tensor(tensor, torch.ones(2) * rank)
        with dist._coalescing_manager():
            for tensor in scattered:
                dist.reduce_scatter_tensor(tensor, torch.tensor(ranks_twice(world)))
        for i in range(2):
            self.assertEqual(gathered[i].tolist(), ranks_twice(world))
            self.all_equal(scattered[i], rank * world)

    def reduce(self, rank, world):
        for asynchronous in (False, True):
            tensor = torch.ones(4) * (rank + 1)
            work = dist.reduce(tensor, 2, async_op=asynchronous)
            if work:
                work.wait()
            self.all_equal(tensor, 10 if rank == 2 else rank + 1)

    def broadcast(self, rank, world):
        for dtype in REDUCED + [torch.bool, torch.int16, torch.complex64, torch.float8_e4m3fn]:
            tensor = (torch.ones(3) * (rank + 1)).to(dtype)
            dist.broadcast(tensor, 3)
            want = (torch.ones(3) * 4).to(dtype)
            self.assertEqual(tensor.to(torch.complex64).tolist(), want.to(torch.complex64).tolist())
        tensor = torch.ones(3, 4).t() * rank
        dist.broadcast(tensor, 1, async_op=True).wait()
        self.all_equal(tensor, 1)

    def all_gather(self, rank, world):
        for shape in ((2, 3), (), (0,)):
            parts = [torch.zeros(shape) for _ in range(world)]
            dist.all_gather(parts, torch.ones(shape) * rank)
            for i, part in enumerate(parts):
                self.all_equal(part, i)
        parts = [torch.zeros(3, 2).t() for _ in range(world)]
        dist.all_gather(parts, (torch.ones(3, 2) * rank).t(), async_op=True).wait()
        uneven = [torch.zeros(i) for i in range(world)]
        dist.all_gather(uneven, torch.ones(rank) * rank)
        for i in range(world):
            self.all_equal(parts[i], i)
            self.all_equal(uneven[i], i)
        for call in (dist.all_gather_into_tensor, dist.all_gather_single):
            for shape in ((2 * world,), (world, 2)):
                tensor = torch.zeros(shape)
                call(tensor, torch.ones(2) * rank, async_op=True).wait()
                self.assertEqual(tensor.flatten().tolist(), ranks_twice(world))
        lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(world)]
        dist.all_gather_coalesced(lists, [torch.ones(2) * rank, torch.ones(3) * rank])
        for i in range(world):
            self.all_equal(lists[i][0], i)
            self.all_equal(lists[i][1], i)

    def reduce_scatter(self, rank, world):
        for size in (lambda _: 2, lambda i: i + 1):
            tensor = torch.zeros(size(rank))
            dist.reduce_scatter(tensor, [torch.ones(size(i)) * i for i in range(world)])
            self.all_equal(tensor, rank * world)
        for call in (dist.reduce_scatter_tensor, dist.reduce_scatter_single):
            tensor = torch.zeros(2)
            call(tensor, torch.tensor(ranks_twice(world)), async_op=True).wait()
            self.all_equal(tensor, rank * world)
            call(tensor, torch.tensor(ranks_twice(world)), op=dist.ReduceOp.AVG)
            self.all_equal(tensor, rank)

    def gather_scatter(self, rank, world):
        parts = [torch.zeros(2) for _ in range(world)] if rank == 1 else None
        dist.gather(torch.ones(2) * rank, parts, dst=1)
        for i, part in enumerate(parts or []):
            self.all_equal(part, i)
        tensor = torch.zeros(2)
        dist.scatter(tensor, [torch.ones(2) * i for i in range(world)] if rank == 0 else None)
        self.all_equal(tensor, rank)

    def objects(self, rank, world):
        things = [None] * world
        dist.all_gather_object(things, {"rank": rank})
        self.assertEqual(things, [{"rank": i} for i in range(world)])
        things = ["a", 1] if rank == 0 else [None, None]
        dist.broadcast_object_list(things, 0)
        self.assertEqual(things, ["a", 1])
        things = [None]
        dist.scatter_object_list(things, list(range(world)) if rank == 0 else None, src=0)
        self.assertEqual(things, [rank])

    def groups(self, rank, world):
        odd = dist.new_group([1, 3])
        pairs, _ = dist.new_subgroups(2)
        if rank in (1, 3):
            tensor = torch.ones(2) * rank
            dist.broadcast(tensor, 3, group=odd)
            self.all_equal(tensor, 3)
            dist.all_reduce(tensor, group=odd)
            self.all_equal(tensor, 6)
            dist.barrier(group=odd)
            dist.destroy_process_group(odd)
        tensor = torch.ones(2) * rank
        dist.all_reduce(tensor, group=pairs)
        self.all_equal(tensor, rank // 2 * 4 + 1)

    def functional(self, rank, world):
        import torch.distributed._functional_collectives as functional
        import torch.distributed.nn.functional as differentiable

        everybody = dist.group.WORLD
        self.all_equal(functional.all_reduce(torch.ones(3), "sum", everybody) + 0, world)
        gathered = functional.all_gather_tensor(torch.ones(2) * rank, 0, everybody) + 0
        self.assertEqual(gathered.tolist(), ranks_twice(world))
        self.all_equal(
            functional.reduce_scatter_tensor(torch.ones(world), "sum", 0, everybody) + 0, world)
        tensor = torch.ones(3, requires_grad=True)
        differentiable.all_reduce(tensor).sum().backward()
        self.all_equal(tensor.grad, world)

    def refused(self, rank, world):
        one = torch.ones(4)
        other = (rank + 1) % world
        for wrong in (
            lambda: dist.send(one, other),
            lambda: dist.recv(one, other),
            lambda: dist.recv(one),
            lambda: dist.isend(one, other),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, one, other)]),
            lambda: dist.all_to_all_single(torch.ones(world), torch.ones(world)),
            lambda: dist.all_to_all([torch.ones(1)] * world, [torch.ones(1)] * world),
            lambda: dist.all_reduce(torch.eye(3).to_sparse()),
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)),
            lambda: dist.all_reduce(torch.ones(2, device="meta")),
            lambda: dist.all_reduce(torch.ones(1).expand(4)),
            lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), op=dist.ReduceOp.BAND),
            lambda: dist.all_reduce(one, op=dist._make_nccl_premul_sum(2.0)),
        ):
            with self.assertRaisesRegex(NotImplementedError, "ringfold"):
                wrong()
        for wrong in (
            lambda: dist.all_reduce(torch.ones(4, dtype=torch.bool), op=dist.ReduceOp.AVG),
            lambda: dist.all_gather([torch.ones(2)] * (world + 1), torch.ones(2)),
            lambda: dist.all_gather_into_tensor(torch.ones(3 * world), torch.ones(2)),
            lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(3)),
        ):
            with self.assertRaises((ValueError, RuntimeError)):
                wrong()
        dist.all_reduce(one)  # none of them has changed anything
        self.all_equal(one, world)


class Failures(unittest.TestCase):
    @on_ranks(3, statuses=[0, -signal.SIGKILL, 0])
    def test_a_killed_rank_is_named_by_works_and_futures(self):
        rank, _ = begin()
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        future = work.get_future()
        with self.assertRaises(ringfold.RankDeadError) as caught:
            work.wait()
        self.assertLess(time.monotonic() - start, SOON)
        self.assertEqual(caught.exception.ranks, (1,))
        self.assertIsInstance(caught.exception, dist.DistBackendError)
        self.assertFalse(work.is_success())
        with self.assertRaisesRegex(RuntimeError, "RF_ERR_RANK_DEAD"):
            future.wait()
        with self.assertRaises(ringfold.RankDeadError):
            dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()

    @on_ranks(2)
    def test_timeouts(self):
        rank, _ = begin(timeout=timedelta(seconds=60))
        group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
        dist.barrier()
        if rank == 0:
            work = dist.all_reduce(torch.ones(1), async_op=True, group=group)
            with self.assertRaises(ringfold.DeadlineError):
                work.wait(timedelta(milliseconds=50))
            with self.assertRaises(ringfold.DeadlineError) as caught:
                work.wait()
            self.assertEqual(caught.exception.ranks, (1,))
        else:
            support.wait_until(group.comm.failure)
        dist.barrier()  # the other group is whole
        dist.destroy_process_group()

    @on_ranks(2)
    def test_end_without_destroying_and_with_calls_in_flight(self):
        rank, _ = begin()
        dist.barrier()
        if rank == 0:
            dist.all_reduce(torch.ones(100), async_op=True).get_future().then(lambda it: it)

    @on_ranks(2, statuses=[1, 1])
    def test_an_exception_ends_all(self):
        rank, _ = begin()
        dist.barrier()
        if rank == 0:
            raise SystemExit(1)
        start = time.monotonic()
        try:
            dist.all_reduce(torch.ones(100))
        finally:
            self.assertLess(time.monotonic() - start, SOON)

    @on_ranks(2)
    def test_a_group_after_another(self):
        for _ in range(3):
            begin()
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            self.assertEqual(tensor.tolist(), [2] * 3)
            dist.barrier()
            dist.destroy_process_group()


if __name__ == "__main__":
    support.main()
