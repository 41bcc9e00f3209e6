"""A block of ranks stands for all, and runs for their steps: both take what every step of every rank takes."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schedule_examples import ALGORITHMS, cases
from simulated_cases import MACHINES_THAT_SHARE, every_step, first_case, in_racks

from hpccoll.model import equal_waves
from hpccoll.model.equal_waves import OperationWaves
from hpccoll.model.simulation import simulate_waves
from hpccoll.model.wave_simulation import CompiledWave
from hpccoll.schedule import Cut, Layout

SLOW = {"all_reduce-sharp_emulated", "all_to_all_v-pairwise"}
NAMES = sorted(
    name for name, (_, algorithm) in ALGORITHMS.items() if not algorithm.floor and name not in SLOW
)
COMPONENTS = st.fixed_dictionaries(
    {
        "outer": st.sampled_from(
            ["ring", "rabenseifner", "recursive_doubling", "bidirectional_ring", "swing", "torus"]
        ),
        "inner": st.sampled_from(["ring", "recursive_halving"]),
        "levels": st.integers(1, 3),
    }
)
SIZES = st.sampled_from([1 << 10, 3 << 15, 1 << 20, 12_345_678, 1 << 30])


LANES = st.sampled_from([(1, 1), (1, 1), (4, 1), (3, 2), (4, 4)])
CASES = {
    "name": st.sampled_from(NAMES),
    "ranks_per_node": st.sampled_from([1, 2, 8]),
    "rails": st.booleans(),
    "nodes_per_rack": st.sampled_from([2, 4, 24]),
    "components": COMPONENTS,
    "nbytes": SIZES,
    "lanes": LANES,
    "machine": st.sampled_from(sorted(MACHINES_THAT_SHARE)),
}


def assert_equal(
    name, nodes, ranks_per_node, rails, nodes_per_rack, components, nbytes, lanes, machine
):
    """Assert that an algorithm takes what every step of every rank takes."""
    collective, algorithm = ALGORITHMS[name]
    layout = in_racks(nodes, ranks_per_node, nodes_per_rack, ranks_per_node if rails else 1)
    parameters = components if algorithm.name == "hierarchical" else {}
    case = next(cases(collective, algorithm, layout, **parameters), None)
    elements = collective.elements(nbytes, 4, layout.workers)
    assume(case is not None and elements > 0)
    channels, window = (1, 1) if collective.uncut or collective.token else lanes
    cut = Cut(case.call, elements, case.slices[0].units, len(case.slices) * channels, 4)
    found, expected = (
        simulate_waves(slices, cut, MACHINES_THAT_SHARE[machine], window)
        for slices in (case.slices, every_step(case.slices))
    )
    assert found == pytest.approx(expected, rel=1e-9)


@given(nodes=st.integers(2, 24), **CASES)
def test_every_algorithm_takes_what_every_step_of_every_rank_takes(nodes, **case):
    assert_equal(nodes=nodes, **case)


@pytest.mark.long
@settings(max_examples=1000)
@given(nodes=st.sampled_from([32, 48, 64, 72, 96, 100, 128]), **CASES)
def test_so_does_every_algorithm_on_many_nodes(nodes, **case):
    # as many messages in a step as there are ranks
    several = "direct" in case["name"] or "star" in case["name"]
    assert_equal(nodes=nodes // 8 if several else nodes, **case)


@pytest.mark.parametrize("nbytes", [128 * 128, 128 * 128 * 81, 96 * 128 * 129, 128 * 128 * 20_001])
@pytest.mark.parametrize("machine", sorted(MACHINES_THAT_SHARE))
@pytest.mark.parametrize(("collective", "nodes_per_rack"), [("all_reduce", 4), ("all_gather", 8)])
def test_rings_that_leap_take_what_every_step_of_every_rank_takes(
    collective, nodes_per_rack, machine, nbytes, monkeypatch
):
    advanced, advance = [], CompiledWave.advance
    monkeypatch.setattr(
        CompiledWave, "advance", lambda self: (advanced.append(self), advance(self))
    )
    ring = first_case(collective, "ring", in_racks(128, 1, nodes_per_rack))
    cut = Cut(ring.call, nbytes // 4, ring.slices[0].units, 1, 4)
    found = simulate_waves(ring.slices, cut, MACHINES_THAT_SHARE[machine])
    leapt = len(advanced)
    assert found == pytest.approx(
        simulate_waves(every_step(ring.slices), cut, MACHINES_THAT_SHARE[machine]), rel=1e-9
    )
    assert leapt < (len(advanced) - leapt) * 0.8


def block(case, nbytes=1 << 20, channels=1):
    return OperationWaves(
        case.slices, Cut(case.call, nbytes // 4, case.slices[0].units, channels, 4)
    ).block


def test_a_rack_stands_for_all_and_more_of_it_where_units_differ_in_size():
    ring = first_case("all_reduce", "ring", in_racks(48, 2, 8))
    assert block(ring, 96 * 128 * 5) == 16
    assert block(ring, 32 * 128 * 5) == 48, "of three units that follow one another, one is larger"
    assert block(ring, 96 * 128 * 5 + 4) == 96, "the last unit alone is larger"
    assert block(first_case("all_reduce", "ring", in_racks(44, 2, 8))) == 88, (
        "the last rack has fewer nodes"
    )
    assert block(first_case("reduce_scatter", "swing", in_racks(32, 1, 4)), 32 * 128) == 4
    assert block(first_case("reduce_scatter", "swing", in_racks(32, 1, 32)), 32 * 128) == 1
    with_rails = first_case("all_reduce", "hierarchical", in_racks(64, 8, 4, rails=8))
    assert block(with_rails, 512 * 128 * 5) == 32, "ranks of different rails do alike"


@pytest.mark.parametrize(
    ("collective", "algorithm", "layout"),
    [
        ("all_reduce", "double_binary_tree", Layout.of(64, 4)),
        ("all_reduce", "rabenseifner", Layout.of(48, 4)),
        ("all_to_all", "pairwise", Layout.of(48, 4)),
        ("broadcast", "binomial", Layout.of(64, 4)),
    ],
)
def test_all_ranks_are_simulated_where_they_differ(collective, algorithm, layout):
    assert block(first_case(collective, algorithm, layout), 1 << 24) == layout.ranks


def runs_of(case, nbytes):
    operation = OperationWaves(case.slices, Cut(case.call, nbytes // 4, case.slices[0].units, 1, 4))
    return [*operation.of(0)]


def test_equal_steps_are_one_run_and_steps_that_repeat_are_a_cycle():
    ring = first_case("all_reduce", "ring", Layout.of(12, 1))
    assert [(len(run.waves), run.repeats) for run in runs_of(ring, 12 * 128)] == [(1, 11), (1, 11)]
    uneven = runs_of(ring, 8 * 128 * 5)  # 40 pieces of 128 bytes for 12 units: 3, 3 and 4
    assert [(len(run.waves), run.repeats) for run in uneven] == [(3, 3), (3, 1), (3, 3), (1, 1)]
    assert [wave.nbytes[0] // 128 for wave in uneven[0].waves] == [4, 3, 3], (
        "the last unit leaves rank 0 first"
    )


def test_runs_are_read_once_for_all_bounds_unless_they_have_too_many_messages(monkeypatch):
    read, both_ways = [], first_case("all_reduce", "bidirectional_ring", in_racks(8, 2, 2))

    def counted(schedule):
        def steps(me):
            read.append(me)
            return schedule.steps(me)

        return replace(schedule, steps=steps)

    slices = [counted(each) for each in both_ways.slices]
    cut = Cut(both_ways.call, 1 << 18, 16, 8, 4)
    machine = MACHINES_THAT_SHARE["ports"]
    for most, times in ((equal_waves.KEPT_MESSAGES, 2), (1, None)):
        monkeypatch.setattr(equal_waves, "KEPT_MESSAGES", most)
        equal_waves.operation_waves.cache_clear()
        read.clear()
        assert len({simulate_waves(slices, cut, machine, 2) for _ in range(3)}) == 1
        assert len(read) == times if times else len(read) > 2
    equal_waves.operation_waves.cache_clear()


def test_an_interrupt_while_runs_are_read_leaves_nothing_wrong_behind():
    ring, interrupted = first_case("all_reduce", "ring", in_racks(8, 2, 2)), [True]

    def steps(me):
        for number, step in enumerate(ring.slices[0].steps(me)):
            if number == 20 and interrupted.pop():
                raise KeyboardInterrupt
            yield step

    slices = [replace(ring.slices[0], steps=steps)]
    cut = Cut(ring.call, 1 << 18, 16, 1, 4)
    machine = MACHINES_THAT_SHARE["ports"]
    with pytest.raises(KeyboardInterrupt):
        simulate_waves(slices, cut, machine)
    interrupted.append(False)
    assert simulate_waves(slices, cut, machine) == simulate_waves(ring.slices, cut, machine)
    equal_waves.operation_waves.cache_clear()


def test_the_lanes_of_an_operation_share_the_room_for_messages(monkeypatch):
    monkeypatch.setattr(equal_waves, "KEPT_MESSAGES", 40)
    # uneven racks: all ranks, in two runs
    ring = first_case("all_reduce", "ring", in_racks(9, 1, 2))
    operation = OperationWaves(ring.slices, Cut(ring.call, 9 * 32 * 5 + 1, 9, 4, 4))
    lanes = [operation.of(lane) for lane in range(4)]
    first, second = ([[*lane] for lane in lanes] for _ in range(2))
    runs = [
        [[(wave.source.tolist(), wave.nbytes.tolist()) for wave in run.waves] for run in lane]
        for lane in first
    ]
    assert runs == [
        [[(wave.source.tolist(), wave.nbytes.tolist()) for wave in run.waves] for run in lane]
        for lane in second
    ]
    assert (
        sum(len(wave.source) for lane in {*lanes} for run in lane.kept for wave in run.waves) < 80
    )


def test_a_run_has_no_more_waves_where_a_cycle_has_several(monkeypatch):
    monkeypatch.setattr(equal_waves, "LONGEST_RUN", 6)
    # cycles of 3 waves
    uneven = runs_of(first_case("all_reduce", "ring", Layout.of(24, 1)), 16 * 128 * 5)
    assert max(len(run.waves) * run.repeats for run in uneven) == 6
