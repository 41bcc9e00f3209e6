"""The whole procedure on simulated machines: every kind of fault is found, and nothing else is accused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from simulated_machine import Environment, MachineWithRails, SimulatedMachine, components

from hpccoll.diagnosis import cluster
from hpccoll.diagnosis.procedure import complete, diagnose
from hpccoll.diagnosis.slot_records import Component, Diagnosis, Floats, Slots
from hpccoll.diagnosis.transfers import DIRECTIONS

IN_RACKS = Environment(rack=8)
SEEDS = range(3)


def machine(nodes, *faults, environment=IN_RACKS, seed=0, hung=()):
    return SimulatedMachine(nodes, environment, faults, np.random.default_rng([seed, nodes]), hung)


def diagnosed(simulated, seed=0, **options) -> Diagnosis:
    procedure = diagnose(simulated.nodes, seed=seed, racks=simulated.known_racks, **options)
    return complete(procedure, simulated.measure)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [8, 64])
@pytest.mark.parametrize(
    ("fault", "excluded"),
    [
        (Component("node", (5,)), (5,)),
        (Component("send", (5,)), (5,)),
        (Component("receive", (0,)), (0,)),
        (Component("link", (2, 6)), ()),
    ],
)
def test_a_slow_node_direction_or_link_is_found_and_nothing_else(nodes, fault, excluded, seed):
    found = diagnosed(machine(nodes, (fault, 30), seed=seed), seed)
    assert (components(found), found.exclude) == ({fault}, excluded)


@pytest.mark.parametrize(
    "faults", [{Component("link", (2, 6))}, {Component("node", (5,)), Component("link", (0, 9))}]
)
def test_links_are_found_among_pairs_that_are_measured_in_parts(faults, monkeypatch):
    monkeypatch.setattr(cluster, "AT_ONCE", 20)
    simulated = machine(64, *((fault, 30) for fault in faults))
    sizes, met = [], set()

    def measure(slots):
        if slots.purpose in ("screen", "links"):
            sizes.append(len(slots.partners))
        for partners in slots.partners.tolist():
            met.update(enumerate(partners))
        return simulated.measure(slots)

    found = complete(diagnose(64, seed=0, racks=simulated.known_racks, links=True), measure)
    assert components(found) == faults
    assert max(sizes) == 20
    assert {(a, b) for a in range(64) for b in range(64) if a != b} <= met


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["uplink", "rack"])
def test_a_slow_rack_differs_from_a_slow_uplink_and_excludes_no_node(kind, seed):
    found = diagnosed(machine(64, (Component(kind, (3,)), 30), seed=seed), seed)
    assert (components(found), found.exclude) == ({Component(kind, (3,))}, ())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slow_uplink_of_an_unknown_rack_is_a_link_that_its_nodes_share(seed):
    unknown = replace(IN_RACKS, racks_known=False)
    found = diagnosed(
        machine(64, (Component("uplink", (3,)), 30), environment=unknown, seed=seed), seed
    )
    assert (components(found), found.exclude) == (
        {Component("shared_link", tuple(range(24, 32)))},
        (),
    )


def test_several_faults_are_all_found():
    faults = {
        Component("node", (9,)),
        Component("send", (30,)),
        Component("receive", (50,)),
        Component("uplink", (0,)),
    }
    assert components(diagnosed(machine(64, *((fault, 25) for fault in faults)))) == faults


def test_an_effect_lies_within_its_interval_and_is_unlikely_on_a_healthy_machine():
    (fault,) = diagnosed(machine(64, (Component("node", (5,)), 20))).faults
    assert fault.low < 1 / 0.8 < fault.high
    assert fault.low < fault.effect < fault.high
    assert fault.chance < 1e-6


@pytest.mark.parametrize(
    ("fault", "purpose"),
    [
        (Component("node", (5,)), "retest"),
        (Component("receive", (5,)), "retest"),
        (Component("link", (2, 6)), "links"),
        (Component("uplink", (3,)), "racks"),
    ],
)
def test_what_exceeds_the_threshold_of_its_last_test_is_slow_and_nothing_else(fault, purpose):
    found = diagnosed(machine(64, (fault, 30)))
    above = {
        each for each in found.effects if each.effect > each.threshold and each.purpose != "screen"
    }
    assert {(each.purpose, each.component.where) for each in above} == {(purpose, fault.where)}
    assert fault in {each.component for each in above}
    (slow,) = (each for each in above if each.component == fault)
    assert (slow.low, slow.effect, slow.high) == (
        found.faults[0].low,
        found.faults[0].effect,
        found.faults[0].high,
    )


def test_the_screen_judges_each_direction_of_each_answering_node_and_each_rack():
    simulated = machine(64, (Component("node", (5,)), 20), hung=(3,))
    screened = [each.component for each in diagnosed(simulated).effects if each.purpose == "screen"]
    nodes = {Component(kind, (node,)) for kind in DIRECTIONS for node in range(64) if node != 3}
    assert len(screened) == len(nodes) + 8
    assert {*screened} == nodes | {Component("uplink", (rack,)) for rack in range(8)}


def test_of_few_nodes_every_single_fault_is_judged_as_if_there_were_no_other():
    found = diagnosed(machine(4, (Component("send", (1,)), 30), environment=Environment()))
    most = max(found.effects, key=lambda each: each.effect / each.threshold)
    assert (most.component, len(found.effects)) == (Component("send", (1,)), 3 * 4 + 6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "environment",
    [
        Environment(),
        Environment(noise=0.06),
        Environment(spikes=0.15),
        Environment(drift=0.05),
        Environment(spread=0.005),
        Environment(far=0.08, rack=8),
        Environment(uplinks=8, rack=8),
    ],
)
@pytest.mark.parametrize("nodes", [8, 64, 256])
def test_a_healthy_machine_is_healthy(nodes, environment, seed):
    found = diagnosed(machine(nodes, environment=environment, seed=seed), seed)
    assert (found.faults, found.exclude, found.too_many) == ((), (), False)
    assert 1.03 < found.smallest_effect < 1.3


def test_nodes_that_differ_for_good_are_no_faults():
    simulated = [machine(64, environment=Environment(spread=0.02), seed=seed) for seed in range(12)]
    assert sum(bool(diagnosed(each).faults) for each in simulated) <= 1


def test_the_noise_is_that_of_the_mean_of_both_directions():
    found = diagnosed(machine(256, environment=Environment(noise=0.02, spikes=0)))
    assert found.noise == pytest.approx(0.02 * 0.75**0.5, rel=0.05)


def test_pairs_that_share_uplinks_hide_links_but_no_node():
    contended = replace(IN_RACKS, uplinks=8)
    found = diagnosed(machine(64, (Component("node", (5,)), 20), environment=contended))
    assert (components(found), found.links) == ({Component("node", (5,))}, False)


def test_pairs_that_share_unknown_uplinks_are_measured_in_parts():
    contended = replace(IN_RACKS, uplinks=8, racks_known=False)
    found = diagnosed(machine(64, (Component("node", (5,)), 20), environment=contended))
    assert components(found) == {Component("node", (5,))}
    assert found.slots > 8 * 16


def test_more_than_a_quarter_of_slow_nodes_is_said_and_none_is_excluded():
    slow = [(Component("node", (node,)), 20) for node in range(0, 52, 2)]
    found = diagnosed(machine(64, *slow))
    assert found.too_many
    assert found.exclude == ()
    assert components(found) < {component for component, _ in slow}


def test_no_healthy_link_is_accused_if_the_machine_becomes_busy_after_the_screen():
    for seed in range(40):
        simulated = machine(16, environment=Environment(noise=0.02), seed=seed)

        def measure(slots, simulated=simulated):
            simulated.environment = Environment(noise=0.2 if slots.purpose == "links" else 0.02)
            return simulated.measure(slots)

        assert complete(diagnose(16, seed=seed), measure).faults == ()


def test_a_node_that_is_slow_only_beside_others_is_not_excluded():
    simulated = machine(64, (Component("node", (5,)), 40))
    healthy = machine(64, seed=1)

    def measure(slots: Slots) -> Floats:
        quiet = (slots.partners == np.arange(64)).mean() > 0.7
        return (healthy if quiet else simulated).measure(slots)

    found = complete(diagnose(64, seed=0, racks=simulated.known_racks), measure)
    assert [(fault.component, fault.under_load_only) for fault in found.faults] == [
        (Component("node", (5,)), True)
    ]
    assert found.exclude == ()


def rails(count, *faults, nodes=16):
    by_rail = [
        [(c, percent) for c, percent in faults if c.rail in (None, rail)] for rail in range(count)
    ]
    return MachineWithRails(
        machine(nodes, *mine, environment=Environment(), seed=k) for k, mine in enumerate(by_rail)
    )


@pytest.mark.parametrize(
    ("fault", "excluded"),
    [
        (Component("rail", (3,), 2), ()),
        (Component("node", (3,)), (3,)),
        (Component("send", (3,)), (3,)),
    ],
)
def test_a_node_that_is_slow_on_one_rail_differs_from_one_that_is_slow_on_all(fault, excluded):
    found = complete(diagnose(16, seed=1, rails=4), rails(4, (fault, 30)).measure)
    assert (components(found), found.exclude) == ({fault}, excluded)


def test_a_link_of_one_rail_is_named_with_its_rail():
    fault = Component("link", (3, 7), 1)
    assert components(complete(diagnose(16, seed=1, rails=2), rails(2, (fault, 40)).measure)) == {
        fault
    }


def test_effects_on_rails_have_the_number_of_their_rail():
    found = complete(
        diagnose(16, seed=1, rails=2), rails(2, (Component("rail", (3,), 1), 30)).measure
    )
    slow = {
        each.component
        for each in found.effects
        if each.purpose == "retest" and each.effect > each.threshold
    }
    assert slow == {Component(kind, (3,), 1) for kind in DIRECTIONS}


def test_rails_are_measured_in_the_same_slots():
    slow = Component("node", (3,)), 30
    one = complete(diagnose(16, seed=1), rails(1, slow).measure)
    four = complete(diagnose(16, seed=1, rails=4), rails(4, slow).measure)
    assert four.slots < 2 * one.slots


def recorded(simulated, seed):
    """Return the diagnosis, and all slots and times."""
    record = []

    def measure(slots: Slots) -> Floats:
        record.append((slots, simulated.measure(slots)))
        return record[-1][1]

    return complete(
        diagnose(simulated.nodes, seed=seed, racks=simulated.known_racks), measure
    ), record


def test_recorded_times_are_replayed_to_the_same_slots_and_the_same_diagnosis():
    first, record = recorded(machine(64, (Component("node", (5,)), 10)), seed=7)
    replay = iter(record)

    def measure(slots: Slots) -> Floats:
        asked, times = next(replay)
        assert (slots.partners == asked.partners).all()
        return times

    assert complete(diagnose(64, seed=7, racks=machine(64).known_racks), measure) == first


def test_another_seed_measures_other_pairs():
    (_, first), (_, other) = recorded(machine(64), seed=1), recorded(machine(64), seed=2)
    assert (first[0][0].partners != other[0][0].partners).any()


@pytest.mark.parametrize("missing", [0.02, 0.2])
def test_missing_times_are_left_out(missing):
    simulated, rng = machine(64, (Component("node", (5,)), 30)), np.random.default_rng(1)

    def measure(slots: Slots) -> Floats:
        times = simulated.measure(slots)
        return np.where(rng.random(times.shape) < missing, np.nan, times)

    found = complete(diagnose(64, seed=0, racks=simulated.known_racks), measure)
    assert components(found) == {Component("node", (5,))}


def test_a_node_without_any_time_is_not_accused():
    simulated = machine(64)

    def measure(slots: Slots) -> Floats:
        times = simulated.measure(slots)
        times[:, 9] = np.nan
        return np.where(slots.partners == 9, np.nan, times)

    assert complete(diagnose(64, seed=0, racks=simulated.known_racks), measure).faults == ()


@pytest.mark.parametrize("racks", [[0] * 5 + [7] * 40 + [3], [1, 2] * 10 + [3], range(20)])
def test_racks_of_any_sizes_and_numbers_are_healthy_if_their_nodes_are(racks):
    simulated = machine(len(racks), environment=Environment())
    assert complete(diagnose(len(racks), seed=0, racks=[*racks]), simulated.measure).faults == ()


def test_the_slow_uplink_of_the_smallest_of_unequal_racks_is_found():
    racks = np.repeat([4, 0, 9, 2, 7], [18, 18, 18, 9, 1])
    simulated = machine(64, environment=Environment())
    simulated.uplinks = np.where(racks == 2, 0.3, 0)
    simulated.racks = racks
    assert components(complete(diagnose(64, seed=0, racks=racks.tolist()), simulated.measure)) == {
        Component("uplink", (2,))
    }


def test_a_rack_keeps_its_number():
    numbers = [100 + node // 8 for node in range(64)]
    found = complete(
        diagnose(64, seed=0, racks=numbers), machine(64, (Component("uplink", (3,)), 30)).measure
    )
    assert components(found) == {Component("uplink", (103,))}


@pytest.mark.parametrize(("nodes", "most"), [(64, 110), (4096, 60)])
@pytest.mark.parametrize("percent", [0, 5, 20])
def test_a_diagnosis_takes_few_slots_with_links_of_64_nodes_and_without_those_of_4096(
    nodes, most, percent
):
    found = diagnosed(machine(nodes, (Component("node", (33,)), percent)))
    assert found.slots <= most


@pytest.mark.parametrize(("nodes", "racks"), [(1, None), (4, [0, 0, 1])])
def test_a_machine_without_pairs_or_with_racks_of_others_is_refused(nodes, racks):
    with pytest.raises(ValueError, match="nodes"):
        diagnose(nodes, seed=0, racks=racks)


@given(
    nodes=some.integers(2, 40),
    rails=some.integers(1, 3),
    racks=some.integers(0, 6),
    links=some.booleans(),
    hung=some.sets(some.integers(0, 39), max_size=3),
    missing=some.floats(0, 1),
    seed=some.integers(0, 999),
)
def test_a_machine_of_any_shape_is_diagnosed_to_the_end(
    nodes, rails, racks, links, hung, missing, seed
):
    rng = np.random.default_rng(seed)
    simulated = MachineWithRails(
        machine(
            nodes,
            (Component("node", (1,)), 30),
            environment=Environment(),
            seed=seed,
            hung=hung & {*range(nodes)},
        )
        for _ in range(rails)
    )

    def measure(slots: Slots) -> Floats:
        times = simulated.measure(slots)
        return np.where((rng.random(times.shape) < missing) & np.isfinite(times), np.nan, times)

    of_nodes = rng.integers(racks, size=nodes).tolist() if racks else None
    found = complete(diagnose(nodes, seed=seed, racks=of_nodes, rails=rails, links=links), measure)
    assert {*found.exclude} <= {*range(nodes)}
    assert all(
        fault.low <= fault.effect <= fault.high and 0 <= fault.chance <= 1 for fault in found.faults
    )


@pytest.mark.parametrize("nodes", [6, 16])
def test_a_link_as_slow_as_the_smallest_effect_that_is_named_is_found_in_most_diagnoses(nodes):
    named = diagnosed(machine(nodes)).smallest_link_effect
    assert 1.03 < named < 1.3
    link, percent = Component("link", (1, 4)), 100 * (1 - 1 / named)
    faults = [
        diagnosed(machine(nodes, (link, percent), seed=seed), seed).faults for seed in range(20)
    ]
    assert sum([fault.component for fault in each] == [link] for each in faults) >= 15


def test_where_links_are_not_judged_none_would_have_been_found():
    assert math.isinf(diagnosed(machine(16), links=False).smallest_link_effect)
