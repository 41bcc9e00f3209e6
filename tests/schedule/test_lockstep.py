"""Lockstep against NumPy's own answer, bit for bit, on every algorithm and every small schedule; and operations."""

from itertools import product

import numpy as np
import pytest
from schedule_examples import SUBJECTS, Case, buffers, case_of, defined_part, of, result

from hpccoll.algorithms.dissemination import dissemination
from hpccoll.algorithms.ring import ring
from hpccoll.schedule import DTYPES, REDUCTIONS, Layout
from hpccoll.schedule.collective_table import (
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.step import Copy, Step, dst, tmp

RANKS = (1, 2, 3, 4, 7, 8)
PLACEMENTS = ((1, True), (3, False), (3, True), (1, False))
"""Channels, and whether in place."""


def comes_to_what_numpy_says(asked: Operation) -> None:
    inputs, outputs = buffers(asked)
    kept = [values.copy() for values in inputs]
    run_lockstep(asked, [] if asked.in_place else inputs, outputs)
    for me in range(asked.call.p):
        assert defined_part(asked, outputs[me], me).tobytes() == result(asked, inputs, me).tobytes(), (me, asked)
        assert np.array_equal(inputs[me], kept[me]), "src was written"


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_rank_holds_the_result_for_every_count_placement_cut_dtype_and_op(name):
    for case in filter(None, (case_of(name, ranks) for ranks in RANKS)):
        ops = [*REDUCTIONS] if case.call.collective.reduces else ["sum"]
        counts = sorted({0, 1, case.call.p - 1, case.call.p + 1, 1000})
        for turn, (count, (channels, in_place)) in enumerate(product(counts, PLACEMENTS)):
            dtype, op = DTYPES[turn % len(DTYPES)], ops[turn % 7 % len(ops)]
            comes_to_what_numpy_says(case.operation(count, dtype, op, in_place=in_place, channels=channels))


@pytest.mark.parametrize("name", SUBJECTS)
def test_inexact_sums_do_not_depend_on_the_placement(name):
    case, found = case_of(name, 5), set()
    for in_place in case.placements if case else ():
        asked = case.operation(100, "float32", in_place=in_place, channels=2)
        inputs, outputs = buffers(asked, exact=False)
        run_lockstep(asked, inputs, outputs)
        found.add(b"".join(defined_part(asked, outputs[me], me).tobytes() for me in range(asked.call.p)))
    assert len(found) <= 1


def test_tmp_holds_the_highest_unit_of_the_schedule():
    def steps(_layout, me):
        yield Step(Copy(dst[me], tmp[2]))
        yield Step(Copy(tmp[2], tmp[0]), Copy(tmp[2], tmp[1]))
        yield Step(Copy(tmp[2] + tmp[0], tmp[5] + tmp[3]))
        yield Step(Copy(tmp[5], dst[me]))

    asked = Case(all_gather.call(1), (of(steps)(Layout.of(1)),)).operation(3, "int32")
    outputs = [np.array([1, 2, 3], np.int32)]
    run_lockstep(asked, [], outputs)
    assert outputs[0].tolist() == [1, 2, 3]


def test_an_operation_rejects_slices_with_different_units_and_lanes_of_a_token():
    slices = ring.slices(Layout.of(2)) + ring.slices(Layout.of(3))
    with pytest.raises(ValueError, match="same number of units"):
        Case(all_reduce.call(2), slices).operation(8)
    slices, uint8, largest = dissemination.slices(Layout.of(2)), np.dtype("uint8"), REDUCTIONS["max"]
    with pytest.raises(ValueError, match="one byte a unit"):
        Operation(barrier.call(2), Layout.of(2), slices, 2, uint8, largest, in_place=True, channels=2)


# ---- where contribution and result lie ------------------------------------------------------------------------------


def of_ten(call, *, in_place: bool, aggregators: int = 0) -> Operation:
    """Return an operation of ten elements, or blocks of ten, without a schedule, as a vendor is given it."""
    layout = Layout.of(call.p, aggregators=aggregators)
    return Operation(call, layout, (), 10, np.dtype("int32"), REDUCTIONS["sum"], in_place=in_place)


@pytest.mark.parametrize(
    ("call", "contributed", "ended"),
    [
        (all_reduce.call(3), range(10), range(10)),
        (reduce_scatter.call(3), range(30), range(10, 20)),
        (all_gather.call(3), range(10, 20), range(30)),
        (broadcast.call(3, 1), range(10), range(10)),
        (broadcast.call(3, 2), range(0), range(10)),
        (reduce.call(3, 1), range(10), range(10)),
        (reduce.call(3, 2), range(10), range(0)),
        (gather.call(3, 1), range(10, 20), range(30)),
        (gather.call(3, 2), range(10, 20), range(0)),
        (scatter.call(3, 1), range(30), range(10, 20)),
        (scatter.call(3, 2), range(0), range(10, 20)),
    ],
    ids=lambda value: f"{value.collective.name}-{value.root}" if hasattr(value, "root") else str(value),
)
def test_contribution_and_result_are_views_of_the_buffers(call, contributed, ended):
    room = np.arange(of_ten(call, in_place=True).elements("dst", 1), dtype=np.int32)
    inside = of_ten(call, in_place=True)
    assert inside.contribution(room[:0], room, 1).tolist() == list(contributed)
    assert inside.result(room, 1).tolist() == list(ended)
    assert np.shares_memory(inside.result(room, 1), room) == bool(ended)
    apart = of_ten(call, in_place=False)
    there = np.arange(apart.elements("src", 1), dtype=np.int32)
    assert apart.contribution(there, room, 1).tolist() == list(range(len(contributed))) == there.tolist()
    assert apart.result(room, 1).tolist() == list(ended)
