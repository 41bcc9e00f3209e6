"""All ranks at once take what they take event by event: exactly without contention, and about so with it."""

from dataclasses import replace
from itertools import product

import pytest
from schedule_examples import ALGORITHMS, cases, places
from simulated_cases import first_case, simulated, synchronous, uniform_machine

from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.model.wave_simulation import simulate_waves
from hpccoll.schedule import Layout, is_power_of_two

PIECES = (
    MessageCosts(latency_s=3e-6, overhead_s=7e-7, gap_s=2e-7, byte_s=1.1e-9),
    MessageCosts(1000, latency_s=9e-6, overhead_s=1.3e-6, byte_s=1.3e-9),
)
FOLDS = {"float32": 4e-10}
LOGGP = Machine(dict.fromkeys(("node", "rack", "fabric"), Tier(PIECES)), FOLDS)
SHARED = Machine(
    tiers={
        "node": Tier((MessageCosts(latency_s=5e-7, overhead_s=2e-7, byte_s=3e-11),)),
        "rack": Tier((MessageCosts(latency_s=3e-6, overhead_s=7e-7, byte_s=1.1e-10),)),
        "fabric": Tier((MessageCosts(latency_s=6e-6, overhead_s=7e-7, byte_s=1.1e-10),)),
    },
    fold_s={"float32": 4e-11},
    port_byte_s=8e-11,
    uplink_byte_s=1.6e-10,
    memory_byte_s=1e-11,
)
SEVERAL_AT_ONCE = {
    f"{collective}-{name}"
    for name, collectives in {
        "direct": ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "scatter", "all_to_all"),
        "star": ("all_reduce",),
        "sharp_emulated": ("all_reduce",),
    }.items()
    for collective in collectives
}
"""Algorithms that send several messages in one step, which take turns at the sender."""


def relative_time(case, machine, channels=1, window=1, grains=1):
    """Return the time of all ranks at once over that of events; 1 if both are 0."""
    events, steps = (
        simulated(case, machine, channels, window, grains, each) for each in (simulate_events, simulate_waves)
    )
    return steps / events if events else 1 + steps


def of_one_lane(name, p):
    collective, algorithm = ALGORITHMS[name]
    return [case for case in cases(collective, algorithm, places(algorithm, p)) if len(case.slices) == 1]


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - SEVERAL_AT_ONCE))
@pytest.mark.parametrize("grains", [1, 9])
def test_without_contention_both_are_equal(name, grains):
    """Eager messages from ranks that are a step ahead share their receivers; synchronous ones wait."""
    for p in (1, 2, 3, 4, 5, 7, 8, 12, 16):
        for case in of_one_lane(name, p):
            assert relative_time(case, synchronous(LOGGP), grains=grains) == pytest.approx(1, rel=1e-9), p
            if is_power_of_two(p) and case.call.traffic in (None, "uniform"):
                assert relative_time(case, LOGGP, grains=grains) == pytest.approx(1, rel=1e-9), p


@pytest.mark.parametrize(("workers", "parameters"), [(8, {}), (16, {"radix": 4, "depth": 2}), (32, {"radix": 8})])
@pytest.mark.parametrize("switches", [False, True])
def test_aggregators_take_the_same_whether_they_are_ranks_or_switches(workers, parameters, switches):
    case = first_case("all_reduce", "sharp_emulated", Layout.of(workers, 4, aggregators=8), **parameters)
    machine = synchronous(replace(SHARED, switches=switches))
    assert relative_time(case, machine, grains=64) == pytest.approx(1, rel=0.01)


IN_RACKS = Layout(tuple(range(8)), rack=(0,) * 4 + (1,) * 4)
PAIRS_IN_RACKS = Layout(tuple(me // 2 for me in range(16)), rack=(0,) * 8 + (1,) * 8)
CYCLIC = Layout(tuple(me % 4 for me in range(16)), rack=tuple(me % 4 // 2 for me in range(16)))
LAYOUTS = [Layout.of(16, 2), Layout.of(16, 4), IN_RACKS, PAIRS_IN_RACKS, CYCLIC]


@pytest.mark.parametrize("cpus", [Cpus(2), Cpus(3, of="machine")])
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner", "hierarchical"])
def test_overheads_on_shared_cpus_are_equal(algorithm, cpus):
    case = first_case("all_reduce", algorithm, Layout.of(16, 4))
    assert relative_time(case, replace(LOGGP, cpus=cpus)) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner", "hierarchical", "binomial_tree"])
@pytest.mark.parametrize("grains", [1, 200])
def test_with_contention_both_are_equal_within_2_percent(algorithm, layout, grains):
    case = first_case("all_reduce", algorithm, layout)
    for machine in (SHARED, synchronous(SHARED)):
        if (algorithm, layout) != ("binomial_tree", CYCLIC):  # whose ranks share ports with others at other times
            assert relative_time(case, machine, grains=grains) == pytest.approx(1, rel=0.02)


def test_a_bucket_is_left_out():
    case = first_case("send_recv", "ping_pong", Layout.of(2, 1))
    slow = uniform_machine(MessageCosts(), port_byte_s=1.0)
    with_bucket = uniform_machine(MessageCosts(), port_byte_s=1.0, burst_bytes=100)
    assert simulated(case, with_bucket, simulation=simulate_waves) == simulated(case, slow)


@pytest.mark.parametrize(
    ("algorithm", "channels", "window"),
    [("bidirectional_ring", 1, 1), ("torus", 1, 1), ("double_binary_tree", 1, 1), ("double_binary_tree", 8, 2),
     ("double_binary_tree", 8, 4), ("ring", 4, 2), ("ring", 4, 4), ("hierarchical", 4, 2)],
)  # fmt: skip
def test_where_lanes_run_side_by_side_they_are_alike_but_not_equal(algorithm, channels, window):
    """A rank's CPU and ports are given to one wave after another, and not to what comes first."""
    for layout in (Layout.of(4, 1), Layout.of(8, 2), Layout.of(12, 1)):
        case = first_case("all_reduce", algorithm, layout)
        for machine, grains in product((LOGGP, SHARED), (1, 16, 512)):
            assert 0.5 < relative_time(case, machine, channels, window, grains) < 2.5


def test_channels_of_a_symmetric_algorithm_are_exact_without_overheads():
    machine = uniform_machine(MessageCosts(latency_s=3e-6, byte_s=1.1e-9))
    for algorithm, window, grains in product(("ring", "hierarchical"), (1, 2, 4), (1, 16, 512)):
        case = first_case("all_reduce", algorithm, Layout.of(8, 1))
        assert relative_time(case, machine, 4, window, grains) == pytest.approx(1, rel=1e-9)
