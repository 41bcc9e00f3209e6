"""NCCL's logs: communicators that were begun and not completed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library_logs import read_log

from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.verdict import failures
from tests.traces.kernel_files import begun_communicator

SPLIT = "parent 0x{rank}00 splitCount 1 color 3 key {rank}"
NAMES = ("commId 0x77e1", SPLIT, f"{SPLIT} commId 0x0")


def log(size, begun, completed, name):
    lines = [begun_communicator(rank, size, "START", name.format(rank=rank)) for rank in begun]
    return lines + [
        begun_communicator(rank, size, "COMPLETE", name.format(rank=rank)) for rank in completed
    ]


@given(st.integers(1, 6), st.sampled_from(NAMES), st.data())
def test_ranks_that_began_a_communicator_and_did_not_complete_it_are_named(size, name, data):
    begun = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    completed = data.draw(st.sets(st.sampled_from(sorted(begun))))
    record = read_logs({"nccl.log": "".join(log(size, begun, completed, name))})
    found = [(one.size, one.begun, one.incomplete) for one in record.unfinished]
    incomplete = tuple(sorted(begun - completed))
    assert found == ([(size, tuple(sorted(begun)), incomplete)] if incomplete else [])
    assert len([*failures(record)]) == len(found)


@pytest.mark.parametrize("line", ["Destroy COMPLETE", "Abort COMPLETE"])
def test_a_communicator_that_is_destroyed_was_completed_and_an_aborted_one_was_not(line):
    begun = begun_communicator(0, 2)
    end = begun.replace("Init START", line)
    assert len(read_logs({"nccl.log": begun + end}).unfinished) == line.startswith("Abort")


def test_a_failure_that_is_logged_explains_why_a_communicator_was_not_completed():
    failed = "n0:70:80 [0] init.cc:9 NCCL WARN no device\nn0:70:80 [0] NCCL INFO init.cc:10 -> 2\n"
    record = read_logs({"nccl.log": begun_communicator(0, 2) + failed})
    assert len(record.failures) == 1
    assert record.unfinished == ()


def test_the_size_of_a_communicator_in_a_damaged_log_costs_nothing():
    assert read_log("rdma-2.27", begun_communicator(0, 10**17)).unfinished == ()
