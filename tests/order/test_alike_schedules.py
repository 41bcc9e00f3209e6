"""Our own schedules as black boxes: masks reveal the trees that follow from the schedule."""

from dataclasses import replace

import numpy as np
import pytest

from hpccoll.cases.case import Case
from hpccoll.cases.case_order import case_order
from hpccoll.cases.catalogue import algorithms_of
from hpccoll.cases.planned_schedule import planned_schedule
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.order.alike_schedules import is_as_scheduled, same_bits_as
from hpccoll.order.masks import leaves_below, mask_of, masked_value, pairs_of
from hpccoll.order.request import reducing_collectives
from hpccoll.order.revealed import LeafCounts, digest_of, join_ranks
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.schedule.operation import Operation


def operation_of(case, layout):
    planned = planned_schedule(case, layout)
    call = COLLECTIVES[case.collective].call(layout.workers, case.root)
    count = call.collective.elements(case.bytes, 4, layout.workers)
    return Operation(
        call, layout, planned.slices, count, np.dtype(case.dtype), REDUCTIONS["sum"], True,
        planned.channels, planned.window,
    )  # fmt: skip


def revealed_blocks(case, layout):
    """Reveal the order of a schedule, which lockstep runs for all ranks at once; return the blocks of each rank."""
    operation, ranks = operation_of(case, layout), layout.workers
    mask = mask_of(case.dtype, ranks)
    spans = [
        operation.span("dst", operation.call.target(me, operation.api_cut.units), me)
        for me in range(ranks)
    ]
    counts = [LeafCounts(ranks, span.stop - span.start) for span in spans]
    for pair in pairs_of(ranks):
        dst = [
            np.full(operation.elements("dst", me), masked_value(mask, pair, me), case.dtype)
            for me in range(ranks)
        ]
        run_lockstep(operation, [np.empty(0, case.dtype)] * ranks, dst)
        for me, span in enumerate(spans):
            counts[me].add(leaves_below(dst[me][span], mask, ranks))
    return [
        [replace(b, start=b.start + span.start, stop=b.stop + span.start) for b in part.blocks()]
        for part, span in zip(counts, spans, strict=True)
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("collective", reducing_collectives())
def test_the_black_box_gives_the_trees_of_the_schedule(collective, ranks):
    layout = Layout.of(ranks, 2 if ranks % 2 == 0 else 1)
    ran = 0
    for algorithm in algorithms_of(collective):
        for nbytes in (ranks * 4, 200 * ranks):
            root = ranks - 1 if COLLECTIVES[collective].rooted else None
            case = Case(collective=collective, algorithm=algorithm, bytes=nbytes, root=root)
            if algorithm == NATIVE or unmet_needs(case, layout):
                continue
            order = case_order(case, layout)
            if order is None:  # a floor
                continue
            blocks, agree = join_ranks(revealed_blocks(case, layout))
            assert agree == order.ranks_agree, algorithm
            if agree:
                assert digest_of(blocks) == order.elements.digest, algorithm
                assert algorithm in same_bits_as(case, {nbytes: digest_of(blocks)}, layout)
                assert is_as_scheduled(case, {nbytes: digest_of(blocks)}, layout)
            ran += 1
    assert ran >= 2


def test_an_order_that_cannot_be_told_is_that_of_no_algorithm():
    case = Case(collective="all_reduce", algorithm=NATIVE, bytes=64)
    assert same_bits_as(case, {64: None}, Layout.of(4)) == ()


def test_variants_that_are_other_orders_are_named_with_their_parameters():
    layout = Layout.of(6)
    digests = {}
    for first, pairing in (("far", "far"), ("near", "adjacent")):
        params = {"first": first, "pairing": pairing}
        case = Case(collective="all_reduce", algorithm="rabenseifner", bytes=64, params=params)
        digests[first] = {64: case_order(case, layout).elements.digest}
    case = Case(collective="all_reduce", algorithm=NATIVE, bytes=64)
    assert "rabenseifner" in same_bits_as(case, digests["far"], layout)
    near = same_bits_as(case, digests["near"], layout)
    assert "rabenseifner first=near pairing=adjacent" in near
    assert "recursive_doubling pairing=adjacent" in near
    assert "rabenseifner" not in near
