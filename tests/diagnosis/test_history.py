"""The history of a machine: what its diagnoses accused, day after day."""

import json
from dataclasses import replace

from recorded_diagnoses import interrupted, recorded

from hpccoll.diagnosis.history import MachineHistory
from hpccoll.diagnosis.slot_records import Component

NODE, SEND = Component("node", (2,)), Component("send", (2,))


def day(number, *faults, nodes=8, hour=8, **asked):
    slow = ((fault, 25) for fault in faults)
    return recorded(
        nodes, *slow, begun=f"2026-11-{number:02}T{hour:02}:00:00+00:00", seed=number, **asked
    )


def states(history, host):
    (row,) = (row for row in history.places if row.place.hosts == (host,))
    return [each.state for each in row.states]


def test_a_node_has_a_state_in_each_diagnosis_whichever_of_its_directions_was_slow():
    diagnoses = [
        day(3, hung=[2]),
        day(1, NODE),
        day(2, SEND),
        day(4),
        day(5, nodes=2),
        interrupted(day(6)),
    ]
    history = MachineHistory.of(diagnoses)
    assert states(history, "n2") == ["slow", "slow", "hung", "healthy", "absent", "undecided"]
    assert [begun[8:10] for begun in history.begun] == ["01", "02", "03", "04", "05", "06"]
    (row,) = history.places
    assert (row.days, row.is_lasting) == (3, True)
    assert json.loads(json.dumps(history.to_json(), allow_nan=False))["places"][0]["lasting"]


def test_a_node_that_was_not_judged_is_not_healthy_on_that_day():
    assert states(MachineHistory.of([day(1, NODE), day(2, failing=[2])]), "n2") == [
        "slow",
        "undecided",
    ]


def test_three_diagnoses_of_one_day_are_one_day():
    history = MachineHistory.of([day(1, NODE, hour=hour) for hour in (8, 9, 10)])
    assert [(row.days, row.is_lasting) for row in history.places] == [(1, False)]
    assert not history.is_healthy  # the newest one accuses it


def test_nodes_of_as_many_days_are_in_the_order_of_their_numbers():
    slow = [
        day(number, Component("node", (host,)), nodes=12)
        for number, host in enumerate((10, 2, 9, 2), 1)
    ]
    assert [row.place.hosts for row in MachineHistory.of(slow).places] == [
        ("n2",),
        ("n9",),
        ("n10",),
    ]


def test_a_history_is_healthy_if_the_newest_diagnosis_is_and_nothing_lasts():
    assert MachineHistory.of([day(1, NODE), day(2, NODE), day(3)]).is_healthy
    assert not MachineHistory.of([day(1, NODE), day(2, NODE), day(3, NODE), day(4)]).is_healthy
    assert not MachineHistory.of([day(1), day(2, NODE)]).is_healthy


def test_a_node_that_was_healthy_on_as_many_days_as_it_was_slow_on_is_repaired():
    slow = [day(number, NODE) for number in (1, 2, 3)]
    assert not MachineHistory.of([*slow, day(4), day(5), day(5, hour=9)]).is_healthy
    assert MachineHistory.of([*slow, day(4), day(5), day(6)]).is_healthy


def test_a_slow_node_counts_until_a_diagnosis_with_it_is_healthy():
    history = MachineHistory.of([day(1, Component("node", (6,))), day(2, nodes=4)])
    assert states(history, "n6") == ["slow", "absent"]
    assert not history.is_healthy
    assert MachineHistory.of([day(1, Component("node", (6,))), day(2, nodes=4), day(3)]).is_healthy


def test_a_rack_is_one_place_whichever_of_its_hosts_are_there_and_a_link_in_either_order():
    uplink = Component("uplink", (1,))
    machines = [day(number, uplink, nodes=nodes) for number, nodes in ((1, 32), (2, 31), (3, 32))]
    (row,) = (row for row in MachineHistory.of(machines).places if row.place.kind == "uplink")
    assert (row.place.rack, row.days) == ("rack1", 3)
    link = Component("link", (0, 1))
    first, second, third = (day(number, link) for number in (1, 2, 3))
    reordered = ("n1", "n0", *second.question.hosts[2:])
    second = replace(second, question=replace(second.question, hosts=reordered))
    (row,) = MachineHistory.of([first, second, third]).places
    assert (row.place.kind, row.days) == ("link", 3)


def test_hosts_of_one_name_in_two_clusters_are_two_rows():
    of_cluster = [
        (day(1, NODE), "a, 8 CPUs"),
        (day(2, NODE), "b"),
        (day(3, NODE), "a"),
        (day(4), "a"),
    ]
    history = MachineHistory.of(
        replace(each, machine=f"cluster {name}") for each, name in of_cluster
    )
    found = [(row.cluster, [each.state for each in row.states]) for row in history.places]
    assert found == [
        ("cluster a", ["slow", "absent", "slow", "healthy"]),
        ("cluster b", ["absent", "slow", "absent", "absent"]),
    ]
    assert not history.is_healthy  # cluster b was last seen slow


def test_candidates_are_shown_and_count_as_no_day():
    history = MachineHistory.of(
        [day(number, Component("send", (1,)), nodes=2) for number in (1, 2, 3)]
    )
    assert {row.place.hosts for row in history.places} == {("n0",), ("n1",)}
    assert states(history, "n1") == ["candidate"] * 3
    assert not any(row.days for row in history.places)
