"""Few messages are simulated one by one, many all ranks at once."""

import math
from dataclasses import replace
from itertools import count as count_up

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicted_machines import cluster
from simulated_cases import equal_cut, first_case, uniform_machine

from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.model.simulation import AlgorithmSimulation, simulate, simulate_waves
from hpccoll.schedule import Layout, count

MACHINE = uniform_machine(
    MessageCosts(latency_s=3e-6, overhead_s=7e-7, byte_s=1.1e-9), fold_s={"float32": 1e-9}
)
MESSAGES = 2 * 7 * 8
RING = first_case("all_reduce", "ring", Layout.of(8, 1))


def simulated(case, channels=1, window=1, **others):
    return simulate(case.slices, equal_cut(case, channels), MACHINE, window, **others)


@pytest.fixture
def limits(monkeypatch):
    """Return the function that sets the most messages to simulate by events, in any case and side by side."""

    def limit(few, many):
        monkeypatch.setattr("hpccoll.model.simulation.FEW_MESSAGES", few)
        monkeypatch.setattr("hpccoll.model.simulation.MANY_MESSAGES", many)

    return limit


def test_few_messages_are_events_and_more_where_lanes_run_side_by_side(limits, monkeypatch):
    assert [limits(most, 0) or simulated(RING).exact for most in (MESSAGES - 1, MESSAGES)] == [
        False,
        True,
    ]
    assert not simulated(RING, channels=2).exact, "all lanes count"
    both_ways = first_case("all_reduce", "bidirectional_ring", Layout.of(8, 1))
    for case, channels, window in ((RING, 2, 2), (both_ways, 1, 1)):
        assert [
            limits(0, many) or simulated(case, channels, window).exact
            for many in (2 * MESSAGES - 1, 2 * MESSAGES)
        ] == [False, True]
    # too many to keep, and to count
    monkeypatch.setattr("hpccoll.model.simulation.kept_traffic", lambda _: None)
    assert not simulated(RING).exact


@pytest.mark.parametrize("few", [0, 1_000_000])
def test_both_engines_take_the_window_and_the_type_and_report_progress(limits, few):
    limits(few, few)
    large, done = first_case("all_reduce", "ring", Layout.of(40, 1)), []
    one, exact = simulated(large, progress=done.append)
    assert exact is (few > 0)
    assert done == sorted(done)
    assert len(done) > 1
    assert simulated(large, dtype="float64").seconds < one, (
        "nothing is known of what its folds take"
    )
    narrow, wide = (simulated(large, channels=2, window=window).seconds for window in (1, 2))
    assert wide < narrow


SECONDS, BYTES_S = st.floats(0, 1e-3), st.just(0.0) | st.floats(1e-12, 1e-6)
SEGMENTS = st.builds(
    MessageCosts,
    latency_s=SECONDS,
    overhead_s=SECONDS,
    gap_s=SECONDS,
    byte_s=BYTES_S,
    synchronous=st.booleans(),
)
TIERS = st.tuples(SEGMENTS, SEGMENTS).map(
    lambda both: Tier((both[0], replace(both[1], from_bytes=1000)))
)
CPUS = st.none() | st.builds(Cpus, st.integers(1, 4), BYTES_S, st.sampled_from(["node", "machine"]))
MACHINES = st.builds(
    Machine,
    st.fixed_dictionaries(dict.fromkeys(("node", "rack", "fabric"), TIERS)),
    st.fixed_dictionaries({"float32": BYTES_S}),
    port_byte_s=BYTES_S,
    burst_bytes=st.just(0.0) | st.floats(1, 1e5),
    uplink_byte_s=BYTES_S,
    memory_byte_s=BYTES_S,
    cpus=CPUS,
    unmetered_aggregators=st.booleans(),
    switches=st.booleans(),
)
NODES, RACKS = (0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 0, 1, 1, 1, 1)
CASES = [
    *(
        first_case("all_reduce", name, Layout(NODES, RACKS))
        for name in ("ring", "hierarchical", "double_binary_tree")
    ),
    first_case(
        "all_reduce",
        "sharp_emulated",
        Layout((*NODES, 4, 5), (*RACKS, 0, 2), aggregators=2),
        radix=8,
    ),
    first_case("all_to_all", "direct", Layout(NODES, RACKS)),
]


@pytest.mark.parametrize("simulation", [simulate_events, simulate_waves])
@given(
    machine=MACHINES, case=st.sampled_from(CASES), lanes=st.sampled_from([(1, 1), (2, 1), (3, 2)])
)
def test_nothing_is_faster_than_the_resources_that_its_bytes_pass(simulation, machine, case, lanes):
    channels, window = lanes
    cut = equal_cut(case, channels)
    seconds = simulation(case.slices, cut, machine, window)
    assert math.isfinite(seconds)
    workers = slice(0, case.layout.workers)
    counts, nodes = count(case.slices, cut), np.array(case.layout.node)[workers]
    sent = counts.sent[workers]
    away, inside = sent[:, 2:].sum(axis=1), sent[:, 1]
    slack = 1 - 1e-9
    if not machine.burst_bytes:
        assert seconds >= np.bincount(nodes, away).max() * machine.port_byte_s * slack
    assert seconds >= np.bincount(nodes, inside).max() * machine.memory_byte_s * slack
    folds = counts.reduced[workers].max() * machine.fold_s["float32"]
    assert seconds >= folds * slack


@pytest.mark.parametrize(("second", "reported"), [(0.0, False), (1.0, True)])
def test_progress_is_reported_each_second_even_where_its_share_hardly_grows(
    second, reported, limits, monkeypatch
):
    limits(0, 0)
    monkeypatch.setattr("hpccoll.model.simulation.LEAST_SHARE", 2.0)
    seconds, shares = count_up(), []
    monkeypatch.setattr("hpccoll.model.simulation.monotonic", lambda: next(seconds) * second)
    ring = AlgorithmSimulation(
        cluster(), "all_reduce", "ring", {}, Layout.of(16, 1).with_aggregators, dtype="float32"
    )
    ring.times(1 << 20, shares.append)
    assert bool(shares) == reported
