"""The logical times of the messages of a schedule."""

import pytest
from schedule_examples import SUBJECTS, case_of

from hpccoll.schedule import Layout, Recv, Schedule, Send, Step
from hpccoll.schedule.step import drop_null_peers
from hpccoll.transports.nccl.message_times import message_times


def of_three(steps):
    return Schedule(Layout.of(3), 1, lambda me: iter(steps[me]))


def times_of(schedule, times, me):
    return {key: [*values] for key, values in message_times(schedule, times, me).items()}


def test_one_who_goes_round_again_waits_for_those_that_it_meets_and_for_nobody_else():
    chain = of_three([[Step(Send(1, 0))], [Step(Recv(0, 0)), Step(Send(2, 0))], [Step(Recv(1, 0))]])
    assert times_of(chain, 3, 0) == {(True, 1): [0, 2, 4]}
    assert times_of(chain, 3, 1) == {(False, 0): [0, 2, 4], (True, 2): [1, 3, 5]}


@pytest.mark.parametrize("name", SUBJECTS)
def test_both_ranks_agree_on_times_and_steps_have_increasing_times(name):
    case = case_of(name, 6)
    for schedule in case.slices if case else ():
        tables = [message_times(schedule, 2, me) for me in range(6)]
        for me, table in enumerate(tables):
            for (sends, peer), times in table.items():
                assert times == tables[peer][not sends, me], (me, peer)
        for me, table in enumerate(tables):
            before = -1
            for step in [*schedule.steps(me)] * 2:
                now = [
                    table[isinstance(a, Send), int(a.peer)].popleft()
                    for a in drop_null_peers(step).actions
                    if hasattr(a, "peer")
                ]
                assert min(now, default=before + 1) > before
                before = max(now, default=before)
            assert not any(table.values())
