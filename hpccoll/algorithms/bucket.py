"""Bucket: rings along the dimensions of a torus, one dimension after the other.

At p = 4, two rows of two, which units a rank still folds in a reduce-scatter, and then those of the
sum that it has in an all-gather:

    row          0               1
    rank         0       1       2       3
    start        0123+   0123+   0123+   0123+
    columns      01+     01+     23+     23+       rings of two: 0, 2 and 1, 3 fold half of the vector each
    rows         0       1       2       3         rings of two: 0, 1 and 2, 3 fold a half of that
    rows         01      01      23      23        the all-gather goes back the same way
    columns      0123    0123    0123    0123

A rank sends to its neighbours alone. The ranks are in ``planes`` of ``rows``: at 1 plane a torus of
two dimensions. Unless ``rows`` is given, a plane is as square as can be. An all-reduce is
reduce-scatter, then all-gather. On a node with several ports, a part of the vector can go through
each, beginning with another dimension, or the other way round; `torus` does that with two.

Cost: with a planes, r rows and c columns, (a + r + c - 3) alpha + (p - 1)/p S beta, of
reduce-scatter (p - 1)/p S gamma more: the bytes of a ring of all ranks in far fewer messages, which
are as large as a plane at first.

M. Barnett, R. Littlefield, D. G. Payne, R. van de Geijn: Global combine on mesh architectures with
wormhole routing, IPPS (1993). P. Sack, W. Gropp: Collective algorithms for multiported torus
networks, ACM TOPC 1 (2015) 12.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Annotated

from hpccoll.algorithms.torus import rows_of_grid
from hpccoll.schedule import (
    Cost,
    Layout,
    Parameter,
    Regularity,
    Requirement,
    Schedule,
    all_gather,
    all_reduce,
    reduce_scatter,
    reverse,
    then,
)
from hpccoll.schedule.step import Index, RecvReduce, Send, Step, dst

Length = Annotated[int, range(1 << 20)]
"""How long a dimension is; 0 rows are as many as make a plane the most square."""


def shape_of(p: int, planes: int, rows: int) -> Sequence[int]:
    """Return the planes, the rows of a plane and its columns: none if p has no such shape."""
    if planes < 1 or p % planes:
        return 0, 0, 0
    ranks_of_plane = p // planes
    rows = rows_of_grid(ranks_of_plane, rows)
    if rows < 1 or ranks_of_plane % rows:
        return 0, 0, 0
    return planes, rows, ranks_of_plane // rows


def _has_shape(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    planes, rows = int(parameters["planes"]), int(parameters["rows"])
    return prod(shape_of(layout.workers, planes, rows)) > 0


_FITS = Requirement("a number of workers that its planes and rows divide", _has_shape)


def _half_cost(p: int, planes: int = 1, rows: int = 0) -> Cost:
    lengths = shape_of(p, planes, rows)
    return Cost(steps=sum(lengths) - len(lengths), sent=(p - 1) / p, reduced=0)


def _reduce_scatter_cost(p: int, planes: int = 1, rows: int = 0) -> Cost:
    return _half_cost(p, planes, rows).folding()


def _cost(p: int, planes: int = 1, rows: int = 0) -> Cost:
    half = _half_cost(p, planes, rows)
    return Cost(steps=2 * half.steps, sent=2 * half.sent, reduced=half.sent)


@reduce_scatter("bucket", needs=[_FITS], cost=_reduce_scatter_cost)
def bucket_reduce_scatter(layout: Layout, *, planes: Length = 1, rows: Length = 0) -> Schedule:
    p = layout.workers
    lengths = shape_of(p, planes, rows)

    def rings(_layout: Layout, me: Index) -> Iterator[Step]:
        distance = p  # how far neighbours are distance, and how many units I still fold
        for length in lengths:
            folded = distance
            distance //= length
            begin = me // folded * folded
            place = me // distance % length
            right = me + ((place + 1) % length - place) * distance
            left = me + ((place - 1) % length - place) * distance
            for step in range(1, length):
                sent = begin + (place - step) % length * distance
                kept = begin + (place - step - 1) % length * distance
                yield Step(
                    Send(right, dst[sent : sent + distance]),
                    RecvReduce(left, dst[kept : kept + distance]),
                )

    # ranks of one place in all but the first dimension do alike
    first = next((length for length in lengths if length > 1), 1)
    return Schedule.of(layout, rings, regularity=Regularity(period=p // first))


@all_gather("bucket", needs=[_FITS], cost=_half_cost)
def bucket_all_gather(layout: Layout, *, planes: Length = 1, rows: Length = 0) -> Schedule:
    return reverse(bucket_reduce_scatter.schedule(layout, planes=planes, rows=rows))


@all_reduce("bucket", needs=[_FITS], cost=_cost)
def bucket(layout: Layout, *, planes: Length = 1, rows: Length = 0) -> Schedule:
    scatter = bucket_reduce_scatter.schedule(layout, planes=planes, rows=rows)
    return then(scatter, reverse(scatter))
