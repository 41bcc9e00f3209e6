"""NCCL on a real GPU, which all ranks share: nccl_ranks.py says what is owed. Nothing here is a measurement."""

from pathlib import Path

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.transports.gpu import missing_for_gpu

RANKS, JOB = (Path(__file__).parent / name for name in ("nccl_ranks.py", "job_ranks.py"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.mpi,
    pytest.mark.skipif(missing_for_gpu("nccl") is not None, reason=str(missing_for_gpu("nccl"))),
]

WATCHDOG = 900
"""Seconds: ranks of one GPU that wait for each other's turn can hang (NCCL's NCCL_MULTI_RANK_GPU_ENABLE)."""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_schedules_and_calls_over_nccl_keep_their_contract(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_others_go_on_without_a_rank_that_stalls_in_front_of_a_collective(mpiexec, ranks):
    ran = mpiexec(ranks, RANKS, "drill", timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for rank in range(ranks - 1):
        assert f"rank {rank} went on without rank {ranks - 1}" in ran.stdout


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_a_job_goes_on_without_a_rank_that_stalls(mpiexec, tmp_path, algorithm, graph):
    about = {"transport": "nccl", "device": "cuda", "algorithm": algorithm, "params": {"graph": graph}}
    cases = [raw_examples.case(size, **about) for size in (1024, 1 << 20, 4 << 20)]
    effort = Effort(warmup=2, min_iterations=10, max_iterations=10, timeout=60)
    (tmp_path / "job.json").write_text(raw_examples.job(*cases, ranks=3, effort=effort).to_json())
    requested = ["--device", "cuda", "--job", tmp_path / "job.json", "--out", tmp_path / "F.h5"]
    ran = mpiexec(3, JOB, 1, "run", 17, "50", *requested, timeout=WATCHDOG)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    (whole, one), (fewer, other) = hdf5.read_raw_file(tmp_path / "F.h5").attempts
    assert (whole.ranks, [outcome.status for outcome in one]) == (3, ["ok", "failed"]), ran.stderr
    assert one[1].reason.startswith("rank 1 on ")
    assert (fewer.ranks, [outcome.status for outcome in other]) == (2, ["ok"]), ran.stderr


def test_a_job_goes_on_with_a_rank_that_stalls_for_a_while(mpiexec, tmp_path):
    cases = [raw_examples.case(size, transport="nccl", device="cuda") for size in (1024, 1 << 20, 4 << 20)]
    effort = Effort(warmup=2, min_iterations=10, max_iterations=10, timeout=60)
    (tmp_path / "job.json").write_text(raw_examples.job(*cases, effort=effort).to_json())
    requested = ["--device", "cuda", "--job", tmp_path / "job.json", "--out", tmp_path / "F.h5"]
    ran = mpiexec(2, JOB, 1, "run", 17, "20", *requested, timeout=WATCHDOG)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    ((_, outcomes),) = hdf5.read_raw_file(tmp_path / "F.h5").attempts
    assert [outcome.status for outcome in outcomes] == ["ok", "failed", "ok"], ran.stderr
