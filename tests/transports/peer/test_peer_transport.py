"""Operations over the memory of peers between processes: a file of the host is a GPU's memory, a thread a block."""

from pathlib import Path

import pytest
from cpu_kernels import peer_launcher
from peer_cases import DTYPES_AND_OPS

HERE = Path(__file__).parent
pytestmark = pytest.mark.mpi


def test_ranks_of_a_node_have_the_bits_of_lockstep_and_name_a_peer_that_does_not_come(
    mpiexec, nccl_library
):
    for dtype, op in DTYPES_AND_OPS:
        peer_launcher(nccl_library, dtype, op)  # all ranks find it compiled
    ran = mpiexec(3, HERE / "peer_ranks.py", "host", nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
