# SPDX-License-Identifier: BSD-3-Clause
"""ringfold run at a terminal: what is typed reaches the rank that was given stdin, and an interrupt
reaches all. Called by run_output.sh with the command."""

import os
import pty
import signal
import sys

signal.alarm(60)  # a watchdog


def start(*arguments):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "run", "-n", "2", *arguments])
    return pid, terminal


def read_until(terminal, text):
    seen = b""
    while text not in seen:
        try:
            seen += os.read(terminal, 1000)
        except OSError:  # the other side has ended
            break
    return seen


def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


pid, terminal = start("--stdin", "1", "cat")
os.write(terminal, b"typed\n")
assert b"[1] typed" in read_until(terminal, b"[1] typed")
os.write(terminal, b"\x04")
read_until(terminal, b"never")
assert status_of(pid) == 0

pid, terminal = start("sh", "-c", "echo ready; exec sleep 60")
read_until(terminal, b"[1] ready")
os.write(terminal, b"\x03")
assert b"was ended by signal 2" in read_until(terminal, b"never")
assert status_of(pid) == 130
