"""Every algorithm on real data, in lockstep, against NumPy's own answer, bit for bit."""

from itertools import count, product

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, buffers, cases, defined_part, places, result

from hpccoll.schedule import DTYPES, REDUCTIONS
from hpccoll.schedule.lockstep import run_lockstep

each_algorithm = pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS.values(), ids=ALGORITHMS)

ALL_WAYS = (2, 5)


def comes_to_what_numpy_says(operation) -> None:
    inputs, outputs = buffers(operation)
    kept = [values.copy() for values in inputs]
    run_lockstep(operation, [np.empty(0, operation.dtype)] * len(inputs) if operation.in_place else inputs, outputs)
    for me in range(operation.call.p):
        found, right = defined_part(operation, outputs[me], me), result(operation, inputs, me)
        assert found.dtype == operation.dtype
        assert found.tobytes() == right.tobytes(), (me, operation)
        assert np.shares_memory(operation.result(outputs[me], me), found) or not len(found)
        assert np.array_equal(operation.result(outputs[me], me), found), (me, operation)
        assert np.array_equal(inputs[me], kept[me]), "src was written"


@each_algorithm
def test_every_rank_holds_the_result_for_every_count_placement_and_cut(collective, algorithm):
    for p in (1, 2, 3, 4, 5, 7, 8):
        turn = count(p)
        for number, case in enumerate(cases(collective, algorithm, places(algorithm, p))):
            counts = sorted({0, 1, p - 1, p + 1, 1000 + p})
            requested = list(product(counts, case.placements, (1, 3)))
            if p not in ALL_WAYS or number:  # some of them, in turn
                stride = 7 if number else 3
                requested = requested[next(turn) * 3 % stride :: stride]
            for elements, in_place, channels in requested:
                comes_to_what_numpy_says(case.operation(elements, "int32", in_place=in_place, channels=channels))


@each_algorithm
def test_every_rank_holds_the_result_in_every_dtype_and_op(collective, algorithm):
    ops = REDUCTIONS if collective.reduces else ["sum"]
    for case in filter(None, (next(cases(collective, algorithm, places(algorithm, p)), None) for p in (5, 8))):
        for turn, (dtype, op) in enumerate(product(DTYPES, ops)):
            in_place = case.placements[turn % len(case.placements)]
            elements, channels = case.call.p + 1, 1 + turn // 2 % 2
            comes_to_what_numpy_says(case.operation(elements, dtype, op, in_place=in_place, channels=channels))
