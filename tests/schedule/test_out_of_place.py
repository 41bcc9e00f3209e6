from dataclasses import replace

import pytest
from schedule_examples import SUBJECTS, every_case

from hpccoll.schedule import out_of_place
from hpccoll.schedule.walk import trace_schedule


def messages_of(schedule):
    return sorted(
        (m.departs, m.lands, m.source, m.target, repr(m.sent), repr(m.landed), repr(m.operand))
        for m in trace_schedule(schedule).messages
    )


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_all_ranks_at_once_read_src_as_each_rank_does(name, ranks):
    for case in every_case(name, ranks)[:4]:
        for schedule in case.slices:
            at_once = out_of_place(case.call, schedule)
            assert messages_of(at_once) == messages_of(replace(at_once, vectorised=False))
