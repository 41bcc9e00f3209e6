"""The schedule of a case as it is lowered: equal plans of two algorithms, and the smallest message."""

from dataclasses import replace

import pytest
from raw_examples import case

from hpccoll.cases.case import Shape
from hpccoll.cases.planned_schedule import planned_schedule, smallest_message
from hpccoll.cases.skip_reason import MeasuredPlans
from hpccoll.schedule import Layout

MIB = 1 << 20


def over_nccl(algorithm, nbytes=MIB, **more):
    return case(algorithm=algorithm, bytes=nbytes, transport="nccl", device="cuda", **more)


def skipped(cases, nodes=1, ranks_per_node=8):
    layout, shape = Layout.of(nodes * ranks_per_node, ranks_per_node), Shape(nodes, nodes * ranks_per_node)
    plans = MeasuredPlans(layout, shape)
    return [plans.skip_reason(one) for one in cases]


def test_of_algorithms_with_the_same_plan_the_first_is_measured():
    cases = [over_nccl(name) for name in ("native", "ring", "hierarchical", "double_binary_tree", "rabenseifner")]
    reason = "the same plan as ring on 1x8: ring is measured"
    assert skipped(cases) == [None, None, reason, None, None]
    assert skipped(reversed(cases))[-3:] == [
        None,
        "the same plan as hierarchical on 1x8: hierarchical is measured",
        None,
    ]
    assert not any(skipped(cases, nodes=2))
    assert skipped(cases, nodes=2, ranks_per_node=1)[2] == "the same plan as ring on 2x1: ring is measured"


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({}, True), ({"params": {"graph": 0}}, True), ({"params": {"channels": 1}}, True),
        ({"params": {"outer": "rabenseifner"}}, False), ({"params": {"inner": "recursive_halving"}}, True),
        ({"params": {"graph": 1}}, False), ({"params": {"channels": 2}}, False), ({"bytes": 2 * MIB}, False),
        ({"in_place": True}, False), ({"dtype": "float64"}, False), ({"op": "max"}, False),
        ({"timing": "aggregated"}, False), ({"transport": "mpi"}, False), ({"params": {"window": 4}}, True),
    ],
)  # fmt: skip
def test_plans_are_the_same_only_if_all_that_decides_them_is(changes, equal):
    first, other = over_nccl("ring"), replace(over_nccl("hierarchical"), **changes)
    assert (skipped([first, other])[1] is not None) == equal


def test_the_parameters_of_the_measured_algorithm_are_named_and_other_transports_measure_every_name():
    cases = [over_nccl("hierarchical", params={"inner": name}) for name in ("ring", "recursive_halving")]
    assert skipped(cases) == [
        None,
        "the same plan as hierarchical inner=ring on 1x8: hierarchical inner=ring is measured",
    ]
    assert not any(skipped([case(algorithm=name) for name in ("ring", "hierarchical")]))


def test_a_mapping_decides_the_plan():
    """Racks make rings of a hierarchy: numbered round robin, ranks 0 and 1 are in different racks."""
    layout = Layout((0, 1, 2, 3), rack=(0, 0, 1, 1))
    plans = MeasuredPlans(layout, Shape(4, 4))
    cases = [over_nccl(name, mapping=mapping) for mapping in ("block", "cyclic") for name in ("ring", "hierarchical")]
    assert [plans.skip_reason(one) for one in cases] == [None] * 4


@pytest.mark.parametrize(
    ("algorithm", "nbytes", "more", "expected"),
    [
        ("ring", 8 * MIB, {}, MIB),
        ("ring", 8 * MIB, {"params": {"channels": 2}}, MIB // 2),
        ("double_binary_tree", 2 * MIB, {}, MIB),  # two slices
        ("double_binary_tree", 32 * MIB, {}, 2 * MIB),  # in eight channels
        ("native", 8 * MIB, {"collective": "all_to_all", "op": None}, MIB),
        ("bruck", 8 * MIB, {"collective": "all_to_all", "op": None}, 4 * MIB),  # of the blocks of four ranks
        ("native", 8 * MIB, {"collective": "send_recv", "op": None, "root": 0}, 8 * MIB),
        ("native", 8 * MIB, {"collective": "all_to_all_v", "op": None}, None),
        ("ring", 8 * MIB, {"collective": "training_step"}, None),
    ],
)
def test_the_smallest_message_follows_from_steps_slices_and_channels(algorithm, nbytes, more, expected):
    assert smallest_message(over_nccl(algorithm, nbytes, **more), Layout.of(8)) == expected


@pytest.mark.parametrize("algorithm", ["native", "auto"])
def test_what_has_no_schedule_has_no_plan(algorithm):
    assert planned_schedule(over_nccl(algorithm), Layout.of(4)) is None
