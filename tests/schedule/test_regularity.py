"""Schedules that declare or derive a regularity have it at all ranks, and blocks of a layout look alike."""

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, cases, places, variants

from hpccoll.schedule import NONE, Layout, Recv, RecvReduce, Regularity, Schedule, Send, in_groups
from hpccoll.schedule.layout import equal_block, least_period
from hpccoll.schedule.regularity import of_relabelled
from hpccoll.schedule.step import Copy

REGULAR = {
    "all_gather-bine",
    "all_gather-bruck",
    "all_gather-bucket",
    "all_gather-pat",
    "all_gather-recursive_doubling",
    "all_gather-ring",
    "all_reduce-bidirectional_ring",
    "all_reduce-bucket",
    "reduce_scatter-bucket",
    "all_reduce-bine",
    "all_reduce-hierarchical",
    "all_reduce-rabenseifner",
    "all_reduce-recursive_doubling",
    "all_reduce-reduce_scatter_all_gather",
    "all_reduce-ring",
    "all_reduce-swing",
    "all_reduce-torus",
    "all_to_all-bruck",
    "all_to_all-pairwise",
    "barrier-dissemination",
    "reduce_scatter-bine",
    "reduce_scatter-pat",
    "reduce_scatter-recursive_halving",
    "reduce_scatter-ring",
    "reduce_scatter-swing",
}
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MANY = 8
"""The most ranks with which an algorithm is checked with all of its parameters."""


def check(schedule):
    """Check the definition over all ranks, for every block; and shifts, if they are declared."""
    p, regularity = schedule.layout.ranks, schedule.regularity
    blocks = [b for b in range(regularity.period, p + 1, regularity.period) if p % b == 0]
    everyone = np.arange(p)
    programs = [list(schedule.steps(me)) for me in range(p)]
    assert len({len(each) for each in programs}) == 1
    for number in range(len(programs[0])):
        messages = [
            [a for a in program[number].actions if not isinstance(a, Copy)] for program in programs
        ]
        messages = [[a for a in of_rank if a.peer != NONE] for of_rank in messages]
        assert len({len(of_rank) for of_rank in messages}) == 1
        if not messages[0]:
            continue
        messages = [sorted(of_rank, key=lambda a: not isinstance(a, Send)) for of_rank in messages]
        assert {tuple(map(type, of_rank)) for of_rank in messages} in (
            {(Send, Recv)},
            {(Send, RecvReduce)},
        )
        sends, arrivals = zip(*messages, strict=True)
        to, origin = (np.array([int(a.peer) for a in ends]) for ends in (sends, arrivals))
        units = [set(a.part.units) for a in sends]
        assert (origin[to] == everyone).all()
        for b in blocks:
            for alike in (
                to % b,
                np.where(to // b == everyone // b, to - everyone, p),
                [*map(len, units)],
            ):
                rows = np.reshape(alike, (-1, b))
                assert (rows == rows[0]).all(), (number, b)
        if regularity.shifts is not None:
            assert ((to - everyone - to[0]) % p == 0).all(), number
            n = schedule.units
            moved = [{(u + regularity.shifts * me) % n for u in units[0]} for me in everyone]
            assert units == moved, number


def layouts(algorithm, p):
    """Yield layouts of p ranks: on one node, on pairs of nodes in a row or in turns, and on nodes in racks."""
    yield places(algorithm, p)
    if p % 4 == 0 and not algorithm.aggregates:
        pairs = range(0, p, 2)
        yield Layout.of(p, 2)
        yield Layout(tuple(me % len(pairs) for me in range(p)))
        yield Layout(tuple(me // 2 for me in range(p)), tuple(me * 2 // p for me in range(p)))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_regular_schedule_is_regular_at_all_ranks(name):
    """All that declare or derive a regularity, with each component that they can have."""
    collective, algorithm = ALGORITHMS[name]
    regular = False
    for layout in (each for p in RANKS for each in layouts(algorithm, p)):
        for parameters in variants(algorithm, layout) if layout.ranks <= MANY else [{}]:
            for case in cases(collective, algorithm, layout, **parameters):
                for schedule in filter(lambda one: one.regularity, case.slices):
                    regular = True
                    check(schedule)
    assert regular == (name in REGULAR)


def test_groups_are_alike_in_whichever_way_their_ranks_lie_and_else_unknown():
    two = Regularity(period=2)

    def grouped(groups, inner=two, node=(0,) * 24):
        layout = Layout(node)
        return in_groups(
            layout,
            24,
            groups,
            lambda part: Schedule(part, part.ranks, lambda _: iter(()), True, inner),
        )

    consecutive = [list(range(first, first + 4)) for first in range(0, 24, 4)]
    interleaved = [list(range(first, 24, 4)) for first in range(4)]
    assert grouped(consecutive).regularity == Regularity(4)
    assert grouped(interleaved).regularity == Regularity(8)
    assert grouped(interleaved, inner=None).regularity is None
    assert grouped([consecutive[0][::-1], *consecutive[1:]]).regularity is None
    assert grouped(consecutive, node=(0,) * 3 + (1,) * 21).regularity is None, "two kinds of groups"


def test_ranks_in_another_order_keep_shifts_only_if_all_follow_one_another():
    ring = Regularity(1, shifts=1)
    assert of_relabelled(ring, [2, 3, 4, 0, 1]) == ring
    assert of_relabelled(ring, [0, 4, 3, 2, 1]) == Regularity(1, shifts=-1)
    assert of_relabelled(ring, [0, 2, 1, 3, 4]) is of_relabelled(Regularity(1), range(5)) is None


@pytest.mark.parametrize(
    ("layout", "block"),
    [
        (Layout.of(24, 4), 4),
        (Layout.of(22, 4), 22),  # the last node has two ranks
        (Layout((0, 0, 0, 0, 1, 1, 1, 1), rail=(0, 1, 0, 1) * 2), 4),
        (Layout((0, 0, 0, 0, 1, 1, 1, 1), rail=(0, 1, 0, 1, 0, 0, 1, 1)), 8),
        (Layout(tuple(me // 2 for me in range(16)), tuple(me // 8 for me in range(16))), 8),
        # racks of 3, 3 and 2
        (Layout(tuple(me // 2 for me in range(16)), tuple(me // 6 for me in range(16))), 16),
        (Layout((0, 1, 2, 3) * 3), 12),  # every node has ranks of every block
        (Layout.of(8, 2, aggregators=4), 12),
    ],
)
def test_the_ranks_of_a_block_share_nothing_with_others_and_lie_like_them(layout, block):
    assert equal_block(layout) == block


def test_values_repeat_after_a_divisor_of_their_number():
    assert [least_period(np.array(each)) for each in ([5], [5, 5, 5], [1, 2, 1, 2], [1, 2, 1, 2, 1], [1, 2, 3])] == [
        1, 1, 2, 5, 3,
    ]  # fmt: skip
