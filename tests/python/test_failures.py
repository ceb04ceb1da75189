#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Failures as exceptions, and ends of every kind: of ranks, calls, processes."""
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import support
from support import on_ranks

support.needs("numpy")

import numpy as np

import ringfold

KILLED = -signal.SIGKILL
# Says how long the survivors took, with a margin for a busy machine over the second that counts.
SOON = 5


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


class FolderStore:
    """A store that is a folder."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, key):
        return os.path.join(self.folder, key.replace("/", "_"))

    def set(self, key, value):
        with open(self.path(key) + f".{os.getpid()}", "wb") as file:
            file.write(value)
        os.rename(file.name, self.path(key))

    def get(self, key, timeout):
        end = time.monotonic() + (timeout or 0)
        while not os.path.exists(self.path(key)):
            if time.monotonic() >= end:
                raise KeyError(key)
            time.sleep(0.005)
        with open(self.path(key), "rb") as file:
            return file.read()

    def add(self, key, amount):
        raise NotImplementedError


class Errors(unittest.TestCase):
    @on_ranks(3)
    def test_a_mismatch_shows_both_views_on_every_rank(self):
        with ringfold.Comm.from_env() as comm:
            with self.assertRaises(ringfold.MismatchError) as caught:
                comm.allreduce(np.ones(3 if comm.rank != 1 else 4, "f" if comm.rank else "d"))
                comm.barrier()
            text = str(caught.exception)
            self.assertRegex(text, "allreduce.*float(32|64).*allreduce.*float(32|64)")
            self.assertIn(f"[rank {comm.rank}]", text)
            self.assertEqual(caught.exception.name, "RF_ERR_MISMATCH")
            self.assertEqual(caught.exception.rank, comm.rank)
            self.assertEqual(caught.exception.failure.error, "RF_ERR_MISMATCH")
            with self.assertRaises(ringfold.MismatchError):
                comm.barrier()

    @on_ranks(4, statuses=[0, 0, KILLED, 0])
    def test_a_killed_rank_is_named(self):
        with ringfold.Comm.from_env() as comm:
            comm.barrier()
            if comm.rank == 2:
                kill_myself()
            begin = time.monotonic()
            with self.assertRaises(ringfold.RankDeadError) as caught:
                comm.allreduce(np.ones(1000))
            self.assertLess(time.monotonic() - begin, SOON)
            self.assertEqual(caught.exception.ranks, (2,))
            self.assertIn("2", caught.exception.message)
            self.assertEqual(comm.failure().ranks, (2,))

    @on_ranks(2, statuses=[0, KILLED])
    def test_a_killed_rank_is_named_though_its_child_lives(self):
        with ringfold.Comm.from_env() as comm:
            comm.barrier()
            if comm.rank == 1:
                read, write = os.pipe()
                if os.fork() == 0:
                    # As long as it lives it has what the parent has not closed in it.
                    try:
                        comm.barrier()
                    except ringfold.ForkedError:
                        os.write(write, b"y")
                    signal.alarm(20)
                    while os.getppid() != 1 or not os.path.exists(f"/proc/{os.getpid()}"):
                        time.sleep(0.05)
                        if os.path.exists(self.done_file()):
                            os._exit(0)
                    while not os.path.exists(self.done_file()):
                        time.sleep(0.05)
                    os._exit(0)
                self.assertEqual(os.read(read, 1), b"y")
                kill_myself()
            begin = time.monotonic()
            try:
                with self.assertRaises(ringfold.RankDeadError) as caught:
                    comm.barrier()
                self.assertLess(time.monotonic() - begin, SOON)
                self.assertEqual(caught.exception.ranks, (1,))
            finally:
                with open(self.done_file(), "w", encoding="ascii"):
                    pass

    def done_file(self):
        return os.path.join(
            tempfile.gettempdir(), f"ringfold-test-{os.environ['MASTER_PORT']}-done")

    @on_ranks(3)
    def test_a_silent_rank_is_named_at_the_deadline(self):
        with ringfold.Comm.from_env(timeout=60) as comm:
            comm.barrier()
            if comm.rank != 1:
                with self.assertRaises(ringfold.DeadlineError) as caught:
                    comm.allreduce(np.ones(2), deadline=1)
                self.assertEqual(caught.exception.ranks, (1,))
                self.assertIsInstance(caught.exception, TimeoutError)
            else:
                support.wait_until(comm.failure)

    @on_ranks(2)
    def test_a_wait_that_times_out_leaves_the_call_alive(self):
        with ringfold.Comm.from_env() as comm:
            late = np.ones(1)
            if comm.rank == 0:
                request = comm.iallreduce(late)
                self.assertFalse(request.wait(0.05))
                with self.assertRaises(TimeoutError):
                    request.result(0)
                store_done(0)
                self.assertEqual(request.result(60)[0], 2)
            else:
                support.wait_until(lambda: is_done(0))
                comm.allreduce(late)

    @on_ranks(3)
    def test_abort_from_another_thread(self):
        with ringfold.Comm.from_env() as comm:
            comm.barrier()
            if comm.rank:
                store_done(comm.rank)
            else:
                # An abort also ends a barrier that others are just about to leave.
                support.wait_until(lambda: is_done(1))
                support.wait_until(lambda: is_done(2))
            if comm.rank == 0:
                request = comm.iallreduce(np.ones(1))
                threading.Thread(target=comm.abort).start()
                with self.assertRaises(ringfold.AbortedError):
                    request.wait(60)
            elif comm.rank == 1:
                with self.assertRaises(ringfold.AbortedError):
                    comm.allreduce(np.ones(1))
            else:
                support.wait_until(comm.failure)
                self.assertEqual(comm.failure().error, "RF_ERR_ABORTED")

    @on_ranks(2)
    def test_ctrl_c_ends_a_blocking_call(self):
        with ringfold.Comm.from_env() as comm:
            comm.barrier()
            if comm.rank == 0:
                timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
                timer.start()
                begin = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    comm.allreduce(np.ones(1 << 20))
                self.assertLess(time.monotonic() - begin, SOON)
            support.wait_until(comm.failure)
            self.assertEqual(comm.failure().error, "RF_ERR_ABORTED")


def done_path(number):
    return os.path.join(
        tempfile.gettempdir(), f"ringfold-test-{os.environ['MASTER_PORT']}-{number}")


def store_done(number):
    with open(done_path(number), "w", encoding="ascii"):
        pass


def is_done(number):
    if os.path.exists(done_path(number)):
        os.unlink(done_path(number))
        return True
    return False


class Stores(unittest.TestCase):
    @on_ranks(3)
    def test_a_python_object_carries_the_rendezvous(self):
        folder = os.path.join(tempfile.gettempdir(), f"ringfold-test-{os.environ['MASTER_PORT']}")
        os.makedirs(folder, exist_ok=True)
        rank, size = int(os.environ["rank"]), int(os.environ["world"])
        for _ in range(2):  # a name may be used again
            with ringfold.Comm(rank, size, store=FolderStore(folder), timeout=60) as comm:
                self.assertEqual(comm.allreduce(np.ones(1))[0], 3)
                comm.barrier()
        if rank == 0:
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)

    def test_what_a_store_raises_is_the_cause(self):
        class Broken(FolderStore):
            def set(self, key, value):
                raise OSError("the store is down")

        with self.assertRaises(ringfold.Error) as caught:
            ringfold.Comm(0, 2, store=Broken(""), timeout=30)
        self.assertEqual(caught.exception.name, "RF_ERR_STORE")
        self.assertIsInstance(caught.exception.__cause__, OSError)

    def test_absent_ranks_are_listed(self):
        lines = []
        with ringfold.Context(log=lambda level, line: lines.append((level, line))) as context:
            with self.assertRaises(ringfold.Error):
                ringfold.Comm(0, 3, master_addr="127.0.0.1", master_port=support.free_port(),
                              timeout=0.3, context=context)
        self.assertRegex("\n".join(line for _, line in lines), r"1.*2")


class Ends(unittest.TestCase):
    """Programs that end without destroying anything."""

    @on_ranks(2)
    def test_with_a_call_in_flight(self):
        comm = ringfold.Comm.from_env()
        comm.barrier()
        if comm.rank == 0:
            comm.iallreduce(np.ones(100))

    @on_ranks(2, statuses=[1, 0])
    def test_by_an_exception_while_the_other_waits(self):
        comm = ringfold.Comm.from_env()
        comm.barrier()
        if comm.rank == 0:
            raise SystemExit(1)
        begin = time.monotonic()
        with self.assertRaises(ringfold.Error) as caught:
            comm.allreduce(np.ones(100))
        self.assertIn(caught.exception.name, ("RF_ERR_RANK_LEFT", "RF_ERR_ABORTED"))
        self.assertLess(time.monotonic() - begin, SOON)

    @on_ranks(2)
    def test_while_another_thread_is_in_a_call(self):
        comm = ringfold.Comm.from_env()
        comm.barrier()
        if comm.rank == 0:
            threading.Thread(target=self.wait_for_ever, args=(comm,), daemon=True).start()
            support.wait_until(lambda: comm.counters().calls["allreduce"] == 1)

    def wait_for_ever(self, comm):
        try:
            comm.allreduce(np.ones(1))
        except ringfold.Error:
            pass

    @on_ranks(2)
    def test_a_child_of_fork_ends_without_harm(self):
        comm = ringfold.Comm.from_env()
        comm.barrier()
        child = os.fork()
        if child == 0:
            try:
                comm.allreduce(np.ones(1))
            except ringfold.ForkedError:
                sys.exit(7)  # through the interpreter's whole end
            os._exit(8)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(comm.allreduce(np.ones(1))[0], 2)


if __name__ == "__main__":
    support.main()
