# SPDX-License-Identifier: BSD-3-Clause
"""For the Python tests: tests whose body runs in several processes at once.

    class Sums(unittest.TestCase):
        @on_ranks(4)
        def test_ranks_agree(self): ...          # in each of four processes

    if __name__ == "__main__":
        support.main()

Each process is started on its own, on loopback, with rank, world, MASTER_ADDR and MASTER_PORT in
its environment, in a process group of its own; a watchdog ends those that do not end, and after
each test nothing of them may be left.
"""
import contextlib
import functools
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(
    os.environ.get("abs_top_srcdir") or os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.abspath(os.environ.get("abs_top_builddir") or os.path.join(TOP, "build"))
SHARED_OBJECT = (
    os.environ.get("RINGFOLD_LIBRARY") or os.path.join(BUILD, ".libs", "libringfold.so.0"))
# The source tree stays as it is, and the parent of the ranks loads the package too.
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "python"))
os.environ["RINGFOLD_LIBRARY"] = SHARED_OBJECT
WATCHDOG = float(os.environ.get("RINGFOLD_TEST_WATCHDOG", "120"))
SEED = int(
    os.environ.get("PYTHON_TEST_SEED")
    or os.environ.get("RINGFOLD_TEST_SEED")
    or time.time_ns() % 1000000)
# Which test's body this process is to run.
BODY = "PYTHON_TEST_BODY"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(**more):
    """This one, without what a launcher or a person may have set for other purposes."""
    dropped = (
        "rank", "world", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED",
        BODY)
    env = {
        name: value for name, value in os.environ.items()
        if name not in dropped and not name.startswith("RINGFOLD_")
    }
    env["RINGFOLD_LIBRARY"] = SHARED_OBJECT
    env["PYTHON_TEST_SEED"] = str(SEED)
    env["PYTHONPATH"] = os.path.join(TOP, "python")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["OMP_NUM_THREADS"] = "1"
    env.update({name: str(value) for name, value in more.items()})
    return env


class Process:
    """A program with its output in a file, in a process group of its own."""

    def __init__(self, command, env):
        self.file = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=self.file,
            stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def output(self):
        self.file.seek(0)
        return self.file.read().decode(errors="replace")

    def wait(self, end):
        """The exit status, or None if it has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(max(0.01, end - time.monotonic()))
        return None

    def leftovers(self):
        """Whether anything of its group is alive."""
        try:
            os.killpg(self.pid, 0)
            return True
        except ProcessLookupError:
            return False

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def wait_until(condition, seconds=WATCHDOG, what="a condition"):
    """Polls for it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come about in {seconds} s")
        time.sleep(0.02)


def finish(test, processes, statuses=None, seconds=WATCHDOG):
    """Waits for all; fails the test unless they end with these statuses (default: 0) and leave
    nothing behind. Their outputs."""
    end = time.monotonic() + seconds
    statuses = statuses or [0] * len(processes)
    try:
        got = [process.wait(end) for process in processes]
        # What a process leaves may take a moment to end by itself; not longer.
        left = []
        for rank, process in enumerate(processes):
            if got[rank] is None:
                continue
            try:
                wait_until(lambda: not process.leftovers(), 5)
            except AssertionError:
                left.append(rank)
    finally:
        for process in processes:
            process.end()
    outputs = [process.output() for process in processes]
    for process in processes:
        process.file.close()
    if got != list(statuses) or left:
        text = "".join(
            f"---- rank {rank}: {status}\n{output}"
            for rank, (status, output) in enumerate(zip(got, outputs)))
        late = "; None: ended by the watchdog" if None in got else ""
        test.fail(
            f"the ranks ended with {got}, not {list(statuses)}{late}; left behind by: {left}\n"
            f"{text}")
    return outputs


def rank_environments(world, **more):
    port = free_port()
    for rank in range(world):
        yield environment(
            rank=rank, world=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more)


def on_ranks(world, statuses=None, **env):
    """The test's body runs in so many processes, which must end with these statuses (0)."""

    def decorate(body):
        @functools.wraps(body)
        def run(self):
            name = f"{type(self).__name__}.{self._testMethodName}"
            if os.environ.get(BODY) == name:
                return body(self)
            file = sys.modules[type(self).__module__].__file__
            processes = [
                Process([sys.executable, file], dict(one, **{BODY: name}))
                for one in rank_environments(world, **env)
            ]
            finish(self, processes, statuses)

        return run

    return decorate


def needs(*modules):
    """Ends with 77, and says why, where the tests of this file cannot run."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    reason = None
    if absent:
        reason = f"{sys.executable} has no {' and no '.join(absent)}"
    elif not os.path.exists(SHARED_OBJECT):
        reason = f"there is no {SHARED_OBJECT}: build it first"
    elif os.environ.get("RINGFOLD_SANITIZER", "") not in ("", "no", "none"):
        reason = "the interpreter is not built with the sanitizer that the library is built with"
    if reason:
        print(reason)
        sys.exit(77)


def main():
    """The whole file, or, in a rank, the one body."""
    body = os.environ.get(BODY)
    if not body:
        print(f"RINGFOLD_TEST_SEED={SEED}", flush=True)
        unittest.main(verbosity=2)
    class_name, test_name = body.split(".")
    case = getattr(sys.modules["__main__"], class_name)(test_name)
    # Called, and not run by unittest: what it raises is the process's own end.
    case.setUp()
    getattr(case, test_name)()
