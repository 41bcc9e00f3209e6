import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_examples import SUBJECTS, case_of

from hpccoll.schedule import Cut, all_gather, all_reduce, all_to_all_v, match, out_of_place
from hpccoll.schedule.cut import GRAIN, bounds
from hpccoll.schedule.step import Part, Range, dst, src, tmp
from hpccoll.schedule.unequal_blocks import PATTERNS

counts = st.one_of(st.integers(0, 300), st.integers(0, 1 << 34))
itemsizes = st.sampled_from([1, 2, 4, 8])


@given(counts, st.integers(1, 64), st.sampled_from([1, 16, 32, 64, 128]))
def test_pieces_cover_the_buffer_in_whole_grains_where_there_is_one_for_each_and_differ_by_one(
    count, pieces, grain
):
    edges = bounds(count, pieces, grain)
    assert (len(edges), edges[0], edges[-1]) == (pieces + 1, 0, count)
    grain = grain if count >= pieces * grain else 1
    assert (edges[:-1] % grain == 0).all()
    lengths = np.diff(edges)
    assert (lengths >= 0).all()
    lengths[-1] -= count % grain
    assert lengths.max() - lengths.min() <= grain


@given(counts, st.integers(1, 17), st.integers(1, 9), itemsizes)
def test_free_units_are_cut_by_lane_and_then_by_unit(count, units, lanes, itemsize):
    cut = Cut(all_reduce.call(1), count, units, lanes, itemsize)
    spans = [cut.spans(lane, 0, dst[unit]) for lane in range(lanes) for unit in range(units)]
    _cover([span for of_unit in spans for span in of_unit], count)
    for lane in range(lanes):
        assert len(cut.spans(lane, 0, dst[0:units])) <= 1  # a lane is contiguous
    if count >= lanes * 2 * units * (GRAIN // itemsize):
        assert all(a * itemsize % GRAIN == 0 for of_unit in spans for a, _ in of_unit)


def _cover(spans, count):
    done = 0
    for start, stop in spans:
        assert start == done < stop
        done = stop
    assert done == count


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=15)
@given(
    st.integers(2, 6),
    st.one_of(st.integers(0, 50), st.integers(0, 10**6)),
    st.integers(1, 5),
    itemsizes,
)
def test_both_ends_of_a_message_have_as_many_elements(name, ranks, count, channels, itemsize):
    case = case_of(name, ranks)
    if case is None:
        return
    cut = Cut(case.call, count, case.slices[0].units, len(case.slices) * channels, itemsize)
    for schedule in (
        case.slices if case.placements[0] else [out_of_place(case.call, one) for one in case.slices]
    ):
        for matched in match(schedule):
            for m in matched.landed:
                for lane in range(cut.lanes):
                    lengths = cut.lengths(lane, m.sent, m.source)
                    assert (lengths == cut.lengths(lane, m.landed, m.target)).all()
                    assert (
                        m.operand is None
                        or (lengths == cut.lengths(lane, m.operand, m.target)).all()
                    )


# ---- unequal blocks
# -------------------------------------------------------------------------------------------------

patterns = st.sampled_from(sorted(PATTERNS))


@given(patterns, st.integers(1, 7), st.integers(0, 2000), st.integers(1, 5), itemsizes)
def test_unequal_blocks_cover_src_and_dst_of_every_rank_in_order(
    traffic, p, count, lanes, itemsize
):
    call = all_to_all_v.call(p, traffic=traffic)
    cut, blocks = Cut(call, count, p, lanes, itemsize), call.blocks(count)
    for me in range(p):
        for buffer, sizes in ((src, blocks[me]), (dst, blocks[:, me])):
            spans = [
                span
                for unit in range(p)
                for lane in range(lanes)
                for span in cut.spans(lane, me, buffer[unit])
            ]
            _cover(spans, cut.elements(buffer.name, me))
            for unit, end in enumerate(sizes.cumsum().tolist()):
                of_unit = [
                    span for lane in range(lanes) for span in cut.spans(lane, me, buffer[unit])
                ]
                assert sum(b - a for a, b in of_unit) == sizes[unit]
                assert not of_unit or of_unit[-1][1] == end


@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize(
    "call", [all_reduce.call(5), all_gather.call(5), all_to_all_v.call(5, traffic="random")]
)
def test_lengths_are_those_of_spans_whatever_a_range_holds(call, name):
    cut, ranks = Cut(call, 300, 5, 3, 4), np.arange(5)
    part = Part(
        name,
        (
            Range(ranks, ranks + 1),
            Range(ranks // 2, np.full(5, 5)),
            Range(ranks, ranks),
            Range(2, 4),
        ),
    )
    for lane in range(3):
        alone = [
            Part(name, tuple(Range(*(np.broadcast_to(n, 5)[me] for n in r)) for r in part.ranges))
            for me in ranks
        ]
        lengths = [sum(b - a for a, b in cut.spans(lane, me, alone[me])) for me in ranks]
        assert cut.lengths(lane, part, ranks).tolist() == lengths


def test_there_is_no_workspace_of_unequal_blocks():
    cut = Cut(all_to_all_v.call(4), 48, 4, 1, 4)
    with pytest.raises(ValueError, match="tmp has no unequal blocks"):
        cut.lengths(0, tmp[0], np.arange(4))
    with pytest.raises(ValueError, match="tmp has no unequal blocks"):
        cut.spans(0, 0, tmp[0])


# ---- buffers
# --------------------------------------------------------------------------------------------------------
