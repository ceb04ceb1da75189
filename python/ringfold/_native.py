# SPDX-License-Identifier: BSD-3-Clause
"""The C API as ctypes: the lists and structs of ringfold.h, and a signature for each function.

Every function is called through ctypes.CDLL, which lets go of the interpreter's lock for the time
of the call: so a call may block, and no lock of the library is ever held while the interpreter's
is waited for by a thread that holds it.
"""
import ctypes
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p,
)

from . import _library

library, path_of_library = _library.load()

# In the order of RF_DTYPE_LIST, RF_OP_LIST and RF_COLLECTIVE_LIST.
DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "bool",
)
OPS = ("sum", "prod", "min", "max", "avg")
COLLECTIVES = ("allreduce", "reduce", "broadcast", "reduce_scatter", "allgather", "barrier")
ORDERS = ("any", "tree")
WIRES = ("same", "float32")
PROGRESS = ("default", "caller", "thread")
LOG_LEVELS = {"error": 1, "warn": 2, "info": 3, "debug": 4}

OK, AGAIN, INVALID = 0, -1, -2
STORE = -16
IN_PLACE = c_void_p(-1).value
NO_TIMEOUT = -1

LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
StoreSet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t), c_int64)
StoreAdd = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_int64))


class _Sized(Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class ContextOptions(_Sized):
    _fields_ = [
        ("size", c_size_t), ("progress", c_int), ("log_level", c_int), ("log", LogFunction),
        ("log_user", c_void_p), ("transport", c_char_p), ("port", c_char_p),
    ]


class StoreCallbacks(_Sized):
    _fields_ = [
        ("size", c_size_t), ("user", c_void_p), ("set", StoreSet), ("get", StoreGet),
        ("add", StoreAdd),
    ]


class CommOptions(_Sized):
    _fields_ = [
        ("size", c_size_t), ("rank", c_int), ("world_size", c_int), ("master_addr", c_char_p),
        ("master_port", c_int), ("store", POINTER(StoreCallbacks)), ("name", c_char_p),
        ("create_timeout_ms", c_int64), ("deadline_ms", c_int64),
    ]


class CallOptions(_Sized):
    _fields_ = [
        ("size", c_size_t), ("deadline_ms", c_int64), ("order", c_int), ("wire", c_int),
        ("cq", c_void_p), ("user", c_void_p),
    ]


class FailureReport(_Sized):
    _fields_ = [
        ("size", c_size_t), ("error", c_int), ("rank_count", c_size_t), ("ranks", POINTER(c_int)),
        ("rank_capacity", c_size_t), ("message", c_char * 512),
    ]


class Completion(Structure):
    _fields_ = [("user", c_void_p), ("status", c_int)]


COUNTER_FIELDS = (
    "calls_ended", "payload_bytes_sent", "payload_bytes_received", "segments_sent",
    "segments_received", "retries", "credit_waits", "wait_ns",
)


class Counters(_Sized):
    _fields_ = [("size", c_size_t), ("calls", c_uint64 * len(COLLECTIVES))] + [
        (name, c_uint64) for name in COUNTER_FIELDS
    ]


_object = POINTER(c_void_p)  # where a handle is written to
_options = POINTER(CallOptions)

# name: (result, arguments); a result of int is an error constant.
_SIGNATURES = {
    "rf_version": (c_char_p, []),
    "rf_strerror": (c_char_p, [c_int]),
    "rf_dtype_size": (c_size_t, [c_int]),
    "rf_dtype_name": (c_char_p, [c_int]),
    "rf_op_name": (c_char_p, [c_int]),
    "rf_collective_name": (c_char_p, [c_int]),
    "rf_context_create": (c_int, [POINTER(ContextOptions), _object]),
    "rf_context_destroy": (c_int, [_object]),
    "rf_comm_create_from_env": (c_int, [_object]),
    "rf_comm_create": (c_int, [c_void_p, POINTER(CommOptions), _object]),
    "rf_comm_icreate": (c_int, [c_void_p, POINTER(CommOptions), _object, _object]),
    "rf_comm_isplit": (c_int, [c_void_p, c_int, c_int, POINTER(CommOptions), _object, _object]),
    "rf_comm_icreate_group": (
        c_int,
        [c_void_p, POINTER(c_int), c_int, c_uint64, POINTER(CommOptions), _object, _object],
    ),
    "rf_comm_destroy": (c_int, [_object]),
    "rf_comm_rank": (c_int, [c_void_p]),
    "rf_comm_size": (c_int, [c_void_p]),
    "rf_comm_context": (c_void_p, [c_void_p]),
    "rf_comm_failure": (c_int, [c_void_p, POINTER(FailureReport)]),
    "rf_comm_abort": (c_int, [c_void_p]),
    "rf_iallreduce": (
        c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, _options, _object]),
    "rf_ireduce": (
        c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, _options, _object]),
    "rf_ibroadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, _options, _object]),
    "rf_ireduce_scatter": (
        c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, _options, _object]),
    "rf_ireduce_scatterv": (
        c_int,
        [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int, _options, _object]),
    "rf_iallgather": (
        c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, _options, _object]),
    "rf_iallgatherv": (
        c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int, _options, _object]),
    "rf_ibarrier": (c_int, [c_void_p, _options, _object]),
    "rf_wait": (c_int, [_object, c_int64]),
    "rf_test": (c_int, [_object]),
    "rf_cancel": (c_int, [c_void_p]),
    "rf_cq_create": (c_int, [c_void_p, _object]),
    "rf_cq_destroy": (c_int, [_object]),
    "rf_cq_fd": (c_int, [c_void_p]),
    "rf_cq_poll": (c_int, [c_void_p, POINTER(Completion), c_int, c_int64]),
    "rf_alloc": (c_int, [c_void_p, c_size_t, _object]),
    "rf_free": (c_int, [c_void_p, c_void_p]),
    "rf_register": (c_int, [c_void_p, c_void_p, c_size_t]),
    "rf_unregister": (c_int, [c_void_p, c_void_p]),
    "rf_comm_counters": (c_int, [c_void_p, POINTER(Counters)]),
    "rf_comm_peer_wait_ns": (c_int, [c_void_p, c_int, POINTER(c_uint64)]),
}

for _name, (_result, _arguments) in _SIGNATURES.items():
    _function = getattr(library, _name)
    _function.restype, _function.argtypes = _result, _arguments
    globals()[_name] = _function


def milliseconds(seconds):
    """The library's milliseconds: None is none of its own; what is more than nothing is not 0."""
    if seconds is None:
        return NO_TIMEOUT
    if seconds < 0:
        raise ValueError("a timeout cannot be negative (None: no timeout)")
    return int(seconds * 1000) or (1 if seconds > 0 else 0)
