"""Mapping: every rank has one number, neighbours are near or far as the word says, and counts say what crosses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.schedule import MAPPINGS, Layout, numbering

mappings = st.sampled_from(sorted(MAPPINGS))


@st.composite
def scattered(draw):
    """Any layout: ranks of any nodes in any order, each node in one rack, with aggregators elsewhere."""
    node = draw(st.lists(st.integers(0, 5), min_size=1, max_size=16))
    racks = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    aggregators = draw(st.integers(0, 2))
    places = (*node, *range(6, 6 + aggregators))
    return Layout(places, tuple(racks[n] if n < 6 else 9 for n in places), aggregators=aggregators)


@st.composite
def even(draw):
    """Racks of as many nodes, nodes of as many ranks, in any order; with how many there are of each."""
    racks, nodes, ranks = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)))
    places = [
        (rack, rack * nodes + node)
        for rack in range(racks)
        for node in range(nodes)
        for _ in range(ranks)
    ]
    rack, node = zip(*draw(st.permutations(places)), strict=True)
    return Layout(node, rack), racks, nodes


@given(scattered(), mappings)
def test_every_rank_has_one_number_and_aggregators_stay_last(layout, mapping):
    order = numbering(layout, mapping)
    assert sorted(order) == list(range(layout.ranks))
    assert order[layout.workers :] == tuple(range(layout.workers, layout.ranks))
    renumbered = layout.subset(order)
    assert renumbered.aggregators == layout.aggregators
    assert sorted(zip(renumbered.node, renumbered.rack, strict=True)) == sorted(
        zip(layout.node, layout.rack, strict=True)
    )


@given(even())
def test_cyclic_puts_neighbours_of_a_ring_into_different_racks_or_else_on_different_nodes(found):
    layout, racks, nodes = found
    cyclic = layout.subset(numbering(layout, "cyclic"))
    ring_of_ranks = range(-1, layout.ranks - 1)
    if racks > 1:
        assert all(cyclic.rack[me] != cyclic.rack[me + 1] for me in ring_of_ranks)
    elif nodes > 1:
        assert all(cyclic.node[me] != cyclic.node[me + 1] for me in ring_of_ranks)


@pytest.mark.parametrize(
    ("layout", "order"),
    [
        (Layout.of(4), (0, 1, 2, 3)),
        (Layout.of(3, 1), (0, 1, 2)),
        (Layout.of(4, 2), (0, 2, 1, 3)),
        (Layout((0, 0, 0, 1)), (0, 3, 1, 2)),  # until none is left
        (Layout((0, 1, 2, 3), (0, 0, 1, 1)), (0, 2, 1, 3)),
        (Layout((0, 0, 1, 2), (0, 0, 0, 1)), (0, 3, 2, 1)),
    ],
)
def test_cyclic_deals_over_racks_and_then_over_their_nodes(layout, order):
    assert numbering(layout, "cyclic") == order
