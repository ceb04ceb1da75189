#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The package: where it finds the library, and that pip installs it."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

support.needs("setuptools")

SHOW = "import ringfold; print(ringfold.path_of_library, ringfold.version())"


def python(code, cwd="/", path=None, **env):
    environment = {k: v for k, v in support.environment().items() if not k.startswith("RINGFOLD_")}
    environment["PYTHONPATH"] = path or os.path.join(support.TOP, "python")
    environment.update(env)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, text=True,
        capture_output=True, timeout=support.WATCHDOG, check=False)


class Package(unittest.TestCase):
    def test_the_library_that_is_named(self):
        build = os.path.dirname(os.path.dirname(support.SHARED_OBJECT))
        for named in (support.SHARED_OBJECT, build):
            done = python(SHOW, RINGFOLD_LIBRARY=named)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.path.realpath(done.stdout.split()[0]),
                             os.path.realpath(support.SHARED_OBJECT))

    def test_one_that_is_not_there_is_said(self):
        done = python(SHOW, RINGFOLD_LIBRARY="/nowhere/libringfold.so.0")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "ImportError: .*RINGFOLD_LIBRARY.*/nowhere/")

    @unittest.skipUnless(
        os.path.exists(os.path.join(support.TOP, "build", ".libs", "libringfold.so.0")),
        "there is no build/ in the source tree")
    def test_the_build_tree_beside_it(self):
        done = python(SHOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith(support.TOP + "/"), done.stdout)

    def test_the_version_is_the_library_s(self):
        from ringfold import __version__, version

        self.assertEqual(__version__, version())

    def test_lists_are_the_header_s(self):
        from ringfold import _native

        for number, name in enumerate(_native.DTYPES):
            self.assertEqual(_native.rf_dtype_name(number).decode(), name)
        self.assertIsNone(_native.rf_dtype_name(len(_native.DTYPES)))
        for number, name in enumerate(_native.OPS):
            self.assertEqual(_native.rf_op_name(number).decode(), name)
        for number, name in enumerate(_native.COLLECTIVES):
            self.assertEqual(_native.rf_collective_name(number).decode(), name)
        self.assertIsNone(_native.rf_collective_name(len(_native.COLLECTIVES)))

    def test_pip_installs_it_offline(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "python"), os.path.join(folder, "installed")
            shutil.copytree(
                os.path.join(support.TOP, "python"), source,
                ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            for where, _, _ in os.walk(source):
                os.chmod(where, 0o755)  # the original may be read-only
            # A source tree with a build in it.
            for path, content in (
                    ("include/ringfold.h", None), ("build/.libs", support.SHARED_OBJECT)):
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                if content is None:
                    shutil.copy(os.path.join(support.TOP, path), os.path.join(folder, path))
                else:
                    os.symlink(os.path.dirname(content), os.path.join(folder, path))
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                 "--no-build-isolation", "--target", target, source],
                text=True, capture_output=True, timeout=support.WATCHDOG, check=False)
            if "No module named pip" in done.stderr:
                self.skipTest("there is no pip")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            done = python(SHOW, path=target)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(folder + "/build/.libs/"), done.stdout)


if __name__ == "__main__":
    support.main()
