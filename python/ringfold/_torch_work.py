# SPDX-License-Identifier: BSD-3-Clause
"""Calls in flight as torch sees them: works and futures, and the thread that marks them done."""
import os
import select
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from . import _life, _native, errors
from .context import CompletionQueue, Context

_classes = {}


def error_for_torch(error):
    """The same error, that is also torch's DistBackendError."""
    kind = type(error)
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (kind, dist.DistBackendError), {
            "__module__": kind.__module__, "__doc__": kind.__doc__})
    error.__class__ = _classes[kind]
    return error


class RingfoldWork(Work):
    """One collective call of a group, which may be several of the library's."""

    def __init__(self, group, doing, parts, staging, result):
        super().__init__()
        self._group, self._doing, self._parts = group, doing, parts
        self._staging, self._result = staging, result
        self._error, self._future = None, None
        self._lock, self._ended = threading.Lock(), threading.Event()

    # ---- for whoever ends it ----

    def part_ended(self, status):
        """One of the library's calls has ended. Calls of this do not overlap, except that those
        which could not be started are counted by the starter."""
        if status != _native.OK and not self._error:
            self._error = self._group.error(status, self._doing)
        with self._lock:
            self._parts -= 1
            if self._parts:
                return
        if not self._error:
            try:
                self._staging.finish()
            except Exception as error:
                self._error = error
        self._staging = None
        with self._lock:
            self._ended.set()
            future = self._future
        if future:
            future.set_result(self)

    # ---- torch's Work ----

    def wait(self, timeout=timedelta(0)):
        seconds = timeout.total_seconds() or None
        if not self._ended.wait(seconds):
            raise error_for_torch(errors.DeadlineError(
                errors.TIMEOUT, f"waiting {seconds} s for {self._doing}", self._group.rank()))
        if self._error:
            raise self._error
        return True

    def is_completed(self):
        return self._ended.is_set()

    def is_success(self):
        return self._ended.is_set() and not self._error

    def exception(self):
        return self._error

    def result(self):
        self.wait()
        return self._result

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return -1

    def outcome(self):
        """The tensors, or the error raised."""
        if self._error:
            raise self._error
        return self._result

    def get_future(self):
        """Its value is the list of tensors. It is made from another one, because only a callback
        that raises gives torch's own C++ code a future with an error."""
        with self._lock:
            future = self._future
            if not future:
                future = self._future = torch.futures.Future()
                if self._ended.is_set():
                    future.set_result(self)
        return future.then(lambda ended: ended.value().outcome())


class Progress:
    """The context and the completion queue of all groups, and the thread that reads it."""

    _lock = threading.Lock()
    _only = None

    @classmethod
    def shared(cls):
        with cls._lock:
            if not cls._only:
                cls._only = cls()
            return cls._only

    def __init__(self):
        self.context = Context(progress="thread")
        self.queue = CompletionQueue(self.context)
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        # A daemon, for else the interpreter would wait for it before it runs at_exit().
        self._thread = threading.Thread(target=self._run, name="ringfold", daemon=True)
        self._thread.start()
        _life.born(self)

    def _run(self):
        poller = select.poll()
        poller.register(self.queue.fileno(), select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while not self._stopping:
            poller.poll()
            for work, status in self.queue.take():
                work.part_ended(status)

    def at_exit(self):
        """After the groups are gone, before the queue and the context are."""
        self._stopping = True
        os.write(self._wake_write, b"x")
        self._thread.join(2)
