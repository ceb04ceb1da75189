# SPDX-License-Identifier: BSD-3-Clause
"""Contexts and completion queues."""
import ctypes
import itertools
from ctypes import c_void_p

from . import _life, _native, errors


def _text(value):
    return None if value is None else str(value).encode()


def _log_callback(function):
    names = {number: name for name, number in _native.LOG_LEVELS.items()}

    def log(_user, level, line):
        try:
            function(names.get(level, str(level)), line.decode(errors="replace"))
        except Exception:  # a thread of the library's has nobody to tell
            pass

    return _native.LogFunction(log)


class Context:
    """Owns the listener, the peers and the thread. A process needs one, which is made for it; make
    one to choose.

    progress: "caller" (data moves while somebody waits) or "thread" (always); log_level: "error",
    "warn", "info", "debug"; log: a function of level and line, called from any thread, which must
    not call ringfold; transport and port as in RINGFOLD_TRANSPORT and RINGFOLD_PORT.
    """

    def __init__(self, progress="default", log_level=None, log=None, transport=None, port=None):
        self._log = _log_callback(log) if log else _native.LogFunction()
        options = _native.ContextOptions(
            progress=_native.PROGRESS.index(progress),
            log_level=_native.LOG_LEVELS[log_level] if log_level else 0, log=self._log,
            transport=_text(transport), port=_text(port),
        )
        pointer = c_void_p()
        errors.check(
            _native.rf_context_create(ctypes.byref(options), ctypes.byref(pointer)), "Context")
        self.handle = _life.Handle(pointer, "context")
        _life.born(self)

    def destroy(self):
        """Its communicators must have been destroyed."""
        if not self.handle.close():
            return
        self.handle.wait_until_left()
        status = _native.rf_context_destroy(ctypes.byref(self.handle.pointer))
        if status != _native.OK:
            self.handle.reopen()
            raise errors.make(status, "Context.destroy")
        _life.died(self)

    def at_exit(self):
        if self.handle.close() and self.handle.wait_until_left(2):
            _native.rf_context_destroy(ctypes.byref(self.handle.pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()


class CompletionQueue:
    """Where calls that were started with cq= report that they have ended. Their buffers are held
    until then. fileno() is readable while completions are queued, for poll and its like."""

    def __init__(self, context):
        """context: a Context, or a Comm for the one that it belongs to."""
        pointer = c_void_p()
        owner = context.handle
        with owner as its:
            place = its if isinstance(context, Context) else _native.rf_comm_context(its)
            errors.check(_native.rf_cq_create(place, ctypes.byref(pointer)), "CompletionQueue")
        self.handle = _life.Handle(pointer, "completion queue")
        self._calls, self._keys = {}, itertools.count(1)
        _life.born(self)

    def expect(self, call):
        """A key for a call about to start; drop() it if it does not."""
        key = next(self._keys)
        self._calls[key] = call
        return key

    def drop(self, key):
        del self._calls[key]

    def __len__(self):
        """Calls in flight or not yet polled."""
        return len(self._calls)

    def fileno(self):
        with self.handle as pointer:
            return errors.check(_native.rf_cq_fd(pointer), "CompletionQueue.fileno")

    def poll(self, timeout=0, capacity=64):
        """Up to capacity ended calls, as pairs of user and the error (None if it ended well), after
        at most timeout seconds (None: as long as it takes)."""
        return [
            (user, None if status == _native.OK else comm.error(status, doing))
            for (comm, doing, user, _buffers), status in self.take(timeout, capacity)
        ]

    def take(self, timeout=0, capacity=64):
        """poll() for the front ends: pairs of what was expected and its status."""
        completions = (_native.Completion * capacity)()
        with self.handle as pointer:
            count = _native.rf_cq_poll(
                pointer, completions, capacity, _native.milliseconds(timeout))
        if count == _native.AGAIN:
            return []
        errors.check(count, "CompletionQueue.poll")
        return [(self._calls.pop(one.user), one.status) for one in completions[:count]]

    def destroy(self):
        """There may be no calls in flight that report to it."""
        if not self.handle.close():
            return
        self.handle.wait_until_left()
        status = _native.rf_cq_destroy(ctypes.byref(self.handle.pointer))
        if status != _native.OK:
            self.handle.reopen()
            raise errors.make(status, "CompletionQueue.destroy")
        _life.died(self)

    def at_exit(self):
        if self.handle.close() and self.handle.wait_until_left(2):
            _native.rf_cq_destroy(ctypes.byref(self.handle.pointer))
