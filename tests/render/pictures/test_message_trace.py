"""The story of a schedule: every message once, with the rounds between which it is under way."""

from drawing_examples import view
from schedule_examples import EXAMPLES

from hpccoll.render.pictures.message_trace import TracedPart, trace_schedule
from hpccoll.schedule import Copy, Layout, Recv, Schedule, Send, Step, dst, tmp


def trace(name, ranks):
    return trace_schedule(view(name, ranks).slices[0])


def test_every_rank_of_a_ring_sends_one_unit_in_each_round():
    traced = trace("all_reduce-ring", 4)
    assert traced.rounds == 6
    for number in range(traced.rounds):
        assert [(m.source, m.target) for m in traced.departing(number)] == [(0, 1), (1, 2), (2, 3), (3, 0)]
        assert [m.folds for m in traced.landing(number)] == [number < 3] * 4
    assert [m.sent.units for m in traced.departing(0)] == [(3,), (0,), (1,), (2,)]


def test_a_message_may_be_under_way_for_several_rounds():
    traced = trace_schedule(EXAMPLES["leaders_of_nodes"].slices(7)[0])
    assert next((m.departs, m.lands) for m in traced.messages if (m.source, m.target) == (0, 1)) == (0, 2)


def test_a_copy_stays_at_its_rank():
    def steps(me):
        yield Step(Copy(dst[me], tmp[0]))

    first, second = trace_schedule(Schedule(Layout.of(2), 2, steps)).messages
    assert first.copies
    assert second.copies
    assert (second.sent, second.landed) == (TracedPart("dst", (1,)), TracedPart("tmp", (0,)))


def test_messages_of_no_units_and_rounds_without_messages_are_left_out():
    def steps(me):
        yield Step(Send(1, dst[0:0])) if me == 0 else Step(Recv(0, dst[0:0]))
        yield Step()
        yield Step(Send(1, 0)) if me == 0 else Step(Recv(0, 0))

    traced = trace_schedule(Schedule(Layout.of(2), 1, steps))
    assert (traced.rounds, len(traced.messages)) == (1, 1)


def test_two_messages_that_are_alike_are_two():
    def steps(me):
        yield Step(Send(1, 0), Send(1, 0)) if me == 0 else Step(Recv(0, 0), Recv(0, 0))

    assert len(set(trace_schedule(Schedule(Layout.of(2), 1, steps)).messages)) == 2
