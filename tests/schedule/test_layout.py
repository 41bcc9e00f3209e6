import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.schedule import Layout
from hpccoll.schedule.layout import TIERS


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 3))
def test_workers_fill_nodes_in_blocks_and_every_aggregator_is_apart(workers, per_node, aggregators):
    layout = Layout.of(workers, per_node, aggregators)
    assert (layout.workers, layout.ranks) == (workers, workers + aggregators)
    assert layout.nodes == -(-workers // per_node)
    assert layout.mapping == "block"
    assert layout.ranks_per_node == (
        min(per_node, workers) if workers % per_node == 0 or workers < per_node else None
    )
    assert len(set(layout.node[workers:]) - set(layout.node[:workers])) == aggregators


def test_the_mapping_says_how_consecutive_ranks_lie_and_a_tier_how_far_a_message_goes():
    nodes = (0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 1, 0), (0,), (0, 1)
    assert [Layout(node).mapping for node in nodes] == [
        "block",
        "cyclic",
        "mixed",
        "block",
        "block",
    ]
    layout = Layout(node=(0, 0, 1, 2), rack=(0, 0, 0, 1))
    tiers = layout.tier(np.zeros(4, int), np.arange(4))
    assert [TIERS[tier] for tier in tiers] == ["rank", "node", "rack", "fabric"]


RACKS = Layout(
    node=(0, 0, 1, 1, 2, 2, 7),
    rack=(0, 0, 0, 0, 1, 1, 9),
    rail=(1, 0, 1, 0, 1, 0, 3),
    aggregators=1,
)


def test_the_layout_of_some_ranks_is_where_they_are_in_the_order_given():
    some = RACKS.subset([4, 0, 3])
    assert some == Layout(node=(2, 0, 1), rack=(1, 0, 0), rail=(1, 1, 0))
    assert RACKS.subset([1, 6]) == Layout(node=(0, 7), rack=(0, 9), rail=(0, 3), aggregators=1)
    assert RACKS.subset(range(7)) == RACKS


def test_groups_are_the_workers_of_a_place_in_the_order_of_their_ranks():
    assert RACKS.groups("node") == [[0, 1], [2, 3], [4, 5]]
    assert RACKS.groups("rack") == [[0, 1, 2, 3], [4, 5]]
    assert RACKS.groups("rail") == [[0, 2, 4], [1, 3, 5]]
    assert Layout((1, 0, 1, 0)).groups("node") == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"node": (0, 0), "rack": (0,)}, "rack names 1 places for 2 ranks"),
        ({"node": (0, 0), "aggregators": 2}, "2 aggregators among 2 ranks leave no worker"),
        ({"node": ()}, "leave no worker"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        Layout(**arguments)
