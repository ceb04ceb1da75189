# SPDX-License-Identifier: BSD-3-Clause
"""Starts collective calls from addresses and counts. Each function takes the communicator's handle
and returns the library's status; the front ends share them."""
import ctypes
import time
from ctypes import c_size_t

from . import _native


def call_options(deadline=None, order="any", wire="same", cq=None, user=0):
    """Options for one call, or None where there is nothing to say. deadline is in seconds."""
    if deadline is None and cq is None and order == "any" and wire == "same":
        return None
    return _native.CallOptions(
        deadline_ms=_native.milliseconds(deadline), order=_native.ORDERS.index(order),
        wire=_native.WIRES.index(wire), cq=cq, user=user,
    )


def sizes(counts):
    return (c_size_t * len(counts))(*counts)


def request_pointer(request):
    """Where the library writes a request: NULL for a call with a completion queue."""
    return ctypes.byref(request) if request is not None else None


def allreduce(comm, send, recv, count, dtype, op, options, request):
    return _native.rf_iallreduce(
        comm, send, recv, count, dtype, op, options, request_pointer(request))


def reduce(comm, send, recv, count, dtype, op, root, options, request):
    return _native.rf_ireduce(
        comm, send, recv, count, dtype, op, root, options, request_pointer(request))


def broadcast(comm, buffer, count, dtype, root, options, request):
    return _native.rf_ibroadcast(
        comm, buffer, count, dtype, root, options, request_pointer(request))


def reduce_scatter(comm, send, recv, counts, dtype, op, options, request):
    """counts: this rank's, or a list of every rank's."""
    if isinstance(counts, int):
        return _native.rf_ireduce_scatter(
            comm, send, recv, counts, dtype, op, options, request_pointer(request))
    return _native.rf_ireduce_scatterv(
        comm, send, recv, sizes(counts), dtype, op, options, request_pointer(request))


def allgather(comm, send, recv, counts, dtype, options, request):
    """counts: this rank's, or a list of every rank's."""
    if isinstance(counts, int):
        return _native.rf_iallgather(
            comm, send, recv, counts, dtype, options, request_pointer(request))
    return _native.rf_iallgatherv(
        comm, send, recv, sizes(counts), dtype, options, request_pointer(request))


def barrier(comm, options, request):
    return _native.rf_ibarrier(comm, options, request_pointer(request))


def wait(request, seconds=None):
    """Waits for a c_void_p request in slices, so that Ctrl-C gets through. The status, or AGAIN."""
    slice_ms = 200
    if seconds is None:
        while True:
            status = _native.rf_wait(ctypes.byref(request), slice_ms)
            if status != _native.AGAIN:
                return status
    end = time.monotonic() + seconds
    while True:
        left = max(0.0, end - time.monotonic())
        status = _native.rf_wait(ctypes.byref(request), min(slice_ms, int(left * 1000 + 0.999)))
        if status != _native.AGAIN or left == 0:
            return status
