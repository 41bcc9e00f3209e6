"""The order of sums: trees computed from schedules, against the bits of what lockstep adds."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from ordered_sums import FLOATS, REDUCING, OrderedSum, case_on, equal_bits, evaluate
from schedule_examples import ALGORITHMS, Case, cases, places, variants

from hpccoll.algorithms.rabenseifner import rabenseifner
from hpccoll.algorithms.recursive_doubling import recursive_doubling
from hpccoll.algorithms.recursive_multiplying import recursive_multiplying
from hpccoll.algorithms.ring import ring
from hpccoll.algorithms.star import star
from hpccoll.schedule import Layout, Schedule, all_reduce, out_of_place, reduce
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.order import (
    ElementOrder,
    error_bound,
    has_order,
    order_of,
    ranks_agree,
)
from hpccoll.schedule.step import RecvReduce, Send, Step, dst, peer_if
from hpccoll.schedule.summation_tree import chain, parse_tree

RANKS = [*range(2, 18), 64]


def ranks_with_other_bits(ordered: OrderedSum, operation: Operation) -> list[int]:
    """Run an operation on the values of a sum in lockstep, and return the ranks with other bits than the trees."""
    buffers = [ordered.buffers(me) for me in range(operation.layout.ranks)]
    sources, targets = zip(*buffers, strict=True)
    with np.errstate(all="ignore"):
        run_lockstep(operation, sources, targets)
    different = []
    for me in range(operation.call.p):
        if not equal_bits(operation.result(targets[me], me), ordered.expected(me)):
            different.append(me)
    return different


def check_bits(sums: Sequence[OrderedSum]) -> None:
    """Check that sums of one case in lockstep have the bits of the trees on all ranks."""
    evaluate(sums)
    traces = {}  # the messages of a schedule are the same for all types and channels
    for ordered in sums:
        operation = ordered.operation
        if operation.in_place in traces:
            vars(operation)["traces"] = traces[operation.in_place]
        traces[operation.in_place] = operation.traces
        assert not ranks_with_other_bits(ordered, operation), ordered.name


@pytest.mark.parametrize("name", REDUCING)
def test_every_element_has_the_bits_of_its_tree(name):
    for turn, p in enumerate((2, 3, 5, 6, 8)):
        case = case_on(name, p)
        if case:
            check_bits([OrderedSum(case, FLOATS[turn % 4], channels=1 + turn % 3)])


@pytest.mark.long
@pytest.mark.parametrize("name", REDUCING)
@pytest.mark.parametrize("p", RANKS)
def test_every_element_has_the_bits_of_its_tree_at_all_ranks_channels_and_types(name, p):
    case = case_on(name, p)
    if case is None:
        pytest.skip("the algorithm does not run on as many ranks")
    sums = [OrderedSum(case, dtype, channels) for channels, dtype in product((1, 2, 3), FLOATS)]
    check_bits(sums)


def orders_of_ranks(name, p, every_parameter):
    """Yield whether all ranks have the same trees, at the defaults or at many values of the parameters."""
    collective, algorithm = ALGORITHMS[name]
    layout = places(algorithm, p)
    for parameters in variants(algorithm, layout) if every_parameter else [{}]:
        for case in cases(collective, algorithm, layout, **parameters):
            yield ranks_agree(case.call, case.slices)


@pytest.mark.parametrize("name", REDUCING)
def test_all_ranks_end_with_the_same_trees(name):
    for p in (2, 3, 4, 6, 8, 9):
        assert all(orders_of_ranks(name, p, every_parameter=False)), p


@pytest.mark.parametrize("radix", [2, 3, 5, 8])
def test_all_ranks_of_recursive_multiplying_end_with_the_same_trees_at_each_radix(radix):
    for p in (3, 7, 8, 9, 12):
        call = all_reduce.call(p)
        slices = call.slices(recursive_multiplying, Layout.of(p), radix=radix)
        assert ranks_agree(call, slices), p


@pytest.mark.long
@pytest.mark.parametrize("name", REDUCING)
@pytest.mark.parametrize("p", [3, 8])
def test_all_ranks_end_with_the_same_trees_whatever_the_parameters(name, p):
    assert all(orders_of_ranks(name, p, every_parameter=True))


@pytest.mark.parametrize("name", REDUCING)
def test_trees_are_the_same_in_place_and_out_of_place(name):
    for p in (3, 8):
        case = case_on(name, p)
        for schedule in case.slices if case else ():
            in_place = order_of(case.call, schedule)
            placed = out_of_place(case.call, schedule)
            outside = order_of(case.call, placed, in_place=False)
            assert np.array_equal(in_place.tree(0), outside.tree(0))


def tree_of(algorithm, p, **parameters):
    call = all_reduce.call(p)
    (schedule,) = call.slices(algorithm, Layout.of(p), **parameters)
    order = order_of(call, schedule)
    assert len(set(order.digests.tolist())) == 1
    return order.tree(0)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (3, "((0 1) 2)"),
        (4, "((0 1) (2 3))"),
        (5, "(((0 1) 2) (3 4))"),
        (6, "(((0 1) (2 3)) (4 5))"),
        (7, "(((0 1) (2 3)) ((4 5) 6))"),
        (8, "(((0 1) (2 3)) ((4 5) (6 7)))"),
    ],
)
def test_two_variants_have_the_trees_that_mpich_and_open_mpi_were_seen_to_have(p, text):
    assert tree_of(recursive_doubling, p, pairing="adjacent") is parse_tree(text)
    assert tree_of(rabenseifner, p, pairing="adjacent", first="near") is parse_tree(text)


def test_a_star_adds_in_the_order_of_ranks_and_a_ring_begins_after_the_unit():
    assert tree_of(star, 5) is chain(range(5))
    call = all_reduce.call(4)
    order = order_of(call, ring.schedule(Layout.of(4)))
    trees = [order.tree(unit) for unit in range(4)]
    assert trees == [chain([1, 2, 3, 0]), chain([2, 3, 0, 1]), chain([3, 0, 1, 2]), chain(range(4))]


def star_with_folds_of(order_of_peers):
    """Return an all-reduce in which the root folds the others in an order that it chooses."""

    def steps(me):
        others = [peer for peer in order_of_peers if peer != 0]
        yield Step(
            Send(peer_if(me != 0, 0), dst[0:1]),
            *(RecvReduce(peer_if(me == 0, peer), dst[0:1]) for peer in others),
        )

    return Schedule(Layout.of(len(order_of_peers)), 1, steps)


def test_a_fold_in_another_order_has_another_tree():
    call = reduce.call(4)
    as_meant = order_of(call, star_with_folds_of([0, 1, 2, 3])).tree(0)
    broken = order_of(call, star_with_folds_of([0, 1, 3, 2])).tree(0)
    assert as_meant is chain(range(4))
    assert broken is not as_meant


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_bits_of_a_fold_in_another_order_are_found(dtype):
    as_meant = Case(reduce.call(4), (star_with_folds_of([0, 1, 2, 3]),))
    ordered = OrderedSum(as_meant, dtype, channels=1)
    evaluate([ordered])
    assert not ranks_with_other_bits(ordered, ordered.operation)
    broken = replace(ordered.operation, slices=(star_with_folds_of([0, 1, 3, 2]),))
    assert ranks_with_other_bits(ordered, broken) == [0]


def everyone_folds_from_itself(p):
    """Return an all-reduce in which each rank folds the others from the next one on."""

    def steps(me):
        peers = [(me + away) % p for away in range(1, p)]
        yield Step(
            *(Send(peer, dst[0:1]) for peer in peers),
            *(RecvReduce(peer, dst[0:1]) for peer in peers),
        )

    return Schedule(Layout.of(p), 1, steps)


def test_ranks_that_add_in_orders_of_their_own_are_found():
    call = all_reduce.call(4)
    schedule = everyone_folds_from_itself(4)
    assert not ranks_agree(call, [schedule])
    assert ranks_agree(all_reduce.call(2), [everyone_folds_from_itself(2)])
    assert ranks_agree(call, ring.slices(Layout.of(4)))


def elements(starts, digests, count):
    return ElementOrder.of_runs(np.array(starts), np.array(digests, np.uint64), count)


def test_neighbours_of_one_tree_are_one_run_and_one_tree_has_a_digest_for_all_sizes():
    order = elements([0, 10, 20], [7, 7, 8], 30)
    assert order.edges.tolist() == [0, 20, 30]
    assert order.trees == 2
    assert elements([0, 10], [7, 7], 30).digest == elements([0], [7], 1000).digest
    assert order.digest != elements([0, 10], [7, 8], 30).digest
    assert order.digest != elements([0, 20], [8, 7], 30).digest


def test_orders_are_compared_at_the_elements_that_both_have():
    short = elements([0, 5], [1, 2], 10)
    assert short.agrees_with(elements([0, 5, 10], [1, 2, 3], 20))
    assert elements([0, 6], [1, 2], 20).different_from(short).tolist() == [5]


def test_a_bound_grows_with_the_depth_and_ends_where_nothing_bounds_the_error():
    assert error_bound(7, "float32") == pytest.approx(7 * 2**-24, rel=1e-5)
    assert error_bound(10, "bfloat16") == pytest.approx(0.0407, rel=1e-2)
    assert error_bound(1023, "bfloat16") is None
    assert has_order("sum", "float16")
    assert not has_order("max", "float32")
    assert not has_order("sum", "int64")
