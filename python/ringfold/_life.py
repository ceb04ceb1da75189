# SPDX-License-Identifier: BSD-3-Clause
"""The life of library objects: who is inside one, and what is still there when the interpreter
ends or forks."""
import atexit
import os
import threading

from . import errors

# Alive until destroyed, in the order of their making: objects with a method at_exit().
_alive = []
_forked = False
FORKED = -9


def born(thing):
    _alive.append(thing)


def died(thing):
    if thing in _alive:
        _alive.remove(thing)


class Handle:
    """An object of the library, and how many threads are inside a call on it, since it may not be
    destroyed under them: `with handle as pointer:`."""

    def __init__(self, pointer, what):
        self.pointer, self.what = pointer, what
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self.closed = False

    def __enter__(self):
        if _forked:
            raise errors.make(FORKED)
        with self._changed:
            if self.closed:
                raise ValueError(f"the {self.what} was destroyed")
            self._inside += 1
        return self.pointer

    def __exit__(self, *_):
        with self._changed:
            self._inside -= 1
            if self.closed and not self._inside:
                self._changed.notify_all()

    def close(self):
        """Lets nobody in any more; False if it was closed before."""
        if _forked:
            return False
        with self._changed:
            was, self.closed = self.closed, True
            return not was

    def reopen(self):
        with self._changed:
            self.closed = False

    def wait_until_left(self, seconds=None):
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, seconds)


def forked():
    return _forked


def _in_child():
    """The library answers nothing in a forked child; its objects are the parent's."""
    global _forked
    _forked = True
    _alive.clear()


@atexit.register
def _at_exit():
    while _alive:
        _alive.pop().at_exit()


os.register_at_fork(after_in_child=_in_child)
