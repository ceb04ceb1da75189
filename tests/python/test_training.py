#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel over ringfold, beside gloo and beside data loaders."""
import os
import time
import unittest

import support
from support import on_ranks

support.needs("numpy", "torch")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ringfold.torch
from ringfold.torch import ProcessGroupRingfold


def rank_and_world():
    return int(os.environ["rank"]), int(os.environ["world"])


def begin(backend="ringfold"):
    rank, world = rank_and_world()
    dist.init_process_group(backend, rank=rank, world_size=world)
    return rank, world


def small_model():
    torch.manual_seed(7)  # overwritten by rank 0's, which DDP sends round
    if rank_and_world()[0]:
        torch.manual_seed(8)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def data_set():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(256, 20, generator=generator)
    return TensorDataset(inputs, inputs.square().sum(1, keepdim=True).sqrt())


def train(workers=0, epochs=2):
    """The losses, and the parameters at the end."""
    rank, world = rank_and_world()
    # Small buckets: several of them.
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = DistributedSampler(data_set(), world, rank, shuffle=True, seed=5)
    loader = DataLoader(data_set(), batch_size=16, sampler=sampler, num_workers=workers)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, [value.detach().clone() for value in model.parameters()]


class Training(unittest.TestCase):
    @on_ranks(2)
    def test_as_with_gloo(self):
        begin("gloo")
        their_losses, theirs = train()
        dist.destroy_process_group()
        begin()
        losses, ours = train()
        self.assertLess(losses[-1], losses[0])
        torch.testing.assert_close(losses, their_losses)
        torch.testing.assert_close(ours, theirs)
        for value in ours:
            everybodys = [torch.empty_like(value) for _ in range(2)]
            dist.all_gather(everybodys, value)
            self.assertTrue(torch.equal(everybodys[0], everybodys[1]))
        dist.destroy_process_group()

    @on_ranks(4)
    def test_equal_parameters_and_loader_processes(self):
        begin()
        losses, ours = train(workers=2, epochs=1)
        self.assertEqual(len(losses), 4)
        for value in ours:
            everybodys = [torch.empty_like(value) for _ in range(4)]
            dist.all_gather(everybodys, value)
            for other in everybodys:
                self.assertTrue(torch.equal(other, value))
        dist.destroy_process_group()

    @on_ranks(2)
    def test_an_iterator_left_open_at_the_end(self):
        """Loader processes live still when the program ends without destroying its group."""
        begin()
        dist.barrier()
        self.batches = iter(DataLoader(data_set(), batch_size=16, num_workers=2))
        next(self.batches)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), 2)

    @on_ranks(2)
    def test_reductions_overlap_the_backward_pass(self):
        begin()
        started, ended = [], []
        plain = ProcessGroupRingfold.allreduce

        def noted(group, tensors, opts=None):
            started.append(time.monotonic())
            work = plain(group, tensors, opts)
            work.get_future().add_done_callback(lambda _: ended.append(time.monotonic()))
            return work

        layers = [torch.nn.Linear(512, 512) for _ in range(10)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
        inputs = torch.randn(512, 512)
        last_gradient = []
        layers[0].weight.register_hook(lambda _: last_gradient.append(time.monotonic()))
        ProcessGroupRingfold.allreduce = noted
        try:
            early = 0
            # The first step is one bucket, by torch's design. Of the others one in which it shows is
            # enough on a busy machine.
            for step in range(6):
                started.clear(), ended.clear(), last_gradient.clear()
                model(inputs).square().mean().backward()
                self.assertEqual(len(started), len(ended))
                if step == 0:
                    continue
                self.assertGreater(len(started), 5)
                # Reductions that were over before the last layer's gradient was computed.
                early = max(early, sum(end < last_gradient[0] for end in ended))
        finally:
            ProcessGroupRingfold.allreduce = plain
        print(f"{early} of {len(ended)} reductions had ended before the last gradient was there")
        self.assertGreater(early, 0)
        dist.destroy_process_group()


if __name__ == "__main__":
    support.main()
