"""Lockstep against NumPy's own answer, bit for bit, on every algorithm and every small schedule; and operations."""

from itertools import product

import numpy as np
import pytest
from schedule_examples import SUBJECTS, Case, buffers, case_of, defined_part, result

from hpccoll.algorithms.dissemination import dissemination
from hpccoll.algorithms.ring import ring
from hpccoll.schedule import DTYPES, REDUCTIONS, Layout, all_reduce, barrier
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.operation import Operation

RANKS = (1, 2, 3, 4, 7, 8)
PLACEMENTS = ((1, True), (3, False), (3, True), (1, False))
"""Channels, and whether in place."""


def comes_to_what_numpy_says(asked: Operation) -> None:
    inputs, outputs = buffers(asked)
    kept = [values.copy() for values in inputs]
    run_lockstep(asked, [] if asked.in_place else inputs, outputs)
    for me in range(asked.call.p):
        assert (
            defined_part(asked, outputs[me], me).tobytes() == result(asked, inputs, me).tobytes()
        ), (me, asked)
        assert np.array_equal(inputs[me], kept[me]), "src was written"


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_rank_holds_the_result_for_every_count_placement_cut_dtype_and_op(name):
    for case in filter(None, (case_of(name, ranks) for ranks in RANKS)):
        ops = [*REDUCTIONS] if case.call.collective.reduces else ["sum"]
        counts = sorted({0, 1, case.call.p - 1, case.call.p + 1, 1000})
        for turn, (count, (channels, in_place)) in enumerate(product(counts, PLACEMENTS)):
            dtype, op = DTYPES[turn % len(DTYPES)], ops[turn % 7 % len(ops)]
            comes_to_what_numpy_says(
                case.operation(count, dtype, op, in_place=in_place, channels=channels)
            )


@pytest.mark.parametrize(
    "name", [name for name in SUBJECTS if name.startswith("all_reduce-") and "null" not in name]
)
def test_all_ranks_of_an_all_reduce_hold_the_same_bits(name):
    for case in (case_of(name, ranks) for ranks in (6, 8)):
        asked = case.operation(1000, "float32", in_place=True)
        _, outputs = buffers(asked, exact=False)
        run_lockstep(asked, [], outputs)
        bits = {outputs[me].tobytes() for me in range(asked.call.p)}
        assert len(bits) == 1


@pytest.mark.parametrize("name", SUBJECTS)
def test_inexact_sums_do_not_depend_on_the_placement(name):
    case, found = case_of(name, 5), set()
    for in_place in case.placements if case else ():
        asked = case.operation(100, "float32", in_place=in_place, channels=2)
        inputs, outputs = buffers(asked, exact=False)
        run_lockstep(asked, inputs, outputs)
        found.add(
            b"".join(defined_part(asked, outputs[me], me).tobytes() for me in range(asked.call.p))
        )
    assert len(found) <= 1


def test_an_operation_rejects_slices_with_different_units_and_lanes_of_a_token():
    slices = ring.slices(Layout.of(2)) + ring.slices(Layout.of(3))
    with pytest.raises(ValueError, match="same number of units"):
        Case(all_reduce.call(2), slices).operation(8)
    slices, uint8, largest = (
        dissemination.slices(Layout.of(2)),
        np.dtype("uint8"),
        REDUCTIONS["max"],
    )
    with pytest.raises(ValueError, match="one byte a unit"):
        Operation(
            barrier.call(2), Layout.of(2), slices, 2, uint8, largest, in_place=True, channels=2
        )
