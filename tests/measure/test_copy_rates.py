"""The rate of copies, measured by real ranks under a real mpiexec before the first case."""

import json

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.measure.run.copy_rates import SIZES
from hpccoll.store import hdf5
from hpccoll.store.schema import COPY_RATES as KEY

pytestmark = pytest.mark.mpi


@pytest.fixture
def recorded(mpiexec, tmp_path):
    """Run a job, and return what the provenance of its attempt has of the rate of copies."""

    def recorded(ranks, *cases, executor=None, program=("-m", "hpccoll")):
        effort = Effort(warmup=0, min_iterations=1, max_iterations=1)
        job = raw_examples.job(*cases, ranks=ranks, effort=effort, executor=executor)
        (tmp_path / "job.json").write_text(job.to_json())
        out = tmp_path / "F.h5"
        ended = mpiexec(ranks, *program, "run", "--job", tmp_path / "job.json", "--out", out)
        assert ended.returncode == 0, ended.stderr
        ((attempt, outcomes),) = hdf5.read_raw_file(out).attempts
        assert [outcome.status for outcome in outcomes] == ["ok"] * len(cases)
        return attempt.provenance.get(KEY)

    return recorded


@pytest.mark.parametrize("executor", ["compiled", "python"])
def test_two_ranks_copy_at_once_with_buffers_up_to_those_of_the_largest_case(recorded, executor):
    found = recorded(2, raw_examples.case(4096), raw_examples.case(1 << 20), executor=executor)
    assert found["ranks"] == 2
    assert [each["bytes"] for each in found["sizes"]] == [size for size in SIZES if size <= 4 << 20]
    assert all(1e7 < each["Bps"] < 1e13 for each in found["sizes"])
    json.dumps(found)  # it is stored as JSON


@pytest.mark.parametrize(("ranks", "size"), [(2, 4096), (1, 1 << 20)])
def test_small_cases_and_a_rank_alone_need_no_rate(recorded, ranks, size):
    assert recorded(ranks, raw_examples.case(size)) is None


WITH_64_MIB = """
import os, runpy
from types import SimpleNamespace
pages = (64 << 20) // 4096
os.statvfs = lambda _: SimpleNamespace(f_frsize=4096, f_blocks=pages, f_bavail=pages)
runpy.run_module("hpccoll", run_name="__main__")
"""
"""The program on a host whose shared memory has 64 MiB, as in a container."""


def test_little_shared_memory_leaves_out_the_large_sizes_only(recorded):
    found = recorded(
        2, raw_examples.case(32 << 20), executor="compiled", program=("-c", WITH_64_MIB)
    )
    assert [each["bytes"] for each in found["sizes"]] == [64 << 10, 256 << 10, 1 << 20, 4 << 20]
