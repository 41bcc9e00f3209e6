"""Faults in the data of running operations: the check sees each that changes a buffer, and nothing else."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

INJECTED = Path(__file__).with_name("injected_ranks.py")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_fault_in_an_operation_is_seen_or_leaves_a_right_result_for_a_published_reason(
    mpiexec, ranks
):
    ended = mpiexec(ranks, INJECTED, "--seed", 20261125 + ranks, "--faults", 16)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = json.loads(ended.stdout.splitlines()[-1])
    assert (counts["faults"], counts["false alarms"], counts["wrong verdicts"]) == (16, 0, 0)
    assert counts["seen"] >= 8
    assert counts["without a fault"] >= 16
