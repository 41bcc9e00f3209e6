"""Pieces of buffers: views and spans."""

import numpy as np
import pytest

from hpccoll.transports.buffer_pieces import Span, align_pieces


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


def test_spans_are_cut_like_arrays():
    cut = list(align_pieces([Span("dst", 10, 11), Span("dst", 20, 23)], [Span("tmp", 0, 4)]))
    assert cut == [(Span("dst", 10, 11), Span("tmp", 0, 1)), (Span("dst", 20, 23), Span("tmp", 1, 4))]


def test_spans_overlap_if_they_share_an_element():
    one = Span("dst", 4, 8)
    assert [one.overlaps(Span("dst", *ends)) for ends in ((0, 4), (0, 5), (7, 9), (8, 9))] == [False, True, True, False]
    assert not one.overlaps(Span("tmp", 4, 8))
