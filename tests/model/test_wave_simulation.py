"""All ranks at once take what they take event by event: exactly without contention, and about so with it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_examples import ALGORITHMS, cases, places
from simulated_cases import every_step, first_case, simulated, synchronous, uniform_machine

from hpccoll.model.equal_waves import operation_waves
from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.model.simulation import simulate_waves
from hpccoll.model.wave_simulation import State
from hpccoll.schedule import Layout, is_power_of_two

PIECES = (
    MessageCosts(latency_s=3e-6, overhead_s=7e-7, gap_s=2e-7, byte_s=1.1e-9),
    MessageCosts(1000, latency_s=9e-6, overhead_s=1.3e-6, byte_s=1.3e-9),
)
LOGGP = Machine(dict.fromkeys(("node", "rack"), Tier(PIECES)), fold_s={"float32": 4e-10})
SHARED = Machine(
    tiers={
        name: Tier((MessageCosts(latency_s=latency_s, overhead_s=overhead_s, byte_s=byte_s),))
        for name, latency_s, overhead_s, byte_s in (
            ("node", 5e-7, 2e-7, 3e-11), ("rack", 3e-6, 7e-7, 1.1e-10), ("fabric", 6e-6, 7e-7, 1.1e-10)
        )
    },
    fold_s={"float32": 4e-11}, port_byte_s=8e-11, uplink_byte_s=1.6e-10, memory_byte_s=1e-11,
)  # fmt: skip
SEVERAL_AT_ONCE = {
    "all_reduce-star",
    "all_reduce-sharp_emulated",
    "all_reduce-recursive_multiplying",
} | {
    f"{collective}-direct"
    for collective in (
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
        "scatter",
        "all_to_all",
    )
}
"""Algorithms that send several messages in one step, which take turns at the sender."""


def relative_time(case, machine, channels=1, window=1, grains=1):
    """Return the time of all ranks at once over that of events; 1 if both are 0."""
    events, waves = (
        simulated(case, machine, channels, window, grains, each)
        for each in (simulate_events, simulate_waves)
    )
    return waves / events if events else 1 + waves


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - SEVERAL_AT_ONCE))
def test_without_contention_both_are_equal(name):
    """Eager messages from ranks that are a step ahead share their receivers; synchronous ones wait."""
    collective, algorithm = ALGORITHMS[name]
    for p, grains in product((1, 2, 3, 5, 8, 12, 16), (1, 9)):
        for case in (
            each
            for each in cases(collective, algorithm, places(algorithm, p))
            if len(each.slices) == 1
        ):
            assert relative_time(case, synchronous(LOGGP), grains=grains) == pytest.approx(
                1, rel=1e-9
            ), p
            if is_power_of_two(p) and case.call.traffic in (None, "uniform"):
                assert relative_time(case, LOGGP, grains=grains) == pytest.approx(1, rel=1e-9), p


@pytest.mark.parametrize(("workers", "parameters"), [(8, {}), (16, {"radix": 4, "depth": 2})])
@pytest.mark.parametrize("switches", [False, True])
def test_aggregators_take_the_same_whether_they_are_ranks_or_switches(
    workers, parameters, switches
):
    case = first_case(
        "all_reduce", "sharp_emulated", Layout.of(workers, 4, aggregators=8), **parameters
    )
    machine = synchronous(replace(SHARED, switches=switches))
    assert relative_time(case, machine, grains=64) == pytest.approx(1, rel=0.01)


IN_RACKS = Layout(tuple(range(8)), rack=(0,) * 4 + (1,) * 4)
PAIRS_IN_RACKS = Layout(tuple(me // 2 for me in range(16)), rack=(0,) * 8 + (1,) * 8)
CYCLIC = Layout(tuple(me % 4 for me in range(16)), rack=tuple(me % 4 // 2 for me in range(16)))
LAYOUTS = [Layout.of(16, 4), IN_RACKS, PAIRS_IN_RACKS, CYCLIC]
USUAL = "ring", "recursive_doubling", "rabenseifner", "hierarchical"


@pytest.mark.parametrize("algorithm", USUAL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_contention_both_are_equal_within_2_percent_and_with_overheads_alone_exactly(
    algorithm, layout
):
    case = first_case("all_reduce", algorithm, layout)
    for machine, grains in product((SHARED, synchronous(SHARED)), (1, 200)):
        assert relative_time(case, machine, grains=grains) == pytest.approx(1, rel=0.02)
    if layout is LAYOUTS[0]:
        for cpus in (Cpus(2), Cpus(3, of="machine")):
            assert relative_time(case, replace(LOGGP, cpus=cpus)) == pytest.approx(1, rel=1e-9)


def test_a_bucket_is_left_out():
    case, slow = (
        first_case("send_recv", "ping_pong", Layout.of(2, 1)),
        uniform_machine(MessageCosts(), port_byte_s=1.0),
    )
    assert simulated(case, replace(slow, burst_bytes=100), simulation=simulate_waves) == simulated(
        case, slow
    )


@pytest.mark.parametrize(
    ("algorithm", "channels", "window"),
    [("torus", 1, 1), ("double_binary_tree", 8, 2), ("hierarchical", 4, 2)],
)
def test_where_lanes_run_side_by_side_they_are_alike_but_not_equal(algorithm, channels, window):
    """A rank's CPU and ports are given to one wave after another, and not to what comes first."""
    for layout in (Layout.of(4, 1), Layout.of(8, 2), Layout.of(12, 1)):
        case = first_case("all_reduce", algorithm, layout)
        for machine, grains in product((LOGGP, SHARED), (1, 512)):
            assert 0.5 < relative_time(case, machine, channels, window, grains) < 2.5


def test_channels_of_a_symmetric_algorithm_are_exact_without_overheads():
    machine = uniform_machine(MessageCosts(latency_s=3e-6, byte_s=1.1e-9))
    for algorithm, window, grains in product(("ring", "hierarchical"), (1, 2, 4), (1, 512)):
        case = first_case("all_reduce", algorithm, Layout.of(8, 1))
        assert relative_time(case, machine, 4, window, grains) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(
    ("collective", "algorithm"), [("all_reduce", "bidirectional_ring"), ("broadcast", "chain")]
)
def test_waves_that_are_generated_for_several_lanes_are_those_that_are_kept(
    monkeypatch, collective, algorithm
):
    # the steps of a chain are not of all ranks at once
    case = first_case(collective, algorithm, Layout.of(6, 1))
    case = replace(case, slices=every_step(case.slices))
    kept = simulated(case, SHARED, 5, 2, simulation=simulate_waves)
    monkeypatch.setattr("hpccoll.model.traffic.kept_traffic", lambda _: None)
    monkeypatch.setattr("hpccoll.model.equal_waves.KEPT_MESSAGES", 0)
    operation_waves.cache_clear()
    assert simulated(case, SHARED, 5, 2, simulation=simulate_waves) == kept
    operation_waves.cache_clear()


SHIFTED = {
    "ring": {},
    "bidirectional_ring": {},
    "torus": {},
    "double_binary_tree": {},
    "rabenseifner": {},
    "hierarchical": {"outer": "bidirectional_ring"},
}


@given(
    name=st.sampled_from(sorted(SHIFTED)),
    layout=st.sampled_from([*LAYOUTS, Layout.of(12, 1), Layout.of(13, 4)]),
    machine=st.sampled_from(
        [
            uniform_machine(PIECES[0]),
            SHARED,
            synchronous(SHARED),
            replace(SHARED, cpus=Cpus(3, 1e-11)),
        ]
    ),
    channels=st.integers(1, 6),
    window=st.integers(1, 4),
    grains=st.integers(1, 300),
    later_s=st.floats(1e-6, 1.0),
)
def test_an_operation_takes_the_same_whenever_it_begins(
    name, layout, machine, channels, window, grains, later_s
):
    """Messages and lanes that begin together differ by rounding, which grows with the time of day."""
    if name == "hierarchical" and layout.ranks_per_node is None:
        return

    class Later(State):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            self.times += later_s
            for each in self.clocks.values():
                each.pause += later_s
                each.pause_end += later_s

    case, parameters = (
        first_case("all_reduce", name, layout, **SHIFTED[name]),
        (channels, window, grains),
    )
    at_once = simulated(case, machine, *parameters, simulation=simulate_waves)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hpccoll.model.wave_simulation.State", Later)
        later = simulated(case, machine, *parameters, simulation=simulate_waves)
    assert later - later_s == pytest.approx(at_once, rel=1e-9)
