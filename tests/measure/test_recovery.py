"""Recovery from a stalled rank; recovering_ranks.py has the ranks. MPI is real, NCCL a fake."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RANKS = Path(__file__).with_name("recovering_ranks.py")
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def stalled(mpiexec):
    """Three ranks of which one stalls; the launches run concurrently, because they mostly wait."""
    with ThreadPoolExecutor() as pool:
        return dict(zip((1, 2), pool.map(lambda who: mpiexec(3, RANKS, "stalls", who), (1, 2)), strict=True))


@pytest.mark.parametrize("who", [1, 2])
def test_ranks_go_on_without_a_stalled_rank_which_learns_that_it_is_excluded_and_ends_with_them(stalled, who):
    ran = stalled[who]
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert f"rank {who} is excluded" in ran.stdout
    assert f"r0 | rank {who} on " in ran.stderr


@pytest.mark.parametrize("failing", [0, 2])
def test_if_all_ranks_answer_they_go_on_and_mpi_ends_as_usual(mpiexec, failing):
    ran = mpiexec(3, RANKS, "all_answer", failing)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("done") == 3


def test_a_killed_rank_ends_the_job_before_the_timeout(mpiexec):
    ran = mpiexec(3, RANKS, "ends", 1)
    assert ran.returncode != 0  # the launcher names the process that ended, MPICH's not always
    assert "StalledError" not in ran.stderr
    assert "done" not in ran.stdout


@pytest.mark.usefixtures("mpiexec")
def test_wait_ends_on_completion_error_or_timeout():
    from hpccoll.measure.recovery import StalledError, poll_until  # where there is an MPI

    looks = iter([False, False, True])
    poll_until(lambda: next(looks), lambda: "an error that comes too late", 60)
    with pytest.raises(StalledError, match="NCCL reports: NCCL_ERROR_REMOTE_ERROR"):
        poll_until(lambda: False, lambda: "NCCL reports: NCCL_ERROR_REMOTE_ERROR", 60)
    with pytest.raises(StalledError, match=r"0\.01 s"):
        poll_until(lambda: False, lambda: None, 0.01)
