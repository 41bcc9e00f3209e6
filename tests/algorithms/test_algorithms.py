"""Every algorithm in the table of contents, held against what it declares and what its collective promises."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import hpccoll.algorithms
from hpccoll.schedule import COLLECTIVES, Collective, Cut, Layout, ScheduleError, count, out_of_place, prove

ALGORITHMS = [
    pytest.param(collective, algorithm, id=f"{collective.name}-{algorithm.name}")
    for collective in COLLECTIVES.values()
    for algorithm in collective.algorithms.values()
]
each_algorithm = pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
each_p = pytest.mark.parametrize("p", [*range(1, 18), 32])


def promise(collective: Collective, algorithm) -> Collective:
    """Return the collective that an algorithm is held to: a floor leaves the buffer unchanged."""
    if not algorithm.floor:
        return collective
    return replace(
        collective, promises=lambda p, me, unit: {(me, unit)} if unit in collective.holds("src", me, p) else set()
    )


@each_algorithm
@each_p
def test_it_keeps_the_promise_in_place_and_out_of_place(collective, algorithm, p):
    if algorithm.unmet(Layout.of(p)):
        return
    held = promise(collective, algorithm)
    slices = algorithm.slices(Layout.of(p))
    prove(held, slices)
    prove(held, [out_of_place(held, schedule) for schedule in slices], in_place=False)


@each_algorithm
@pytest.mark.parametrize("layout", [Layout.of(4, 2), Layout.of(6, 2), Layout.of(7, 3), Layout((0, 1, 0, 1, 2))])
def test_it_keeps_the_promise_wherever_the_ranks_are(collective, algorithm, layout):
    if algorithm.unmet(layout) is None:
        prove(promise(collective, algorithm), algorithm.slices(layout))


@each_algorithm
@pytest.mark.parametrize("p", range(1, 18))
def test_it_costs_what_it_declares(collective, algorithm, p):
    if algorithm.cost is None or algorithm.unmet(Layout.of(p)):
        return
    slices = algorithm.slices(Layout.of(p))
    units = slices[0].units
    for grains in (1, 3):  # of a unit, in sizes that divide evenly
        elements = grains * units * 128 // 4 * (len(slices) if collective.units == "free" else 1)
        size = 4 * elements * collective.blocks(p)
        for placed in (slices, [out_of_place(collective, schedule) for schedule in slices]):
            counts = count(placed, Cut(collective, elements, units, len(slices), 4))
            cost = algorithm.cost(p)
            assert counts.rounds == cost.rounds
            assert counts.critical_bytes == round(cost.sent * size)
            assert counts.critical_reduced == round(cost.reduced * size)


@each_algorithm
@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_it_moves_the_least_that_its_collective_can_on_average(collective, algorithm, p):
    if algorithm.floor or collective.busbw is None or algorithm.unmet(Layout.of(p)):
        return
    slices = algorithm.slices(Layout.of(p))
    elements = 128 * slices[0].units * len(slices)
    counts = count(slices, Cut(collective, elements, slices[0].units, len(slices), 4))
    assert counts.sent.sum() >= round(collective.busbw(p) * 4 * elements * collective.blocks(p) * p) * (1 - 1e-12)


@each_algorithm
def test_it_promises_more_than_nothing_is_done(collective, algorithm):
    if algorithm.floor:
        with pytest.raises(ScheduleError, match="ends without"):
            prove(collective, algorithm.slices(Layout.of(2)))


@pytest.mark.parametrize("p", range(1, 18))
def test_a_floor_sends_nothing_and_leaves_the_buffer_as_it_was(p):
    for collective in COLLECTIVES.values():
        for algorithm in collective.algorithms.values():
            if algorithm.floor:
                for schedule in algorithm.slices(Layout.of(p)):
                    assert not any(step.actions for me in range(p) for step in schedule.steps(me))
                    assert not list(schedule.steps(np.arange(p)))


@pytest.mark.parametrize("layout", [Layout.of(4, 2), Layout.of(4, 1), Layout((0, 1, 0, 1))])
def test_wire_bytes_of_a_ring_are_those_of_the_links_between_nodes(layout):
    (schedule,) = COLLECTIVES["all_reduce"].algorithm("ring").slices(layout)
    counts = count([schedule], Cut(COLLECTIVES["all_reduce"], 4 * 32, 4, 1, 4))
    crossing = sum(a != b for a, b in pairwise((*layout.node, layout.node[0])))
    assert counts.wire_bytes == crossing * 6 * 128


def test_wire_bytes_of_recursive_doubling_are_those_of_the_distances_between_nodes():
    (schedule,) = COLLECTIVES["all_reduce"].algorithm("recursive_doubling").slices(Layout.of(4, 2))
    counts = count([schedule], Cut(COLLECTIVES["all_reduce"], 4 * 32, 4, 1, 4))
    assert counts.sent.tolist() == [[0, 512, 512, 0]] * 4


def test_the_table_of_contents_names_every_page_and_every_page_one_algorithm():
    pages = {path.stem for path in Path(hpccoll.algorithms.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(hpccoll.algorithms.__all__) == pages
    registered = {name for collective in COLLECTIVES.values() for name in collective.algorithms}
    assert pages <= registered | {name for name in pages if not name.isidentifier()}
