"""Schedules, NCCL's own calls and its registered buffers by CuPy's and nccl4py's real bindings, on the test library.

tests/gpu/libnccl/nccl.c says what that proves.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.mpi


def test_schedules_and_calls_over_nccl_keep_their_contract(mpiexec, nccl_library):
    ran = mpiexec(3, TESTS / "gpu" / "nccl_ranks.py", "host", nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "left out" not in ran.stdout


def test_ranks_go_on_without_a_rank_that_stalls_in_front_of_a_collective(mpiexec, nccl_library):
    ran = mpiexec(3, TESTS / "gpu" / "nccl_ranks.py", "drill", "host", nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "rank 2 woke up" in ran.stdout
    for rank in range(2):
        assert f"rank {rank} went on without rank 2" in ran.stdout


def test_what_is_registered_and_created_is_released_in_order_and_errors_reach_all_ranks(
    mpiexec, nccl_library
):
    ran = mpiexec(2, Path(__file__).with_name("nccl4py_ranks.py"), nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
