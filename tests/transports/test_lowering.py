"""What the lowerings share: the lanes and steps of a rank, and the spans of parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_examples import Case

from hpccoll.schedule import Copy, Layout, Part, Recv, RecvReduce, Schedule, Send, Step, all_reduce
from hpccoll.schedule.step import Range, parts_of
from hpccoll.transports.shared_lowering import Lowering, align_pieces


@pytest.mark.parametrize(
    ("lengths", "pieces"),
    [(([4], [4]), [(4, 4)]), (([1, 3], [2, 2]), [(1, 1), (1, 1), (2, 2)]), (([2, 2], [2, 2]), [(2, 2), (2, 2)])],
)
def test_views_are_cut_into_pieces_contiguous_in_each_list(lengths, pieces):
    def views(lengths, start):
        whole = np.arange(start, start + sum(lengths))
        return np.split(whole, np.cumsum(lengths)[:-1])

    cut = list(align_pieces(views(lengths[0], 0), views(lengths[1], 100)))
    assert [tuple(map(len, pair)) for pair in cut] == pieces
    for side, start in enumerate((0, 100)):
        joined = np.concatenate([pair[side] for pair in cut])
        assert joined.tolist() == list(range(start, start + len(joined)))


def lowering(steps, *, slices=1, channels=1, window=2):
    """Return the lowering of rank 0 of four for a schedule of these steps, an all-reduce in place in 16 units."""
    schedule = Schedule(Layout.of(4), 16, lambda _me: iter(steps()))
    case = Case(all_reduce.call(4), (schedule,) * slices)
    return Lowering(0, case.operation(64, channels=channels, window=window))


@pytest.mark.parametrize(
    ("slices", "channels", "window", "sequences"), [(1, 4, 2, 2), (2, 4, 2, 4), (2, 1, 1, 2), (2, 3, 9, 6)]
)
def test_sequences_are_slices_times_window_and_share_the_lanes(slices, channels, window, sequences):
    one = lowering(list, slices=slices, channels=channels, window=window)
    assert one.sequence_count == sequences
    assert sorted(lane for number in range(sequences) for lane in one.lanes(number)) == [*range(slices * channels)]


PARTS = st.builds(
    lambda buffer, ranges: Part(buffer, tuple(Range(first, first + units) for first, units in ranges)),
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
def test_overlapping_actions_share_an_element(actions):
    one = lowering(list)
    elements = [
        {(span.buffer, element) for span in one.spans(0, *parts_of(action)) for element in range(span.start, span.stop)}
        for action in actions
    ]
    touched = {
        place
        for place, mine in enumerate(elements)
        if any(mine & theirs for other, theirs in enumerate(elements) if other != place)
    }
    assert one.overlapping(0, Step(*actions)) == touched
