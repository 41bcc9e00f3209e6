"""Ranked effects: what is slow is first, then what was tested; each with its own thresholds."""

from dataclasses import replace

import pytest
from recorded_diagnoses import recorded
from simulated_machine import Environment

from hpccoll.diagnosis.ranked_effects import rank_effects
from hpccoll.diagnosis.slot_records import Component

ONE_RACK = Environment()


def ranked(nodes, *faults, **options):
    return rank_effects(recorded(nodes, *((fault, 25) for fault in faults), **options).diagnosis)


def test_slow_nodes_come_first_then_tested_ones_and_every_node_is_ranked():
    nodes = ranked(64, Component("node", (5,)), Component("send", (7,)))["node"]
    assert {each.where for each in nodes[:2]} == {(5,), (7,)}
    assert [each.outcome for each in nodes] == ["slow", "slow"] + 62 * ["within"]
    tested = [bool(each.tested) for each in nodes]
    assert tested == sorted(tested, reverse=True)
    assert {each.where for each in nodes} == {(node,) for node in range(64)}


def test_the_decisive_effects_are_those_of_the_retest():
    first, *_, last = ranked(64, Component("node", (5,)))["node"]
    assert {each.purpose for each in first.decisive.values()} == {"retest"}
    assert {each.purpose for each in last.decisive.values()} == {"screen"}
    assert [*first.decisive] == ["node", "send", "receive"]
    assert (first.is_decided, last.is_decided) == (True, False)


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        (Component("uplink", (3,)), "rack"),
        (Component("link", (2, 6)), "link"),
        (Component("node", (5,)), "node"),
    ],
)
def test_what_has_a_fault_comes_first(fault, subject):
    first, *_ = ranked(64, fault).items()
    assert (first[0], first[1][0].where, first[1][0].outcome) == (subject, fault.where, "slow")


def test_an_effect_above_its_threshold_that_is_not_named_is_distinguished():
    found = recorded(64, (Component("node", (5,)), 25)).diagnosis
    first, *_ = rank_effects(replace(found, faults=()))["node"]
    assert (first.where, first.outcome) == ((5,), "above")


@pytest.mark.parametrize(
    ("kind", "slow"), [("node", {"node", "send", "receive"}), ("send", {"send"})]
)
def test_only_the_direction_that_is_named_is_slow(kind, slow):
    first, *_ = ranked(16, Component(kind, (5,)), environment=ONE_RACK)["node"]
    assert first.where == (5,)
    assert {each for each in first.decisive if first.outcome_of(each) == "slow"} == slow
    assert first.outcome_of("node") in ("slow", "above")


def test_members_of_a_shared_link_are_slow():
    unknown = Environment(rack=8, racks_known=False)
    nodes = ranked(64, Component("uplink", (3,)), environment=unknown)["node"]
    assert {each.where[0] for each in nodes if each.outcome == "slow"} == {*range(24, 32)}


def test_candidates_of_two_nodes_are_slow_and_links_of_a_slow_node_are_explained():
    nodes = ranked(2, Component("send", (1,)), environment=ONE_RACK)["node"]
    assert [each.outcome for each in nodes] == ["slow", "slow"]
    four = ranked(4, Component("node", (1,)), environment=ONE_RACK)
    assert {each.where for each in four["link"] if each.outcome == "above"} == {
        (0, 1),
        (1, 2),
        (1, 3),
    }


def test_a_slow_rail_is_told_from_the_other_rails_of_its_node():
    nodes = ranked(16, Component("rail", (2,), 1), environment=ONE_RACK, rails=2)["node"]
    assert [(each.where, each.rail) for each in nodes if each.outcome == "slow"] == [((2,), 1)]


def test_a_node_on_all_rails_is_slow_on_each():
    nodes = ranked(16, Component("node", (2,)), environment=ONE_RACK, rails=2)["node"]
    assert {(each.where, each.rail) for each in nodes if each.outcome == "slow"} == {
        ((2,), 0),
        ((2,), 1),
    }
