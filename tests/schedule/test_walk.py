"""The trace of a schedule: every message once, with the steps at which it departs and lands."""

from schedule_examples import case_of

from hpccoll.schedule import Copy, Layout, Recv, Schedule, Send, Step, dst, tmp
from hpccoll.schedule.walk import trace_schedule


def traced(steps, ranks=2, units=1):
    return trace_schedule(Schedule(Layout.of(ranks), units, steps))


def test_every_rank_of_a_ring_sends_one_unit_in_each_step():
    trace = trace_schedule(case_of("all_reduce-ring", 4).slices[0])
    assert trace.steps == 6
    for number, (departing, landing) in enumerate(zip(trace.departing, trace.landing, strict=True)):
        assert [(m.source, m.target) for m in departing] == [(0, 1), (1, 2), (2, 3), (3, 0)]
        assert [m.folds for m in landing] == [number < 3] * 4
    assert [m.sent.units for m in trace.departing[0]] == [(3,), (0,), (1,), (2,)]


def test_a_copy_stays_at_its_rank_and_its_parts_have_a_range_for_each_unit():
    def steps(_me):
        yield Step(Copy(dst[0:2], tmp[0:2]))

    first, second = traced(steps, units=2).messages
    assert (first.copies, second.copies) == (True, True)
    assert (second.sent, second.landed) == (dst.units([0, 1]), tmp.units([0, 1]))


def test_messages_of_no_units_and_steps_without_messages_are_left_out():
    def steps(me):
        yield Step(Send(1, dst[0:0])) if me == 0 else Step(Recv(0, dst[0:0]))
        yield Step()
        yield Step(Send(1, 0)) if me == 0 else Step(Recv(0, 0))

    assert (traced(steps).steps, len(traced(steps).messages)) == (1, 1)
