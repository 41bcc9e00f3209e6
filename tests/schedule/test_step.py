import numpy as np
import pytest

from hpccoll.schedule import NONE, Copy, Layout, RecvReduce, Schedule, Send, Step, tree
from hpccoll.schedule.step import (
    Part,
    Range,
    ceil_log2,
    dst,
    floor_log2,
    is_power_of_two,
    peer_if,
    src,
    tmp,
)


def test_a_part_is_several_ranges_with_both_ends_of_one_buffer_in_the_order_written():
    part = tmp[2:5] + tmp[0] + tmp[7:7]
    assert part == Part("tmp", (Range(2, 5), Range(0, 1), Range(7, 7)))
    assert part.in_buffer("dst") == dst[2:5] + dst[0] + dst[7:7]
    with pytest.raises(ValueError, match="in one buffer, not in src and dst"):
        src[0] + dst[0]
    for units in (slice(3), slice(1, None), slice(0, 4, 2)):
        with pytest.raises(ValueError, match="dst: a range of units has a first and a last"):
            dst[units]


def test_peer_if_keeps_the_peer_where_the_condition_holds():
    me = np.arange(4)
    assert (peer_if(True, 5), peer_if(False, 5)) == (5, NONE)
    assert peer_if(me > 1, me - 1).tolist() == [NONE, NONE, 1, 2]
    assert peer_if(me > 1, 0).tolist() == [NONE, NONE, 0, 0]


def test_all_units_are_those_of_the_schedule_that_is_made_of_the_text():
    def steps(_layout, _me):
        yield Step(Send(1, src.all), RecvReduce(1, dst.all), Copy(tmp.all, dst[1]))

    for p in (2, 5):
        (step,) = Schedule.of(Layout.of(p), steps).steps(0)
        assert step == Step(Send(1, src[0:p]), RecvReduce(1, dst[0:p]), Copy(tmp[0:p], dst[1]))


@pytest.mark.parametrize("p", range(1, 70))
def test_logarithms_are_exact(p):
    assert 2 ** floor_log2(p) <= p < 2 ** (floor_log2(p) + 1)
    assert p <= 2 ** ceil_log2(p) < 2 * p
    assert is_power_of_two(p) == (floor_log2(p) == ceil_log2(p))


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 13, 16])
def test_parents_and_children_in_a_tree_agree(p):
    for distance in (1, 2, 4, 8):
        below = {me: tree.binomial_child(me, distance, p) for me in range(p)}
        assert {child: me for me, child in below.items() if child != NONE} == {
            me: tree.binomial_parent(me, distance)
            for me in range(p)
            if tree.binomial_parent(me, distance) != NONE
        }
    children = {me: set(tree.in_order_children(me, p)) - {NONE} for me in range(p)}
    assert all(
        tree.in_order_parent(child, p) == me for me, below in children.items() for child in below
    )
    assert sum(map(len, children.values())) == p - 1
