from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import EXAMPLES, of, recursive_doubling_of, ring_of

from hpccoll.schedule import (
    Counts,
    Cut,
    Layout,
    Receive,
    Reduce,
    Schedule,
    Send,
    Step,
    all_reduce,
    barrier,
    count,
    crossings,
    dst,
    out_of_place,
    wire_bytes,
)

GRAINS = 32  # elements of four bytes in a grain


def counted(name_or_schedule, ranks: int, count_of_grains: int, lanes: int | None = None) -> Counts:
    slices = name_or_schedule
    if isinstance(name_or_schedule, str):
        slices = EXAMPLES[name_or_schedule].slices(ranks)
    collective = EXAMPLES[name_or_schedule].collective if isinstance(name_or_schedule, str) else all_reduce
    return count(slices, Cut(collective, count_of_grains * GRAINS, slices[0].units, lanes or len(slices), 4))


def of_lists(*programs: list[Step]) -> tuple[Schedule, ...]:
    def steps(me):
        yield from programs[me]

    return (Schedule(Layout.of(len(programs)), 1, steps),)


def test_messages_and_bytes_are_counted_by_rank_and_tier():
    layout = Layout.of(4, ranks_per_node=2)
    found = count([ring_of(layout)], Cut(all_reduce, 4 * GRAINS, 4, 1, 4))
    # unit by unit round the ring 0 1 | 2 3 |: 1 and 3 send to the other node, 0 and 2 inside their own
    assert found.messages.tolist() == [[0, 6, 0, 0], [0, 0, 6, 0], [0, 6, 0, 0], [0, 0, 6, 0]]
    assert found.sent.tolist() == [[0, 6 * 128, 0, 0], [0, 0, 6 * 128, 0], [0, 6 * 128, 0, 0], [0, 0, 6 * 128, 0]]
    assert found.reduced.tolist() == [3 * 128] * 4
    assert found.wire_bytes == 2 * 6 * 128


def test_messages_between_racks_are_wire_bytes_too():
    layout = Layout(node=(0, 0, 1, 1), rack=(0, 0, 1, 1))
    found = count([recursive_doubling_of(layout)], Cut(all_reduce, 4 * GRAINS, 4, 1, 4))
    assert found.sent.tolist() == [[0, 512, 0, 512]] * 4
    assert found.wire_bytes == 4 * 512


def test_what_stays_inside_nodes_is_not_on_the_wire():
    found = counted("rings_of_nodes", 4, 4)  # two nodes of two: half of the vector crosses, twice, each way
    assert found.sent[:, 1].tolist() == [2 * 256] * 4
    assert found.sent[:, 2].tolist() == [2 * 128] * 4
    assert found.wire_bytes == 4 * 256


@pytest.mark.parametrize("name", EXAMPLES)
@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 5000), st.integers(1, 3), st.sampled_from([1, 2, 4, 8]))
def test_bytes_between_nodes_follow_from_the_units_that_cross_for_every_size_and_cut(
    name, ranks, per_node, elements, channels, itemsize
):
    example = EXAMPLES[name]
    slices = [
        replace(schedule, layout=replace(schedule.layout, node=tuple(me // per_node for me in range(ranks))))
        for schedule in example.slices(ranks)
    ]
    cut = Cut(example.collective, elements, slices[0].units, channels * len(slices), itemsize)
    assert wire_bytes([crossings(schedule) for schedule in slices], cut) == count(slices, cut).wire_bytes


def test_a_copy_is_bytes_that_go_nowhere():
    found = counted("bruck", 4, 1)
    assert found.sent[:, 0].tolist() == [5 * 128] * 4  # the own block in, the four blocks out
    assert found.sent[:, 1].tolist() == [3 * 128] * 4
    assert (found.rounds, found.critical_bytes, found.critical_reduced) == (2, 3 * 128, 0)


def test_empty_messages_are_not_counted():
    (schedule,) = (ring_of(Layout.of(4)),)
    found = count([schedule], Cut(all_reduce, 1, 4, 1, 4))  # the element is in the last unit
    assert found.messages.sum() == 6
    assert found.sent.sum() == 6 * 4


def test_lanes_run_side_by_side_but_share_their_ports():
    one, four = counted([ring_of(Layout.of(3))], 3, 12, lanes=1), counted([ring_of(Layout.of(3))], 3, 12, lanes=4)
    assert (four.rounds, four.critical_bytes) == (one.rounds, one.critical_bytes)
    assert (four.messages == 4 * one.messages).all()
    assert (four.sent == one.sent).all()


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_a_ring_each_way_costs_what_one_ring_costs_as_slices_or_as_one_schedule(ranks):
    ring = counted([ring_of(Layout.of(ranks))], ranks, 2 * ranks)
    for name in ("two_slices", "two_way_ring"):
        found = counted(name, ranks, 2 * ranks)
        assert (found.rounds, found.critical_bytes, found.critical_reduced) == (
            ring.rounds,
            ring.critical_bytes,
            ring.critical_reduced,
        )
        assert (found.sent == ring.sent).all()
        assert (found.messages == 2 * ring.messages).all()


@pytest.mark.parametrize(
    ("name", "ranks", "rounds", "sent", "reduced"),
    [
        ("binomial_broadcast", 8, 3, 3, 0),
        ("binomial_reduce", 8, 3, 3, 3),
        ("reduce_then_broadcast", 8, 6, 6, 3),
        ("dissemination", 5, 3, 3, 3),
        (
            "one_switch",
            5,
            2,
            8,
            3,
        ),  # four workers: the switch takes in and gives out four vectors, one of them not folded
        ("shift_by_one", 4, 1, 1, 0),
        ("direct", 5, 1, 4, 0),
        ("bruck", 8, 3, 7, 0),
    ],
)
def test_the_critical_path_is_that_of_the_textbook(name, ranks, rounds, sent, reduced):
    found = counted(name, ranks, 2)
    assert (found.rounds, found.critical_bytes, found.critical_reduced) == (rounds, sent * 256, reduced * 256)


def test_sends_that_follow_one_another_are_rounds_even_where_nothing_comes_back():
    flat = of_lists([Step(Send(peer, 0)) for peer in (1, 2, 3)], *[[Step(Receive(0, 0))] for _ in (1, 2, 3)])
    at_once = of_lists([Step(*(Send(peer, 0) for peer in (1, 2, 3)))], *[[Step(Receive(0, 0))] for _ in (1, 2, 3)])
    assert (counted(flat, 4, 1).rounds, counted(flat, 4, 1).critical_bytes) == (3, 3 * 128)
    assert (counted(at_once, 4, 1).rounds, counted(at_once, 4, 1).critical_bytes) == (1, 3 * 128)


def test_a_pipeline_fills_and_then_takes_a_step_a_unit():
    found = counted("chain", 4, 5)
    assert (found.rounds, found.critical_bytes) == (5 + 4 - 2, (5 + 4 - 2) * 128)


def test_what_a_sender_does_after_a_message_does_not_make_its_landing_later():
    # rank 1 waits for rank 3, who comes late; rank 0 is long gone to talk with rank 2, which 1 does not have to await
    swap = [Step(Send(2, 0), Receive(2, 0))] * 4
    back = [Step(Send(0, 0), Receive(0, 0))] * 4
    busy = of_lists(
        [Step(Send(1, 0)), *swap],
        [Step(Receive(0, 0), Receive(3, 0)), Step(Send(3, 0))],
        [*back, Step(Send(3, 0))],
        [Step(Receive(2, 0)), Step(Send(1, 0)), Step(Receive(1, 0))],
    )
    # 0 -> 1, then four swaps with 2, then 2 -> 3, 3 -> 1, 1 -> 3
    assert counted(busy, 4, 1).rounds == 8
    idle = of_lists(
        [Step(Send(1, 0)), *swap],
        [Step(Receive(0, 0), Receive(3, 0)), Step(Send(3, 0)), Step(Send(3, 0)), Step(Send(3, 0))],
        back,
        [Step(), Step(), Step(), Step(), Step(Send(1, 0)), *[Step(Receive(1, 0))] * 3],
    )
    assert counted(idle, 4, 1).rounds == 5  # the swaps beside 3 -> 1 and three times 1 -> 3


def test_a_sender_waits_until_its_receiver_has_come():
    swaps = [[Step(Send(peer, 0), Receive(peer, 0))] * 4 for peer in (3, 1)]
    late = of_lists(
        [Step(Send(1, 0)), Step(Send(2, 0))], [*swaps[0], Step(Receive(0, 0))], [Step(Receive(0, 0))], swaps[1]
    )
    assert counted(late, 4, 1).rounds == 4 + 2


def test_a_step_that_ends_after_its_partner_has_gone_on_sends_and_receives_at_once_all_the_same():
    # rank 0 receives at once, while its own message waits for rank 1 to take in that of rank 2
    late = of_lists(
        [Step(Send(1, 0), Receive(2, 0))],
        [Step(Receive(0, 0), Receive(2, 0))],
        [Step(Send(0, 0)), Step(Send(1, 0))],
    )
    assert counted(late, 3, 1).critical_bytes == 3 * 128  # 2 -> 0, 2 -> 1 and the other arrival at 1
    assert counted(late, 3, 1).rounds == 2


def test_a_copy_before_a_step_adds_no_round():
    plain, copying = EXAMPLES["halves_then_whole"].slices(5), EXAMPLES["halves_then_whole"].collective
    cut = Cut(copying, GRAINS, 5, 1, 4)
    there = count(plain, cut)
    here = count([out_of_place(copying, each) for each in plain], cut)
    assert (there.rounds, there.critical_bytes) == (here.rounds, here.critical_bytes)
    assert (here.sent[:, 0] == GRAINS * 4).all()


def test_the_schedule_of_one_rank_costs_nothing():
    found = counted([ring_of(Layout.of(1))], 1, 7)
    assert found.messages.sum() == found.sent.sum() == found.rounds == found.critical_bytes == 0
    assert np.array_equal(found.reduced, [0])


def test_parts_of_several_ranges_are_counted_whole():
    def steps(_layout, me):
        yield Step(Send(1 - me, dst[0] + dst[2:4]), Reduce(1 - me, dst[0] + dst[2:4]))

    found = counted([of(steps, lambda _p: 4)(Layout.of(2))], 2, 4)
    assert found.messages.sum() == 2
    assert found.sent[:, 1].tolist() == found.reduced.tolist() == [3 * 128] * 2


@pytest.mark.parametrize("p", [1, 2, 3, 8, 13])
def test_no_message_of_a_barrier_is_empty(p):
    (schedule,) = EXAMPLES["dissemination"].slices(p)
    found = count([schedule], Cut(barrier, barrier.elements(0, 1, p), 1, 1, 1))
    assert found.messages.sum() == p * (p - 1).bit_length()
    assert (found.messages.sum(axis=1) == found.rounds).all()
