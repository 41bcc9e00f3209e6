"""Guarded buffers: their layout, and the contents of guards."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.measure.run.guards import guards_of
from hpccoll.schedule import BFLOAT16, DTYPES, dtype_of
from hpccoll.transports.guarded_memory import GUARD_BYTES, MARGIN_BYTES, allocate_guarded
from hpccoll.transports.transport_interface import aligned_empty


@given(st.sampled_from((*DTYPES, BFLOAT16)), st.integers(1, 5000), st.booleans())
def test_guarded_buffers_are_aligned_and_their_guards_are_adjacent(dtype, count, front):
    made = allocate_guarded(aligned_empty, count, dtype_of(dtype), front=front)
    before, after = made.guards()
    assert (len(made.buffer), made.buffer.ctypes.data % MARGIN_BYTES) == (count, 0)
    assert (before.stop, after.start) == (made.start, made.stop)
    assert after.stop <= len(made.memory)
    assert [len(side) * made.memory.itemsize for side in (before, after)] == [
        GUARD_BYTES * front,
        GUARD_BYTES,
    ]


def test_the_guards_of_a_narrowed_buffer_surround_it():
    made = allocate_guarded(aligned_empty, 1000, np.dtype("float32"))
    part = made.narrow(slice(300, 500))
    part.memory[:], made.buffer[300:500] = 0, 1
    assert (part.buffer == 1).all()
    assert part.memory.sum() == len(part.buffer) == 200
    assert (part.guards()[0].stop, part.guards()[1].start) == (part.start, part.stop)


@pytest.mark.parametrize("dtype", DTYPES)
def test_guards_have_distinct_contents(dtype):
    made = [allocate_guarded(aligned_empty, 100, np.dtype(dtype)) for _ in ("src", "dst")]
    words = [guard.words for me in (0, 1, 7) for guard in guards_of(made, me)]
    assert len(words) == 12
    assert all(np.count_nonzero(one == other) <= 1 for one, other in combinations(words, 2))
    assert all(len(np.unique(each)) >= 0.99 * len(each) for each in words)
