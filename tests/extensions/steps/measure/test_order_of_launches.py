"""Steps of several communicators on a GPU that has room for one kernel of NCCL at a time."""

import json
from itertools import product
from pathlib import Path

import pytest

RANKS = Path(__file__).with_name("launch_order_ranks.py")
MESHES = "tp=2,pp=2", "dp=2,pp=2", "pp=4"
STEPS = [" ".join(each) for each in product(MESHES, ("native", "ring"), "01")]

pytestmark = pytest.mark.mpi


@pytest.fixture
def outcomes(mpiexec, nccl_library):
    def outcomes(order, *steps, **variables):
        ended = mpiexec(4, RANKS, nccl_library, order, *steps, **variables)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return outcomes


def test_ranks_that_launch_in_one_order_need_room_for_one_kernel_only(outcomes):
    assert [wrong for wrong, _ in outcomes("global", *STEPS)] == [0] * len(STEPS)


def test_with_an_nccl_that_keeps_no_order_each_operation_waits_for_the_end_of_the_one_before_it(
    outcomes,
):
    assert outcomes("global", *STEPS[:4], NCCL_TEST_VERSION="22500") == [[0, 0]] * 4


@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_that_launch_in_the_order_of_their_programs_deadlock(outcomes, mesh):
    assert outcomes("program", f"{mesh} native 0") == ["deadlock"]
