"""The next step after each finding of a recorded job."""

from dataclasses import replace
from typing import get_args

import pytest

from hpccoll.render.trace_remedies import hang_remedy, late_remedy
from hpccoll.traces.hangs import Hang, Reason
from hpccoll.traces.late import Lag
from hpccoll.traces.recorded_job import Group, Rank, RecordedJob, RecordedOperation

GROUP = Group("0", (0, 1, 2, 3))
OPERATION = RecordedOperation(0, GROUP, "all_reduce", 2)
NOT_SAID_BY_SENTENCES = sorted(set(get_args(Reason)) - {"older"})


def hang(reason, *ranks):
    called = (((0, 1), OPERATION), (tuple(ranks), OPERATION)) if reason == "mismatch" else ()
    return Hang(reason, ranks, GROUP, OPERATION, called=called)


@pytest.mark.parametrize("reason", NOT_SAID_BY_SENTENCES)
def test_each_reason_of_a_hang_has_a_next_step_for_the_rank_although_its_host_is_unknown(reason):
    awaited = () if reason == "launched" else (2,)
    remedy = hang_remedy(hang(reason, *awaited), RecordedJob("a format"))
    assert "2" in remedy or "ranks 0-3" in remedy
    assert "PID" in remedy or "dmesg" in remedy
    assert "{" not in remedy


def test_the_process_and_the_host_of_a_rank_are_in_its_next_step_if_they_are_recorded():
    job = RecordedJob("a format", ranks=(Rank(2, "n7", pid=4711),))
    assert "'py-spy dump --pid 4711' on n7" in hang_remedy(hang("not joined", 2), job)
    assert hang_remedy(hang("behind", 2), job).startswith("on n7 ")
    assert "hpccoll diagnose --here" in hang_remedy(hang("behind", 2), job)
    both = hang_remedy(hang("not joined", 2, 3), job)
    assert "--pid 4711" in both
    assert "--pid PID' of rank 3" in both


def test_a_process_without_a_rank_that_does_not_answer_is_named_by_its_number_and_host():
    status = "does not answer"
    job = RecordedJob("a format", ranks=(Rank(-1, "n7", status, pid=4711), Rank(0, "n1")))
    remedy = hang_remedy(replace(hang("failed"), status=status), job)
    assert "--pid 4711' on n7" in remedy
    assert "n1" not in remedy


def test_of_many_ranks_only_a_few_processes_are_named():
    job = RecordedJob("a format", ranks=[Rank(n, f"n{n}", pid=100 + n) for n in range(64)])
    remedy = hang_remedy(hang("not joined", *range(64)), job)
    assert remedy.count("py-spy") < 8
    assert "60 more ranks" in remedy


def test_what_the_sentence_says_is_not_said_twice():
    assert hang_remedy(hang("older", 2), RecordedJob("a format")) == ""


def test_a_late_rank_is_to_be_profiled_and_its_host_checked():
    assert "on n3 run 'hpccoll diagnose --here'" in late_remedy(Lag(3, 0.1, 1.0, 8), "n3")
    assert "the host of rank 3" in late_remedy(Lag(3, 0.1, 1.0, 8), None)
