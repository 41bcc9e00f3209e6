"""What the lowerings share: the lanes and steps of a rank, and the spans of parts."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_examples import Case, of_lists

from hpccoll.schedule import Copy, CopyReduce, Part, Recv, RecvReduce, Send, Step, all_reduce
from hpccoll.schedule.step import Range, parts_of
from hpccoll.transports.shared_lowering import Lowering, Span, align_pieces


def test_views_and_spans_are_cut_into_pieces_contiguous_in_each_list():
    left, right = np.split(np.arange(4), [1]), np.split(np.arange(4), [2])
    pieces = [tuple(view.tolist() for view in pair) for pair in align_pieces(left, right)]
    assert pieces == [([0], [0]), ([1], [1]), ([2, 3], [2, 3])]
    cut = [*align_pieces([Span("dst", 10, 11), Span("dst", 20, 23)], [Span("tmp", 0, 4)])]
    assert cut == [
        (Span("dst", 10, 11), Span("tmp", 0, 1)),
        (Span("dst", 20, 23), Span("tmp", 1, 4)),
    ]


def lowering(*, slices=1, channels=1, window=2):
    """Return the lowering of rank 0 of four for an all-reduce in place in 16 units without steps."""
    case = Case(all_reduce.call(4), (of_lists([], [], [], [], units=16),) * slices)
    return Lowering(0, case.operation(64, channels=channels, window=window))


@pytest.mark.parametrize(
    ("slices", "channels", "window", "sequences"),
    [(1, 4, 2, 2), (2, 4, 2, 4), (2, 1, 1, 2), (2, 3, 9, 6)],
)
def test_sequences_are_slices_times_window_and_share_the_lanes(slices, channels, window, sequences):
    found = lowering(slices=slices, channels=channels, window=window).operation.sequences
    assert len(found) == sequences
    assert sorted(chain.from_iterable(found)) == [*range(slices * channels)]
    assert all(len({lane % slices for lane in lanes}) == 1 for lanes in found), (
        "a sequence is of one slice"
    )


PARTS = st.builds(
    lambda buffer, ranges: Part(
        buffer, tuple(Range(first, first + units) for first, units in ranges)
    ),
    st.sampled_from(["dst", "tmp"]),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=2),
)
ACTIONS = st.one_of(
    st.builds(Send, st.just(1), PARTS),
    st.builds(Recv, st.just(1), PARTS),
    st.builds(RecvReduce, st.just(1), PARTS),
    st.builds(Copy, PARTS, PARTS),
)


@given(st.lists(ACTIONS, max_size=5))
def test_only_actions_that_share_an_element_need_staging(actions):
    one = lowering()
    elements = [
        {
            (span.buffer, element)
            for span in one.spans(0, *parts_of(action))
            for element in range(span.start, span.stop)
        }
        for action in actions
    ]
    touched = {
        place
        for place, mine in enumerate(elements)
        if any(mine & theirs for other, theirs in enumerate(elements) if other != place)
    }
    needing = one.overlapping(0, Step(*actions))
    assert needing <= touched
    may_be_undisturbed = {
        place for place in touched if isinstance(actions[place], Recv | CopyReduce)
    }
    assert needing >= touched - may_be_undisturbed
