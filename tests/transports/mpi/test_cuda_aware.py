"""CUDA-aware MPI: what a library says of itself, and what is made of a child that dies, errs or hangs."""

import ast
import os
import subprocess
import sys

import pytest

from hpccoll.host.mpi_library import cuda_support
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.mpi.cuda_aware import (
    PAIR_TRANSFER,
    SELF_TRANSFER,
    cuda_aware_verdict,
    find_mpiexec,
    probe_transfer,
    run_transfer,
)


def python(program):
    return sys.executable, "-c", program


def test_a_child_can_take_its_gpu_before_mpi_is_up():
    loaded = "import sys, hpccoll.transports.mpi.cuda_aware; print(*sys.modules)"
    said = subprocess.run(python(loaded), capture_output=True, text=True, check=True).stdout.split()
    assert not {"mpi4py", "cupy"} & {*said}


def test_a_child_that_dies_by_a_signal_costs_itself_alone():
    crashing = python("import ctypes; print('right', flush=True); ctypes.string_at(16)")  # as a device pointer is read
    assert run_transfer(crashing) == (False, f"{SELF_TRANSFER} ended it by SIGSEGV")


def test_a_child_that_answers_wrongly_is_no_proof():
    assert run_transfer(python("print('wrong')")) == (False, f"{SELF_TRANSFER} came out wrong")


def test_a_child_that_hangs_is_ended():
    right, words = run_transfer(python("import time; print('right', flush=True); time.sleep(60)"), timeout=0.5)
    assert (right, words) == (False, f"{SELF_TRANSFER} did not end in 0.5 s")


@pytest.mark.parametrize("program", ["print('right'); raise SystemExit('no device')", "raise SystemExit('no device')"])
def test_a_child_that_cannot_try_says_why(program):
    right, words = run_transfer(python(program))
    assert not right
    assert words == f"{SELF_TRANSFER} could not be tried: the child ended with exit code 1: no device"


def test_a_gpu_that_admits_one_process_alone_is_told_from_an_mpi_that_does_not_take_its_memory():
    busy = "raise RuntimeError('cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable')"
    right, words = run_transfer(python(busy))
    assert (right, words) == (
        False,
        f"{SELF_TRANSFER} could not be tried: the GPU admits one process alone (its compute mode)",
    )


def test_a_child_that_says_nothing_of_the_transfer_is_no_proof():
    assert not run_transfer(python("print('all is right')\nprint('done')"))[0]


def test_a_program_that_there_is_not_is_no_proof():
    assert run_transfer(("/nowhere/python",)) == (
        False,
        f"{SELF_TRANSFER} could not be tried: No such file or directory",
    )


def test_a_child_whose_transfer_is_right_says_so_and_is_not_told_of_the_launcher():
    told = {**os.environ, "PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "3", "UCX_TLS": "all"}
    program = "import os; print('right' if not {'PMI_RANK', 'OMPI_COMM_WORLD_SIZE', 'SLURM_PROCID'} & {*os.environ}"
    kept = " and os.environ['UCX_TLS'] == 'all' else 'wrong')"
    assert run_transfer(python(program + kept), environment=told) == (
        True,
        f"{SELF_TRANSFER} was right",
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
    assert cuda_support(library) == says


def test_where_the_library_denies_it_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(cuda_aware, "cuda_support", lambda: (False, "it says no"))
    monkeypatch.setattr(cuda_aware, "probe_transfer", pytest.fail)
    found = cuda_aware_verdict(0)
    assert (found.aware, found.words) == (False, "it says no; no transfer was tried")


@pytest.mark.parametrize("says", [True, None])
def test_where_it_does_not_the_transfer_decides(monkeypatch, says):
    monkeypatch.setattr(cuda_aware, "cuda_support", lambda: (says, "so it says"))
    for right in (True, False):
        monkeypatch.setattr(cuda_aware, "probe_transfer", lambda *_, right=right: (right, "tried"))
        found = cuda_aware_verdict(3)
        assert (found.aware, found.assumed) == (right, False)
        assert ("HPCCOLL_CUDA_AWARE=yes is for who knows better" in found.words) == (not right)


@pytest.mark.mpi
def test_the_mpi_that_is_here_is_asked_by_its_path_and_denies_it(mpiexec):
    program = """
from mpi4py import MPI
from hpccoll.transports.mpi.cuda_aware import cuda_aware_verdict
print(cuda_aware_verdict(0).words)
"""
    ran = mpiexec(1, "-c", program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() in {
        f"{query} says no; no transfer was tried" for query in ("MPIX_GPU_query_support", "MPIX_Query_cuda_support")
    }


@pytest.mark.parametrize(
    ("told", "aware_of_it", "words"),
    [
        ("yes", True, "HPCCOLL_CUDA_AWARE=yes: the user says so, nothing was tried"),
        ("no", False, "HPCCOLL_CUDA_AWARE=no: the user says so"),
        ("maybe", False, "HPCCOLL_CUDA_AWARE=maybe: it is yes or no"),
    ],
)
def test_the_word_of_a_user_stands_above_what_the_library_says_and_nothing_is_tried(
    monkeypatch, told, aware_of_it, words
):
    monkeypatch.setenv("HPCCOLL_CUDA_AWARE", told)
    monkeypatch.setattr(cuda_aware, "cuda_support", lambda: (not aware_of_it, "so it says"))
    monkeypatch.setattr(cuda_aware, "probe_transfer", pytest.fail)
    found = cuda_aware_verdict(0)
    assert (found.aware, found.assumed, found.words) == (aware_of_it, True, f"so it says; {words}")


def test_two_are_started_by_what_stands_beside_the_library_or_else_by_the_first_on_path(tmp_path, monkeypatch):
    library = tmp_path / "opt" / "mpi" / "lib" / "libmpi.so.40"
    for place in (tmp_path / "opt" / "mpi" / "bin", tmp_path / "path"):
        place.mkdir(parents=True)
        (place / "mpiexec").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_mpiexec(library) == str(tmp_path / "opt" / "mpi" / "bin" / "mpiexec")
    (tmp_path / "opt" / "mpi" / "bin" / "mpiexec").chmod(0o644)
    assert find_mpiexec(library) == find_mpiexec(None) == str(tmp_path / "path" / "mpiexec")


def test_two_that_are_not_started_together_prove_nothing(tmp_path):
    apart = tmp_path / "mpiexec"  # of another MPI: each is alone
    apart.write_text("#!/bin/sh\necho right\necho right\n")
    apart.chmod(0o755)
    assert run_transfer((str(apart),), what=PAIR_TRANSFER)[0] is None
    assert run_transfer(("/nowhere/mpiexec",), what=PAIR_TRANSFER)[0] is None
    assert run_transfer(python("print('paired'); print('right')"), what=PAIR_TRANSFER) == (
        True,
        f"{PAIR_TRANSFER} was right",
    )


class Slow:
    """A child that has said something when it is first waited for, and ends while it is waited for again."""

    def __init__(self, said):
        self.said, self.waits = said, []

    def communicate(self, timeout):
        self.waits.append(timeout)
        if len(self.waits) == 1:
            raise subprocess.TimeoutExpired("mpiexec", timeout, output=self.said)  # bytes, as Python has it
        return "paired\nright\n", ""


@pytest.mark.parametrize(("said", "waits"), [(b"paired\n", [1, 2]), (b"noise\n", [1]), (None, [1])])
def test_two_that_have_not_started_have_less_time_than_those_that_transfer(said, waits):
    child = Slow(said)
    assert (cuda_aware._communicate(child, (1, 2)) is None) == (said != b"paired\n")
    assert child.waits == waits


def test_what_never_starts_two_is_ended_and_proves_nothing(monkeypatch):
    monkeypatch.setattr(cuda_aware, "START_TIMEOUT_S", 0.2)
    assert run_transfer(python("import time; time.sleep(60)"), what=PAIR_TRANSFER)[0] is None


def test_two_that_met_and_of_which_one_died_are_the_answer():
    died = run_transfer(
        python("import sys; print('paired'); print('n1: it died', file=sys.stderr); sys.exit(9)"), what=PAIR_TRANSFER
    )
    assert died == (False, f"{PAIR_TRANSFER} ended them with exit code 9: n1: it died")


def test_an_mpiexec_tells_of_a_signal_as_a_shell_does():
    dies = "import sys; print('paired'); sys.exit(139)"
    assert run_transfer(python(dies), what=PAIR_TRANSFER) == (False, f"{PAIR_TRANSFER} ended them by SIGSEGV")


def test_one_tries_with_itself_where_two_cannot(monkeypatch):
    answers = {SELF_TRANSFER: (True, f"{SELF_TRANSFER} was right"), PAIR_TRANSFER: (None, "")}
    monkeypatch.setattr(cuda_aware, "run_transfer", lambda _, what=SELF_TRANSFER: answers[what])
    assert probe_transfer((0, 0), "/opt/mpi/bin/mpiexec") == (
        True,
        f"{SELF_TRANSFER} was right (/opt/mpi/bin/mpiexec starts no two)",
    )
    assert probe_transfer((0, 0), None) == (True, f"{SELF_TRANSFER} was right (there is no mpiexec to start two)")
    answers[PAIR_TRANSFER] = (False, f"{PAIR_TRANSFER} came out wrong")
    assert probe_transfer((0, 0), "mpiexec") == (False, f"{PAIR_TRANSFER} came out wrong")


HOST = """
import sys, numpy
from types import SimpleNamespace
numpy.cuda = SimpleNamespace(
    Device=lambda number: SimpleNamespace(use=lambda: None),
    get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
)
sys.modules["cupy"] = numpy  # host memory in place of a GPU's
"""
RANK = """
import sys
from mpi4py import MPI
from hpccoll.host.mpi_library import library_path
from hpccoll.transports.mpi import cuda_aware as aware
sys.executable = {child!r}
found = MPI.COMM_WORLD.gather(aware.probe_transfer((0, 1), aware.find_mpiexec(library_path()) if {pairs} else None))
if found: print(found)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("pairs", [True, False], ids=["two", "one"])
@pytest.mark.parametrize("dies", [False, True], ids=["right", "dies"])
def test_children_of_a_rank_have_an_mpi_of_their_own(mpiexec, tmp_path, pairs, dies):
    (tmp_path / "cupy.py").write_text(f"{HOST}\n{DIES if dies else ''}")
    child = tmp_path / "python"  # the one that tries, but of the host's memory
    child.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    child.chmod(0o755)
    ran = mpiexec(2, "-c", RANK.format(child=str(child), pairs=pairs))
    assert ran.returncode == 0, ran.stderr
    found = ast.literal_eval(ran.stdout.strip())
    what = PAIR_TRANSFER if pairs else SELF_TRANSFER
    assert [right for right, _ in found] == [not dies] * 2
    became = f"{what} ended {'them' if pairs else 'it'} by SIGSEGV" if dies else f"{what} was right"
    assert all(words.startswith(became) for _, words in found), found


DIES = """
import ctypes
numpy.cuda.get_current_stream = lambda: SimpleNamespace(synchronize=lambda: ctypes.string_at(16))
"""
"""A child that dies as one whose MPI reads a device pointer."""
