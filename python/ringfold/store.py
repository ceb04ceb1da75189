# SPDX-License-Identifier: BSD-3-Clause
"""A Python object as the key-value store of a rendezvous."""
import ctypes

from . import _native


class StoreAdapter:
    """The callbacks for an object with

        set(key, value)      value is bytes
        get(key, timeout)    the bytes; None, KeyError or TimeoutError if the key is not there
                             within so many seconds
        add(key, amount)     the counter, which starts at 0, after the addition

    They run on the thread that makes the communicator. The first other exception is kept."""

    def __init__(self, store):
        self.store, self.exception = store, None
        # The callbacks must live as long as the struct.
        self.callbacks = _native.StoreCallbacks(
            set=_native.StoreSet(self._set), get=_native.StoreGet(self._get),
            add=_native.StoreAdd(self._add),
        )

    def _failed(self, exception):
        self.exception = self.exception or exception
        return _native.STORE

    def _set(self, _user, key, value, count):
        try:
            self.store.set(key.decode(), ctypes.string_at(value, count))
            return _native.OK
        except BaseException as exception:
            return self._failed(exception)

    def _get(self, _user, key, place, capacity, count, timeout_ms):
        timeout = None if timeout_ms < 0 else timeout_ms / 1000
        try:
            value = self.store.get(key.decode(), timeout)
        except (KeyError, TimeoutError):
            return _native.AGAIN
        except BaseException as exception:
            return self._failed(exception)
        if value is None:
            return _native.AGAIN
        ctypes.memmove(place, value, min(len(value), capacity))
        count[0] = len(value)
        return _native.OK

    def _add(self, _user, key, amount, total):
        try:
            total[0] = self.store.add(key.decode(), amount)
            return _native.OK
        except BaseException as exception:
            return self._failed(exception)
