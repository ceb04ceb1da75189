# SPDX-License-Identifier: BSD-3-Clause
"""ringfold: reductions across processes and machines, for numpy arrays and other buffers.

    import numpy, ringfold

    comm = ringfold.Comm.from_env()
    data = numpy.ones(1) * (comm.rank + 1)
    comm.allreduce(data)
    comm.destroy()

`import ringfold.torch` registers the torch.distributed backend "ringfold". The meaning of each call
is told in ringfold.h.
"""
from . import _native, errors
from ._version import VERSION as __version__
from .comm import Comm, Counters, Request, wait_all
from .context import CompletionQueue, Context
from .errors import (
    AbortedError, DeadlineError, Error, Failure, ForkedError, InvalidError, MismatchError,
    RankDeadError, RankLeftError, RendezvousError, UnsupportedError,
)

DTYPES, OPS = _native.DTYPES, _native.OPS


def version():
    """The library's version; where it was found is path_of_library."""
    return _native.rf_version().decode()


path_of_library = _native.path_of_library

__all__ = [
    "AbortedError", "Comm", "CompletionQueue", "Context", "Counters", "DTYPES", "DeadlineError",
    "Error", "Failure", "ForkedError", "InvalidError", "MismatchError", "OPS", "RankDeadError",
    "RankLeftError", "RendezvousError", "Request", "UnsupportedError", "errors", "path_of_library",
    "version", "wait_all",
]
