# SPDX-License-Identifier: BSD-3-Clause
"""The processes of bench/compare: the ranks of a library, and the probe of the cores."""
import os
import select
import signal
import socket
import subprocess
import sys
import time

import compare_launched
from compare_launched import Unavailable, last_line

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_SECONDS = 90  # torch takes long to import with more ranks than cores
IDLE_SECONDS, IDLE_CPU = 0.2, 0.1  # how long it is watched, and what share of it is too much


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def built(build, name):
    path = os.path.join(build, "bench", name)
    if not os.path.exists(path):
        subprocess.run(["make", "-C", build, f"bench/{name}"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    if not os.path.exists(path):
        raise Unavailable(f"{path} was not built (configure did not find what it needs)")
    return path


def torch_python(installed=False):
    """A python that has torch: made in the cache by scripts/python_env.sh, unless it is to be
    there."""
    script = os.path.join(TOP, "scripts", "python_env.sh")
    if not installed:
        made = subprocess.run([script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if made.returncode:
            raise Unavailable(last_line(made.stdout))
    python = subprocess.run([script, "--path"], stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()
    if installed and subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL,
                                    check=False).returncode:
        raise Unavailable("torch is not installed")
    return python


def command_of(peer, build, installed):
    if peer in ("ringfold-torch", "gloo-torch"):
        backend = peer.split("-")[0]
        return [torch_python(installed), os.path.join(TOP, "bench", "torch_allreduce.py"),
                "--backend", backend, "--serve"]
    name, *settings = {
        "ringfold": ("ringfold_allreduce",),
        "gloo": ("gloo_allreduce",),
        "bare": ("bare_ring",),
        "bare-no-fold": ("bare_ring", "fold=0"),
        "copy": ("copy_bound",),
        "copy-stream": ("copy_bound", "stream=1"),
    }[peer]
    return [built(build, name), *settings]


class Peer:
    """The ranks of one library, alive and waiting for their turn."""

    def __init__(self, name, ranks, args, folder):
        self.name, self.ranks = name, ranks
        self.processes, self.launched, self.pids = [], None, []
        self.known_segments = set()
        self.burns = False  # while idle: stopped between its turns
        notes = os.path.join(folder, f"{name}-{ranks}")
        os.makedirs(notes)
        self.errors = open(os.path.join(notes, "errors"), "w+", encoding="utf-8")
        self.stdins, self.stdouts = [], []
        try:
            self.open(args, notes)
        except BaseException:
            self.kill()
            raise

    def open(self, args, notes):
        """Until every rank is ready."""
        name, ranks = self.name, self.ranks
        if name in compare_launched.LIBRARIES:
            if args.installed and not compare_launched.is_installed(args.build, name):
                raise Unavailable("it is not installed, and --installed was given")
            self.launched = compare_launched.Ranks(args.build, name, ranks, notes, self.errors)
            self.stdins, self.stdouts = self.launched.stdins, self.launched.stdouts
        else:
            self.start(command_of(name, args.build, args.installed), args, notes)
        for rank in range(ranks):
            ready = self.answer(rank, START_SECONDS).split()
            self.pids.append(int(ready[2]) if len(ready) > 2 else self.processes[rank].pid)

    def start(self, command, args, notes):
        environment = dict(
            os.environ, WORLD_SIZE=str(self.ranks), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()), PEER_FOLDER=notes, GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
            PYTHONPATH=os.path.join(TOP, "python") + os.pathsep + os.environ.get("PYTHONPATH", ""),
            RINGFOLD_LIBRARY=os.path.join(args.build, ".libs", "libringfold.so"),
            RINGFOLD_TRANSPORT=args.transport,
        )
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=self.errors, text=True, env=dict(environment, RANK=str(rank)))
            for rank in range(self.ranks)
        ]
        self.stdins = [process.stdin for process in self.processes]
        self.stdouts = [process.stdout for process in self.processes]

    def answer(self, rank, seconds):
        ready, _, _ = select.select([self.stdouts[rank]], [], [], max(0, seconds))
        if not ready:
            raise Unavailable(f"rank {rank} of {self.ranks} did not answer within "
                              f"{seconds:.0f} s")
        line = self.stdouts[rank].readline()
        if not line:
            self.errors.flush()
            self.errors.seek(0)
            why = last_line(self.errors.read())
            raise Unavailable(f"rank {rank} of {self.ranks} ended: {why}")
        return line

    def segments(self):
        """Files of /dev/shm that its ranks have mapped: one that is killed may leave them."""
        paths = set()
        for pid in self.pids:
            try:
                with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                    paths |= {line.split(maxsplit=5)[5].strip() for line in maps
                              if "/dev/shm/" in line}
            except OSError:
                pass
        return {path for path in paths if path.startswith("/dev/shm/")}

    def signal(self, number):
        for pid in self.pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def cpu_seconds(self):
        ticks = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def watch_idle(self):
        """Whether it leaves the cores to the others while it has nothing to do."""
        self.known_segments = self.segments()  # now, for an interrupt may end the ranks first
        before = self.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        if self.cpu_seconds() - before > IDLE_CPU * IDLE_SECONDS:
            self.burns = True
            self.signal(signal.SIGSTOP)
            say(f"  {self.name} burns CPU while idle: it is stopped between its turns")

    def round(self, bytes_, calls, words, seconds):
        """Microseconds a call, CPU microseconds a call and rank, wrong elements, and whether two
        ranks ended on one core."""
        if self.burns:
            self.signal(signal.SIGCONT)
        end = time.monotonic() + seconds
        for rank, stdin in enumerate(self.stdins):
            try:
                stdin.write(f"run {bytes_} {calls} {words}".rstrip() + "\n")
                stdin.flush()
            except OSError:
                self.answer(rank, 1)  # says why it has ended
        answers = []
        for rank in range(self.ranks):
            answers.append(self.answer(rank, end - time.monotonic()).split())
        if self.burns:
            self.signal(signal.SIGSTOP)
        slowest = max(float(answer[0]) for answer in answers)
        cpu = sum(float(answer[1]) for answer in answers) / self.ranks
        cores = [answer[3] for answer in answers if len(answer) > 3]
        return {"us": slowest * 1e6 / calls, "cpu_us": cpu * 1e6 / calls,
                "wrong": sum(int(answer[2]) for answer in answers),
                "together": len(set(cores)) < len(cores)}

    def kill(self):
        segments = self.segments() | self.known_segments
        if self.launched:
            self.launched.launcher.terminate()
        self.signal(signal.SIGKILL)
        for process in self.processes:
            process.kill()
        self.close()
        for path in segments:
            try:
                os.unlink(path)
            except OSError:
                pass

    def close(self):
        if self.burns:
            self.signal(signal.SIGCONT)
        if self.launched:
            self.launched.close()
        for process in self.processes:
            try:
                process.stdin.close()
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Probe:
    """How far the two cores are from each other right now."""

    def __init__(self, build):
        self.process = subprocess.Popen([built(build, "probe")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def look(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        hand_over, pull = self.process.stdout.readline().split()
        return float(hand_over), float(pull)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
