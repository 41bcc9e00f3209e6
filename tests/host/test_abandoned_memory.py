"""Shared memory that killed processes have left is removed, and no file that a process uses."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpccoll.host.abandoned_memory import (
    NAMES,
    SHARED_MEMORY,
    abandoned_files,
    remove_abandoned_files,
)

FILES = [name.replace("*", "1a_0") for name in NAMES]

HOLD = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 4096)
if sys.argv[2] == "mapped":
    os.close(file)
print("ready", flush=True)
sys.stdin.read()
"""

RANKS = """
from mpi4py import MPI
import re, sys
from pathlib import Path
from hpccoll.host.abandoned_memory import remove_abandoned_files
comm = MPI.COMM_WORLD
comm.Barrier()
files = {Path(path) for path in re.findall("/dev/shm/mpich_shm_\\\\S+", Path("/proc/self/maps").read_text())}
assert files
remove_abandoned_files()
comm.Barrier()
assert all(file.exists() for file in files), files
assert comm.allreduce(comm.rank) == 1
if sys.argv[1] == "end":
    sys.exit()
print(*files, flush=True)
comm.Barrier()
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def shared(require):
    """An empty directory in the file system of shared memory."""
    require(os.access(SHARED_MEMORY, os.W_OK), f"{SHARED_MEMORY} cannot be written")
    directory = Path(tempfile.mkdtemp(dir=SHARED_MEMORY))
    yield directory
    shutil.rmtree(directory)


def left(directory):
    return sorted(path.name for path in directory.iterdir())


def fill(directory, *names):
    for name in names:
        (directory / name).write_bytes(bytes(4096))


@contextmanager
def used(path, how="mapped"):
    """Have another process that uses a file."""
    command = [sys.executable, "-c", HOLD, path, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_files_of_the_libraries_that_no_process_uses_are_counted_and_removed(shared):
    fill(shared, *FILES)
    assert sorted(abandoned_files(shared)) == sorted((shared / name, 4096) for name in FILES)
    assert left(shared) == sorted(FILES)
    remove_abandoned_files(shared)
    assert left(shared) == []


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_file_stays_until_the_process_that_uses_it_is_killed(shared, how):
    fill(shared, *FILES)
    with used(shared / FILES[0], how) as process:
        remove_abandoned_files(shared)
        assert (left(shared), abandoned_files(shared)) == ([FILES[0]], [])
        process.send_signal(signal.SIGKILL)
        process.wait()
        remove_abandoned_files(shared)
        assert left(shared) == []


def test_other_names_directories_links_and_files_of_other_users_stay(shared, require):
    require(os.geteuid() == 0, "only root can give a file to another user")
    fill(shared, "sem.mpich_shm_1", "mine", "nccl", FILES[0])
    os.chown(shared / FILES[0], 12345, 12345)
    (shared / "mpich_shm_directory").mkdir()
    (shared / "mpich_shm_link").symlink_to(shared / "mine")
    before = left(shared)
    remove_abandoned_files(shared)
    assert (left(shared), abandoned_files(shared)) == (before, [])
    remove_abandoned_files(shared / "nowhere")
    assert abandoned_files(shared / "nowhere") == []


def test_launches_that_start_together_remove_each_file_once_and_disturb_nobody(shared):
    names = [f"mpich_shm_{number:x}_0" for number in range(200)]
    fill(shared, *names)
    program = "import sys; from pathlib import Path; from hpccoll.host.abandoned_memory import *\n"
    program += "sys.stdin.read(); remove_abandoned_files(Path(sys.argv[1])); abandoned_files(Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, shared]
    with used(shared / names[7]):
        at_once = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
        for process in at_once:
            process.stdin.close()
        assert [process.wait() for process in at_once] == [0] * 4
        remove_abandoned_files(shared)
        assert left(shared) == [names[7]]


@pytest.mark.mpi
def test_the_files_of_killed_ranks_are_removed_by_the_next_launch_and_those_of_living_ranks_never(
    mpiexec,
):
    killed = mpiexec(2, "-c", RANKS, "kill")
    assert killed.returncode, killed.stderr
    files = {Path(path) for path in killed.stdout.split() if path.startswith(str(SHARED_MEMORY))}
    assert files
    checked = mpiexec(2, "-m", "hpccoll", "run", "--check")
    assert checked.returncode == 0, checked.stderr
    assert not [file for file in files if file.exists()]
    alive = mpiexec(2, "-c", RANKS, "end")
    assert alive.returncode == 0, alive.stderr
