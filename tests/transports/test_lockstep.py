"""The reference transport against NumPy's own reductions, on every algorithm and every small schedule."""

from itertools import product

import numpy as np
import pytest
from schedules import EXAMPLES, LEAST_RANKS, Example, contributions, of, result, unchanged

from hpccoll.algorithms import null, recursive_doubling, ring
from hpccoll.schedule import DTYPES, REDUCTIONS, Copy, Layout, Schedule, Step, all_gather, all_reduce, barrier, dst, tmp
from hpccoll.transports.lockstep import lockstep
from hpccoll.transports.operation import Operation, aligned_empty

ALGORITHMS = {
    "null": Example("null", unchanged, null.null.slices),
    "ring": Example("ring", all_reduce, ring.ring.slices),
    "recursive_doubling": Example("recursive_doubling", all_reduce, recursive_doubling.recursive_doubling.slices),
}
SUBJECTS = {**ALGORITHMS, **EXAMPLES}
RANKS = (1, 2, 3, 4, 5, 7, 8)
PLACEMENTS = ((1, True), (3, False), (3, True), (1, False))


def operations(name: str, ranks: int, counts, kinds, placements=PLACEMENTS):
    """Yield the operations of a subject: every count, (dtype, op), and (channels, in place)."""
    example = SUBJECTS[name]
    slices = example.slices(ranks)
    for count, (dtype, op), (channels, in_place) in product(counts, kinds, placements):
        yield Operation(
            example.collective,
            slices[0].layout,
            slices,
            count,
            np.dtype(dtype),
            REDUCTIONS[op],
            in_place=in_place,
            channels=1 if example.collective.token else channels,
        )


def comes_to_what_numpy_says(operation: Operation) -> None:
    dtype, op, p = operation.dtype, operation.reduction.name, operation.layout.workers
    inputs = contributions(p, operation.elements("src"), dtype, op)
    kept = [values.copy() for values in inputs]
    outputs = [np.full(operation.elements("dst"), 77, dtype) for _ in range(operation.layout.ranks)]
    if operation.in_place:
        for me in range(p):
            here = me * operation.count if operation.collective.source == "own" else 0
            outputs[me][here : here + len(inputs[me])] = inputs[me]
    lockstep(operation, [] if operation.in_place else inputs, outputs)
    for me in range(p):
        assert np.array_equal(outputs[me], result(operation.collective, inputs, me, op)), (me, operation)
        assert np.array_equal(inputs[me], kept[me]), "src was written"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ["ring", "recursive_doubling"])
def test_every_rank_holds_the_reduction_in_every_dtype_and_op(name, ranks):
    for operation in operations(name, ranks, (ranks + 1,), product(DTYPES, REDUCTIONS), PLACEMENTS[:2]):
        comes_to_what_numpy_says(operation)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_rank_holds_what_is_promised_for_every_count(name, ranks):
    if ranks < LEAST_RANKS.get(name, 1):
        return
    collective = SUBJECTS[name].collective
    kinds = [("int32", "max" if collective.idempotent else "sum")]
    for operation in operations(name, ranks, sorted({0, 1, ranks - 1, ranks, ranks + 1, 1000}), kinds):
        comes_to_what_numpy_says(operation)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_small_schedules_fold_every_dtype_and_op(name):
    collective = EXAMPLES[name].collective
    if not collective.reduces or collective.idempotent:
        return
    for operation in operations(name, 5, (11,), product(DTYPES, REDUCTIONS), PLACEMENTS[2:]):
        comes_to_what_numpy_says(operation)


def test_lanes_are_dealt_to_the_slices_in_turn():
    said = []

    def slice_of(number: int) -> Schedule:
        def steps(_layout, _me):
            said.append(number)
            yield Step()

        return of(steps)(Layout.of(1))

    slices = (slice_of(0), slice_of(1))
    operation = Operation(
        all_reduce, Layout.of(1), slices, 8, np.dtype("int32"), REDUCTIONS["sum"], in_place=True, channels=3
    )
    assert operation.lanes == 6
    for lane in range(operation.lanes):
        list(operation.lane(lane).steps(0))
    assert said == [0, 1] * 3


def test_tmp_is_as_large_as_the_largest_of_the_units_it_is_given():
    def steps(_layout, me):
        yield Step(Copy(dst[me], tmp[2]))
        yield Step(Copy(tmp[2], tmp[0]), Copy(tmp[2], tmp[1]))
        yield Step(Copy(tmp[2] + tmp[0], tmp[5] + tmp[3]))
        yield Step(Copy(tmp[5], dst[me]))

    slices = (of(steps)(Layout.of(1)),)
    operation = Operation(all_gather, Layout.of(1), slices, 3, np.dtype("int32"), REDUCTIONS["sum"], in_place=True)
    outputs = [np.array([1, 2, 3], np.int32)]
    lockstep(operation, [], outputs)
    assert outputs[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers_begin_on_a_page(dtype):
    buffer = aligned_empty(5, np.dtype(dtype))
    assert (len(buffer), buffer.dtype) == (5, dtype)
    assert buffer.ctypes.data % 4096 == 0
    assert len(aligned_empty(0, np.dtype(dtype))) == 0


def test_an_operation_refuses_slices_that_are_cut_differently_and_lanes_of_a_token():
    slices = ring.ring.slices(Layout.of(2)) + ring.ring.slices(Layout.of(3))
    with pytest.raises(ValueError, match="one number of units"):
        Operation(all_reduce, Layout.of(2), slices, 8, np.dtype("int32"), REDUCTIONS["sum"], in_place=True)
    slices = EXAMPLES["dissemination"].slices(2)
    with pytest.raises(ValueError, match="one byte a unit"):
        Operation(barrier, Layout.of(2), slices, 2, np.dtype("uint8"), REDUCTIONS["max"], in_place=True, channels=2)
