# SPDX-License-Identifier: BSD-3-Clause
"""Peers of bench/compare that come as wheels and have a launcher of their own: MPI libraries and
oneCCL. Their wheels go into a folder of the build, a virtual environment each (they share names),
and each rank is driven through a pair of named pipes, because a launcher hands its input to one
rank alone."""
import os
import shutil
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Name: the wheels, whose compiler wrapper builds for it, the launcher with its options. Each runs
# with its own defaults; only what it needs to start at all on one host is set.
LIBRARIES = {
    "openmpi": (["openmpi"], "openmpi", ["mpiexec", "--oversubscribe", "--bind-to", "none"]),
    "mpich": (["mpich"], "mpich", ["mpiexec"]),
    # Runs what MPICH's mpicc has built: the same binary interface.
    "impi": (["impi-rt"], "mpich", ["mpiexec.hydra"]),
    "oneccl": (["oneccl-cpu", "oneccl-cpu-devel", "intel-cmplr-lib-rt"], "oneccl",
               ["mpiexec.hydra"]),
}
START_SECONDS = 30


class Unavailable(Exception):
    pass


def is_installed(build, name):
    folders = {name, LIBRARIES[name][1]}
    return all(os.path.exists(os.path.join(build, "peers", folder, "installed"))
               for folder in folders)


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1]


def run(command, what, **options):
    """Runs to the end, or says why not."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    if done.returncode:
        raise Unavailable(f"{what}: {last_line(done.stdout)}")
    return done.stdout


def install(build, name):
    """The folder of the library, installed when it is first asked for."""
    folder = os.path.join(build, "peers", name)
    if os.path.exists(os.path.join(folder, "installed")):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    wheels = LIBRARIES[name][0]
    print(f"  installing {', '.join(wheels)} into {folder}", file=sys.stderr, flush=True)
    pip = os.path.join(folder, "bin", "pip")
    run([sys.executable, "-m", "venv", folder], "a virtual environment cannot be made")
    run([pip, "install", "-q", *wheels], f"{' '.join(wheels)} cannot be installed")
    with open(os.path.join(folder, "installed"), "w", encoding="utf-8") as file:
        file.write(run([pip, "list", "--format=freeze"], "pip list"))
    return folder


def version(build, name):
    """What was installed, as "wheel==version"."""
    with open(os.path.join(build, "peers", name, "installed"), encoding="utf-8") as file:
        lines = file.read().split()
    return next((line for line in lines if line.startswith(LIBRARIES[name][0][0] + "==")), name)


def program(build, name):
    """The peer, built with what the library brings; anew when a source is newer."""
    builder = LIBRARIES[name][1]
    folder = install(build, builder)
    first = "ccl_allreduce.cc" if builder == "oneccl" else "mpi_allreduce.c"
    path = os.path.join(folder, first.split(".")[0])
    sources = [os.path.join(TOP, "bench", file) for file in (first, "peer.c", "peer_drive.c")]
    header = os.path.join(TOP, "bench", "peer.h")
    if os.path.exists(path) and all(os.path.getmtime(file) < os.path.getmtime(path)
                                    for file in (*sources, header)):
        return path
    if builder == "oneccl":
        build_oneccl(folder, path, sources)
    else:
        run([os.path.join(folder, "bin", "mpicc"), "-D_GNU_SOURCE", "-O2", "-I", TOP, "-o", path,
             *sources], f"{builder}'s mpicc fails", env=environment(folder))
    return path


def build_oneccl(folder, path, sources):
    """The wheel asks for a libccl.so.2 that only the one for GPUs brings, and takes nothing from
    it: an empty library of that name does."""
    libraries = os.path.join(folder, "lib")
    empty = os.path.join(libraries, "libccl.so.2")
    if not os.path.exists(empty):
        run(["cc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libccl.so.2", "-o", empty],
            "an empty libccl.so.2")
    objects = []
    for source in sources:
        objects.append(f"{path}-{os.path.basename(source)}.o")
        compiler = ["c++", "-std=c++17"] if source.endswith(".cc") else ["cc", "-D_GNU_SOURCE"]
        run([*compiler, "-O2", "-I", TOP, "-I", os.path.join(folder, "include"), "-c", source,
             "-o", objects[-1]], f"{os.path.basename(source)} does not compile for oneCCL")
    run(["c++", *objects, "-L", libraries, "-lccl", "-Wl,--no-as-needed", "-lintlc",
         f"-Wl,-rpath,{libraries}", "-o", path], "linking against oneCCL fails")


def environment(folder):
    return dict(
        os.environ, LD_LIBRARY_PATH=os.path.join(folder, "lib"), I_MPI_ROOT=folder,
        PATH=os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"],
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", I_MPI_FABRICS="shm",
        CCL_ATL_TRANSPORT="mpi", CCL_CONFIGURATION="cpu", CCL_LOG_LEVEL="error")


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
        try:
            self.open_pipes(notes, ranks, time.monotonic() + START_SECONDS)
        except BaseException:
            self.launcher.terminate()
            self.close()
            raise

    def open_pipes(self, notes, ranks, end):
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
            self.launcher.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait()
        for file in self.stdouts:
            file.close()
