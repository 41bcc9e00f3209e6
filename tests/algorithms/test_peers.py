"""Whom ranks send to: near ones first, neighbours on a torus, and nobody who has it already."""

import numpy as np
import pytest

from hpccoll.model.torus_links import Torus
from hpccoll.schedule import COLLECTIVES, Cut, Layout, count, match


def messages_of(collective, algorithm, p, **parameters):
    """Return the distance and the units of each message, by step."""
    row = COLLECTIVES[collective]
    schedule = row.algorithm(algorithm).schedule(Layout.of(p), **parameters)
    steps = []
    for step in match(schedule):
        messages = set()
        for m in step.landed:
            units = sum(units.last - units.first for units in m.sent.ranges) * np.ones_like(
                m.target
            )
            distances = np.abs(m.target - m.source)
            messages |= set(zip(distances.tolist(), units.tolist(), strict=True))
        steps.append(messages)
    return steps


@pytest.mark.parametrize("collective", ["all_reduce", "reduce"])
def test_near_first_the_largest_messages_go_to_neighbours(collective):
    far = messages_of(collective, "rabenseifner", 8)
    near = messages_of(collective, "rabenseifner", 8, first="near")
    assert far[:3] == [{(4, 4)}, {(2, 2)}, {(1, 1)}]
    assert near[:3] == [{(1, 4)}, {(2, 2)}, {(4, 1)}]
    for steps in (far, near):
        assert steps[3:] == steps[:3][::-1]


def test_a_reduce_scatter_near_first_ends_with_an_exchange_that_puts_units_in_order():
    *halving, last = messages_of("reduce_scatter", "recursive_halving", 8, first="near")
    assert halving == [{(1, 4)}, {(2, 2)}, {(4, 1)}]
    assert last == {(3, 1)}  # 1 and 4, 3 and 6: 001 and 100, 011 and 110


def test_all_reduce_along_bine_trees_goes_far_or_near_first():
    far = messages_of("all_reduce", "bine", 8)
    assert messages_of("all_reduce", "bine", 8, first="near") == far[::-1]


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 2, 3), (3, 4, 2)])
def test_buckets_go_to_neighbours_on_the_torus_and_all_ranks_have_a_neighbour_each(
    collective, shape
):
    torus = Torus(shape)
    planes, rows, _ = shape
    row = COLLECTIVES[collective]
    layout = Layout.of(torus.nodes)
    schedule = row.algorithm("bucket").schedule(layout, planes=planes, rows=rows)
    for step in match(schedule):
        for m in step.landed:
            assert set(torus.hops(m.source, m.target).tolist()) == {1}
        targets = np.concatenate([m.target for m in step.landed])
        assert sorted(targets.tolist()) == list(range(torus.nodes))


def test_a_bucket_needs_planes_and_rows_that_make_the_ranks():
    algorithm = COLLECTIVES["all_reduce"].algorithm("bucket")
    assert algorithm.unmet(Layout.of(12), planes=2, rows=3) is None
    for planes, rows in [(5, 0), (2, 4), (0, 0)]:
        assert "needs" in algorithm.unmet(Layout.of(12), planes=planes, rows=rows)


@pytest.mark.parametrize("p", [2, 8, 32])
def test_no_rank_receives_a_unit_of_a_large_bine_broadcast_twice(p):
    row = COLLECTIVES["broadcast"]
    slices = row.call(p).slices(row.algorithm("bine_large"), Layout.of(p))
    cut = Cut(row.call(p), 64 * p, p, 1, 4)
    assert count(slices, cut).sent.sum() == (p - 1) * 64 * p * 4
