"""The history of a machine: what its diagnoses accused, day after day."""

import json

from recorded_diagnoses import interrupted, recorded

from hpccoll.analysis.diagnosis.history import MachineHistory
from hpccoll.analysis.diagnosis.records import Component

NODE, SEND = Component("node", (2,)), Component("send", (2,))


def day(number, *faults, nodes=8, hour=8, **asked):
    slow = ((fault, 25) for fault in faults)
    return recorded(nodes, *slow, begun=f"2026-11-{number:02}T{hour:02}:00:00+00:00", seed=number, **asked)


def states(history, host):
    (row,) = (row for row in history.places if row.place.hosts == (host,))
    return [each.state for each in row.states]


def test_a_node_has_a_state_in_each_diagnosis_whichever_of_its_directions_was_slow():
    diagnoses = [day(3, hung=[2]), day(1, NODE), day(2, SEND), day(4), day(5, nodes=2), interrupted(day(6))]
    history = MachineHistory.of(diagnoses)
    assert states(history, "n2") == ["slow", "slow", "hung", "healthy", "absent", "undecided"]
    assert [begun[8:10] for begun in history.begun] == ["01", "02", "03", "04", "05", "06"]
    (row,) = history.places
    assert (row.days, row.is_lasting) == (3, True)
    assert json.loads(json.dumps(history.to_json(), allow_nan=False))["places"][0]["lasting"]


def test_a_node_that_was_not_judged_is_not_healthy_on_that_day():
    assert states(MachineHistory.of([day(1, NODE), day(2, failing=[2])]), "n2") == ["slow", "undecided"]


def test_three_diagnoses_of_one_day_are_one_day():
    history = MachineHistory.of([day(1, NODE, hour=hour) for hour in (8, 9, 10)])
    assert [(row.days, row.is_lasting) for row in history.places] == [(1, False)]
    assert not history.is_healthy  # the newest one accuses it


def test_a_history_is_healthy_if_the_newest_diagnosis_is_and_nothing_lasts():
    assert MachineHistory.of([day(1, NODE), day(2, NODE), day(3)]).is_healthy
    assert not MachineHistory.of([day(1, NODE), day(2, NODE), day(3, NODE), day(4)]).is_healthy
    assert not MachineHistory.of([day(1), day(2, NODE)]).is_healthy


def test_candidates_are_shown_and_count_as_no_day():
    history = MachineHistory.of([day(number, Component("send", (1,)), nodes=2) for number in (1, 2, 3)])
    assert {row.place.hosts for row in history.places} == {("n0",), ("n1",)}
    assert states(history, "n1") == ["candidate"] * 3
    assert not any(row.days for row in history.places)
