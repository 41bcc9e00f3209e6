import numpy as np
import pytest

from hpccoll.schedule import NONE, Copy, Part, Recv, RecvReduce, Send, Step, dst, peer_if, src, tmp
from hpccoll.schedule.step import Range, drop_null_peers


def test_a_bare_unit_is_that_unit_of_dst():
    for word in (Send, Recv, RecvReduce):
        assert word(1, 3).part == dst[3] == Part("dst", (Range(3, 4),))


def test_a_part_may_be_several_ranges_of_one_buffer_in_the_order_written():
    part = tmp[2:5] + tmp[0] + tmp[7:7]
    assert part == Part("tmp", (Range(2, 5), Range(0, 1), Range(7, 7)))
    assert part.in_buffer("dst") == dst[2:5] + dst[0] + dst[7:7]


def test_a_part_does_not_span_two_buffers():
    with pytest.raises(ValueError, match="in one buffer, not in src and dst"):
        src[0] + dst[0]


@pytest.mark.parametrize("units", [slice(3), slice(1, None), slice(0, 4, 2)])
def test_a_range_says_both_of_its_ends_and_has_no_stride(units):
    with pytest.raises(ValueError, match="dst: a range of units has a first and a last"):
        dst[units]


def test_reduce_folds_with_what_it_replaces_unless_another_part_is_named():
    assert RecvReduce(0, 2).operand == dst[2]
    assert RecvReduce(0, 2, src[2]).operand == src[2]


def test_only_keeps_the_peer_where_the_condition_holds():
    assert peer_if(True, 5) == 5
    assert peer_if(False, 5) == NONE
    me = np.arange(4)
    assert peer_if(me > 1, me - 1).tolist() == [NONE, NONE, 1, 2]
    assert peer_if(me > 1, 0).tolist() == [NONE, NONE, 0, 0]
    assert peer_if(np.bool(1), np.int64(3)) == 3


def test_words_hold_an_array_of_all_ranks_as_they_hold_one():
    me = np.arange(5)
    step = Step(Send((me + 1) % 5, me), Recv((me - 1) % 5, dst[me : me + 1]), Copy(dst[me], tmp[0]))
    send, receive, copy = step.actions
    assert send.part.ranges[0].first.tolist() == receive.part.ranges[0].first.tolist() == [0, 1, 2, 3, 4]
    assert copy.source.ranges[0].last.tolist() == [1, 2, 3, 4, 5]


def test_of_a_step_the_messages_of_nobody_are_left_out():
    copy = Copy(dst[0], tmp[0])
    step = Step(Send(NONE, 99), copy, Recv(2, 1), RecvReduce(NONE, 0))
    assert drop_null_peers(step) == Step(copy, Recv(2, 1))
