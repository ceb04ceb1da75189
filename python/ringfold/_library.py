# SPDX-License-Identifier: BSD-3-Clause
"""Finds libringfold: the one that RINGFOLD_LIBRARY names, else one that was built in the source
tree that this package lies in or was installed from, else an installed one."""
import ctypes
import glob
import os
import sys

from ._version import VERSION

SONAME = "libringfold.so.0"
HERE = os.path.dirname(os.path.abspath(__file__))


def _source_tree():
    """The folder with include/ringfold.h, or None."""
    remembered = os.path.join(HERE, "_source_tree.txt")
    if os.path.exists(remembered):
        with open(remembered, encoding="utf-8") as file:
            tree = file.read().strip()
    else:
        tree = os.path.dirname(os.path.dirname(HERE))
    return tree if os.path.exists(os.path.join(tree, "include", "ringfold.h")) else None


def _candidates():
    """What to hand to dlopen, best first."""
    tree = _source_tree()
    if tree:
        folders = [tree, os.path.join(tree, "build")] + sorted(glob.glob(tree + "/build*/"))
        for folder in dict.fromkeys(os.path.normpath(folder) for folder in folders):
            path = os.path.join(folder, ".libs", SONAME)
            if os.path.exists(path):
                yield path
    yield SONAME
    for prefix in (sys.prefix, "/usr/local"):
        path = os.path.join(prefix, "lib", SONAME)
        if os.path.exists(path):
            yield path


def _named(path):
    """RINGFOLD_LIBRARY is the file, or a folder that has it (a build tree too)."""
    for folder in ("", ".libs", "lib"):
        inside = os.path.join(path, folder, SONAME)
        if os.path.exists(inside):
            return inside
    return path


def load():
    named = os.environ.get("RINGFOLD_LIBRARY")
    tried = []
    for path in [_named(named)] if named else _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        library.rf_version.restype = ctypes.c_char_p
        version = library.rf_version().decode()
        if version.split(".")[:2] != VERSION.split(".")[:2]:
            raise ImportError(
                f"{path} is ringfold {version}, but this Python package is for {VERSION}"
            )
        return library, path
    raise ImportError(
        f"{SONAME} was not found: build it, install it, or set RINGFOLD_LIBRARY to the file. "
        "Tried: " + "; ".join(tried)
    )
