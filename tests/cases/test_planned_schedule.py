"""The schedule of a case as it is lowered: its channels, equal plans of two algorithms, and the smallest message."""

from dataclasses import replace

import pytest
from msgspec import UNSET
from raw_examples import case
from schedule_examples import case_of

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.case import Shape
from hpccoll.cases.planned_schedule import (
    BLOCKS,
    choose_channels,
    default_channels,
    planned_schedule,
    smallest_message,
)
from hpccoll.cases.skip_reason import MeasuredPlans
from hpccoll.schedule import Layout

MIB = 1 << 20
NODE, WIRE = Layout.of(4), Layout.of(4, 1)


@pytest.mark.parametrize(
    ("layout", "kib", "more", "channels"),
    [
        (NODE, (8, 512, 4096, 16384, 1 << 20), {}, [1, 1, 1, 4, 64]),
        (WIRE, (8, 128, 256, 1024, 16384, 1 << 20), {}, [1, 1, 2, 4, 8, 64]),
        (WIRE, (0, 8, 256, 1024, 8192, 1 << 20), {"pipelined": True}, [1, 1, 2, 8, 64, 64]),
        (NODE, (1 << 20,), {"rule": "groups"}, [1]),
        (NODE, (1, 64, 512, 1 << 20), {"rule": "blocks"}, [1, 1, 8, 32]),
        (NODE, (1, 64, 512, 1 << 20), {"rule": "blocks", "slices": 2}, [1, 1, 4, 16]),
        (NODE, (1, 1 << 13, 1 << 20), {"pipelined": True, "rule": "groups"}, [1, 2, 64]),
    ],
)
def test_the_default_channels_follow_from_size_layout_and_transport(layout, kib, more, channels):
    assert [default_channels(size << 10, layout, **more) for size in kib] == channels


@pytest.mark.parametrize(
    ("asked", "pipelined", "rule", "planned"),
    [
        ({}, False, "messages", (16, 4)),
        ({}, True, "groups", (16, 4)),
        ({}, False, "blocks", (32, 32)),
        ({"channels": 2}, False, "messages", (2, 2)),
        ({"channels": 8, "window": 1}, False, "messages", (8, 1)),
        ({"segment": MIB}, False, "messages", (16, 4)),  # of a unit, a quarter
        ({"segment": MIB}, True, "messages", (64, 4)),
        ({"segment": MIB, "window": 8}, True, "groups", (64, 8)),
    ],
)
def test_requested_channels_windows_and_segments_override_the_defaults(
    asked, pipelined, rule, planned
):
    ring = case_of("all_reduce-ring", 4)
    assert (
        choose_channels(asked, 64 << 20, ring.layout, ring.slices, pipelined=pipelined, rule=rule)
        == planned
    )


@pytest.mark.parametrize(
    ("algorithm", "slices"), [("ring", 1), ("bidirectional_ring", 2), ("double_binary_tree", 2)]
)
def test_slices_share_the_default_number_of_blocks_in_flight(algorithm, slices):
    planned = case_of(f"all_reduce-{algorithm}", 4)
    assert len(planned.slices) == slices
    pipelined = COLLECTIVES["all_reduce"].algorithms[algorithm].pipelined
    _, window = choose_channels(
        {}, 64 << 20, planned.layout, planned.slices, pipelined=pipelined, rule="blocks"
    )
    assert window * slices == BLOCKS


@pytest.mark.parametrize(
    ("nbytes", "params", "protocol", "channels"),
    [
        (64, {}, "ll", 1),
        (256 << 10, {}, "ll", 32),
        ((256 << 10) + 512, {}, "simple", 4),
        (256 << 10, {"protocol": "simple"}, "simple", 4),
        (MIB, {"protocol": "ll"}, "ll", 32),
        (256 << 10, {"channels": 2}, "ll", 2),
    ],
)
def test_the_size_decides_how_messages_over_peer_move_unless_the_case_does(
    nbytes, params, protocol, channels
):
    over_peer = case(algorithm="ring", bytes=nbytes, transport="peer", device="cuda", params=params)
    planned = planned_schedule(over_peer, NODE)
    assert (planned.protocol, planned.channels) == (protocol, channels)
    assert planned_schedule(over_nccl("ring"), NODE).protocol is None


def over_nccl(algorithm, nbytes=MIB, **more):
    return case(algorithm=algorithm, bytes=nbytes, transport="nccl", device="cuda", **more)


def skipped(cases, nodes=1, ranks_per_node=8, named=UNSET):
    layout, shape = (
        Layout.of(nodes * ranks_per_node, ranks_per_node),
        Shape(nodes, nodes * ranks_per_node),
    )
    plans = MeasuredPlans(layout, shape, named)
    return [plans.skip_reason(one) for one in cases]


def test_of_algorithms_with_the_same_plan_the_first_is_measured():
    cases = [over_nccl(name) for name in ("native", "null", "ring", "hierarchical", "rabenseifner")]
    reason = "the same schedule as ring on 8 ranks on 1 node"
    assert skipped(cases) == [None, None, None, reason, None]
    assert not any(skipped(cases, nodes=2))
    of_parameters = [
        over_nccl("hierarchical", params={"inner": name}) for name in ("ring", "recursive_halving")
    ]
    words = "the same schedule as hierarchical inner=ring on 8 ranks on 1 node"
    assert skipped(of_parameters) == [None, words]


def test_over_mpi_an_algorithm_with_the_schedule_of_another_is_measured_only_if_it_is_named():
    cases = [case(algorithm=name) for name in ("recursive_doubling", "recursive_multiplying")]
    assert skipped(cases, ranks_per_node=2) == [None, None]
    reason = "the same schedule as recursive_doubling on 2 ranks on 1 node"
    assert skipped(cases, ranks_per_node=2, named=()) == [None, reason]
    assert skipped(cases, ranks_per_node=2, named=("recursive_multiplying",)) == [None, None]
    assert skipped(cases, ranks_per_node=8, named=()) == [None, None]


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({"params": {"graph": 0}}, True),
        ({"params": {"channels": 1}}, True),
        ({"params": {"window": 4}}, True),
        ({"params": {"outer": "rabenseifner"}}, False),
        ({"params": {"graph": 1}}, False),
        ({"params": {"load": "gemm"}}, False),
        ({"params": {"channels": 2}}, False),
        ({"bytes": 2 * MIB}, False),
        ({"in_place": True}, False),
        ({"dtype": "float64"}, False),
        ({"op": "max"}, False),
        ({"timing": "aggregated"}, False),
    ],
)
def test_plans_are_the_same_only_if_all_that_decides_them_is(changes, equal):
    first, other = over_nccl("ring"), replace(over_nccl("hierarchical"), **changes)
    assert (skipped([first, other])[1] is not None) == equal


@pytest.mark.parametrize(
    ("params", "equal"),
    [
        ({}, True),
        ({"protocol": "ll"}, True),  # as small messages move by default
        ({"protocol": "simple"}, False),
    ],
)
def test_plans_over_peer_are_the_same_only_if_their_messages_move_alike(params, equal):
    first = case(algorithm="ring", bytes=64, transport="peer", device="cuda")
    other = replace(first, params=params, algorithm="hierarchical")
    assert (skipped([first, other], named=())[1] is not None) == equal


@pytest.mark.parametrize(
    ("algorithm", "nbytes", "more", "expected"),
    [
        ("ring", 8 * MIB, {"params": {"channels": 2}}, MIB // 2),
        ("double_binary_tree", 32 * MIB, {}, 2 * MIB),  # two slices in eight channels
        ("native", 8 * MIB, {"collective": "all_to_all", "op": None}, MIB),
        # of the blocks of four ranks
        ("bruck", 8 * MIB, {"collective": "all_to_all", "op": None}, 4 * MIB),
        ("native", 8 * MIB, {"collective": "all_to_all_v", "op": None}, None),
        ("ring", 8 * MIB, {"collective": "training_step"}, None),
    ],
)
def test_the_smallest_message_follows_from_steps_slices_and_channels(
    algorithm, nbytes, more, expected
):
    assert smallest_message(over_nccl(algorithm, nbytes, **more), Layout.of(8)) == expected
