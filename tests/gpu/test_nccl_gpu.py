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


def attempts_with_a_stall(mpiexec, place, ranks, pause_s, **about):
    """Return how each attempt of a job of three cases went, of which rank 1 stalls in the second one."""
    cases = [raw_examples.case(size, transport="nccl", device="cuda", **about) for size in (1024, 1 << 20, 4 << 20)]
    effort = Effort(warmup=2, min_iterations=10, max_iterations=10, timeout=60)
    (place / "job.json").write_text(raw_examples.job(*cases, ranks=ranks, effort=effort).to_json())
    requested = ["--device", "cuda", "--job", place / "job.json", "--out", place / "F.h5"]
    ran = mpiexec(ranks, JOB, 1, "run", 17, pause_s, *requested, timeout=WATCHDOG)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    attempts = hdf5.read_raw_file(place / "F.h5").attempts
    return [(attempt.ranks, [outcome.status for outcome in outcomes]) for attempt, outcomes in attempts]


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_a_job_goes_on_without_a_rank_that_stalls(mpiexec, tmp_path, algorithm, graph):
    attempts = attempts_with_a_stall(mpiexec, tmp_path, 3, 50, algorithm=algorithm, params={"graph": graph})
    assert attempts == [(3, ["ok", "failed"]), (2, ["ok"])]


def test_a_job_goes_on_with_a_rank_that_stalls_for_a_while(mpiexec, tmp_path):
    assert attempts_with_a_stall(mpiexec, tmp_path, 2, 20) == [(2, ["ok", "failed", "ok"])]
