"""The order of measurements: round by round, each in a new order, without repeating measured rounds."""

from dataclasses import replace
from itertools import groupby

import raw_examples

from hpccoll.cases.case import Effort, Shape
from hpccoll.measure.run.round_order import Completed, job_for_remaining_ranks, rounds_left

CASES = tuple(raw_examples.case(8 * 2**k) for k in range(8))
SHAPE = Shape(1, 2)


def job():
    return raw_examples.job(*CASES, effort=Effort(rounds=3))


def test_each_round_has_all_variants_of_a_call_before_the_next_in_a_new_order_that_the_seed_determines():
    ways = [
        {"algorithm": name, "in_place": in_place}
        for name in ("ring", "native", "star")
        for in_place in (0, 1)
    ]
    calls = [
        {"collective": "all_reduce"},
        {"collective": "all_reduce", "dtype": "float64"},
        {"collective": "all_reduce", "op": "max"},
        {"collective": "reduce", "root": 0},
        {"collective": "reduce", "root": 1},
    ]
    cases = [
        raw_examples.case(size, **way, **call) for size in (8, 16) for way in ways for call in calls
    ]
    left, again, other = (
        rounds_left(
            raw_examples.job(*cases, effort=Effort(rounds=3), seed=seed), SHAPE, Completed()
        )
        for seed in (1, 1, 2)
    )
    assert [number for number, _ in left] == [1] * 60 + [2] * 60 + [3] * 60
    assert left == again != other
    orders = [[case for number, case in left if number == n] for n in (1, 2, 3)]
    for order in orders:
        assert sorted(case.id for case in order) == sorted(case.id for case in cases)
        assert (
            len(list(groupby(order, key=lambda case: (case.dtype, case.op, case.root, case.bytes))))
            == 10
        )
    of_one_call = [
        [case.id for case in order if case.dtype == "float64" and case.bytes == 8]
        for order in orders
    ]
    assert len(set(map(tuple, of_one_call))) == 3


def test_after_an_interruption_the_rest_follows_in_the_same_order_and_what_ended_an_attempt_last():
    whole = rounds_left(job(), SHAPE, Completed())
    measured = {}
    for number, case in whole[:11]:
        measured[case.id] = measured.get(case.id, frozenset()) | {number}
    assert rounds_left(job(), SHAPE, Completed(measured_rounds=measured)) == whole[11:]
    left = rounds_left(job(), SHAPE, Completed(unfinished=frozenset([CASES[3].id])))
    assert [case for _, case in left[-3:]] == [CASES[3]] * 3
    assert len(left) == 24
    # those of another shape have a launch of their own
    assert rounds_left(job(), Shape(2, 4), Completed()) == []


def test_remaining_ranks_measure_cases_of_their_shape_except_stalled_and_planned_ones():
    done, stalled, nested, *left = CASES
    planned = replace(nested, ranks=3, nodes=1)
    asked = raw_examples.job(*CASES, planned, ranks=4)
    earlier = Completed(
        measured_rounds={done.id: frozenset([1])}, unfinished=frozenset([stalled.id])
    )
    rest = job_for_remaining_ranks(asked, Shape(1, 4), Shape(1, 3), earlier)
    assert {case.id for case in rest.cases} == {replace(case, ranks=3, nodes=1).id for case in left}
    assert {case.id for _, case in rounds_left(rest, Shape(1, 3), earlier)} == {
        case.id for case in rest.cases
    }
    assert job_for_remaining_ranks(asked, Shape(1, 4), None, earlier).cases == ()
