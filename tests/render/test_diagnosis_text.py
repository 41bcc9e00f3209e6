"""The text of diagnoses: the answer first, then what to exclude, then what it is based on."""

import math
from dataclasses import replace

from golden_page import assert_golden
from recorded_diagnoses import IN_RACKS, interrupted, recorded

from hpccoll.analysis.diagnosis.history import MachineHistory
from hpccoll.analysis.diagnosis.records import Component, Fault
from hpccoll.analysis.diagnosis.verdict import verdict_of
from hpccoll.render.diagnosis_text import diagnosis_lines, history_lines

NODE, SEND = Component("node", (5,)), Component("send", (2,))
LINK, UPLINK, RACK = Component("link", (1, 6)), Component("uplink", (3,)), Component("rack", (3,))


def slow(nodes, *faults, **asked):
    return recorded(nodes, *((fault, 30) for fault in faults), **asked)


def with_faults(*faults, **asked):
    healthy = recorded(8, **asked)
    return replace(healthy, diagnosis=replace(healthy.diagnosis, faults=faults))


SITUATIONS = {
    "a healthy machine": recorded(16),
    "a healthy machine of racks, without single links": recorded(128),
    "a slow node and a hung one": slow(16, NODE, hung=[3]),
    "a node that sends slowly, and an uplink": slow(64, SEND, UPLINK),
    "a rack": slow(64, RACK),
    "a link, and a node that receives slowly": slow(16, LINK, Component("receive", (9,))),
    "an uplink of racks that are unknown": slow(64, UPLINK, environment=replace(IN_RACKS, racks_known=False)),
    "two nodes, of which a direction is slow": slow(2, Component("send", (1,))),
    "two nodes, of which both directions are": slow(2, Component("node", (1,))),
    "the same with a known rate": slow(2, Component("node", (1,)), expected_s=0.02),
    "three nodes, two of them slow": slow(3, Component("node", (1,)), Component("node", (2,)), expected_s=0.02),
    "two nodes, of which one is hung": recorded(2, hung=[1]),
    "more than a quarter": slow(16, *(Component("node", (node,)) for node in range(5))),
    "a slow rail": slow(16, Component("rail", (5,), 1), rails=2),
    "a link on a rail that never answers": with_faults(
        Fault(Component("link", (1, 6), 0), math.inf, math.inf, math.inf, 0), rails=2
    ),
    "a node that is slow under load only": with_faults(Fault(NODE, 1.2, 1.1, 1.3, 1e-4, under_load_only=True)),
    "an interrupted diagnosis": interrupted(recorded(16)),
}


def test_the_text_of_each_situation_is_the_golden_page():
    page = []
    for situation, diagnosis in SITUATIONS.items():
        page += [f"## {situation}", *diagnosis_lines(verdict_of(diagnosis)), ""]
    assert_golden("diagnosis", page)


def test_what_is_to_be_pasted_is_safe_in_a_shell_whatever_a_host_is_called():
    diagnosis = slow(16, NODE)
    odd = replace(diagnosis.question, hosts=tuple(f"{host};{{rm}} '" for host in diagnosis.question.hosts))
    lines = [*diagnosis_lines(verdict_of(replace(diagnosis, question=odd)))]
    pasted = [line for line in lines if line.startswith(("--exclude", "scontrol"))]
    assert len(pasted) == 2
    assert all("""'n5;{rm} '"'"''""" in line for line in pasted)


def test_the_history_is_the_golden_page_in_as_many_tables_as_the_terminal_needs():
    days = [
        slow(8, Component("node", (2,)), begun=f"2026-11-{day:02}T08:00:00+00:00", seed=day, hung=[4] * (day == 2))
        for day in range(1, 12)
    ]
    days += [slow(4, SEND, begun="2026-11-12T08:00:00+00:00"), interrupted(recorded(8, begun="2026-11-12T09:00:00"))]
    page = [*history_lines(MachineHistory.of(days), 60), "", *history_lines(MachineHistory.of([recorded(8)]), 60)]
    assert max(map(len, page)) <= 60
    assert_golden("diagnosis_history", page)
