"""NCCL's communicators on real MPI ranks; communicator_ranks.py has the ranks, and NCCL is a fake."""

from pathlib import Path

import pytest

RANKS = Path(__file__).with_name("communicator_ranks.py")
pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_a_unique_id_and_communicators_are_cached(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, "unique_ids_are_exchanged")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_failure_of_one_rank_is_raised_on_all_and_cached(mpiexec):
    ran = mpiexec(3, RANKS, "fails")
    assert ran.returncode == 0, ran.stdout + ran.stderr
