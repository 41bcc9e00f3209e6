"""The MPI transports under a real MPI; contract.py has the checks."""

import shutil
from pathlib import Path

import pytest
from cpu_kernels import compile_folds

CONTRACT = Path(__file__).parent / "contract.py"
ORDERED = Path(__file__).parent / "ordered_ranks.py"


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_the_mpi_transports_pass_the_contract_checks(mpiexec, ranks):
    ran = mpiexec(ranks, CONTRACT, "compiled", timeout=480)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""


@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 5, 6, 7, 8])
def test_the_mpi_transports_have_the_bits_of_lockstep_on_other_numbers_of_ranks(mpiexec, ranks):
    """Lockstep has the bits of the summation trees: tests/schedule/test_order.py."""
    ran = mpiexec(ranks, CONTRACT, "compiled", timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.parametrize("ranks", range(2, 9))
def test_every_element_has_the_bits_of_its_tree_in_all_floats_and_channels(mpiexec, ranks):
    launched = mpiexec(ranks, ORDERED, timeout=900)
    ran, *different = launched.stdout.splitlines()
    assert launched.returncode == 0, launched.stderr
    assert not different
    assert int(ran) > 400


@pytest.mark.mpi
def test_the_python_executor_passes_the_contract_checks_also_in_memory_as_of_a_gpu(
    mpiexec, require, tmp_path
):
    require(shutil.which("g++"), "there is no g++ to compile the fold kernel with")
    compile_folds(tmp_path)
    ran = mpiexec(3, CONTRACT, "python", tmp_path, timeout=480)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""


@pytest.mark.mpi
def test_a_failed_contract_check_fails_the_program(mpiexec, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(f"""
import sys
sys.argv.append("compiled")
sys.path.append({str(CONTRACT.parent)!r})
import contract_schedules, rank_checks
contract_schedules.run_lockstep = lambda *_: None
rank_checks.run_checks(contract_schedules.COMM, contract_schedules.CHECKS[:1])
""")
    ran = mpiexec(2, broken)
    assert ran.returncode != 0
    assert "every schedule agrees with lockstep bit for bit" in ran.stdout
    assert "not what lockstep has" in ran.stdout
