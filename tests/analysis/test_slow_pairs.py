"""Which pairs are slow, and what explains them: each rule with pairs of hosts, of which some are slow."""

from itertools import combinations

import pytest
from row_examples import make_row

from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.slow_pairs import MAX_NAMES, slow_pairs
from hpccoll.analysis.wire_bandwidth import Wire


def explained(is_slow, nodes, per_node=1, *, factor=1.8, racks=(), half=0.03):
    """Return what explains the slow pairs of all pairs between nodes; ``is_slow`` has the numbers of two ranks."""
    ranks = nodes * per_node
    points = [
        SeriesPoint(
            make_row(
                "ping_pong",
                ranks,
                seconds=1e-5 * (factor if is_slow(*pair) else 1),
                half_interval=half,
                op=None,
                collective="send_recv",
                root=pair[0],
                params={"peer": pair[1]},
                nodes=nodes,
                ranks_per_node=per_node,
            ),
            "ping_pong",
            "here",
            tuple(f"n{number}" for number in range(nodes)),
            Wire(),
            racks=racks,
        )
        for pair in combinations(range(ranks), 2)
        if nodes == 1 or pair[0] // per_node != pair[1] // per_node
    ]
    found = slow_pairs(points)
    return found and (found.count, found.explanation, found.names)


def one_of(*ranks):
    return lambda *pair: not {*ranks}.isdisjoint(pair)


def between(size):
    """Return whether two ranks are in different groups of ``size`` ranks."""
    return lambda one, other: one // size != other // size


def among(*pairs):
    return lambda *pair: pair in pairs


SCATTERED = among((0, 1), (2, 3), (4, 5), (6, 7))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (explained(one_of(), 5), None),
        (explained(one_of(3), 8), (7, "members", (("n3",),))),
        (explained(one_of(2), 3), (2, "members", (("n2",),))),
        (explained(one_of(2, 10), 12), (21, "members", (("n2", "n10"),))),
        (
            explained(lambda *pair: pair != (3, 4) and one_of(3)(*pair), 8),
            (6, "members", (("n3",),)),
        ),
        (explained(between(2), 4), (4, "groups", (("n0", "n1"), ("n2", "n3")))),
        (explained(between(2), 4, racks=(0, 0, 1, 1)), (4, "racks", (("n0", "n1"), ("n2", "n3")))),
        (explained(between(2), 4, racks=(0, 0, 0, 1)), (4, "groups", (("n0", "n1"), ("n2", "n3")))),
        (explained(among((2, 5)), 6), (1, "links", (("n2", "n5"),))),
        (explained(SCATTERED, 8), (4, "nothing", ())),
        (explained(one_of(2, 3), 4, 2), (12, "members", (("n1",),))),
        (explained(one_of(3), 4, 2), (6, "members", (("rank 3 on n1",),))),
        (explained(one_of(3), 1, 6), (5, "members", (("rank 3",),))),
        (explained(between(2), 1, 4), (4, "groups", (("rank 0", "rank 1"), ("rank 2", "rank 3")))),
    ],
    ids=[
        "no host",
        "a host",
        "of three hosts one",
        "two hosts",
        "a host but for one pair",
        "two groups",
        "two racks",
        "groups that are not the racks",
        "a link",
        "nothing",
        "a host with two ranks",
        "one of its ranks",
        "a rank of one host",
        "two groups of ranks",
    ],
)
def test_each_explanation_is_found(found, expected):
    assert found == expected


def test_a_pair_is_slow_only_beyond_the_noise_and_by_a_factor():
    assert explained(one_of(3), 8, factor=1.2) is None
    assert explained(one_of(3), 8, half=0.4) is None
    assert explained(one_of(3), 8, factor=1.3) == (7, "members", (("n3",),))


@pytest.mark.parametrize("hosts", range(2, 6))
def test_a_few_hosts_explain_slow_pairs_and_many_do_not(hosts):
    found = explained(one_of(*range(hosts)), 4 * hosts)
    several = tuple(f"n{number}" for number in range(hosts))
    assert found[1:] == (("members", (several,)) if hosts <= MAX_NAMES else ("nothing", ()))
