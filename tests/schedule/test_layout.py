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
    assert layout.ranks_per_node == (min(per_node, workers) if workers % per_node == 0 or workers < per_node else None)
    assert len(set(layout.node[workers:]) - set(layout.node[:workers])) == aggregators


def test_all_workers_are_on_one_node_unless_said_otherwise():
    assert Layout.of(5).node == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("node", "mapping"),
    [((0, 0, 1, 1), "block"), ((0, 1, 0, 1), "cyclic"), ((0, 0, 1, 0), "mixed"), ((0,), "block"), ((0, 1), "block")],
)
def test_the_mapping_says_how_consecutive_ranks_lie(node, mapping):
    assert Layout(node).mapping == mapping


def test_a_tier_is_how_far_a_message_goes():
    layout = Layout(node=(0, 0, 1, 2), rack=(0, 0, 0, 1))
    source, target = np.array([0, 0, 0, 0]), np.array([0, 1, 2, 3])
    assert [TIERS[tier] for tier in layout.tier(source, target)] == ["rank", "node", "rack", "fabric"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"node": (0, 0), "rack": (0,)}, "rack names 1 places for 2 ranks"),
        ({"node": (0, 0), "rail": (0, 1, 2)}, "rail names 3 places for 2 ranks"),
        ({"node": (0, 0), "aggregators": 2}, "2 aggregators among 2 ranks leave no worker"),
        ({"node": (0, 0), "aggregators": -1}, "-1 aggregators"),
        ({"node": ()}, "leave no worker"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        Layout(**arguments)
