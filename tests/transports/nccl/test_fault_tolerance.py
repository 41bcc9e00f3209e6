"""Recovery from a stalled rank; stalled_ranks.py has the ranks. MPI is real, NCCL a fake."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "stalled_ranks.py"
pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_a_unique_id_and_communicators_are_cached(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, "unique_ids_are_exchanged")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_failure_of_one_rank_is_raised_on_all_and_cached(mpiexec):
    ran = mpiexec(3, RANKS, "fails")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def stalled(mpiexec):
    """Three ranks of which one stalls, once for each; the launches run concurrently, because they mostly wait."""
    with ThreadPoolExecutor() as pool:
        return [*pool.map(lambda who: mpiexec(3, RANKS, "stalls", str(who)), range(3))]


@pytest.mark.parametrize("who", [0, 1, 2])
def test_ranks_continue_without_a_stalled_rank_which_learns_that_it_is_excluded(stalled, who):
    ran = stalled[who]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    left = " and ".join(str(rank) for rank in range(3) if rank != who).replace(" and ", ", ")
    assert f"rank {who}: ranks {left} continued without rank {who}" in ran.stdout
    assert ran.stdout.count("done") == 3


def test_all_responding_ranks_survive(mpiexec):
    ran = mpiexec(3, RANKS, "nobody_stalls")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_killed_rank_ends_the_job_before_the_timeout(mpiexec):
    ran = mpiexec(3, RANKS, "ends", "1")
    assert ran.returncode != 0  # the launcher names the process that ended, MPICH's not always
    assert "StalledError" not in ran.stderr
    assert "done" not in ran.stdout


@pytest.mark.usefixtures("mpiexec")
def test_wait_ends_on_completion_error_or_timeout():
    from hpccoll.transports.nccl.fault_tolerance import StalledError, wait  # where there is an MPI

    looks = iter([False, False, True])
    wait(lambda: next(looks), lambda: "an error of which nobody asks", 60)
    with pytest.raises(StalledError, match="NCCL reports: NCCL_ERROR_REMOTE_ERROR"):
        wait(lambda: False, lambda: "NCCL reports: NCCL_ERROR_REMOTE_ERROR", 60)
    with pytest.raises(StalledError, match=r"0\.01 s"):
        wait(lambda: False, lambda: None, 0.01)
