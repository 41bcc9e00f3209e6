"""The time of many ranks follows from those of fewer, where it grows along a line."""

import re
from dataclasses import replace

import pytest
from predicted_machines import cluster, in_racks

from hpccoll.model import stand_ins as module
from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine_file import read_machine
from hpccoll.model.predict import Request, predict
from hpccoll.model.simulation import AlgorithmSimulation
from hpccoll.model.stand_ins import GROWTH, stand_ins
from hpccoll.schedule import Layout

H100 = read_machine("8xh100-400g", "machine")
SMALL = {
    "bidirectional_ring": {"first": 16, "largest_exact": 48},
    "direct": {"first": 16},
    "pairwise": {"first": 64},
    "double_binary_tree": {"first": 64},
}
"""Stand-ins of few ranks, so that all ranks can be simulated beside them."""
PREDICTED = [
    ("bidirectional_ring", "all_reduce", 96, H100), ("bidirectional_ring", "all_reduce", 96, in_racks()),
    ("direct", "all_reduce", 96, H100), ("direct", "all_to_all", 128, in_racks()),
    ("pairwise", "all_to_all", 1024, in_racks()), ("pairwise", "all_to_all", 640, in_racks()),
    ("double_binary_tree", "all_reduce", 512, H100), ("double_binary_tree", "all_reduce", 512, in_racks()),
]  # fmt: skip


def simulation(machine, name, collective, ranks):
    per_node = machine.geometry.ranks_per_node if machine.geometry else 1

    def layout_of(aggregators):
        return machine.layout(ranks // per_node, None, aggregators)

    return AlgorithmSimulation(machine, collective, name, {}, layout_of, dtype="float32")


@pytest.mark.parametrize("ranks", [16, 64])
@pytest.mark.parametrize("message", [64, 16384])
@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("bidirectional_ring", "all_reduce"),
        ("double_binary_tree", "all_reduce"),
        ("direct", "all_reduce"),
        ("pairwise", "all_to_all"),
        ("sharp_emulated", "all_reduce"),
    ],
)
def test_few_ranks_are_simulated_by_events(name, collective, message, ranks):
    simulated = simulation(H100, name, collective, ranks)
    nbytes = ranks * message
    found = simulated.times(nbytes, bounds=["value"])
    operation = found.operation
    expected = simulate_events(
        operation.schedules, operation.cut, simulated.machines["value"], operation.window, "float32"
    )
    assert found.seconds["value"] == pytest.approx(expected, rel=0.02)
    assert found.stand_ins is None


@pytest.mark.parametrize("message", [64, 4096])
@pytest.mark.parametrize(("name", "collective", "ranks", "machine"), PREDICTED)
def test_the_line_through_stand_ins_gives_the_time_of_all_ranks(
    name, collective, ranks, machine, message, monkeypatch
):
    nbytes = ranks * message
    whole = simulation(machine, name, collective, ranks).times(nbytes, bounds=["value"])
    assert whole.stand_ins is None
    monkeypatch.setitem(GROWTH, name, replace(GROWTH[name], **SMALL[name]))
    found = simulation(machine, name, collective, ranks).times(nbytes, bounds=["value"])
    assert found.stand_ins
    assert found.seconds["value"] == pytest.approx(whole.seconds["value"], rel=0.02)
    assert found.seconds["value"] == pytest.approx(
        whole.seconds["value"], rel=stated_bound(found.stand_ins)
    )


def stated_bound(sentence):
    """Return how far off a time is at most, as its row says."""
    percent = re.match(r"within (\S+) % of the line", sentence)[1]
    return float(percent) / 100


@pytest.mark.parametrize("nbytes", [1 << 24, 1 << 27])
@pytest.mark.parametrize("ranks", [320, 640])
def test_a_tree_of_large_messages_is_within_the_bound_that_its_row_says(ranks, nbytes, monkeypatch):
    whole = simulation(H100, "double_binary_tree", "all_reduce", ranks).times(
        nbytes, bounds=["value"]
    )
    monkeypatch.setitem(
        GROWTH, "double_binary_tree", replace(GROWTH["double_binary_tree"], first=32)
    )
    found = simulation(H100, "double_binary_tree", "all_reduce", ranks).times(
        nbytes, bounds=["value"]
    )
    assert found.stand_ins
    assert found.seconds["value"] == pytest.approx(
        whole.seconds["value"], rel=stated_bound(found.stand_ins)
    )


def test_the_bound_grows_with_the_distance_from_the_stand_ins():
    near, far = (
        stand_ins("double_binary_tree", Layout.of(ranks, 8), 1 << 20, 4, blocks=False)
        for ranks in (4096, 65536)
    )
    times = [1.0, 2.0, 2.9]
    assert 0 < near.miss(times) == far.miss(times)
    assert near.bound(times) * near.time(times) < far.bound(times) * far.time(times)


def test_a_row_says_which_ranks_were_simulated_and_how_straight_the_line_is(monkeypatch):
    monkeypatch.setitem(GROWTH, "direct", replace(GROWTH["direct"], first=8))
    request = Request(nodes=[16, 64], sizes=[1 << 20], algorithms=["direct"], ranks_per_node=1)
    few, many = predict(cluster(), request).predictions
    assert few.stand_ins is None
    assert "24 and 32 ranks" in many.stand_ins
    assert "that of 16 by 0.01 %" in many.stand_ins
    assert many.stand_ins in many.to_json()["distance"]
    assert not many.exact


def test_a_line_that_is_not_straight_is_said():
    found = stand_ins("direct", Layout.of(4096, 8), 1 << 20, 4, blocks=True)
    assert found.miss([1.0, 3.0, 4.0]) == pytest.approx(1.0)
    assert "by 1e+02 %" in found.sentence(1.0, 0.5)
    assert found.sentence(1.0, 0.5).startswith("within 50 % of ")


@pytest.mark.parametrize("ranks", [1040, 65536, 60_000])
@pytest.mark.parametrize("name", ["direct", "bidirectional_ring"])
def test_stand_ins_have_the_messages_of_all_ranks(name, ranks):
    found = stand_ins(name, Layout.of(ranks, 8), ranks * 256, 4, blocks=name == "direct")
    assert [each.nbytes / each.layout.workers for each in found.chosen] == [256] * 3
    assert max(each.layout.workers for each in found.chosen) < ranks


def test_other_algorithms_aggregators_and_few_ranks_are_simulated_themselves():
    assert stand_ins("ring", Layout.of(65536, 8), 1 << 20, 4, blocks=False) is None
    assert stand_ins("direct", Layout.of(1024, 8), 1 << 20, 4, blocks=True) is None
    assert stand_ins("direct", Layout.of(4096, 8, aggregators=1), 1 << 20, 4, blocks=True) is None
    assert module.GROWTH.keys() == {
        "bidirectional_ring",
        "direct",
        "pairwise",
        "double_binary_tree",
    }
