"""Nodes whose ranks waited for cores: when that may explain an effect."""

import json
from dataclasses import replace

import pytest
from recorded_diagnoses import recorded
from simulated_machine import Environment

from hpccoll.diagnosis.core_waits import CORE_WAITS, explaining_wait
from hpccoll.diagnosis.history import MachineHistory
from hpccoll.diagnosis.slot_records import Component
from hpccoll.diagnosis.verdict import verdict_of
from hpccoll.render.diagnosis_text import diagnosis_lines
from hpccoll.store.schema import HOST_LOAD as LOAD


@pytest.mark.parametrize(
    ("share", "of_others", "noise", "effect", "is_explained"),
    [
        (0.30, 0.02, 0.01, 1.4, True),
        (0.30, 0.02, 0.01, 3.0, False),  # by so much no rank was held up
        (0.30, 0.02, 1.00, 3.0, False),  # whatever the noise
        (0.02, 0.00, 0.10, 1.02, False),  # what a node with free cores waits
        (0.055, 0.005, 0.10, 1.1, False),  # half of it: a wire is slow as well
        (0.75, 0.74, 0.08, 1.16, True),  # all wait, and it is as large as the noise
        (0.75, 0.74, 0.08, 1.67, False),  # all wait, and no other is as slow by far
        (0.50, 0.50, 0.015, 1.1, False),
        (0.01, 0.20, 0.10, 1.2, False),  # a rank behind a slow wire has less to do
    ],
)
def test_a_wait_explains_what_the_time_without_a_core_may_cause(
    share, of_others, noise, effect, is_explained
):
    waits = {"n1": share, "n2": of_others, "n3": of_others, "n4": of_others, "n5": 0.99}
    found = explaining_wait(waits, ["n1"], ["n1", "n5"], effect, noise)
    assert (found is not None) == is_explained
    assert found is None or found[:3] == ("n1", share, of_others)
    assert found is None or found.explained <= 1 / (1 - share) + 1e-9


def test_of_several_hosts_of_a_fault_the_longest_wait_counts():
    waits = {"n1": 0.1, "n2": 0.4, "n3": 0.0}
    assert explaining_wait(waits, ["n1", "n2"], ["n1", "n2"], 1.3, 0.01)[:2] == ("n2", 0.4)
    assert explaining_wait(waits, ["n1"], ["n1", "n2"], 1.3, 0.01) is None


def test_what_is_not_known_explains_nothing_and_excuses_nothing():
    assert explaining_wait({}, ["n1"], ["n1"], 1.2, 0.1) is None
    assert explaining_wait({"n2": 0.9}, ["n1"], ["n1"], 1.2, 0.1) is None
    assert explaining_wait({"n1": 1.0, "n2": 0.0}, ["n1"], ["n1"], float("inf"), 0.1) is None
    assert explaining_wait({"n1": 0.5}, ["n1"], ["n1"], 1.2, 0.01)  # others may have waited less
    assert explaining_wait({"n1": 0.5, "n2": 0.5}, ["n1"], ["n1"], 1.2, float("nan"))


SLOW = Component("receive", (5,))
LOADS = [
    {
        "host": "n5",
        "load_average": [9.1, 18.4],
        "stolen": 0.0,
        "other_cores": 1.9,
        "busiest": [{"name": "make", "cores": 1.8}],
    }
]


def loaded(percent, nodes=6, noise=0.02, **shares):
    """Return the diagnosis of nodes whose ranks waited for shares of the time, 1 % unless one is given."""
    diagnosis = recorded(
        nodes, *[(SLOW, percent)] * bool(percent), environment=Environment(noise=noise)
    )
    waits = {f"n{number}": 0.01 for number in range(nodes)} | shares
    return replace(diagnosis, provenance={**diagnosis.provenance, CORE_WAITS: waits, LOAD: LOADS})


@pytest.mark.parametrize("nodes", [6, 16])
def test_load_that_explains_an_effect_forbids_the_accusation_and_is_named(nodes):
    verdict = verdict_of(loaded(15, nodes, n5=0.3))
    (fault,) = json.loads(json.dumps(verdict.to_json()))["verdicts"]
    assert (fault["kind"], fault["where"], fault["waited_for_core"]) == ("receive", ["n5"], 0.3)
    assert fault["confidence"] <= 0.5
    assert not verdict.is_healthy
    assert verdict.exclude == ()
    text = "\n".join(diagnosis_lines(verdict))
    assert "DRAIN" not in text
    assert "receives slowly" not in text
    assert [
        words
        for words in ("cannot tell under this load", "9.1 to 18.4", "make 1.80")
        if words not in text
    ] == []


@pytest.mark.parametrize("nodes", [6, 16])
def test_a_node_that_is_slow_without_waiting_for_cores_is_accused_whoever_else_waits(nodes):
    verdict = verdict_of(loaded(15, nodes, n1=0.7))
    (fault,) = verdict.verdicts
    assert (fault.place.hosts, fault.wait, verdict.exclude) == (("n5",), None, ("n5",))
    assert "loaded" not in [finding.kind for finding in verdict.findings]


def test_a_wire_that_is_slow_as_well_is_told_if_the_load_explains_too_little_of_it_only():
    assert verdict_of(loaded(40, n5=0.2)).exclude == ("n5",)
    assert verdict_of(loaded(40, n5=0.6)).exclude == ()


def test_all_nodes_that_wait_are_no_alarm_while_none_is_slow():
    waits = {f"n{number}": 0.7 for number in range(6)}
    assert verdict_of(loaded(0, **waits)).is_healthy


@pytest.mark.parametrize("share", [0.02, 0.7])
def test_the_smallest_effect_that_would_be_found_is_none_that_load_explains(share):
    waits = {f"n{number}": share for number in range(6)}
    healthy = loaded(0, noise=0.08, **waits)
    verdict = verdict_of(healthy)
    measured = [healthy.diagnosis.smallest_effect, healthy.diagnosis.smallest_link_effect]
    assert ([verdict.smallest_effect, verdict.smallest_link_effect] == measured) == (share < 0.05)
    found = verdict.smallest_effect * 1.01
    waiting = {**waits, "n6": share}
    assert not explaining_wait(waiting, ["n6"], ["n6"], found, verdict.noise)


def test_what_load_may_explain_is_no_accusation_of_a_day():
    history = MachineHistory.of([loaded(15, n5=0.3)])
    (place,) = history.places
    assert ([state.state for state in place.states], place.is_accused, place.days) == (
        ["undecided"],
        False,
        0,
    )
    assert not history.is_healthy
