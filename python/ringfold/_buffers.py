# SPDX-License-Identifier: BSD-3-Clause
"""Memory of Python objects: its address, how many elements of which type, and a hold on it for as
long as the library uses it."""
import ctypes
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object

from . import _native

_C_CONTIGUOUS, _FORMAT, _WRITABLE = 0x0038, 0x0004, 0x0001


class _PyBuffer(Structure):
    _fields_ = [
        ("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t),
        ("readonly", c_int), ("ndim", c_int), ("format", c_char_p), ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)), ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes, _get.restype = [py_object, POINTER(_PyBuffer), c_int], c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes, _release.restype = [POINTER(_PyBuffer)], None

_NATIVE_ORDER = "@=" + ("<" if sys.byteorder == "little" else ">")
_KINDS = {"b": "int", "h": "int", "i": "int", "l": "int", "q": "int", "n": "int",
          "B": "uint", "H": "uint", "I": "uint", "L": "uint", "Q": "uint", "N": "uint",
          "e": "float", "f": "float", "d": "float"}


def dtype_number(name):
    """The constant for a dtype's name (or numpy dtype, or type), TypeError if there is none."""
    text = getattr(name, "name", None) or getattr(name, "__name__", None) or str(name)
    text = {"bool_": "bool", "float": "float64"}.get(text, text)
    try:
        return _native.DTYPES.index(text)
    except ValueError:
        raise TypeError(
            f"ringfold has no type {text!r}; it has {', '.join(_native.DTYPES)}"
        ) from None


def _dtype_of_format(format_, itemsize):
    order, kind = (format_[0], format_[1:]) if format_[:1] in "@=<>!" else ("@", format_)
    if kind == "?":
        return dtype_number("bool")
    if kind not in _KINDS or (order not in _NATIVE_ORDER and itemsize > 1):
        raise TypeError(f"elements of the format {format_!r} cannot be reduced")
    return dtype_number(f"{_KINDS[kind]}{8 * itemsize}")


class Buffer:
    """A hold on the memory of an object with the buffer protocol: address, bytes, dtype (the
    constant) and count. Contiguous in C order, or BufferError or ValueError."""

    def __init__(self, thing, writable, dtype=None):
        # Types that numpy does not know itself (ml_dtypes' bfloat16) have no buffer format.
        if getattr(getattr(thing, "dtype", None), "name", None) == "bfloat16":
            dtype = dtype or "bfloat16"
            thing = thing.view("uint16")
        self._view = _PyBuffer()
        flags = _C_CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0)
        _get(thing, self._view, flags)
        try:
            format_ = (self._view.format or b"B").decode()
            if dtype is None:
                self.dtype = _dtype_of_format(format_, self._view.itemsize)
            else:
                self.dtype = dtype_number(dtype)
            size = _native.rf_dtype_size(self.dtype)
            if self._view.len % size:
                raise ValueError(f"{self._view.len} bytes are no whole number of elements")
        except Exception:
            self.release()
            raise
        self.address, self.bytes = self._view.buf, self._view.len
        self.count = self.bytes // size

    def release(self):
        if self._view is not None:
            view, self._view = self._view, None
            _release(view)

    def __del__(self):
        if getattr(self, "_view", None) is not None:
            self.release()
