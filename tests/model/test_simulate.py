"""Few messages are simulated one by one, many all ranks at once."""

import pytest
from simulated_cases import equal_cut, first_case, uniform_machine

from hpccoll.model.machine import Segment
from hpccoll.model.simulate import simulate
from hpccoll.schedule import Layout

MACHINE = uniform_machine(Segment(latency_s=3e-6, overhead_s=7e-7, byte_s=1.1e-9), fold_s={"float32": 1e-9})
MESSAGES = 2 * 7 * 8
RING = first_case("all_reduce", "ring", Layout.of(8, 1))


def simulated(case, channels=1, window=1, **others):
    return simulate(case.slices, equal_cut(case, channels), MACHINE, window, **others)


@pytest.mark.parametrize("most", [MESSAGES - 1, MESSAGES])
def test_few_messages_are_events(monkeypatch, most):
    monkeypatch.setattr("hpccoll.model.simulate.FEW_MESSAGES", most)
    exact = most >= MESSAGES
    assert simulated(RING) == (pytest.approx(simulated(RING).seconds), exact)
    assert simulated(RING, channels=2).exact is False, "all lanes count"


@pytest.mark.parametrize(("case", "channels", "window"), [
    (RING, 2, 2), (first_case("all_reduce", "bidirectional_ring", Layout.of(8, 1)), 1, 1),
])  # fmt: skip
def test_more_messages_are_events_where_lanes_run_side_by_side(monkeypatch, case, channels, window):
    monkeypatch.setattr("hpccoll.model.simulate.FEW_MESSAGES", 0)
    assert simulated(case, channels, window).exact
    monkeypatch.setattr("hpccoll.model.simulate.MANY_MESSAGES", 2 * MESSAGES - 1)
    assert not simulated(case, channels, window).exact


def test_messages_that_are_too_many_to_keep_are_not_counted(monkeypatch):
    monkeypatch.setattr("hpccoll.model.simulate.kept_traffic", lambda _: None)
    assert not simulated(RING).exact


@pytest.mark.parametrize("few", [0, 1_000_000])
def test_both_engines_take_the_window_and_the_type_and_report_progress(monkeypatch, few):
    monkeypatch.setattr("hpccoll.model.simulate.FEW_MESSAGES", few)
    monkeypatch.setattr("hpccoll.model.simulate.MANY_MESSAGES", few)
    large, done = first_case("all_reduce", "ring", Layout.of(40, 1)), []
    one, exact = simulated(large, progress=done.append)
    assert exact is (few > 0)
    assert done == sorted(done)
    assert len(done) > 1
    assert simulated(large, dtype="float64").seconds < one, "nothing is known of what its folds take"
    narrow, wide = (simulated(large, channels=2, window=window).seconds for window in (1, 2))
    assert wide < narrow
