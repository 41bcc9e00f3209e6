"""Cases of device cuda on ranks whose GPU is the CPU: everything but CUDA and NCCL itself is real."""

from pathlib import Path

import pytest

RANKS = Path(__file__).parents[1] / "cpu_as_gpu_ranks.py"


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_case_is_right_over_every_transport_and_its_faults_are_seen(
    mpiexec, nccl_library, ranks
):
    ran = mpiexec(ranks, RANKS, nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    number, *over = ran.stdout.split()
    assert int(number) > 40
    assert over == ["mpi", "nccl", "staged"]
