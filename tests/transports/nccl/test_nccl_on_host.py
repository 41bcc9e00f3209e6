"""The NCCL transport among ranks of a real MPI, on host memory (hosted_ranks.py); and NCCL itself, where it is."""

from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "hosted_ranks.py"


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_plans_of_real_ranks_equal_lockstep(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def nccl():
    """CuPy's binding; without a library of NCCL it is an empty one."""
    found = pytest.importorskip("cupy.cuda.nccl", reason="CuPy is not installed")
    if not found.available:
        pytest.skip("NCCL not found")
    return found


def test_nccl_gives_unique_ids_without_a_gpu(nccl):
    one, other = nccl.get_unique_id(), nccl.get_unique_id()
    assert len(one) == len(other) == 128
    assert one != other


def test_types_and_ops_equal_cupys_constants(nccl):
    from hpccoll.transports.nccl.vendor import NCCL_OPS, NCCL_TYPES

    assert {name: getattr(nccl, f"NCCL_{name.upper()}") for name in NCCL_TYPES} == NCCL_TYPES
    assert {op: getattr(nccl, f"NCCL_{op.upper()}") for op in NCCL_OPS if op != "avg"} == {
        op: number for op, number in NCCL_OPS.items() if op != "avg"
    }
