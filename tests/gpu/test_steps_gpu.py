"""Training steps on a real GPU, which two ranks share: right results, and overlap in the times of events."""

import json
from pathlib import Path

import pytest
from step_times import are_in_order

from hpccoll.measure.step_computations import END
from hpccoll.transports.gpu import missing_for_gpu

RANKS = Path(__file__).parents[1] / "measure" / "gpu_step_ranks.py"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.mpi,
    pytest.mark.skipif(missing_for_gpu("nccl") is not None, reason=str(missing_for_gpu("nccl"))),
]


def test_buckets_over_nccl_are_right_and_overlap_with_computations(mpiexec):
    ran = mpiexec(2, RANKS, timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    steps = json.loads(ran.stdout.splitlines()[-1])
    assert steps.pop("left out") > 0
    assert steps.pop("refused") == ["refused", "refused"]
    order = steps.pop("order")
    assert order["readings"] == ["clock", "clock", *["event"] * (order["events"] + 1)] * 3
    for name, step in steps.items():
        assert step["wrong"] == 0, name
        assert all(map(are_in_order, step["of_ranks"])), name
    for name in ("ring", "native"):
        events, count = steps[name]["events"], len(steps[name]["streams"])
        assert events[END] < events[-1], name  # the first bucket ends before the last computation
        assert events[3 * (count - 1) + END] > events[-1], name
