# SPDX-License-Identifier: BSD-3-Clause
"""The library's error constants as exceptions."""
from collections import namedtuple

from . import _native

# error: the constant's name, or "" ; ranks: the ranks that it names; message: a line for a person
Failure = namedtuple("Failure", "error ranks message")
Failure.__doc__ = "What a communicator died of, as far as this rank knows."


def constant_name(code):
    """"RF_ERR_TIMEOUT" for -4."""
    return _native.rf_strerror(code).decode().split(":")[0]


class Error(RuntimeError):
    """A call failed.

    code: the error constant (negative); name: the same as text; rank: this process's rank in the
    communicator, or None; failure: the communicator's failure report, or None; ranks: the ranks
    that it names; message: its line for a person, or what the constant means.
    """

    def __init__(self, code, doing="", rank=None, failure=None):
        self.code, self.rank, self.failure = code, rank, failure
        self.name = constant_name(code)
        self.ranks = failure.ranks if failure else ()
        text = _native.rf_strerror(code).decode()
        self.message = failure.message if failure and failure.message else text
        at = f"[rank {rank}] " if rank is not None else ""
        doing = f"{doing}: " if doing else ""
        report = f"; {failure.message}" if failure and failure.message else ""
        super().__init__(f"{at}{doing}{text}{report}")


class InvalidError(Error, ValueError):
    """An argument is invalid."""


class DeadlineError(Error, TimeoutError):
    """The deadline has passed."""


class RankDeadError(Error):
    """A rank died."""


class RankLeftError(Error):
    """A rank has left the communicator."""


class MismatchError(Error):
    """Ranks made calls that do not match; the message has both views."""


class AbortedError(Error):
    """The communicator was aborted."""


class ForkedError(Error):
    """The library cannot be used in a forked child."""


class UnsupportedError(Error):
    """Not supported for these arguments or in this build."""


class RendezvousError(Error):
    """Ranks are missing, or disagree about the job."""


TIMEOUT = -4

# The others are plain Errors.
_CLASSES = {
    "RF_ERR_INVALID": InvalidError,
    "RF_ERR_TIMEOUT": DeadlineError,
    "RF_ERR_RANK_DEAD": RankDeadError,
    "RF_ERR_RANK_LEFT": RankLeftError,
    "RF_ERR_MISMATCH": MismatchError,
    "RF_ERR_ABORTED": AbortedError,
    "RF_ERR_FORKED": ForkedError,
    "RF_ERR_UNSUPPORTED": UnsupportedError,
    "RF_ERR_RENDEZVOUS": RendezvousError,
}


def make(code, doing="", rank=None, failure=None):
    """The exception for an error constant."""
    return _CLASSES.get(constant_name(code), Error)(code, doing, rank, failure)


def check(code, doing="", rank=None):
    """Raises unless the code is RF_OK or a count."""
    if code < 0:
        raise make(code, doing, rank)
    return code
