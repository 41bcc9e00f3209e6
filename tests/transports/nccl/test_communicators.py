"""NCCL's communicators on real MPI ranks; communicator_ranks.py has the ranks, and NCCL is a fake."""

from pathlib import Path

import pytest

from hpccoll.transports.nccl.nccl_errors import nccl_error_text

RANKS = Path(__file__).with_name("communicator_ranks.py")


@pytest.mark.mpi
def test_a_failure_of_one_rank_is_raised_on_all_and_cached(mpiexec):
    ran = mpiexec(3, RANKS)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("error", [KeyError(3), KeyError("x"), KeyError()])
def test_another_missing_key_is_no_status_of_nccl(error):
    with pytest.raises(KeyError) as raised:
        nccl_error_text(error)
    assert raised.value is error
