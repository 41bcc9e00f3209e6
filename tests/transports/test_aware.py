"""CUDA-aware MPI: what a library says of itself, and what is made of a child that dies, errs or hangs."""

import os
import sys

import pytest

from hpccoll.transports import aware
from hpccoll.transports.aware import library_says, transferred, verdict


def python(program):
    return sys.executable, "-c", program


def test_a_child_that_dies_by_a_signal_costs_itself_alone():
    crashing = python("import ctypes; print('right', flush=True); ctypes.string_at(16)")  # as a device pointer is read
    assert transferred(crashing) == (False, "a transfer of GPU memory ended the child that tried it by SIGSEGV")


def test_a_child_that_answers_wrongly_is_no_proof():
    assert transferred(python("print('wrong')")) == (False, "a transfer of GPU memory in a child came out wrong")


def test_a_child_that_hangs_is_ended():
    right, words = transferred(python("import time; print('right', flush=True); time.sleep(60)"), timeout=0.5)
    assert (right, words) == (False, "a transfer of GPU memory in a child did not end in 0.5 s")


@pytest.mark.parametrize("program", ["print('right'); raise SystemExit('no device')", "raise SystemExit('no device')"])
def test_a_child_that_cannot_try_says_why(program):
    right, words = transferred(python(program))
    assert not right
    assert words == "a transfer could not be tried in a child, which ended with 1: no device"


def test_a_gpu_that_admits_one_process_alone_is_told_from_an_mpi_that_does_not_take_its_memory():
    busy = "raise RuntimeError('cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable')"
    right, words = transferred(python(busy))
    assert (right, words) == (
        False,
        "a transfer could not be tried: the GPU admits one process alone (its compute mode)",
    )


def test_a_child_that_says_nothing_of_the_transfer_is_no_proof():
    assert not transferred(python("print('all is right')\nprint('done')"))[0]


def test_a_program_that_there_is_not_is_no_proof():
    assert transferred(("/nowhere/python",)) == (False, "a transfer could not be tried: No such file or directory")


def test_a_child_whose_transfer_is_right_says_so_and_is_not_told_of_the_launcher():
    told = {**os.environ, "PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "3", "UCX_TLS": "all"}
    program = "import os; print('right' if not {'PMI_RANK', 'OMPI_COMM_WORLD_SIZE', 'SLURM_PROCID'} & {*os.environ}"
    kept = " and os.environ['UCX_TLS'] == 'all' else 'wrong')"
    assert transferred(python(program + kept), environment=told) == (
        True,
        "a transfer of GPU memory in a child was right",
    )


class OfMpich:
    def __init__(self, answer):
        self.answer = answer

    def MPIX_GPU_query_support(self, kind, flag):  # noqa: N802 - MPICH's name
        assert kind == 0
        flag[0] = self.answer


class OfOpenMpi:
    def __init__(self, answer):
        self.answer = answer

    def MPIX_Query_cuda_support(self):  # noqa: N802 - Open MPI's name
        return self.answer


@pytest.mark.parametrize(
    ("library", "says"),
    [
        (OfMpich(1), (True, "MPIX_GPU_query_support says yes")),
        (OfMpich(0), (False, "MPIX_GPU_query_support says no")),
        (OfOpenMpi(1), (True, "MPIX_Query_cuda_support says yes")),
        (OfOpenMpi(0), (False, "MPIX_Query_cuda_support says no")),
        (object(), (None, "the library has no query for it")),
    ],
)
def test_a_library_is_asked_by_the_query_that_it_has(library, says):
    assert library_says(library) == says


def test_where_the_library_denies_it_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(aware, "library_says", lambda: (False, "it says no"))
    monkeypatch.setattr(aware, "transferred", pytest.fail)
    found = verdict(0)
    assert (found.aware, found.words) == (False, "it says no; no transfer was tried")


@pytest.mark.parametrize("says", [True, None])
def test_where_it_does_not_the_transfer_decides(monkeypatch, says):
    monkeypatch.setattr(aware, "library_says", lambda: (says, "so it says"))
    for right in (True, False):
        monkeypatch.setattr(aware, "transferred", lambda _, right=right: (right, "tried"))
        assert verdict(3).aware == right


@pytest.mark.mpi
def test_the_mpi_that_is_here_is_asked_by_its_path_and_denies_it(mpiexec):
    program = "from mpi4py import MPI; from hpccoll.transports.aware import verdict; print(verdict(0).words)"
    ran = mpiexec(1, "-c", program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() in {
        f"{query} says no; no transfer was tried" for query in ("MPIX_GPU_query_support", "MPIX_Query_cuda_support")
    }


@pytest.mark.mpi
def test_the_child_of_a_rank_starts_mpi_for_itself_alone(mpiexec, tmp_path):
    child = tmp_path / "child.py"  # as the one that tries, but of the host's memory
    child.write_text("""
import numpy as np
from mpi4py import MPI
sent = np.arange(1 << 18, dtype=np.float32)
arrived, reduced = np.zeros_like(sent), np.zeros_like(sent)
MPI.COMM_SELF.Sendrecv(sent, 0, recvbuf=arrived, source=0)
MPI.COMM_SELF.Allreduce(sent, reduced)
alone = MPI.COMM_WORLD.size == 1
print("right" if alone and (arrived == sent).all() and (reduced == sent).all() else "wrong")
""")
    rank = f"""
import sys
from mpi4py import MPI
from hpccoll.transports.aware import transferred
found = MPI.COMM_WORLD.gather(transferred((sys.executable, {str(child)!r})))
if found: print(found)
"""
    ran = mpiexec(2, "-c", rank)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("(True, 'a transfer of GPU memory in a child was right')") == 2
