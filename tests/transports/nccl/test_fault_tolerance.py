"""A rank that stalls is noticed and left behind; stalled_ranks.py has the ranks. MPI is real, NCCL a fake."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "stalled_ranks.py"
pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_unique_id_goes_from_rank_0_to_all_and_a_communicator_is_made_once_and_destroyed(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, "unique_ids_are_exchanged")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_where_nccl_fails_at_one_rank_all_hear_of_it_and_do_not_try_again(mpiexec):
    ran = mpiexec(3, RANKS, "fails")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def stalled(mpiexec):
    """Three ranks of which one stalls, for each of them, at the same time: they wait for the most part."""
    with ThreadPoolExecutor() as pool:
        return [*pool.map(lambda who: mpiexec(3, RANKS, "stalls", str(who)), range(3))]


@pytest.mark.parametrize("who", [0, 1, 2])
def test_the_others_go_on_without_a_rank_that_stalls_and_it_is_told_when_it_comes(stalled, who):
    ran = stalled[who]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    left = " and ".join(str(rank) for rank in range(3) if rank != who).replace(" and ", ", ")
    assert f"rank {who}: ranks {left} continued without rank {who}" in ran.stdout
    assert ran.stdout.count("done") == 3


def test_ranks_that_are_all_there_go_on_together(mpiexec):
    ran = mpiexec(3, RANKS, "nobody_stalls")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_rank_that_ends_ends_the_job_before_the_others_lose_their_patience(mpiexec):
    ran = mpiexec(3, RANKS, "ends", "1")
    assert ran.returncode != 0  # the launcher names the process that ended, MPICH's not always
    assert "StalledError" not in ran.stderr
    assert "done" not in ran.stdout


@pytest.mark.usefixtures("mpiexec")
def test_a_wait_ends_with_the_stream_with_an_error_of_nccl_or_with_time():
    from hpccoll.transports.nccl.fault_tolerance import StalledError, wait  # where there is an MPI

    looks = iter([False, False, True])
    wait(lambda: next(looks), lambda: "an error of which nobody asks", 60)
    with pytest.raises(StalledError, match="NCCL reports: NCCL_ERROR_REMOTE_ERROR"):
        wait(lambda: False, lambda: "NCCL reports: NCCL_ERROR_REMOTE_ERROR", 60)
    with pytest.raises(StalledError, match=r"0\.01 s"):
        wait(lambda: False, lambda: None, 0.01)
