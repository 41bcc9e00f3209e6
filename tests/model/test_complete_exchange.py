"""Complete exchanges: the ranks of a block stand for all, with the times that all ranks would have."""

from dataclasses import replace

import pytest
from model_observations import observation

from hpccoll.model import path_times
from hpccoll.model.complete_exchange import complete_exchanges
from hpccoll.model.critical_path import critical_path
from hpccoll.model.machine import Machine, MessageCosts, PathCosts, Tier
from hpccoll.model.path_times import TypicalCosts, largest_fold_of_ports, times_along_path
from hpccoll.model.torus_links import Torus
from hpccoll.schedule import Cut, Layout, itemsize

MACHINE = Machine(
    tiers={
        "node": Tier((MessageCosts(latency_s=5e-7, byte_s=2e-10),)),
        "rack": Tier((MessageCosts(latency_s=2e-6, byte_s=5e-10),)),
    },
    fold_s={"float32": 2e-10},
    port_byte_s=3e-10,
    path=PathCosts(following_s=1e-7, hop_s=1e-9, link_byte_s=4e-10),
)
DIRECT = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce")


def operation(collective, algorithm, layout, nbytes=1 << 20):
    """Return the schedule and the cut of an operation."""
    case = observation(collective, algorithm, nbytes, 1.0, layout)
    (schedule,) = case.call.slices(case.algorithm, layout, **case.own_parameters)
    size = itemsize("float32")
    elements = case.call.collective.elements(nbytes, size, layout.workers)
    return schedule, Cut(case.call, elements, schedule.units, 1, size)


@pytest.mark.parametrize("collective", DIRECT)
@pytest.mark.parametrize(
    ("layout", "torus"),
    [
        (Layout.of(64, 1), None),
        (Layout.of(64, 4), None),
        (Layout.of(64, 1), Torus((4, 4, 4))),
        (Layout.of(60, 1), Torus((3, 4, 5))),
    ],
    ids=["64 x 1", "16 x 4", "torus of even length", "torus of odd length"],
)
def test_a_block_of_ranks_has_the_time_of_all(collective, layout, torus, monkeypatch):
    schedule, cut = operation(collective, "direct", layout, 4 * 60 * 64 * 16)
    machine = MACHINE.in_job(layout.nodes, torus=torus)
    (of_all,) = times_along_path(schedule, cut, [machine], "float32")
    fold = largest_fold_of_ports((schedule,), cut, 1)
    monkeypatch.setattr(path_times, "MOST_EXCHANGING", 32)
    assert complete_exchanges(schedule, cut).block < layout.ranks
    (of_block,) = times_along_path(schedule, cut, [machine], "float32")
    # the last messages of some ranks go further than those of the first one
    tolerance = 1e-9 if torus is None else 0.01
    assert of_block == pytest.approx(of_all, rel=tolerance)
    assert largest_fold_of_ports((schedule,), cut, 1) == fold


@pytest.mark.parametrize("nbytes", [4 * 64, 4 * 12345])
def test_the_largest_unit_decides_if_units_differ(nbytes, monkeypatch):
    layout = Layout.of(256, 1)
    schedule, cut = operation("all_reduce", "direct", layout, nbytes)
    machine = MACHINE.in_job(layout.nodes)
    of_all = times_along_path(schedule, cut, [machine], "float32")
    fold = largest_fold_of_ports((schedule,), cut, 1)
    monkeypatch.setattr(path_times, "MOST_EXCHANGING", 32)
    assert complete_exchanges(schedule, cut).block < layout.ranks
    assert times_along_path(schedule, cut, [machine], "float32") == pytest.approx(of_all, rel=0.05)
    assert largest_fold_of_ports((schedule,), cut, 1) == fold


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_to_all", "pairwise"),
        ("all_gather", "ring"),
        ("reduce", "binomial"),
        ("gather", "direct"),
        ("broadcast", "direct"),
        ("all_reduce", "null"),
    ],
)
def test_other_algorithms_are_no_complete_exchanges(collective, algorithm):
    assert complete_exchanges(*operation(collective, algorithm, Layout.of(16, 1))) is None


def test_a_message_of_the_block_passes_links_that_carry_the_mean_of_all():
    schedule, cut = operation("all_to_all", "direct", Layout.of(16, 1), 16 << 10)
    path = critical_path(complete_exchanges(schedule, cut), TypicalCosts(), Torus((2, 8)))
    # of the 16 messages of a node, along the last dimension 2 pass one link backwards, 2 two and 2 three
    assert {(message.hops, message.link_bytes): n for message, n in path.items()} == {
        (2, 12 << 10): 1
    }


def test_exchanges_in_several_lanes_are_not_followed_as_one():
    schedule, cut = operation("all_to_all", "direct", Layout.of(16, 1))
    assert complete_exchanges(schedule, replace(cut, lanes=2)) is None
