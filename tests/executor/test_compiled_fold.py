"""The compiled folds and scales: the same bits as NumPy's ufuncs, for every dtype and operation."""

import ctypes
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.executor.library import ExecutorUnavailableError, load_library
from hpccoll.executor.structures import (
    DTYPES,
    OPERATIONS,
    SEQUENCE,
    STEP,
    STRUCTURES,
    WORK,
    WORK_COPY,
    WORK_FOLD,
    WORK_SCALE,
    kernel,
    records,
)
from hpccoll.schedule import REDUCTIONS, dtype_of

COUNTS = (0, 1, 3, 7, 8, 31, 32, 33, 1000)
"""Lengths around those of vector registers."""

PLACES = ("apart", "target is a", "target is b")


@pytest.fixture(scope="module", autouse=True)
def _library(require):
    try:
        load_library()
    except ExecutorUnavailableError as error:
        require(False, str(error))


def do(*works):
    """Do works in a plan of one step without messages."""
    arrays = {
        "works": records([*works], WORK),
        "steps": records([(0, len(works), *[0] * 8)], STEP),
        "sequences": records([(0, 1, 0, 0, 0)], SEQUENCE),
    }
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    plan = STRUCTURES["plan_t"](**addresses, sequence_count=1, initial=1)
    assert load_library().hpccoll_run(ctypes.byref(plan)) > 0


def fold(operation, dtype, target, a, b):
    do(
        (
            WORK_FOLD,
            kernel(operation, dtype),
            len(a),
            *(array.ctypes.data for array in (target, a, b)),
            0,
        )
    )


def bits(array):
    return array.view(f"u{array.itemsize}").tolist()


def is_nan(values):
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.isnan(values.astype(np.float64))


def random_bits(random, count, dtype):
    """Return any numbers: integers that overflow, infinities, and numbers of every exponent."""
    return np.frombuffer(random.randbytes(count * dtype.itemsize), dtype).copy()


@pytest.mark.parametrize(("operation", "dtype"), [*product(OPERATIONS, DTYPES)])
@settings(max_examples=25)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(COUNTS),
    st.integers(0, 3),
    st.sampled_from(PLACES),
)
def test_a_fold_has_the_bits_of_numpy(operation, dtype, random, count, offset, place):
    kind = dtype_of(dtype)
    # not aligned to a register
    a, b = (random_bits(random, count + offset, kind)[offset:] for _ in range(2))
    with np.errstate(all="ignore"):
        expected = getattr(np, operation)(a, b)
    target = {"apart": np.zeros(count, kind), "target is a": a, "target is b": b}[place]
    fold(operation, dtype, target, a.copy() if place == "target is b" else a, b)
    if kind.kind in "iu":
        assert bits(target) == bits(expected)
    else:
        numbers = ~is_nan(expected)  # which NaN it is may differ
        assert bits(target[numbers]) == bits(expected[numbers])
        assert is_nan(target[~numbers]).all()


@pytest.mark.parametrize("dtype", DTYPES[1:])
@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.sampled_from(COUNTS), st.integers(1, 5000))
def test_an_average_is_scaled_as_by_the_python_executor(dtype, random, count, workers):
    kind = dtype_of(dtype)
    values = random_bits(random, count, kind)
    values[is_nan(values)] = 0
    expected = values.copy()
    with np.errstate(all="ignore"):
        REDUCTIONS["avg"].scale(expected, workers)
    do((WORK_SCALE, DTYPES.index(dtype), count, values.ctypes.data, 0, 0, workers))
    assert bits(values) == bits(expected)


def test_work_is_done_in_the_listed_order():
    a, b, c = (np.full(100, value, np.float32) for value in (1, 2, 0))
    copy = WORK_COPY, 0, c.nbytes, c.ctypes.data, b.ctypes.data, 0, 0
    add = WORK_FOLD, kernel("add", "float32"), 100, c.ctypes.data, c.ctypes.data, a.ctypes.data, 0
    do(copy, add, add)
    assert (c == 4).all()
