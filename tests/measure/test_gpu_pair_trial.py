"""Two ranks that exchange GPU memory, in host memory, and may die of it: what is left in the file."""

import pytest

from hpccoll.evidence.gpu_pair import CORRECT, STARTED, WRONG, GpuPair
from hpccoll.host.place_facts import node_name

CUPY = """
import ctypes, numpy
from types import SimpleNamespace

cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(synchronize=lambda: {does}))


class empty:
    def __init__(self, count, dtype):
        self.host = numpy.empty(count, dtype)
        self.__dlpack__, self.__dlpack_device__ = self.host.__dlpack__, self.host.__dlpack_device__

    def set(self, values):
        self.host[:] = values

    def get(self):
        return self.host.copy() {changed}
"""
"""CuPy with host memory in place of a GPU's."""

RANK = """
import sys
sys.path.insert(0, {directory!r})
from pathlib import Path
from mpi4py import MPI
from hpccoll.measure.run import gpu_pair_trial
from hpccoll.measure.ranks import Ranks
gpu_pair_trial.gpu.missing_for_gpu = lambda _: {missing!r}
gpu_pair_trial.cuda_support = lambda: ({supported}, "the library says so")
sys.exit(gpu_pair_trial.try_gpu_pair(Ranks(MPI.COMM_WORLD), Path({file!r})))
"""


@pytest.fixture
def tried(mpiexec, tmp_path):
    """Return the exit code of two ranks that try, and the file if they left one."""

    def run(does="None", changed="", missing=None, supported=None, **variables):
        (tmp_path / "cupy.py").write_text(CUPY.format(does=does, changed=changed))
        file = tmp_path / "pair.json"
        about = {
            "directory": str(tmp_path),
            "file": str(file),
            "missing": missing,
            "supported": supported,
        }
        ended = mpiexec(2, "-c", RANK.format(**about), **variables)
        return ended.returncode, GpuPair.load(file) if file.exists() else None

    return run


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "code", "state"),
    [
        ({}, 0, CORRECT),
        ({"changed": "* 2"}, 3, WRONG),
        ({"does": "ctypes.string_at(16)"}, None, STARTED),
    ],
    ids=["correct", "wrong", "killed by signal 11"],
)
def test_the_outcome_of_a_pair_is_left_also_by_ranks_that_die_of_it(tried, how, code, state):
    ended, pair = tried(**how)
    assert pair == GpuPair(state=state, hosts=(node_name(),))
    assert ended == code if code is not None else ended != 0


@pytest.mark.mpi
@pytest.mark.parametrize(
    "how",
    [{"missing": "no CUDA device"}, {"supported": False}, {"HPCCOLL_CUDA_AWARE": "yes"}],
    ids=["no GPU", "the library denies it", "the user answers"],
)
def test_nothing_is_tried_where_the_answer_is_known(tried, how):
    assert tried(**how) == (0, None)
