"""Summation trees for tests: random ones, and sums of several numbers at once."""

import numpy as np
from hypothesis import strategies as st

from hpccoll.schedule.summation_tree import leaf, node


@st.composite
def trees(draw, most=9, most_parts=2):
    """A tree of 2 to ``most`` ranks, whose sums have up to ``most_parts`` parts."""
    ranks = draw(st.integers(2, most))
    parts = [leaf(rank) for rank in draw(st.permutations(range(ranks)))]
    while len(parts) > 1:
        count = min(len(parts), draw(st.integers(2, most_parts)))
        chosen = [parts.pop(draw(st.integers(0, len(parts) - 1))) for _ in range(count)]
        parts.append(node(*chosen))
    return parts[0]


def fused_sum(dtype):
    """Return a function that adds several numbers at once, as hardware does that drops bits far below the largest."""

    def add(parts):
        wide = np.array(parts, np.longdouble)
        largest = np.abs(wide).max(axis=0)
        kept = np.where(np.abs(wide) < largest * 2.0**-40, 0, wide)
        return kept.sum(axis=0).astype(dtype)

    return add
