"""A wrong schedule is named with the command that shows it, and a right one is not."""

from dataclasses import replace

import pytest
from catalogue_cases import case

from hpccoll.measure.run import schedule_proof
from hpccoll.measure.run.schedule_proof import unproven_text
from hpccoll.schedule import Layout, Step, all_gather


def without_the_last_send(layout, me):
    *steps, last = all_gather.algorithm("ring").schedule(layout).steps(me)
    yield from steps
    yield last if me else Step(*last.actions[1:])


@pytest.fixture
def faulty(monkeypatch):
    """Register an all-gather that is wrong on any number of ranks."""
    algorithm = replace(
        all_gather.algorithm("ring"),
        name="faulty",
        program=without_the_last_send,
        vectorised=False,
        regularity=None,
    )
    monkeypatch.setitem(all_gather.algorithms, "faulty", algorithm)
    return case("all_gather", algorithm="faulty", op=None, bytes=4096)


def test_the_fault_and_the_command_of_a_wrong_schedule_are_named(faulty):
    text = unproven_text(faulty, Layout.of(4))
    assert text.startswith("not proven: step 3: rank 0 sends no message to rank 1")
    assert text.endswith("do: hpccoll show faulty -c all_gather -p 4")
    on_nodes = unproven_text(faulty, Layout.of(4, 2))
    assert on_nodes.endswith("-p 4 --ranks-per-node 2")


@pytest.mark.parametrize("algorithm", ["ring", "native", "null"])
def test_nothing_is_said_of_what_is_proven_or_the_library_s_own(algorithm):
    assert unproven_text(case(algorithm=algorithm), Layout.of(4)) is None


def test_many_ranks_are_not_proven_during_a_run(faulty, monkeypatch):
    monkeypatch.setattr(schedule_proof, "MAX_PROVEN_RANKS", 3)
    assert unproven_text(faulty, Layout.of(4)) is None


def test_the_command_has_the_root_and_the_parameters_of_the_algorithm():
    knomial = case(
        "broadcast",
        algorithm="knomial",
        op=None,
        root=2,
        params={"radix": 4, "channels": 2},
    )
    command = schedule_proof._show_command(knomial, Layout.of(8))
    assert command == "hpccoll show knomial -c broadcast -p 8 --root 2 --param radix=4"
