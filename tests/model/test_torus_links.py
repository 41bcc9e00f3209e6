"""The links of a torus: how far messages go, and what the fullest link of each carries."""

from collections import Counter

import numpy as np
import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.model.torus_links import Torus


def all_of(torus):
    """Return the numbers of all nodes."""
    return np.arange(torus.nodes)


@pytest.mark.parametrize(("distance", "hops"), [(0, 0), (1, 1), (3, 3), (4, 4), (5, 3), (7, 1)])
def test_a_message_goes_the_shorter_way_round_a_ring(distance, hops):
    ring = Torus((8,))
    source = all_of(ring)
    target = (source + distance) % 8
    assert set(ring.hops(source, target)) == {hops}
    # all ranks send as far: each link carries as many messages as each passes
    assert set(ring.link_bytes(source, target, np.full(8, 10))) == {10 * hops}


def test_a_message_goes_along_the_dimensions_in_turn():
    torus = Torus.parse("2x3x4")
    assert torus.nodes == 24
    source, target = np.array([0]), np.array([23])
    assert torus.hops(source, target) == [1 + 1 + 1]
    # both pass the link from 0 forwards along the last dimension; the second one alone goes on
    source, target = np.array([0, 0, 12]), np.array([1, 2, 12])
    assert torus.link_bytes(source, target, np.array([5, 7, 9])).tolist() == [12, 12, 0]


def test_messages_one_way_and_the_other_do_not_share_a_link():
    ring = Torus((4,))
    source, target = np.array([0, 1]), np.array([1, 0])
    assert ring.link_bytes(source, target, np.array([5, 7])).tolist() == [5, 7]


def test_the_bytes_of_all_links_are_those_of_all_hops():
    torus = Torus((3, 4, 2))
    draw = np.random.default_rng(1)
    source, target = draw.integers(0, torus.nodes, (2, 200))
    nbytes = draw.integers(1, 100, 200)
    fullest = torus.link_bytes(source, target, nbytes)
    hops = torus.hops(source, target)
    assert ((fullest >= nbytes) == (hops > 0)).all()
    assert fullest.max() * torus.nodes * 2 * 3 >= (hops * nbytes).sum()


@pytest.mark.parametrize("text", ["", "4x", "0x4", "4x4y", "-1", "9" * 5000, "x".join("1" * 9)])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(BadInputError):
        Torus.parse(text)


def test_both_ways_round_two_nodes_are_one_link():
    links = {
        shape: Torus(shape).links_of_node for shape in ((1,), (2,), (3,), (2, 2, 2), (4, 2, 8))
    }
    assert links == {(1,): 0, (2,): 1, (3,): 2, (2, 2, 2): 3, (4, 2, 8): 5}


def one_link_after_another(torus, source, target, nbytes):
    """Return the bytes of the fullest link of each message, by following it link by link."""
    ways = []
    carried = Counter()
    for begin, end, size in zip(source.tolist(), target.tolist(), nbytes.tolist(), strict=True):
        node = list(np.unravel_index(begin, torus.shape))
        aim = np.unravel_index(end, torus.shape)
        way = []
        for dimension, length in enumerate(torus.shape):
            forwards = (aim[dimension] - node[dimension]) % length
            direction = 1 if 2 * forwards <= length else -1
            while node[dimension] != aim[dimension]:
                way.append((*node, dimension, direction))
                node[dimension] = (node[dimension] + direction) % length
        ways.append(way)
        for link in way:
            carried[link] += size
    return [max((carried[link] for link in way), default=0) for way in ways]


@pytest.mark.parametrize("shape", [(7,), (2, 2, 2), (4, 8), (3, 5, 6), (1, 9)])
def test_the_fullest_link_is_that_of_a_walk_along_all_links(shape):
    torus = Torus(shape)
    draw = np.random.default_rng(2)
    source, target = draw.integers(0, torus.nodes, (2, 150))
    nbytes = draw.integers(1, 100, 150)
    walked = one_link_after_another(torus, source, target, nbytes)
    assert torus.link_bytes(source, target, nbytes).tolist() == walked


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (2, 4, 3), (1, 6)])
def test_all_links_of_a_dimension_carry_the_mean_where_each_node_sends_to_all_others(shape):
    torus = Torus(shape)
    everyone = all_of(torus)
    source, target = np.repeat(everyone, torus.nodes), np.tile(everyone, torus.nodes)
    of_first = source == 0
    fullest = torus.link_bytes(source, target, np.full(len(source), 10))[of_first]
    mean = torus.mean_link_bytes(
        source[of_first], target[of_first], np.full(torus.nodes, 10), torus.nodes
    )
    assert mean.tolist() == fullest.tolist()


@pytest.mark.parametrize(
    ("nodes", "dimensions", "shape"),
    [
        (8192, 3, (16, 16, 32)),
        (512, 3, (8, 8, 8)),
        (64, 2, (8, 8)),
        (7, 3, (1, 1, 7)),
        (24, 3, (2, 3, 4)),
        (30, 1, (30,)),
    ],
)
def test_the_most_even_torus_has_dimensions_as_equal_as_possible(nodes, dimensions, shape):
    assert Torus.most_even(nodes, dimensions).shape == shape
