# SPDX-License-Identifier: BSD-3-Clause
"""The process group: torch's calls in terms of the library's."""
import time
from ctypes import c_void_p
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions, BroadcastOptions, GatherOptions,
    ReduceOptions, ReduceScatterOptions, ScatterOptions,
)

from . import _native, _start
from ._torch_tensors import Staging, check_output, moved_dtype, reduced_dtype
from ._torch_work import Progress, RingfoldWork, error_for_torch
from .comm import Comm
from .errors import Error

_OPS = [
    (dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "avg"), (dist.ReduceOp.PRODUCT, "prod"),
    (dist.ReduceOp.MIN, "min"), (dist.ReduceOp.MAX, "max"),
]
# Coalesced tensors of together so many bytes are copied into one; larger ones are calls of their
# own.
_JOIN_BYTES = 256 << 10


def op_number(op, doing):
    for theirs, ours in _OPS:
        if op == theirs:
            return _native.OPS.index(ours)
    raise NotImplementedError(
        f"ringfold: {doing} with {getattr(op, 'op', op)} is not supported; there are SUM, AVG, "
        "PRODUCT, MIN and MAX")


def as_list(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def only(things, doing):
    things = as_list(things)
    if len(things) != 1:
        raise NotImplementedError(f"ringfold: {doing} takes one tensor a rank, not {len(things)}")
    return things[0]


class TorchStore:
    """torch's store, as ringfold.store describes one."""

    def __init__(self, store):
        self._store = store

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key, timeout):
        """Asks again and again: a wait of TCPStore that times out warns on stderr."""
        end = time.monotonic() + (timeout or 0)
        pause = 0.001
        while not self._store.check([key]):
            left = end - time.monotonic()
            if timeout is not None and left <= 0:
                return None
            time.sleep(pause if timeout is None else min(pause, left))
            pause = min(2 * pause, 0.02)
        return self._store.get(key)

    def add(self, key, amount):
        return self._store.add(key, amount)


class ProcessGroupRingfold(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._progress = Progress.shared()
        self._timeout = None
        seconds = timeout.total_seconds()
        try:
            self.comm = Comm(
                rank=rank, world_size=size, store=TorchStore(store), timeout=seconds,
                deadline=seconds, context=self._progress.context)
        except Error as error:
            raise error_for_torch(error)

    # ---- what torch asks about ----

    def getBackendName(self):
        return "ringfold"

    def set_timeout(self, timeout):
        self._timeout = timeout.total_seconds()

    def error(self, status, doing):
        return error_for_torch(self.comm.error(status, doing))

    def shutdown(self):
        self.comm.destroy()

    def abort(self):
        self.comm.abort()

    # ---- starting ----

    def _deadline(self, opts):
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout < timedelta(0):
            return self._timeout
        return timeout.total_seconds()

    def _launch(self, doing, calls, staging, result, opts, default_async=True):
        """Starts calls, functions of handle, options and request, as one work. A blocking one has
        ended when this returns."""
        work = RingfoldWork(self, doing, len(calls) or 1, staging, result)
        deadline = self._deadline(opts)
        if not calls:
            work.part_ended(_native.OK)
        elif getattr(opts, "asyncOp", default_async):
            self._start_async(work, calls, doing, deadline)
        else:
            self._run_blocking(work, calls, doing, deadline)
        return work

    def _check_started(self, status, doing):
        if status != _native.OK:
            raise self.error(status, doing)

    def _start_async(self, work, calls, doing, deadline):
        queue = self._progress.queue
        with self.comm.handle as comm, queue.handle as its:
            for started, call in enumerate(calls):
                key = queue.expect(work)
                options = _start.call_options(deadline, cq=its.value, user=key)
                status = call(comm, options, None)
                if status != _native.OK:
                    queue.drop(key)
                    for _ in calls[started:]:
                        work.part_ended(status)
                    raise self.error(status, doing)

    def _run_blocking(self, work, calls, doing, deadline):
        options = _start.call_options(deadline)
        requests, interrupted = [], None
        with self.comm.handle as comm:
            try:
                for call in calls:
                    request = c_void_p()
                    self._check_started(call(comm, options, request), doing)
                    requests.append(request)
                for request in requests:
                    work.part_ended(_start.wait(request))
            except BaseException as exception:
                interrupted = exception
            if interrupted:
                # The buffers are the library's until every call has ended.
                for request in requests:
                    if request.value:
                        _native.rf_cancel(request)
                for request in requests:
                    _start.wait(request)
                raise interrupted
        work.outcome()

    # ---- reductions ----

    def _allreduce_call(self, tensor, op, staging, doing):
        use = staging.update(tensor, doing)
        dtype, number = reduced_dtype(use, doing), op_number(op, doing)
        return lambda comm, options, request: _start.allreduce(
            comm, _native.IN_PLACE, use.data_ptr(), use.numel(), dtype, number, options, request)

    def allreduce(self, tensors, opts=None):
        opts = _options(AllreduceOptions, opts)
        tensors, staging = as_list(tensors), Staging()
        calls = [
            self._allreduce_call(tensor, opts.reduceOp, staging, "all_reduce")
            for tensor in tensors
        ]
        return self._launch("all_reduce", calls, staging, tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = _options(AllreduceCoalescedOptions, opts)
        doing, tensors, staging = "all_reduce_coalesced", as_list(tensors), Staging()
        bytes_ = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        alike = len({tensor.dtype for tensor in tensors}) == 1
        if len(tensors) > 1 and alike and bytes_ <= _JOIN_BYTES:
            joined = staging.join(tensors, doing)
            for tensor in tensors:
                check_output(tensor, doing)
            staging.spread_from(joined, tensors)
            calls = [self._allreduce_call(joined, opts.reduceOp, staging, doing)]
        else:
            calls = [
                self._allreduce_call(tensor, opts.reduceOp, staging, doing) for tensor in tensors
            ]
        return self._launch(doing, calls, staging, tensors, opts)

    def reduce(self, tensors, opts=None, **_):
        opts = _options(ReduceOptions, opts)
        doing, tensor, staging = "reduce", only(tensors, "reduce"), Staging()
        root, number = opts.rootRank, op_number(opts.reduceOp, doing)
        if root == self.rank():
            use = staging.update(tensor, doing)
            send, recv = _native.IN_PLACE, use.data_ptr()
        else:
            use = staging.read(tensor, doing)
            send, recv = use.data_ptr(), None
        dtype = reduced_dtype(use, doing)
        return self._launch(doing, [
            lambda comm, options, request: _start.reduce(
                comm, send, recv, use.numel(), dtype, number, root, options, request)
        ], staging, [tensor], opts)

    def _reduce_scatter_call(self, source, target, counts, op, doing):
        dtype, number = reduced_dtype(source, doing), op_number(op, doing)
        return lambda comm, options, request: _start.reduce_scatter(
            comm, source.data_ptr(), target.data_ptr(), counts, dtype, number, options, request)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts = _options(ReduceScatterOptions, opts)
        doing, staging = "reduce_scatter", Staging()
        output = only(output_tensors, doing)
        inputs = input_tensors if isinstance(input_tensors[0], torch.Tensor) else input_tensors[0]
        counts = self._counts(inputs, output, doing)
        source, target = staging.join(inputs, doing), staging.write(output, doing)
        calls = [self._reduce_scatter_call(source, target, counts, opts.reduceOp, doing)]
        return self._launch(doing, calls, staging, [output], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = _options(ReduceScatterOptions, opts)
        doing, staging, calls = "reduce_scatter_single", Staging(), []
        for output, input_ in zip(outputs, inputs):
            self._check_whole(input_, output, doing)
            source, target = staging.read(input_, doing), staging.write(output, doing)
            calls.append(self._reduce_scatter_call(
                source, target, output.numel(), opts.reduceOp, doing))
        return self._launch(doing, calls, staging, list(outputs), opts)

    def reduce_scatter_single(self, output, input, opts=None):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    # ---- moving ----

    def broadcast(self, tensors, opts=None, **_):
        opts = _options(BroadcastOptions, opts)
        tensor, root, staging = only(tensors, "broadcast"), opts.rootRank, Staging()
        if root == self.rank():
            use = staging.read(tensor, "broadcast")
        else:
            use = staging.write(tensor, "broadcast")
        return self._launch(
            "broadcast", [self._broadcast_call(use, root)], staging, [tensor], opts)

    def _broadcast_call(self, use, root):
        dtype, factor = moved_dtype(use)
        return lambda comm, options, request: _start.broadcast(
            comm, use.data_ptr(), use.numel() * factor, dtype, root, options, request)

    def _allgather_call(self, source, target, counts):
        dtype, factor = moved_dtype(source)
        counts = (counts * factor if isinstance(counts, int)
                  else [count * factor for count in counts])
        return lambda comm, options, request: _start.allgather(
            comm, source.data_ptr(), target.data_ptr(), counts, dtype, options, request)

    def _gather_into(self, outputs, input_, staging, doing):
        """The call that gathers into a list of tensors; None: nobody here wants them."""
        source = staging.read(input_, doing)
        if outputs is None:
            count = input_.numel()
            target = torch.empty(count * self.size(), dtype=input_.dtype, device="cpu")
            staging.hold.append(target)
            return self._allgather_call(source, target, count)
        counts = self._counts(outputs, input_, doing)
        return self._allgather_call(source, staging.spread(outputs, doing), counts)

    def allgather(self, output_tensors, input_tensors, opts=None):
        opts = _options(AllgatherOptions, opts)
        staging, input_ = Staging(), only(input_tensors, "all_gather")
        outputs = output_tensors
        if not isinstance(outputs[0], torch.Tensor):
            outputs = outputs[0]
        calls = [self._gather_into(outputs, input_, staging, "all_gather")]
        return self._launch("all_gather", calls, staging, list(outputs), opts)

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        """output_lists[rank][i] gets that rank's input_list[i]."""
        opts = _options(AllgatherOptions, opts)
        doing, staging, calls = "all_gather_coalesced", Staging(), []
        if len(output_lists) != self.size():
            raise ValueError(f"ringfold: {doing}: there must be a list of outputs for every rank")
        for i, input_ in enumerate(input_list):
            outputs = [ranks[i] for ranks in output_lists]
            calls.append(self._gather_into(outputs, input_, staging, doing))
        result = [tensor for ranks in output_lists for tensor in ranks]
        return self._launch(doing, calls, staging, result, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        opts = _options(AllgatherOptions, opts)
        doing, staging, calls = "all_gather_single", Staging(), []
        for output, input_ in zip(outputs, inputs):
            self._check_whole(output, input_, doing)
            source, target = staging.read(input_, doing), staging.write(output, doing)
            calls.append(self._allgather_call(source, target, input_.numel()))
        return self._launch(doing, calls, staging, list(outputs), opts)

    def all_gather_single(self, output, input, opts=None):
        return self.all_gather_single_coalesced([output], [input], opts)

    def gather(self, output_tensors, input_tensors, opts=None):
        """Everybody's to everybody; the root keeps them."""
        opts = _options(GatherOptions, opts)
        staging, input_ = Staging(), only(input_tensors, "gather")
        outputs = list(output_tensors[0]) if opts.rootRank == self.rank() else None
        calls = [self._gather_into(outputs, input_, staging, "gather")]
        return self._launch("gather", calls, staging, outputs or [], opts)

    def scatter(self, output_tensors, input_tensors, opts=None):
        """All of it from the root to everybody, who keep their part."""
        opts = _options(ScatterOptions, opts)
        doing, staging, output = "scatter", Staging(), only(output_tensors, "scatter")
        check_output(output, doing)
        count = output.numel()
        if opts.rootRank == self.rank():
            inputs = list(input_tensors[0])
            if len(inputs) != self.size() or any(one.numel() != count for one in inputs):
                raise ValueError(
                    f"ringfold: {doing} needs a tensor of {count} elements for every rank")
            whole = staging.join(inputs, doing)
        else:
            whole = torch.empty(count * self.size(), dtype=output.dtype, device="cpu")
            staging.hold.append(whole)
        staging.spread_from(whole[self.rank() * count :], [output])
        calls = [self._broadcast_call(whole, opts.rootRank)]
        return self._launch(doing, calls, staging, [output], opts)

    def barrier(self, opts=None):
        return self._launch("barrier", [_start.barrier], Staging(), [], opts)

    # ---- sizes ----

    def _counts(self, tensors, own, doing):
        """How many elements each rank's part has: a number if it is the same for all."""
        if len(tensors) != self.size():
            raise ValueError(
                f"ringfold: {doing} needs a tensor for each of the {self.size()} ranks, not "
                f"{len(tensors)}")
        if any(tensor.dtype != own.dtype for tensor in tensors):
            raise TypeError(f"ringfold: {doing}: the tensors have different types")
        counts = [tensor.numel() for tensor in tensors]
        if counts[self.rank()] != own.numel():
            raise ValueError(
                f"ringfold: {doing}: this rank's part has {own.numel()} elements, and "
                f"{counts[self.rank()]} in the list")
        return counts[0] if len(set(counts)) == 1 else counts

    def _check_whole(self, whole, part, doing):
        if whole.dtype != part.dtype:
            raise TypeError(f"ringfold: {doing}: the tensors have different types")
        if whole.numel() != part.numel() * self.size():
            raise ValueError(
                f"ringfold: {doing}: {whole.numel()} elements are not {self.size()} times "
                f"{part.numel()}")

    # ---- the names that torch had for them before ----

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _refused(name):
    def refuse(self, *_args, **_kwargs):
        raise NotImplementedError(f"the torch.distributed backend ringfold has no {name}")

    refuse.__name__ = name
    return refuse


for _name in ("send", "recv", "recv_anysource", "alltoall", "alltoall_base", "all_to_all_single",
              "monitored_barrier", "split_group", "merge_remote_group"):
    setattr(ProcessGroupRingfold, _name, _refused(_name))


def _options(kind, opts):
    """Options from what the methods of torch's own groups take in their place: options, an
    operator or a root."""
    if isinstance(opts, kind):
        return opts
    options = kind()
    if isinstance(opts, int) and hasattr(options, "rootRank"):
        options.rootRank = opts
    elif opts is not None:
        options.reduceOp = opts
    return options


def create(store, rank, size, timeout):
    return ProcessGroupRingfold(store, rank, size, timeout)
