# SPDX-License-Identifier: BSD-3-Clause
"""Communicators and requests."""
import ctypes
import threading
import time
from collections import namedtuple
from ctypes import c_int, c_uint64, c_void_p

from . import _life, _native, _start, errors
from ._buffers import Buffer
from .errors import Failure
from .store import StoreAdapter

Counters = namedtuple("Counters", ("calls",) + _native.COUNTER_FIELDS)
Counters.__doc__ = "Since the communicator was made; calls is a dict by collective."


def op_number(name):
    try:
        return _native.OPS.index(name)
    except ValueError:
        raise ValueError(f"no operator {name!r}; there are {', '.join(_native.OPS)}") from None


class Request:
    """A call in flight. It holds its buffers until it has ended, which wait() or test() find
    out."""

    def __init__(self, comm, doing, pointer, buffers, result):
        self._comm, self._doing, self._pointer = comm, doing, pointer
        self._buffers, self._result = buffers, result
        self._lock = threading.Lock()
        self._error = None
        self.done = False

    def wait(self, timeout=None):
        """True when it has ended well, False when it has not ended within timeout seconds; raises
        the error that it ended with."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            if not self.done:
                status = _start.wait(self._pointer, timeout)
                if status == _native.AGAIN:
                    return False
                self._ended(status)
        finally:
            self._lock.release()
        if self._error:
            raise self._error
        return True

    def test(self):
        """wait() with a timeout of 0."""
        return self.wait(0)

    def result(self, timeout=None):
        """The receiving object, when the call has ended; TimeoutError if it has not in time."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self._doing} has not ended")
        return self._result

    def cancel(self):
        """Revokes the communicator of a call that has not ended, on all ranks; wait for it still.
        """
        if self._pointer.value and not self.done:
            errors.check(_native.rf_cancel(self._pointer), "cancel")

    def _ended(self, status):
        if status != _native.OK:
            self._error = self._comm.error(status, self._doing)
        self.done, self._buffers = True, ()
        self._comm.request_ended(self)


def _finish(request, comm_of_error=None, doing=""):
    """Waits for the request of a blocking call. When that is interrupted, the call is cancelled,
    and has ended, before its buffers are let go."""
    try:
        status = _start.wait(request)
    except BaseException:
        _native.rf_cancel(request)
        _start.wait(request)
        raise
    if status != _native.OK:
        raise comm_of_error.error(status, doing) if comm_of_error else errors.make(status, doing)


def _comm_options(timeout, deadline, **fields):
    return _native.CommOptions(
        create_timeout_ms=_native.milliseconds(timeout),
        deadline_ms=_native.milliseconds(deadline), **fields)


class Comm:
    """A set of ranks.

        comm = ringfold.Comm.from_env()
        comm.allreduce(array)                       # in place, and returned
        request = comm.iallreduce(array, op="max")
        request.wait()

    Buffers are numpy arrays or anything else with the buffer protocol, contiguous; dtype= says what
    the elements are where the object does not (a bfloat16 in uint16s). Times are in seconds.
    Options of every call: deadline, order ("any", "tree"), wire ("same", "float32"); for the i
    forms also cq (a CompletionQueue: then there is no request) and user, what it reports.
    """

    def __init__(self, rank=-1, world_size=-1, master_addr=None, master_port=0, store=None,
                 name=None, timeout=None, deadline=None, context=None):
        """Blocks until all ranks have come. What is not given is taken from the environment.

        store: an object with set, get and add (see ringfold.store), instead of a master; name:
        tells apart the communicators that go through one master or store; timeout: for making it;
        deadline: of each of its calls.
        """
        adapter = StoreAdapter(store) if store is not None else None
        options = _comm_options(
            timeout, deadline, rank=rank, world_size=world_size,
            master_addr=master_addr.encode() if master_addr else None, master_port=master_port,
            store=ctypes.pointer(adapter.callbacks) if adapter else None,
            name=name.encode() if name else None,
        )
        pointer, request = c_void_p(), c_void_p()
        if _life.forked():
            raise errors.make(_life.FORKED)
        place = context.handle.pointer if context else None
        errors.check(
            _native.rf_comm_icreate(
                place, ctypes.byref(options), ctypes.byref(pointer), ctypes.byref(request)),
            "Comm",
        )
        try:
            _finish(request, doing="Comm")
        except errors.Error as error:
            if adapter and adapter.exception:
                raise error from adapter.exception
            raise
        self._adopt(pointer)

    @classmethod
    def from_env(cls, **options):
        """All processes of the job, as the environment describes it."""
        return cls(**options)

    def _adopt(self, pointer):
        self.handle = _life.Handle(pointer, "communicator")
        self._requests = set()
        self._requests_lock = threading.Lock()
        self.rank = errors.check(_native.rf_comm_rank(pointer), "rank")
        self.size = errors.check(_native.rf_comm_size(pointer), "size")
        _life.born(self)

    # ---- others from this one ----

    def _derive(self, doing, start):
        pointer, request = c_void_p(), c_void_p()
        with self.handle as parent:
            status = start(parent, ctypes.byref(pointer), ctypes.byref(request))
            self._check(status, doing)
            _finish(request, self, doing)
        if not pointer.value:
            return None
        child = type(self).__new__(type(self))
        child._adopt(pointer)
        return child

    def split(self, color, key=0, timeout=None, deadline=None):
        """The ranks of this communicator that gave the same color, by key, then by old rank; None
        for a negative color. A collective call."""
        options = _comm_options(timeout, deadline, rank=-1, world_size=-1)
        return self._derive("split", lambda parent, comm, request: _native.rf_comm_isplit(
            parent, color, key, ctypes.byref(options), comm, request))

    def group(self, ranks, tag=0, timeout=None, deadline=None):
        """The listed ranks, in that order. Only they call, with the same list and tag."""
        listed = (c_int * len(ranks))(*ranks)
        options = _comm_options(timeout, deadline, rank=-1, world_size=-1)
        return self._derive("group", lambda parent, comm, request: _native.rf_comm_icreate_group(
            parent, listed, len(ranks), tag, ctypes.byref(options), comm, request))

    # ---- collective calls ----

    def _call(self, doing, start, buffers, result, blocking, cq=None, user=None, deadline=None,
              order="any", wire="same"):
        """start: a function of handle, options and request."""
        if blocking and cq is not None:
            raise TypeError("a blocking call does not report to a completion queue")
        request = c_void_p() if cq is None else None
        with self.handle as comm:
            if cq is None:
                options = _start.call_options(deadline, order, wire)
                self._check(start(comm, options, request), doing)
                if blocking:
                    _finish(request, self, doing)
                    return result
                pending = Request(self, doing, request, buffers, result)
                with self._requests_lock:
                    self._requests.add(pending)
                return pending
            key = cq.expect((self, doing, user, buffers))
            try:
                with cq.handle as queue:
                    options = _start.call_options(deadline, order, wire, queue.value, key)
                    self._check(start(comm, options, None), doing)
            except BaseException:
                cq.drop(key)
                raise
        return None

    def _two(self, doing, blocking, send, recv, dtype, start, **options):
        """A call from one buffer to another, in place if there is but one."""
        target = send if recv is None else recv
        output = Buffer(target, True, dtype)
        buffers, address = (output,), _native.IN_PLACE
        input_ = output
        if recv is not None and recv is not send:
            input_ = Buffer(send, False, dtype)
            if input_.dtype != output.dtype:
                raise TypeError(f"{doing}: the buffers have different types")
            buffers, address = (output, input_), input_.address
        return self._call(
            doing,
            lambda comm, opts, request: start(comm, address, input_, output, opts, request),
            buffers, target, blocking, **options)

    def _allreduce(self, blocking, send, recv=None, op="sum", dtype=None, **options):
        number = op_number(op)

        def start(comm, address, input_, output, opts, request):
            if input_.count != output.count:
                raise ValueError("allreduce: the buffers differ in size")
            return _start.allreduce(comm, address, output.address, output.count, output.dtype,
                                    number, opts, request)

        return self._two("allreduce", blocking, send, recv, dtype, start, **options)

    def allreduce(self, send, recv=None, op="sum", dtype=None, **options):
        """recv (or send, in place) = the fold over all ranks of send. Returned."""
        return self._allreduce(True, send, recv, op, dtype, **options)

    def iallreduce(self, send, recv=None, op="sum", dtype=None, **options):
        return self._allreduce(False, send, recv, op, dtype, **options)

    def _reduce(self, blocking, send, recv=None, op="sum", root=0, dtype=None, **options):
        number = op_number(op)
        if self.rank == root:

            def start(comm, address, input_, output, opts, request):
                if input_.count != output.count:
                    raise ValueError("reduce: the buffers differ in size")
                return _start.reduce(comm, address, output.address, output.count, output.dtype,
                                     number, root, opts, request)

            return self._two("reduce", blocking, send, recv, dtype, start, **options)
        input_ = Buffer(send, False, dtype)
        return self._call(
            "reduce",
            lambda comm, opts, request: _start.reduce(
                comm, input_.address, None, input_.count, input_.dtype, number, root, opts,
                request),
            (input_,), None, blocking, **options)

    def reduce(self, send, recv=None, op="sum", root=0, dtype=None, **options):
        """As allreduce, on the root alone; the others get None."""
        return self._reduce(True, send, recv, op, root, dtype, **options)

    def ireduce(self, send, recv=None, op="sum", root=0, dtype=None, **options):
        return self._reduce(False, send, recv, op, root, dtype, **options)

    def _broadcast(self, blocking, buffer, root=0, dtype=None, **options):
        held = Buffer(buffer, self.rank != root, dtype)
        return self._call(
            "broadcast",
            lambda comm, opts, request: _start.broadcast(
                comm, held.address, held.count, held.dtype, root, opts, request),
            (held,), buffer, blocking, **options)

    def broadcast(self, buffer, root=0, dtype=None, **options):
        """buffer = root's buffer. Returned."""
        return self._broadcast(True, buffer, root, dtype, **options)

    def ibroadcast(self, buffer, root=0, dtype=None, **options):
        return self._broadcast(False, buffer, root, dtype, **options)

    def _cut(self, doing, whole, part, counts):
        """The counts to hand over, after a look at the sizes of both buffers."""
        if counts is not None:
            counts = [int(count) for count in counts]
            if len(counts) != self.size or min(counts) < 0:
                raise ValueError(f"{doing}: counts must have an entry for each of the ranks")
            own, total = counts[self.rank], sum(counts)
        else:
            own = part.count if part else whole.count // self.size
            total = own * self.size
        if whole.count != total or (part and part.count != own):
            raise ValueError(
                f"{doing}: the buffers have {part.count if part else own} and {whole.count} "
                f"elements, and not {own} and {total}")
        return own if counts is None else counts

    def _reduce_scatter(self, blocking, send, recv, op="sum", counts=None, dtype=None, **options):
        number = op_number(op)

        def start(comm, address, input_, output, opts, request):
            cut = self._cut("reduce_scatter", input_, output, counts)
            return _start.reduce_scatter(comm, address, output.address, cut, output.dtype, number,
                                         opts, request)

        if recv is None or recv is send:
            raise TypeError("reduce_scatter: recv must be another buffer than send")
        return self._two("reduce_scatter", blocking, send, recv, dtype, start, **options)

    def reduce_scatter(self, send, recv, op="sum", counts=None, dtype=None, **options):
        """recv = this rank's block of the fold of the ranks' send buffers; blocks are equal, or
        counts has the size of each rank's."""
        return self._reduce_scatter(True, send, recv, op, counts, dtype, **options)

    def ireduce_scatter(self, send, recv, op="sum", counts=None, dtype=None, **options):
        return self._reduce_scatter(False, send, recv, op, counts, dtype, **options)

    def _allgather(self, blocking, send, recv=None, counts=None, dtype=None, **options):
        def start(comm, address, input_, output, opts, request):
            part = input_ if input_ is not output else None
            cut = self._cut("allgather", output, part, counts)
            return _start.allgather(
                comm, address, output.address, cut, output.dtype, opts, request)

        return self._two("allgather", blocking, send, recv, dtype, start, **options)

    def allgather(self, send, recv=None, counts=None, dtype=None, **options):
        """recv = the ranks' send buffers one after the other. In place (one buffer): this rank's
        part is at its place already. counts: the size of each rank's part, if they differ."""
        return self._allgather(True, send, recv, counts, dtype, **options)

    def iallgather(self, send, recv=None, counts=None, dtype=None, **options):
        return self._allgather(False, send, recv, counts, dtype, **options)

    def barrier(self, **options):
        """Returns after all ranks have called it."""
        return self._call("barrier", _start.barrier, (), None, True, **options)

    def ibarrier(self, **options):
        return self._call("barrier", _start.barrier, (), None, False, **options)

    # ---- failures and counters ----

    def failure(self):
        """What the communicator died of (the ranks may become more), or None."""
        with self.handle as comm:
            return failure_of(comm)

    def error(self, status, doing):
        """The exception for a call that has ended with status."""
        try:
            report = self.failure()
        except (errors.Error, ValueError):
            report = None
        return errors.make(status, doing, self.rank, report)

    def _check(self, status, doing):
        if status < 0:
            raise self.error(status, doing)

    def abort(self):
        """Ends all calls, on all ranks; from any thread."""
        with self.handle as comm:
            errors.check(_native.rf_comm_abort(comm), "abort", self.rank)

    def counters(self):
        counted = _native.Counters()
        with self.handle as comm:
            errors.check(_native.rf_comm_counters(comm, ctypes.byref(counted)), "counters")
        return Counters(
            dict(zip(_native.COLLECTIVES, counted.calls)),
            *(getattr(counted, name) for name in _native.COUNTER_FIELDS))

    def peer_wait_ns(self, rank):
        """How long calls have waited for data of this rank, in nanoseconds."""
        waited = c_uint64()
        with self.handle as comm:
            errors.check(
                _native.rf_comm_peer_wait_ns(comm, rank, ctypes.byref(waited)), "peer_wait_ns")
        return waited.value

    # ---- the end ----

    def request_ended(self, request):
        with self._requests_lock:
            self._requests.discard(request)

    def destroy(self):
        """Leaves, orderly. Calls that are in flight are aborted first, on all ranks."""
        if self.handle.close():
            self._leave(None)
            _life.died(self)

    def _leave(self, seconds):
        with self._requests_lock:
            pending = list(self._requests)
        if pending:
            _native.rf_comm_abort(self.handle.pointer)
        end = None if seconds is None else time.monotonic() + seconds
        for request in pending:
            try:
                request.wait(None if end is None else max(0, end - time.monotonic()))
            except errors.Error:
                pass  # its own waiter hears of it
        # Whoever is inside a blocking call of this communicator gets its error, and leaves.
        if not self.handle.wait_until_left(0):
            _native.rf_comm_abort(self.handle.pointer)
            if not self.handle.wait_until_left(seconds):
                return
        errors.check(_native.rf_comm_destroy(ctypes.byref(self.handle.pointer)), "destroy")

    def at_exit(self):
        if self.handle.close():
            try:
                self._leave(2)
            except errors.Error:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def __repr__(self):
        return f"<ringfold.Comm rank {self.rank} of {self.size}>"


def failure_of(comm):
    """The report of a communicator's handle, or None."""
    report = _native.FailureReport()
    if errors.check(_native.rf_comm_failure(comm, ctypes.byref(report)), "failure") == 0:
        return None
    ranks = (c_int * max(1, report.rank_count))()
    report = _native.FailureReport(ranks=ranks, rank_capacity=len(ranks))
    errors.check(_native.rf_comm_failure(comm, ctypes.byref(report)), "failure")
    named = tuple(ranks[: min(report.rank_count, len(ranks))])
    return Failure(
        errors.constant_name(report.error) if report.error else "", named,
        report.message.decode(errors="replace"))


def wait_all(requests, timeout=None):
    """True when all have ended well, False when some have not within timeout seconds; raises the
    first error in the order of the list, after all have ended."""
    end = None if timeout is None else time.monotonic() + timeout
    first = None
    for request in requests:
        try:
            if not request.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
        except errors.Error as error:
            first = first or error
    if first:
        raise first
    return True
