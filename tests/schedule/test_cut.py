import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from schedules import EXAMPLES, LEAST_RANKS

from hpccoll.schedule import Cut, Layout, Schedule, Send, Step, all_gather, all_reduce, dst, src, tmp
from hpccoll.schedule.cut import GRAIN, bounds
from hpccoll.schedule.match import match

counts = st.one_of(st.integers(0, 300), st.integers(0, 1 << 34))
itemsizes = st.sampled_from([1, 2, 4, 8])


@given(counts, st.integers(1, 64), st.sampled_from([1, 16, 32, 64, 128]))
def test_bounds_cover_the_buffer_and_never_go_back(count, pieces, grain):
    edges = bounds(count, pieces, grain)
    assert len(edges) == pieces + 1
    assert edges[0] == 0
    assert edges[-1] == count
    assert (np.diff(edges) >= 0).all()


@given(counts, st.integers(1, 64), st.sampled_from([1, 16, 32, 64, 128]))
def test_pieces_are_whole_grains_where_there_is_a_grain_for_each_and_differ_by_one(count, pieces, grain):
    edges = bounds(count, pieces, grain)
    grain = grain if count >= pieces * grain else 1
    assert (edges[:-1] % grain == 0).all()
    lengths = np.diff(edges)
    lengths[-1] -= count % grain
    assert lengths.max() - lengths.min() <= grain


@given(counts, st.integers(1, 17), st.integers(1, 9), itemsizes)
def test_free_units_are_cut_by_lane_and_then_by_unit(count, units, lanes, itemsize):
    cut = Cut(all_reduce, count, units, lanes, itemsize)
    spans = [cut.spans(lane, 0, dst[unit]) for lane in range(lanes) for unit in range(units)]
    _cover([span for of_unit in spans for span in of_unit], count)
    for lane in range(lanes):
        assert len(cut.spans(lane, 0, dst[0:units])) <= 1  # a lane is contiguous
    if count >= lanes * 2 * units * (GRAIN // itemsize):
        assert all(a * itemsize % GRAIN == 0 for of_unit in spans for a, _ in of_unit)


@given(st.integers(0, 5000), st.integers(1, 9), st.integers(1, 5), itemsizes)
def test_owned_units_are_blocks_each_cut_by_lane(count, p, lanes, itemsize):
    cut = Cut(all_gather, count, p, lanes, itemsize)
    for unit in range(p):
        spans = [span for lane in range(lanes) for span in cut.spans(lane, 0, dst[unit])]
        _cover([(a - unit * count, b - unit * count) for a, b in spans], count)


@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 5))
def test_a_buffer_of_one_block_holds_it_at_its_start(count, p, lanes):
    cut = Cut(all_gather, count, p, lanes, 4)
    for me in range(p):
        _cover([span for lane in range(lanes) for span in cut.spans(lane, me, src[me])], count)


def _cover(spans, count):
    done = 0
    for start, stop in spans:
        assert start == done < stop
        done = stop
    assert done == count


def test_adjacent_ranges_are_joined_and_empty_ones_are_dropped():
    cut = Cut(all_reduce, 8, 8, 1, 4)
    assert cut.spans(0, 0, dst[1] + dst[2:4] + dst[5:5] + dst[4] + dst[0]) == [(1, 5), (0, 1)]
    assert cut.spans(0, 0, dst[2:2]) == []
    assert Cut(all_reduce, 2, 4, 1, 4).spans(0, 0, dst[0]) == []


@given(
    st.sampled_from(sorted(EXAMPLES)),
    st.integers(2, 6),
    st.one_of(st.integers(0, 50), st.integers(0, 10**6)),
    st.integers(1, 5),
    itemsizes,
)
def test_both_ends_of_a_message_have_as_many_elements(name, ranks, count, channels, itemsize):
    example = EXAMPLES[name]
    slices = example.slices(max(ranks, LEAST_RANKS.get(name, 1)))
    cut = Cut(example.collective, count, slices[0].units, len(slices) * channels, itemsize)
    for moment in match(slices[0]):
        for m in moment.landed:
            for lane in range(cut.lanes):
                lengths = cut.lengths(lane, m.sent)
                assert (lengths == cut.lengths(lane, m.landed)).all()
                assert m.own is None or (lengths == cut.lengths(lane, m.own)).all()


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 4), st.integers(0, 3))
def test_a_part_is_as_long_as_its_spans(count, p, lanes, lane):
    lane = min(lane, lanes - 1)
    for collective in (all_reduce, all_gather):
        cut = Cut(collective, count, p, lanes, 4)
        for part in (dst[0:p], tmp[p - 1] + tmp[0], dst[p // 2 : p] + dst[0 : p // 2]):
            assert cut.lengths(lane, part) == sum(b - a for a, b in cut.spans(lane, 0, part))


def test_the_steps_of_a_schedule_do_not_know_the_size():
    schedule = Schedule(Layout.of(2), 1, lambda me: iter([Step(Send(1 - me, 0))]))
    assert list(schedule.steps(0)) == [Step(Send(1, 0))]
