from dataclasses import replace

import pytest

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import (
    NONE,
    Layout,
    Recv,
    Send,
    Step,
    bidirectional,
    broadcast,
    collective,
    multi_pair,
    send_recv,
)
from hpccoll.schedule.collective_table import all_gather, all_reduce, all_to_all_v
from hpccoll.schedule.lazy_table import LazyTable
from hpccoll.schedule.step import RecvReduce, drop_null_peers


def test_a_row_knows_its_algorithms_and_refuses_others():
    row = replace(all_reduce, name="fresh", _algorithms=LazyTable())
    with pytest.raises(
        RuntimeError, match="fresh has no registered algorithm; import the table from"
    ):
        _ = row.algorithms
    row("nothing", floor=True)(lambda _layout: ())
    something = row("something")(lambda _layout: ())
    assert row.component("something") is something
    with pytest.raises(
        BadInputError, match=r"fresh algorithm: 'nothing' is not valid: .*choose from something"
    ):
        row.component("nothing")
    with pytest.raises(
        BadInputError, match="algorithm: 'third' is not valid: choose from nothing, something"
    ):
        row.algorithm("third")
    with pytest.raises(ValueError, match="fresh has an algorithm something already"):
        row("something")(lambda _layout: ())


# ---- sizes and bandwidth, as nccl-tests has them
# --------------------------------------------------------------------

IN_NCCL_TESTS = {
    # 8 ranks, -b 1000, float32: elements to send, elements to receive, and the factor from algbw to
    # busbw
    "all_reduce": (250, 250, 2 * 7 / 8),
    "reduce_scatter": (8 * 31, 31, 7 / 8),
    "all_gather": (31, 8 * 31, 7 / 8),
    "broadcast": (250, 250, 1),
    "reduce": (250, 250, 1),
    "gather": (31, 8 * 31, 7 / 8),
    "scatter": (8 * 31, 31, 7 / 8),
    "all_to_all": (8 * 31, 8 * 31, 7 / 8),
    "bidirectional": (250, 250, 1),  # its sendrecv_perf
    "send_recv": (250, 250, 2),  # not in nccl-tests: S goes to and fro, one after the other
}


@pytest.mark.parametrize(("name", "expected"), IN_NCCL_TESTS.items())
def test_sizes_and_busbw_are_those_of_nccl_tests(name, expected):
    row = collective(name)
    call = row.call(8)
    elements = row.elements(1000, 4, 8)
    each = elements if row.units == "per_rank" else elements / 8  # of one of eight units
    sends = max(len(call.source(me, 8)) for me in range(8)) * each
    receives = max(len(call.target(me, 8)) for me in range(8)) * each
    assert (sends, receives, row.busbw(8)) == expected
    assert call.bytes(elements, 4) == max(sends, receives) * 4  # the S that algbw is S / t of
    assert row.elements(call.bytes(elements, 4), 4, 8) == elements
    assert row.busbw(1) == 0


def test_the_bytes_of_unequal_blocks_are_those_of_the_mean_rank():
    call = all_to_all_v.call(4, traffic="zipf")
    # 48 x 4 / (1 + 1/2 + 1/3 + 1/4), over 1, 2, 3 and 4
    assert call.blocks(48).tolist() == [[92, 46, 30, 23]] * 4
    assert call.bytes(48, 4) == (92 + 46 + 30 + 23) * 4
    assert all_to_all_v.call(4, traffic="uniform").bytes(48, 4) == 48 * 4 * 4
    assert all_reduce.call(4).blocks(48) is None


# ---- the postconditions, written out for three ranks
# ----------------------------------------------------------------

A, B, C = 0, 1, 2
EVERYWHERE = [[0, 1, 2]] * 3
OWN = [[0], [1], [2]]
PROMISED = {
    # from root 1: the units of src and of dst of each rank, and what rank 1 and rank 2 end with,
    # unit by unit
    "all_reduce": (EVERYWHERE, EVERYWHERE, *[[{(A, u), (B, u), (C, u)} for u in range(3)]] * 2),
    "reduce_scatter": (EVERYWHERE, OWN, [{(A, 1), (B, 1), (C, 1)}], [{(A, 2), (B, 2), (C, 2)}]),
    "all_gather": (OWN, EVERYWHERE, *[[{(A, 0)}, {(B, 1)}, {(C, 2)}]] * 2),
    "broadcast": ([[], [0, 1, 2], []], EVERYWHERE, *[[{(B, u)} for u in range(3)]] * 2),
    "reduce": (EVERYWHERE, [[], [0, 1, 2], []], [{(A, u), (B, u), (C, u)} for u in range(3)], []),
    "gather": (OWN, [[], [0, 1, 2], []], [{(A, 0)}, {(B, 1)}, {(C, 2)}], []),
    "scatter": ([[], [0, 1, 2], []], OWN, [{(B, 1)}], [{(B, 2)}]),
    "all_to_all": (
        EVERYWHERE,
        EVERYWHERE,
        [{(A, 1)}, {(B, 1)}, {(C, 1)}],
        [{(A, 2)}, {(B, 2)}, {(C, 2)}],
    ),
    "all_to_all_v": (
        EVERYWHERE,
        EVERYWHERE,
        [{(A, 1)}, {(B, 1)}, {(C, 1)}],
        [{(A, 2)}, {(B, 2)}, {(C, 2)}],
    ),
    "barrier": (EVERYWHERE, EVERYWHERE, *[[{(A, u), (B, u), (C, u)} for u in range(3)]] * 2),
    "send_recv": ([[], [0, 1, 2], [0, 1, 2]],) * 2
    + ([{(C, u)} for u in range(3)], [{(B, u)} for u in range(3)]),
    "bidirectional": ([[], [0, 1, 2], [0, 1, 2]],) * 2
    + ([{(C, u)} for u in range(3)], [{(B, u)} for u in range(3)]),
    "multi_pair": ([[0, 1, 2], [0, 1, 2], []],) * 2 + ([{(A, u)} for u in range(3)], []),
}


@pytest.mark.parametrize("row", COLLECTIVES.values(), ids=COLLECTIVES)
def test_every_collective_has_the_postcondition_written_here(row):
    call = row.call(3, 1 if row.rooted else None)
    source = [list(call.source(me, 3)) for me in range(3)]
    target = [list(call.target(me, 3)) for me in range(3)]
    ends = [[call.result(me, unit) for unit in target[me]] for me in (1, 2)]
    assert (source, target, *ends) == PROMISED[row.name]
    assert [list(call.source(3, 3)), list(call.target(3, 3))] == [[], []], (
        "an aggregator has nothing to do with it"
    )


# ---- calls
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "arguments", "words"),
    [
        (all_reduce, {"root": 0}, "root: 0 is not valid: all_reduce has no root"),
        (broadcast, {"root": 4}, "root: 4 is not valid: a rank from 0 to 3"),
        (all_reduce, {"peer": 1}, "argument of all_reduce: 'peer' is not valid: it has none"),
        (
            send_recv,
            {"traffic": "zipf"},
            "argument of send_recv: 'traffic' is not valid: choose from peer",
        ),
        (
            send_recv,
            {"root": 1, "peer": 1},
            "peer: 1 is not valid: another rank of 4 than the root, 1",
        ),
        (send_recv, {"peer": 4}, "peer: 4 is not valid: another rank of 4"),
        (
            multi_pair,
            {"concurrent": 3},
            r"concurrent: 3 is not valid: a number of pairs from 0 \(all\) to 2",
        ),
    ],
)
def test_a_call_that_does_not_fit_is_answered_with_what_would(row, arguments, words):
    with pytest.raises(BadInputError, match=words):
        row.call(4, **arguments)


# ---- bytes in the memory of a node
# ----------------------------------------------------------------------------------

IN_MEMORY = [name for name, row in COLLECTIVES.items() if row.memory]


def moved_units(call, units, *, in_place):
    """Count the units that a single copy reads and writes, by the postcondition alone.

    The first rank that needs a unit reduces its contributions; others copy it, unless it is their
    own in place.
    """
    moved, reduced = 0, set()
    for me in range(call.p):
        for unit in call.target(me, units):
            contributions = frozenset(call.result(me, unit))
            if len(contributions) > 1 and contributions not in reduced:
                moved += len(contributions) + 1
                reduced.add(contributions)
            elif not (in_place and {origin for origin, _ in contributions} == {me}):
                moved += 2
    return moved


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("p", [2, 3, 8])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_the_bytes_in_memory_are_those_that_the_postcondition_needs(name, p, in_place):
    row = COLLECTIVES[name]
    assert row.memory(p, in_place) == pytest.approx(
        moved_units(row.call(p), p, in_place=in_place) / p
    )


def units_moved(schedule):
    """Count the units that two ranks read and write in place: two of an arrival that replaces, three of one reduced."""
    steps = (drop_null_peers(step) for me in range(2) for step in schedule.steps(me))
    arrivals = (a for step in steps for a in step.actions if isinstance(a, Recv | RecvReduce))
    return sum(len(a.part.units) * (3 if isinstance(a, RecvReduce) else 2) for a in arrivals)


# whose blocks are staged
@pytest.mark.parametrize("name", [name for name in IN_MEMORY if name != "all_to_all"])
def test_the_leanest_schedule_of_two_ranks_moves_these_bytes(name):
    row, layout = COLLECTIVES[name], Layout.of(2)

    def moved(algorithm):
        slices = row.call(2).slices(algorithm, layout)
        return sum(map(units_moved, slices)) / sum(schedule.units for schedule in slices)

    algorithms = [each for each in row.components.values() if not each.unmet(layout)]
    assert min(map(moved, algorithms)) == pytest.approx(row.memory(2, True))


@pytest.mark.parametrize(
    ("name", "out", "inside"),
    [("all_reduce", 2, 1), ("all_gather", 5 / 4, 1), ("gather", 2 / 4, 7 / 16)],
)
def test_buffers_hold_the_contribution_and_the_result_which_are_one_in_place(name, out, inside):
    shares = [COLLECTIVES[name].buffer_share(4, in_place=in_place) for in_place in (False, True)]
    assert shares == [pytest.approx(out), pytest.approx(inside)]


def test_the_peer_is_the_last_rank_unless_named_and_may_be_counted_from_the_end():
    assert send_recv.call(4).peer == 3
    assert send_recv.call(4, 3, peer=-3).peer == 1
    assert (broadcast.call(4).root, broadcast.call(4, 2).root, all_gather.call(4).root) == (0, 2, 0)


def sends(schedule, me: int) -> list[int]:
    return [
        action.peer
        for step in schedule.steps(me)
        for action in step.actions
        if isinstance(action, Send)
    ]


def test_other_ranks_play_the_roles_of_root_and_peer():
    algorithm = broadcast.algorithm("chain")
    (chain,) = broadcast.call(4, 2).slices(algorithm, Layout.of(4))
    assert [sends(chain, me) for me in range(4)] == [[1], [-1], [3], [0]]  # 2 -> 3 -> 0 -> 1
    (aside,) = broadcast.call(4, 2).slices(algorithm, Layout.of(4, aggregators=2))
    assert [sends(aside, me) for me in range(6)] == [[1], [-1], [3], [0], [], []]

    @replace(bidirectional, _algorithms=LazyTable())("two")
    def two(_layout, me):
        if me < 2:
            yield Step(Send(1 - me, 0), Recv(1 - me, 0))

    (pair,) = bidirectional.call(4, 3, peer=1).slices(two, Layout.of(4))
    assert [sends(pair, me) for me in range(4)] == [[], [3], [], [1]]


@pytest.mark.parametrize(
    ("p", "concurrent", "partners"),
    [(6, 2, [3, 4, None, 0, 1, None]), (5, 0, [2, 3, 0, 1, None]), (2, 1, [1, 0])],
)
def test_pairs_are_a_rank_of_the_first_half_and_one_of_the_second_the_others_are_idle(
    p, concurrent, partners
):
    call = multi_pair.call(p, concurrent=concurrent)
    assert [call.partner(me) for me in range(p)] == partners
    assert [bool(call.source(me, 1)) for me in range(p)] == [
        partner is not None for partner in partners
    ]
    for algorithm in multi_pair.components.values():
        (schedule,) = call.slices(algorithm, Layout.of(p, aggregators=1))
        found = [{peer for peer in sends(schedule, me) if peer != NONE} for me in range(p + 1)]
        assert found == [set() if partner is None else {partner} for partner in (*partners, None)]
