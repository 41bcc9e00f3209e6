from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from schedule_examples import SUBJECTS, case_of, of_lists

from hpccoll.algorithms.ring import ring
from hpccoll.schedule import Layout, Schedule, ScheduleError, in_groups, match
from hpccoll.schedule.step import NONE, Copy, Recv, RecvReduce, Send, Step, dst, peer_if, src, tmp
from hpccoll.schedule.walk import trace_schedule


def one_by_one(schedule: Schedule) -> Schedule:
    """Return ``schedule`` as one that is followed rank by rank."""
    return replace(schedule, vectorised=False)


of_four = partial(of_lists, units=4)


def landings(schedule: Schedule):
    """Return, for every rank, what lands there, in order: from whom, which units, where, folded with what."""
    found = [[] for _ in range(schedule.layout.ranks)]
    for m in trace_schedule(schedule).messages:
        found[m.target].append((m.source, m.sent, m.landed, m.operand))
    return found


@pytest.mark.parametrize("name", SUBJECTS)
def test_all_ranks_at_once_and_rank_by_rank_find_the_same_messages(name):
    for case in filter(None, (case_of(name, ranks) for ranks in (1, 2, 3, 4, 5, 7, 8, 13))):
        for schedule in case.slices:
            assert landings(schedule) == landings(one_by_one(schedule))


def test_the_kth_send_of_a_step_meets_the_kth_receive():
    schedule = of_four(
        [Step(Send(1, 0), Send(1, 1), Send(1, 2))],
        [Step(Recv(0, 2), Recv(0, 3), RecvReduce(0, 1))],
    )
    assert landings(schedule)[1] == [
        (0, dst[0], dst[2], None),
        (0, dst[1], dst[3], None),
        (0, dst[2], dst[1], dst[1]),
    ]


def test_arrivals_and_copies_land_in_the_order_listed():
    step = Step(Recv(1, 0), Copy(dst[3], tmp[0]), RecvReduce(2, 0), RecvReduce(1, 1))
    schedule = of_four([step], [Step(Send(0, 0), Send(0, 1))], [Step(Send(0, 2))])
    assert [source for source, *_ in landings(schedule)[0]] == [1, 0, 2, 1]


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3, 4]], [[4, 0, 2], [1], [3]], [[0, 1, 2]]])
def test_groups_of_different_sizes_and_ranks_in_none_are_followed_rank_by_rank(groups):
    schedule = in_groups(Layout.of(5), 5, groups, ring.schedule)
    assert landings(schedule) == landings(one_by_one(schedule))


def test_steps_that_suit_all_ranks_are_followed_by_steps_that_do_not():
    def steps(me):
        yield Step(Send((me + 1) % 3, me), Recv((me - 1) % 3, (me - 1) % 3))
        yield Step(Send(peer_if(me == 0, 1), 2))
        yield Step(Recv(peer_if(me == 1, 0), 2))

    matched_steps = list(match(Schedule(Layout.of(3), 3, steps, vectorised=True)))
    assert [len(m.source) for matched in matched_steps for m in matched.landed] == [3, 1]


def test_the_null_peer_neither_sends_nor_receives():
    schedule = of_four([Step(Send(NONE, 99), RecvReduce(NONE, -5))], [Step(Recv(NONE, 0))])
    assert landings(schedule) == [[], []]

    def steps(me):
        yield Step(Send(peer_if(me == 0, 1), me), Recv(peer_if(me == 1, 0), 0))

    (matched,) = match(Schedule(Layout.of(3), 3, steps, vectorised=True))
    assert matched.landed[0].source.tolist() == [0]


def test_an_empty_part_is_a_message_of_no_units():
    schedule = of_four([Step(Send(1, dst[2:2]))], [Step(Recv(0, dst[0:0]))])
    assert [len(messages.source) for matched in match(schedule) for messages in matched.landed] == [
        1
    ]
    assert landings(schedule) == [[], []]


def test_a_message_may_land_steps_after_it_was_sent():
    schedule = of_four(
        [Step(Send(1, 0)), Step(Send(2, 0)), Step(Send(2, 1))],
        [Step(Recv(0, 0), Recv(2, 2))],
        [Step(Recv(0, 0)), Step(Recv(0, 1)), Step(Send(1, 2))],
    )
    matched_steps = list(match(schedule))
    (first,) = [m for m in matched_steps[0].sent if m.source[0] == 0]
    assert [first in matched.landed for matched in matched_steps] == [False, False, False, True]
    assert [matched.ended.tolist() for matched in matched_steps] == [[0], [0, 2], [0, 2], [1, 2]]


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_schedule_that_is_not_vectorised_is_never_asked_for_all_ranks_at_once(vectorised):
    schedule = replace(ring.schedule(Layout.of(3)), vectorised=vectorised)
    requested = []
    assert list(
        match(
            replace(schedule, steps=lambda me: requested.append(np.ndim(me)) or schedule.steps(me))
        )
    )
    assert requested == ([1] if vectorised else [0, 0, 0])


def test_a_step_ends_when_its_messages_have_partners_so_that_two_senders_first_is_a_deadlock():
    first, second = [Step(Send(1, 0)), Step(Recv(1, 1))], [Step(Send(0, 1)), Step(Recv(0, 0))]
    with pytest.raises(
        ScheduleError,
        match="deadlock: rank 0 in step 1 waits for rank 1 to reach step 2; rank 1 in",
    ):
        list(match(of_four(first, second)))


@pytest.mark.parametrize("vectorised", [True, False])
def test_an_error_in_the_text_of_an_algorithm_is_not_hidden(vectorised):
    def steps(me):
        yield Step(Send(me.no_such_word, 0))

    with pytest.raises(AttributeError, match="no_such_word"):
        list(match(Schedule(Layout.of(2), 1, steps, vectorised)))


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        (
            [[], [Step(RecvReduce(0, 0))]],
            "step 1: rank 0 sends no message to rank 1, rank 1 receives 1 from rank 0",
        ),
        (
            [[Step(Send(1, 0), Send(1, 1))], [Step(Recv(0, 0))]],
            "step 1: rank 0 sends 2 messages to rank 1, rank 1 receives 1 from rank 0",
        ),
        (
            [[Step(Send(1, dst[0:2]))], [Step(Recv(0, 0))]],
            "rank 0 sends 2 units where rank 1 expects 1",
        ),
        (
            [[Step(Send(1, 0))], [Step(RecvReduce(0, 0, dst[0:2]))]],
            "rank 0 sends 1 units where rank 1 folds with 2",
        ),
        ([[Step(Send(1, 4))], [Step(Recv(0, 0))]], r"rank 0 names dst\[4:5\] of 4 units"),
        (
            [[Step(Send(1, 0))], [Step(RecvReduce(0, 0, src[4]))]],
            r"rank 1 names src\[4:5\] of 4 units",
        ),
        ([[Step(Send(1, dst[3:1]))], [Step(Recv(0, dst[3:1]))]], r"rank 0 names dst\[3:1\]"),
        ([[Step(Copy(dst[0], src[0]))]], "rank 0 writes src"),
        ([[Step(), Step(Send(2, 0))], []], "step 2: rank 0 names rank 2, which is not a peer"),
        (
            lambda me: Step(Send((me + 1) % 4, me), Recv((me + 1) % 4, me)),
            "step 1: rank 0 sends 1 message to rank 1, rank 1 receives none from rank 0",
        ),
        (lambda me: Step(Send(me, 0), Recv(me, 0)), "rank 0, which is not a peer"),
        (
            lambda me: Step(Send((me + 1) % 4, me), Recv((me - 1) % 4, dst[0:2])),
            "sends 1 units where",
        ),
        (
            lambda me: Step(Send((me + 1) % 4, me + 1), Recv((me - 1) % 4, me)),
            r"step 1: rank 3 names dst\[4:5\]",
        ),
    ],
)
def test_what_is_no_message_is_named_rank_by_rank_and_for_all_ranks_at_once(programs, words):
    schedule = (
        Schedule(Layout.of(4), 4, lambda me: iter([programs(me)]), vectorised=True)
        if callable(programs)
        else of_four(*programs)
    )
    with pytest.raises(ScheduleError, match=words):
        list(match(schedule))


def neighbour_sends(number):
    """Return the steps of a rank that sends to rank 1 as often as ``number`` says for each step."""
    return [Step(*(Send(1, k) for k in range(count))) for count in number]


def neighbour_receives(number):
    return [Step(*(Recv(0, k) for k in range(count))) for count in number]


@pytest.mark.parametrize(
    ("sent", "received", "words"),
    [
        # the second message of the second step is missing, that of the third one is not
        (
            (1, 1, 2),
            (1, 2, 2),
            "step 2: rank 0 sends 1 message to rank 1, rank 1 receives 2 from rank 0; in all steps: 4 and 5",
        ),
        # the only message of a step in the middle
        (
            (1, 0, 1, 1),
            (1, 1, 1, 1),
            "step 2: rank 0 sends no message to rank 1, rank 1 receives 1 from rank 0; in all steps: 3 and 4",
        ),
        (
            (1, 2, 1, 1),
            (1, 1, 1, 1),
            "step 2: rank 0 sends 2 messages to rank 1, rank 1 receives 1 from rank 0; in all steps: 5 and 4",
        ),
        # as many in all, in other numbers a step
        (
            (1, 1, 3),
            (1, 2, 2),
            "step 2: rank 0 sends 1 message to rank 1, rank 1 receives 2 from rank 0; in all steps: 5 and 5",
        ),
        # the steps of rank 1 are one later
        (
            (1, 1, 1, 1, 1),
            (0, 1, 1, 2, 1, 1),
            "step 3 of rank 0, step 4 of rank 1: rank 0 sends 1 message",
        ),
    ],
)
def test_a_missing_message_is_named_by_the_first_step_in_which_the_two_ranks_differ(
    sent, received, words
):
    schedule = of_four(neighbour_sends(sent), neighbour_receives(received))
    with pytest.raises(ScheduleError) as raised:
        list(match(schedule))
    assert str(raised.value).startswith(words)


def test_of_several_missing_messages_that_of_the_first_step_is_named():
    late = [Step(), Step(Recv(0, 0))]
    early = [Step(Recv(0, 0)), Step()]
    with pytest.raises(ScheduleError, match=r"step 1: rank 0 sends no message to rank 2"):
        list(match(of_four([Step(), Step()], late, early)))


def test_steps_that_all_ranks_paired_before_count_too():
    def steps(me):
        right = (me + 1) % 4
        left = (me - 1) % 4
        yield Step(Send(right, me), Recv(left, left))
        yield Step(Send(peer_if(me != 0, right), me), Recv(left, left))

    words = "step 2: rank 0 sends no message to rank 1, rank 1 receives 1 from rank 0; in all steps: 1 and 2"
    with pytest.raises(ScheduleError) as raised:
        list(match(Schedule(Layout.of(4), 4, steps, vectorised=True)))
    assert str(raised.value) == words
