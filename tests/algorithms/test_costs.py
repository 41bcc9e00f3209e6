"""Every algorithm takes what it declares, and no less than its collective takes at the least."""

import pytest
from schedule_examples import ALGORITHMS, Case, cases, places, variants

from hpccoll.schedule import COLLECTIVES, Copy, Cut, Layout, count, match, out_of_place
from hpccoll.schedule.step import drop_null_peers

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), ALGORITHMS.values(), ids=ALGORITHMS
)
GRAIN = 32
"""Elements of four bytes in a grain: units of whole grains divide evenly."""
ALL_REDUCE = COLLECTIVES["all_reduce"]


def evenly_cut(case, grains: int = 1) -> Cut:
    """Return a cut of a case into units of so many grains in each lane."""
    units, lanes = case.slices[0].units, len(case.slices)
    elements = grains * GRAIN * lanes * (units if case.call.collective.units == "divisible" else 1)
    return Cut(case.call, elements, units, lanes, 4)


TAKING_TURNS = {"double_binary_tree", "sharp_emulated"}
"""Algorithms whose messages take turns at a port on the critical path, which `count` does not see: see tests/model."""


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        pytest.param(*both, id=n)
        for n, both in ALGORITHMS.items()
        if both[1].cost and both[1].name not in TAKING_TURNS
    ],
)
def test_it_costs_what_it_declares(collective, algorithm):
    for p in (*range(1, 10), 12, 16):
        layout = places(algorithm, p)
        for parameters in [{}, *(variants(algorithm, layout) if p in (4, 6) else ())]:
            found = list(cases(collective, algorithm, layout, **parameters))
            cost = algorithm.declared(p, **parameters)
            if cost or not parameters:
                costs_as_declared(found if p < 6 and not parameters else found[:1], cost)


def costs_as_declared(found, cost):
    for case in found:
        for grains, in_place in zip((1, 3), case.placements, strict=False):
            cut = evenly_cut(case, grains)
            size = case.call.bytes(cut.count, cut.itemsize)
            placed = (
                case.slices if in_place else [out_of_place(case.call, each) for each in case.slices]
            )
            counts = count(placed, cut)
            counted = counts.steps, counts.critical_bytes, counts.critical_reduced
            declared = cost.steps, round(cost.sent * size), round(cost.reduced * size)
            assert counted == declared, (
                f"p = {case.call.p}, S = {size}: steps, bytes sent and reduced"
            )


def test_a_train_is_equal_messages_and_one_reply_and_only_its_root_copies_before_each_message():
    row = COLLECTIVES["send_recv"]
    call = row.call(3, 2, peer=0)
    slices = call.slices(row.algorithm("train"), Layout.of(3), messages=4, copies=2)
    cut = evenly_cut(Case(call, slices))

    def actions(me):
        for action in (
            action for step in slices[0].steps(me) for action in drop_null_peers(step).actions
        ):
            part = action.source if isinstance(action, Copy) else action.part
            if spans := cut.spans(0, me, part):
                yield type(action).__name__, sum(stop - start for start, stop in spans) // GRAIN

    assert list(actions(2)) == [("Copy", 4), ("Copy", 4), ("Send", 1)] * 4 + [("Recv", 4)]
    assert list(actions(0)) == [("Recv", 1)] * 4 + [("Send", 4)]
    assert not list(actions(1))


@pytest.mark.parametrize(
    ("nodes", "ranks", "cyclic"), [(1, 4, False), (3, 2, False), (4, 8, True), (2, 1, True)]
)
def test_between_nodes_hierarchical_sends_a_share_of_the_vector_for_each_local_rank(
    nodes, ranks, cyclic
):
    p = nodes * ranks
    layout = Layout(tuple(me % nodes if cyclic else me // ranks for me in range(p)))
    (case,) = cases(ALL_REDUCE, ALL_REDUCE.algorithm("hierarchical"), layout)
    cut = evenly_cut(case)
    sent = count(case.slices, cut).sent
    size = case.call.bytes(cut.count, cut.itemsize)
    assert (sent[:, 2:].sum(axis=1) * nodes * ranks == 2 * (nodes - 1) * size).all()
    assert (sent[:, 1] * ranks == 2 * (ranks - 1) * size).all()


@pytest.mark.parametrize(("radix", "depth"), [(2, 1), (4, 2), (8, 1)])
@pytest.mark.parametrize("workers", [1, 2, 5, 8, 17])
def test_a_worker_below_switches_sends_its_vector_once_and_switches_answer_those_below_them(
    workers, radix, depth
):
    algorithm, level, switches = ALL_REDUCE.algorithm("sharp_emulated"), workers, []
    while level > 1 or len(switches) < depth:
        level = -(-level // radix)
        switches.append(level)
    needed = sum(switches)
    few = Layout.of(workers, aggregators=needed - 1)
    assert "an aggregator for every `radix`" in algorithm.unmet(few, radix=radix, depth=depth)
    layout = Layout.of(workers, aggregators=needed + 3)
    (case,) = cases(ALL_REDUCE, algorithm, layout, radix=radix, depth=depth)
    counts = count(case.slices, cut := evenly_cut(case))
    assert (counts.sent[:workers].sum(axis=1) == case.call.bytes(cut.count, cut.itemsize)).all()
    assert (counts.messages[:workers].sum(axis=1) == 1).all()
    assert counts.steps == 2 * len(switches)
    assert counts.messages[workers : workers + needed].sum() == workers + 2 * (needed - 1)
    assert not counts.messages[workers + needed :].any()


@pytest.mark.parametrize("p", [*range(1, 10), 31, 32, 33, 100])
def test_the_two_trees_are_as_deep_as_the_logarithm_and_no_rank_of_an_even_number_is_inside_both(p):
    (case,) = cases(ALL_REDUCE, ALL_REDUCE.algorithm("double_binary_tree"), Layout.of(p))
    inner = []
    for schedule in case.slices:
        matched = [m for step in match(schedule) for m in step.landed]
        inner.append({int(me) for m in matched if m.operand is not None for me in m.target})
        # of a tree: up and down every edge
        assert sum(len(m.target) for m in matched) == 2 * (p - 1)
    both = inner[0] & inner[1]
    assert len(both) <= p % 2
    counts = count(case.slices, evenly_cut(case))
    assert counts.steps <= 2 * p.bit_length()
    assert p <= 2 or counts.messages.sum(axis=1).max() <= 6
