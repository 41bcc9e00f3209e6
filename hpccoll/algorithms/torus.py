"""Torus: ranks in rows and columns; reduce-scatter along the rows, all-reduce along the columns, all-gather back.

At p = 6, two rows of three, who has folded what of each third of the vector (.: not used any more,
*: abcdef):

    row          0                                   1
    rank         0           1           2           3           4           5
    start        a a a       b b b       c c c       d d d       e e e       f f f
    rows         abc . .     . abc .     . . abc     def . .     . def .     . . def     rings of three
    columns      *   . .     . *   .     . . *       *   . .     . *   .     . . *       of two: 0, 3; 1, 4; 2, 5
    rows         * * *       * * *       * * *       * * *       * * *       * * *

A second slice, the other half of the vector, does the columns first, then the rows, so that the
links of both dimensions are in use at once. Unless ``rows`` is given, the grid is as square as can
be; a prime p makes one row.

Cost: with r rows and c columns, 2 (r + c - 2) alpha instead of the ring's 2 (r c - 1), and as many
bytes.

H. Mikami, H. Suganuma, P. U-chupala, Y. Tanaka, Y. Kageyama: Massively distributed SGD:
ImageNet/ResNet-50 training in a flash, arXiv:1811.05233 (2018). M. Barnett, R. Littlefield, D. G.
Payne, R. van de Geijn: Global combine on mesh architectures with wormhole routing, IPPS (1993).
"""

from collections.abc import Mapping
from math import isqrt
from typing import Annotated

from hpccoll.algorithms.hierarchical import three_phases
from hpccoll.algorithms.ring import ring, ring_reduce_scatter
from hpccoll.schedule import Cost, Layout, Parameter, Requirement, Schedule, all_reduce


def rows_of_grid(p: int, rows: Parameter) -> int:
    """Return the number of rows; where it is not given, the largest that makes no more rows than columns."""
    requested = int(rows)
    if requested:
        return requested
    return max(r for r in range(1, isqrt(p) + 1) if p % r == 0)


def _divides(layout: Layout, parameters: Mapping[str, Parameter]) -> bool:
    rows = rows_of_grid(layout.workers, parameters["rows"])
    return rows > 0 and layout.workers % rows == 0


def _cost(p: int, rows: int = 0) -> Cost:
    r = rows_of_grid(p, rows)
    c = p // r
    return Cost(steps=2 * (r + c - 2), sent=2 * (p - 1) / p, reduced=(p - 1) / p)


@all_reduce(
    "torus", cost=_cost, needs=[Requirement("a number of workers that its rows divide", _divides)]
)
def torus(layout: Layout, *, rows: Annotated[int, range(1 << 20)] = 0) -> tuple[Schedule, ...]:
    p = layout.workers
    columns = p // rows_of_grid(p, rows)
    along_rows = [list(range(first, first + columns)) for first in range(0, p, columns)]
    along_columns = [list(range(first, p, columns)) for first in range(columns)]
    return (
        *three_phases(layout, along_rows, ring_reduce_scatter.schedule, ring.slices),
        *three_phases(layout, along_columns, ring_reduce_scatter.schedule, ring.slices),
    )
