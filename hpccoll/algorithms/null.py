"""Null: nothing is sent. Its time is what the harness costs, the floor below every other algorithm.

At p = 4:

    rank         0       1       2       3
    start        a       b       c       d

Cost: 0. Its postcondition is that the buffer is unchanged, so it stays out of every comparison.

The idea of timing an empty command: hyperfine, https://github.com/sharkdp/hyperfine (calibration of
its shell).
"""

from collections.abc import Iterator

from hpccoll.schedule import COLLECTIVES, Cost, Index, Layout, Step


def null(_layout: Layout, _me: Index) -> Iterator[Step]:
    yield from ()


for _collective in COLLECTIVES.values():
    _collective("null", cost=lambda _p: Cost(steps=0, sent=0, reduced=0), floor=True)(null)
