"""The MPI transports under a real MPI; contract.py has the checks."""

from pathlib import Path

import pytest

CONTRACT = Path(__file__).parent / "contract.py"


@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "executor"), [(1, "compiled"), (3, "compiled"), (4, "compiled"), (3, "python")])
def test_the_mpi_transports_pass_the_contract_checks(mpiexec, ranks, executor):
    ran = mpiexec(ranks, CONTRACT, executor, timeout=480)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""


@pytest.mark.mpi
def test_a_failed_contract_check_fails_the_program(mpiexec, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(f"""
import sys
sys.path.append({str(CONTRACT.parent)!r})
import contract_schedules, rank_checks
contract_schedules.run_lockstep = lambda *_: None
rank_checks.run_checks(contract_schedules.COMM, contract_schedules.CHECKS[:1])
""")
    ran = mpiexec(2, broken)
    assert ran.returncode != 0
    assert "every schedule agrees with lockstep bit for bit" in ran.stdout
    assert "not what lockstep has" in ran.stdout
