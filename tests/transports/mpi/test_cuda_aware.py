"""Detection of CUDA-aware MPI: the report of a library, and children that crash, fail or hang."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpccoll.host.mpi_library import cuda_support, library_path
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.mpi.cuda_aware import (
    PAIR_TRANSFER,
    SELF_TRANSFER,
    cuda_aware_verdict,
    run_transfer,
)


def python(program):
    return sys.executable, "-c", program


def test_a_child_can_select_its_gpu_before_mpi_starts():
    program = "import sys, hpccoll.transports.mpi.cuda_aware; print(*sys.modules)"
    modules = subprocess.run(
        python(program), capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"mpi4py", "cupy"} & {*modules}


@pytest.mark.parametrize(
    ("program", "what", "outcome"),
    [
        (
            "import ctypes; print('correct', flush=True); ctypes.string_at(16)",
            SELF_TRANSFER,
            "killed by SIGSEGV",
        ),
        ("print('wrong')", SELF_TRANSFER, "wrong"),
        (
            "print('correct'); raise SystemExit('no device')",
            SELF_TRANSFER,
            "exit code 1: no device",
        ),
        ("print('all is correct'); print('done')", SELF_TRANSFER, "exit code 0: no error message"),
        (
            "raise RuntimeError('cudaErrorDevicesUnavailable')",
            SELF_TRANSFER,
            "admits only one process",
        ),
        (
            "import sys; print('paired'); print('n1: it died', file=sys.stderr); sys.exit(9)",
            PAIR_TRANSFER,
            "exit code 9: n1: it died",
        ),
    ],
)
def test_a_child_that_does_not_end_with_the_answer_correct_means_not_cuda_aware(
    program, what, outcome
):
    correct, found = run_transfer(python(program), kind=what)
    assert correct is False
    assert found.startswith(what)
    assert found.endswith(outcome)


def test_a_child_that_hangs_is_killed_and_a_missing_program_is_named():
    hanging = run_transfer(
        python("import time; print('correct', flush=True); time.sleep(60)"), timeout=0.5
    )
    assert hanging == (False, f"{SELF_TRANSFER} did not finish in 0.5 s")
    correct, outcome = run_transfer(("/nowhere/python",))
    assert not correct
    assert "No such file or directory" in outcome


def test_a_child_does_not_inherit_the_variables_of_the_launcher():
    environment = {
        **os.environ,
        "PMI_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "4",
        "SLURM_PROCID": "3",
        "UCX_TLS": "all",
    }
    program = "import os; print('correct' if not {'PMI_RANK', 'OMPI_COMM_WORLD_SIZE', 'SLURM_PROCID'} & {*os.environ}"
    kept = " and os.environ['UCX_TLS'] == 'all' else 'wrong')"
    assert run_transfer(python(program + kept), environment=environment) == (
        True,
        f"{SELF_TRANSFER} correct",
    )


@pytest.mark.parametrize("answer", [0, 1])
def test_a_library_is_queried_by_its_own_function(answer):
    mpich = SimpleNamespace(MPIX_GPU_query_support=lambda _kind, flag: flag.__setitem__(0, answer))
    open_mpi = SimpleNamespace(MPIX_Query_cuda_support=lambda: answer)
    reports = "reports yes" if answer else "reports no"
    assert cuda_support(mpich) == (bool(answer), f"MPIX_GPU_query_support {reports}")
    assert cuda_support(open_mpi) == (bool(answer), f"MPIX_Query_cuda_support {reports}")
    assert cuda_support(object()) == (None, "the library has no query for CUDA support")


def test_the_library_of_a_process_is_found_among_its_helpers(tmp_path):
    cray = "/opt/cray/pe/mpich/8.1.30/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12.0.0"
    maps = tmp_path / "maps"
    loaded = "/opt/cray/pe/lib64/libmpi_gtl_cuda.so.0.0.0", cray
    maps.write_text("".join(f"7f00-7f10 r-xp 00000000 08:01 42  {path}\n" for path in loaded))
    assert library_path(maps) == Path(cray)
    maps.write_text("7f00-7f10 r-xp 00000000 08:01 42  /lib/libmpi_gtl_cuda.so.0\n")
    assert library_path(maps) is None


@pytest.mark.parametrize(
    ("supported", "correct"), [(False, None), (True, True), (True, False), (None, True)]
)
def test_the_transfer_decides_unless_the_library_denies_support(monkeypatch, supported, correct):
    monkeypatch.setattr(cuda_aware, "cuda_support", lambda: (supported, "library"))
    monkeypatch.setattr(
        cuda_aware,
        "probe_transfer",
        pytest.fail if correct is None else lambda *_: (correct, "told"),
    )
    verdict = cuda_aware_verdict(3)
    assert (verdict.aware, verdict.library, verdict.assumed) == (bool(correct), "library", False)
    assert ("HPCCOLL_CUDA_AWARE=yes" in verdict.description) == (correct is False)


@pytest.mark.parametrize(("answer", "aware"), [("yes", True), ("no", False), ("maybe", False)])
def test_the_answer_of_the_user_overrides_the_library_and_no_transfer_is_tested(
    monkeypatch, answer, aware
):
    monkeypatch.setenv("HPCCOLL_CUDA_AWARE", answer)
    monkeypatch.setattr(cuda_aware, "cuda_support", lambda: (not aware, "library"))
    monkeypatch.setattr(cuda_aware, "probe_transfer", pytest.fail)
    verdict = cuda_aware_verdict(0)
    assert (verdict.aware, verdict.assumed, verdict.library) == (aware, True, "library")
    assert f"HPCCOLL_CUDA_AWARE={answer}" in verdict.description


def test_the_mpiexec_of_the_librarys_installation_comes_before_path(tmp_path, monkeypatch):
    library = tmp_path / "opt" / "mpi" / "lib" / "libmpi.so.40"
    for directory in (tmp_path / "opt" / "mpi" / "bin", tmp_path / "path"):
        directory.mkdir(parents=True)
        (directory / "mpiexec").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert cuda_aware.find_mpiexec(library) == str(tmp_path / "opt" / "mpi" / "bin" / "mpiexec")
    (tmp_path / "opt" / "mpi" / "bin" / "mpiexec").chmod(0o644)
    assert (
        cuda_aware.find_mpiexec(library)
        == cuda_aware.find_mpiexec(None)
        == str(tmp_path / "path" / "mpiexec")
    )


def test_two_children_that_did_not_start_as_one_job_prove_nothing(tmp_path):
    starter = tmp_path / "mpiexec"  # of another MPI: each child is its own job
    starter.write_text("#!/bin/sh\necho correct\necho correct\n")
    starter.chmod(0o755)
    assert run_transfer((str(starter),), kind=PAIR_TRANSFER)[0] is None
    assert run_transfer(("/nowhere/mpiexec",), kind=PAIR_TRANSFER)[0] is None


@pytest.mark.parametrize(("said", "correct"), [("paired", True), ("noise", None)])
def test_children_have_less_time_to_start_than_to_transfer(monkeypatch, said, correct):
    monkeypatch.setattr(cuda_aware, "START_TIMEOUT_S", 0.5)
    program = f"import time; print('{said}', flush=True); time.sleep(1); print('correct')"
    assert run_transfer(python(program), kind=PAIR_TRANSFER)[0] is correct


def test_one_child_sends_to_itself_if_two_cannot_start(monkeypatch):
    results = {SELF_TRANSFER: (True, "self"), PAIR_TRANSFER: (None, "")}
    monkeypatch.setattr(cuda_aware, "run_transfer", lambda _, kind=SELF_TRANSFER: results[kind])
    for mpiexec in ("/opt/mpi/bin/mpiexec", None):
        correct, outcome = cuda_aware.probe_transfer((0, 0), mpiexec)
        assert correct
        assert outcome.startswith("self (")
        assert mpiexec is None or mpiexec in outcome
    results[PAIR_TRANSFER] = (False, "pair")
    assert cuda_aware.probe_transfer((0, 0), "mpiexec") == (False, "pair")


HOST = """
import numpy
from types import SimpleNamespace

cuda = SimpleNamespace(
    Device=lambda number: SimpleNamespace(use=lambda: None),
    get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
)


class empty:  # an array
    def __init__(self, count, dtype):
        self.host = numpy.empty(count, dtype)
        self.__dlpack__, self.__dlpack_device__ = self.host.__dlpack__, self.host.__dlpack_device__

    def set(self, values):
        self.host[:] = values

    def get(self):
        return self.host.copy()
"""
"""CuPy with host memory in place of a GPU's. It copies, and has no kernels: they would need the headers of CUDA."""
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
@pytest.mark.parametrize("crashes", [False, True], ids=["correct", "crashes"])
def test_children_of_a_rank_run_as_a_separate_mpi_job(mpiexec, tmp_path, pairs, crashes):
    (tmp_path / "cupy.py").write_text(f"{HOST}\n{CRASH if crashes else ''}")
    child = tmp_path / "python"  # runs the child with host memory
    child.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    child.chmod(0o755)
    ran = mpiexec(2, "-c", RANK.format(child=str(child), pairs=pairs))
    assert ran.returncode == 0, ran.stderr
    found = ast.literal_eval(ran.stdout.strip())
    what = PAIR_TRANSFER if pairs else SELF_TRANSFER
    assert [correct for correct, _ in found] == [not crashes] * 2
    expected = f"{what} killed by SIGSEGV" if crashes else f"{what} correct"
    assert all(outcome.startswith(expected) for _, outcome in found), found


CRASH = """
import ctypes
cuda.get_current_stream = lambda: SimpleNamespace(synchronize=lambda: ctypes.string_at(16))
"""
"""Crashes the child as an MPI library that dereferences a device pointer does."""
