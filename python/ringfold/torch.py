# SPDX-License-Identifier: BSD-3-Clause
"""The torch.distributed backend "ringfold", for tensors in the CPU's memory:

    import torch.distributed as dist, ringfold.torch
    dist.init_process_group("ringfold", rank=rank, world_size=world)

Importing registers it. A group's rendezvous goes through torch's own store; all groups of a process
share one context, whose thread moves data while the program computes. Blocking calls wait in the
library; those with async_op=True report to one completion queue, which a thread of this module
reads: it marks works and futures as done.

Supported: all_reduce, reduce, broadcast, all_gather (lists, and into a tensor), reduce_scatter
(lists, and a tensor), their coalesced forms, gather, scatter, barrier, and what torch builds on
these (objects, DistributedDataParallel, functional collectives). Refused with NotImplementedError:
send, recv, all_to_all, other operators than SUM, AVG, MIN, MAX and PRODUCT, sparse tensors, tensors
of other devices, and reductions of types that the library does not have. Tensors that are not
contiguous are copied in and out.
"""

import torch.distributed as dist

from ._torch_group import ProcessGroupRingfold, create

BACKEND = "ringfold"

if BACKEND not in dist.Backend.backend_list:
    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])

__all__ = ["BACKEND", "ProcessGroupRingfold"]
