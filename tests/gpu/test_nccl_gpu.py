"""NCCL on a real GPU, which all ranks share: nccl_ranks.py says what is owed. Nothing here is a measurement."""

from pathlib import Path

import pytest

from hpccoll.transports.gpu import lack

RANKS = Path(__file__).parent / "nccl_ranks.py"
pytestmark = [pytest.mark.gpu, pytest.mark.mpi, pytest.mark.skipif(lack("nccl") is not None, reason=str(lack("nccl")))]

WATCHDOG = 900
"""Seconds: ranks of one GPU that wait for each other's turn can hang (NCCL's NCCL_MULTI_RANK_GPU_ENABLE)."""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_schedules_and_calls_over_nccl_keep_their_contract(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_others_go_on_without_a_rank_that_stalls_in_front_of_a_collective(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, "drill", timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for rank in range(ranks - 1):
        assert f"rank {rank} went on without rank {ranks - 1}" in ran.stdout
