"""The maps: what was planted is on them as measured, and gone from what is left."""

from dataclasses import replace

import numpy as np
import pytest
from recorded_diagnoses import interrupted, recorded
from simulated_machine import SECONDS, Environment

from hpccoll.diagnosis.slot_records import Component
from hpccoll.diagnosis.transfer_ratios import MeasuredRatios

QUIET = Environment(noise=0.005, spikes=0.0, rack=8)
SLOW, USUAL = pytest.approx(1.25, abs=0.03), pytest.approx(1, abs=0.03)
OTHERS = np.setdiff1d(np.arange(64), [5])


def ends(values):
    """Return the least and the largest value."""
    return np.nanmin(values), np.nanmax(values)


def around(low, high):
    return pytest.approx((low, high), abs=0.03)


@pytest.mark.parametrize(
    ("fault", "slow"),
    [
        (Component("node", (5,)), [(5, OTHERS), (OTHERS, 5)]),
        (Component("send", (5,)), [(5, OTHERS)]),
        (Component("receive", (5,)), [(OTHERS, 5)]),
        (Component("link", (5, 9)), [(5, 9), (9, 5)]),
    ],
)
def test_a_map_of_pairs_has_the_effect_of_a_fault_where_it_is_and_what_is_left_is_1(fault, slow):
    pairs = MeasuredRatios(recorded(64, (fault, 20), environment=QUIET)).of_pairs
    expected = np.ones((64, 64))
    for sender, receiver in slow:
        expected[sender, receiver] = 1.25
    np.fill_diagonal(expected, np.nan)
    assert np.allclose(pairs.before, expected, atol=0.04, equal_nan=True)
    assert np.allclose(
        pairs.after, np.where(np.isnan(expected), np.nan, 1), atol=0.04, equal_nan=True
    )


@pytest.mark.parametrize(("kind", "inside"), [("uplink", 1.0), ("rack", 1.25)])
def test_a_slow_rack_and_a_slow_uplink_differ_within_the_rack(kind, inside):
    fault = Component(kind, (2,))
    ratios = MeasuredRatios(recorded(64, (fault, 20), environment=QUIET))
    pairs, racks = ratios.of_pairs, ratios.of_racks
    members = np.arange(16, 24)
    assert ends(pairs.before[np.ix_(members, members)]) == around(inside, inside)
    assert ends(pairs.before[np.ix_(members, np.arange(16))]) == around(1.25, 1.25)
    assert racks.before[:, 2].tolist() == pytest.approx([inside, 1.25, 1.25], abs=0.03)
    assert (ends(pairs.after), ends(racks.after)) == (around(1, 1), around(1, 1))


def test_of_many_nodes_each_direction_and_each_rack_has_its_effect():
    faults = (Component("send", (100,)), 20), (Component("uplink", (3,)), 30)
    ratios = MeasuredRatios(recorded(256, *faults, environment=QUIET))
    sends, receives = ratios.of_nodes.before
    assert (sends[100], receives[100], float(np.median(sends))) == (SLOW, USUAL, USUAL)
    within, sent, received = ratios.of_racks.before[:, 3]
    assert (within, sent, received) == (
        USUAL,
        pytest.approx(1 / 0.7, abs=0.04),
        pytest.approx(1 / 0.7, abs=0.04),
    )
    assert (ends(ratios.of_nodes.after), ends(ratios.of_racks.after)) == (
        around(1, 1),
        around(1, 1),
    )


def test_what_the_verdict_does_not_name_is_left():
    diagnosis = recorded(64, (Component("node", (5,)), 20), environment=QUIET)
    unnamed = replace(diagnosis, diagnosis=replace(diagnosis.diagnosis, faults=()))
    pairs = MeasuredRatios(unnamed).of_pairs
    assert ends(pairs.after[5, OTHERS]) == around(1.25, 1.25)
    assert np.allclose(pairs.before, pairs.after, atol=0.005, equal_nan=True)


def test_an_interrupted_diagnosis_has_the_map_of_what_was_measured():
    pairs = MeasuredRatios(
        interrupted(recorded(64, (Component("node", (5,)), 20), environment=QUIET))
    ).of_pairs
    assert ends(pairs.before[5, OTHERS]) == around(1.25, 1.25)


def test_without_any_transfer_there_are_no_ratios():
    ratios = MeasuredRatios(replace(recorded(8), measured=(), diagnosis=None))
    assert (ratios.ended, ratios.slots, np.isnan(ratios.of_pairs.before).all()) == (False, [], True)


def test_the_cost_of_distance_is_known_and_taken_out():
    ratios = MeasuredRatios(recorded(64, environment=replace(QUIET, far=0.08)))
    assert ratios.distance == pytest.approx(np.exp(0.08), abs=0.01)
    assert ratios.of_pairs.before[0, 63] == pytest.approx(np.exp(0.08), abs=0.04)
    assert ends(ratios.of_pairs.after) == around(1, 1)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_few_nodes_have_the_effect_that_is_named(nodes):
    fault = Component("send", (1,))
    pairs = MeasuredRatios(
        recorded(nodes, (fault, 20), environment=replace(QUIET, rack=0))
    ).of_pairs
    assert (pairs.before[1, 0], pairs.before[0, 1], ends(pairs.after)) == (
        SLOW,
        USUAL,
        around(1, 1),
    )


@pytest.mark.parametrize("nodes", [3, 4, 7])
def test_few_pairs_of_a_slot_do_not_hide_an_effect_that_is_not_named(nodes):
    fault = Component("send", (1,))
    diagnosis = recorded(nodes, (fault, 20), environment=replace(QUIET, rack=0))
    pairs = MeasuredRatios(replace(diagnosis, diagnosis=None)).of_pairs
    assert (pairs.before[1, 0], pairs.before[0, 1], pairs.before[2, 0]) == (SLOW, USUAL, USUAL)


def test_pairs_measured_in_parts_of_slots_keep_their_effect():
    contended = Environment(noise=0.005, spikes=0.0, rack=8, uplinks=8, racks_known=False)
    diagnosis = recorded(64, (Component("node", (5,)), 30), environment=contended)
    assert [each.slots.purpose for each in diagnosis.measured][:3] == [
        "screen",
        "contention",
        "screen",
    ]
    sends, _ = MeasuredRatios(replace(diagnosis, diagnosis=None)).of_nodes.before
    assert (sends[5], float(np.median(sends))) == (pytest.approx(1 / 0.7, abs=0.05), USUAL)


def test_each_place_is_that_of_its_slowest_rail():
    faults = (Component("node", (1,)), 20), (Component("rail", (2,), 1), 20)
    ratios = MeasuredRatios(recorded(16, *faults, environment=replace(QUIET, rack=0), rails=3))
    pairs, nodes = ratios.of_pairs, ratios.of_nodes
    assert ends(pairs.before[2, 3:]) == around(1.25, 1.25)
    assert {*pairs.rails[2, 3:].tolist(), *nodes.rails[:, 2].tolist()} == {1}
    assert (nodes.before[0, 1], nodes.before[0, 5], ends(pairs.after)) == (
        SLOW,
        USUAL,
        around(1, 1),
    )


def test_times_without_an_end_are_left_out():
    ratios = MeasuredRatios(
        recorded(64, (Component("node", (5,)), 20), hung=(9,), environment=QUIET)
    )
    pairs = ratios.of_pairs
    assert np.isnan(pairs.before[9]).all()
    assert (ends(pairs.before[5, OTHERS]), ends(pairs.after)) == (around(1.25, 1.25), around(1, 1))


def test_slots_are_counted_by_their_purpose_with_their_time():
    diagnosis = recorded(64, (Component("node", (5,)), 20))
    slots = {each.purpose: each for each in MeasuredRatios(diagnosis).slots}
    assert sum(each.slots for each in slots.values()) == diagnosis.diagnosis.slots
    assert [*slots][:3] == ["screen", "retest", "alone"]
    assert slots["screen"].seconds == pytest.approx(SECONDS, rel=0.02)
