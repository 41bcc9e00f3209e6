from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_examples import SUBJECTS, Case, case_of, of_lists

from hpccoll.algorithms.ring import ring
from hpccoll.schedule import Cut, Layout, Schedule, all_reduce, all_to_all_v, out_of_place, reverse
from hpccoll.schedule.count import (
    Counts,
    count,
    crossings,
    smallest_message_units,
    unequal_wire_bytes,
    wire_bytes,
)
from hpccoll.schedule.layout import TIERS
from hpccoll.schedule.step import Copy, Recv, Send, Step, dst
from hpccoll.schedule.unequal_blocks import PATTERNS

FABRIC = TIERS.index("fabric")
GRAINS = 32  # elements of four bytes in a grain


def ring_of(layout: Layout) -> Schedule:
    return ring.schedule(layout)


def of_all_reduce(*slices: Schedule) -> Case:
    return Case(all_reduce.call(slices[0].layout.workers), slices)


def counted(case: Case, grains: int, lanes: int | None = None) -> Counts:
    """Count a case on a buffer (or blocks) of so many grains."""
    return count(
        case.slices,
        Cut(case.call, grains * GRAINS, case.slices[0].units, lanes or len(case.slices), 4),
    )


def test_messages_and_bytes_are_counted_by_rank_and_tier():
    layout = Layout.of(4, ranks_per_node=2)
    found = count([ring_of(layout)], Cut(all_reduce.call(4), 4 * GRAINS, 4, 1, 4))
    # unit by unit round the ring 0 1 | 2 3 |: 1 and 3 send to the other node, 0 and 2 inside their
    # own
    assert found.messages.tolist() == [[0, 6, 0, 0], [0, 0, 6, 0], [0, 6, 0, 0], [0, 0, 6, 0]]
    assert found.sent.tolist() == [
        [0, 6 * 128, 0, 0],
        [0, 0, 6 * 128, 0],
        [0, 6 * 128, 0, 0],
        [0, 0, 6 * 128, 0],
    ]
    assert found.reduced.tolist() == [3 * 128] * 4
    assert found.wire_bytes == 2 * 6 * 128


@pytest.mark.parametrize("name", SUBJECTS)
@settings(max_examples=12)
@given(
    *(
        st.sampled_from(values)
        for values in ((3, 4, 5, 8), (1, 2, 3, 4), range(5001), (1, 2, 3), (1, 2, 4, 8))
    )
)
def test_bytes_between_nodes_follow_from_the_units_that_cross_for_every_size_and_cut(
    name, ranks, per_node, elements, channels, itemsize
):
    case = case_of(name, ranks)
    if case is None or case.call.blocks(1) is not None:  # which has no equal units
        return
    slices = [
        replace(
            schedule, layout=replace(schedule.layout, node=node, rack=tuple(n // 2 for n in node))
        )
        for schedule in case.slices
        for node in [tuple(me // per_node for me in range(ranks))]
    ]
    cut = Cut(case.call, elements, slices[0].units, channels * len(slices), itemsize)
    found = count(slices, cut)
    assert wire_bytes([crossings(schedule) for schedule in slices], cut) == found.wire_bytes
    assert (
        wire_bytes([crossings(schedule, "rack") for schedule in slices], cut)
        == found.sent[:, FABRIC].sum()
    )


@pytest.mark.parametrize(("radix", "sent_by_switches"), [(8, 8), (4, 12)])
def test_what_workers_send_and_receive_is_counted_apart_from_aggregators(radix, sent_by_switches):
    layout = Layout.of(8, 1, aggregators=3)
    schedule = all_reduce.algorithm("sharp_emulated").schedule(layout, radix=radix)
    cut = Cut(all_reduce.call(8), 1000, schedule.units, 1, 4)
    every, sent, received = (
        wire_bytes([crossings(schedule, end=end)], cut) for end in (None, "source", "target")
    )
    assert (sent, received) == (8 * 4000, 8 * 4000)  # a vector up and one down for each worker
    assert every == sent + sent_by_switches * 4000
    by_rank = count([schedule], cut).sent.sum(axis=1)
    assert (sent, every) == (by_rank[:8].sum(), by_rank.sum())


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("per_node", [1, 2, 3])
def test_unequal_bytes_between_nodes_are_those_that_are_counted(per_node, lanes):
    node = Layout.of(7, per_node).node
    layout = Layout(node, tuple(n // 2 for n in node))
    slices = all_to_all_v.algorithm("pairwise").slices(layout)
    for traffic in PATTERNS:
        call = all_to_all_v.call(7, traffic=traffic)
        for each in (
            slices,
            [out_of_place(call, one) for one in slices],
            [*slices, reverse(*slices)],
        ):
            cut = Cut(call, 1000, 7, lanes * len(each), 4)
            found = count(each, cut)
            assert unequal_wire_bytes(each, cut) == found.wire_bytes
            assert unequal_wire_bytes(each, cut, "rack") == found.sent[:, FABRIC].sum()


def test_a_sender_waits_until_its_receiver_has_come():
    swaps = [[Step(Send(peer, 0), Recv(peer, 0))] * 4 for peer in (3, 1)]
    late = of_lists(
        [Step(Send(1, 0)), Step(Send(2, 0))],
        [*swaps[0], Step(Recv(0, 0))],
        [Step(Recv(0, 0))],
        swaps[1],
    )
    assert counted(of_all_reduce(late), 1).steps == 4 + 2


def test_a_step_that_ends_after_its_partner_has_gone_on_sends_and_receives_at_once_all_the_same():
    # rank 0 receives at once, while its own message waits for rank 1 to take in that of rank 2
    last = [Step(Send(0, 0)), Step(Send(1, 0))]
    late = of_lists([Step(Send(1, 0), Recv(2, 0))], [Step(Recv(0, 0), Recv(2, 0))], last)
    found = counted(of_all_reduce(late), 1)
    # 2 -> 0, 2 -> 1 and the other arrival at 1
    assert (found.steps, found.critical_bytes) == (2, 3 * 128)


def test_the_smallest_message_has_as_many_units_as_the_shortest_part_that_leaves_a_rank():
    own, long, short = (
        Step(Copy(dst[0], dst[5])),
        Step(Send(1, dst[0:4])),
        Step(Send(1, dst[0] + dst[2:4])),
    )
    arrivals = [Step(Recv(0, dst[0:4])), Step(Recv(0, dst[0:3]))]

    def smallest(*programs):
        return smallest_message_units(of_lists(*programs, units=6))

    found = (
        smallest([own, long], arrivals[:1]),
        smallest([own, long, short], arrivals),
        smallest([own], []),
    )
    assert found == (4, 3, 0)
