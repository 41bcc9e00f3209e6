"""tests/benchmarks/accept_gate.py: the order of sweeps, what a killed call leaves, and when the gate is right."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from acceptance_examples import timed

sys.path.append(str(Path(__file__).parent / "benchmarks"))

from accept_gate import HEALTHY, LARGE, REFERENCE, SLOW, Gate, Sweep, measured, sweeps_of

from hpccoll.judge.held import HeldVerdict

ASKED = Namespace(reference=5, healthy=20, slow=10, hosts=4, seed=44)


def test_sweeps_of_the_reference_come_first_and_a_slow_host_follows_from_the_seed():
    sweeps = sweeps_of(ASKED)
    assert [sweep.kind for sweep in sweeps[:5]] == [REFERENCE] * 5
    assert {sweep.kind for sweep in sweeps[5:15]} == {HEALTHY, SLOW}
    hosts = {sweep.host for sweep in sweeps if sweep.kind == SLOW}
    assert hosts <= {1, 2, 3, 4}
    assert len(hosts) > 1
    assert sweeps == sweeps_of(ASKED)


def test_a_sweep_that_failed_or_whose_line_is_cut_is_measured_again(tmp_path):
    whole, failed, cut = sweeps_of(ASKED)[:3]
    lines = [
        json.dumps({**sweep._asdict(), "code": sweep is failed}) for sweep in (whole, failed, cut)
    ]
    (tmp_path / "sweeps.jsonl").write_text("\n".join(lines))
    assert measured(tmp_path, sweeps_of(ASKED)) == [whole]


@pytest.mark.parametrize(
    ("kind", "failing", "right"),
    [
        (HEALTHY, [], True),
        (HEALTHY, [1024], False),
        (SLOW, [], False),
        (SLOW, [LARGE], True),
        (SLOW, [1024], False),
        (SLOW, [8, LARGE], False),
        (SLOW, [1024, 4 * LARGE], True),
    ],
)
def test_a_slow_sweep_must_fail_at_large_sizes_and_not_at_the_smallest_and_any_other_must_pass(
    kind, failing, right
):
    verdicts = {True: HeldVerdict.SLOWER, False: HeldVerdict.AS_EXPECTED}
    rows = [
        timed(1.0, 0.9, 1.1, size, verdicts[size in failing])
        for size in (8, 1024, LARGE, 4 * LARGE)
    ]
    assert Gate(Sweep(kind, 0, 1), rows).is_right is right
