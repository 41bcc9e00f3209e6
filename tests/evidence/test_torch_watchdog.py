"""Timeouts of PyTorch's watchdog in logs of NCCL: who timed out where, and which ranks reported nothing."""

import pytest
from cli_runner import invoke

from hpccoll.evidence.log_set import read_logs

INIT = "node{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x{pid} rank {rank} nranks 4 cudaDev 0 "
INIT += "nvmlDev 0 busId {rank}000 commId 0xabc - Init COMPLETE\n"
HEALTHY = "".join(INIT.format(host=rank // 2, pid=700 + rank, rank=rank) for rank in range(4))
WORK = "WorkNCCL(SeqNum={number}, OpType={name}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600007 milliseconds"


def timeout(
    rank,
    number=41,
    name="ALLREDUCE",
    group="",
    tag="[rank{rank}]:[E1118 03:20:00.1 ProcessGroupNCCL.cpp:629] ",
):
    work = WORK.format(number=number, name=name)
    return f"{tag.format(rank=rank)}[{group}Rank {rank}] Watchdog caught collective operation timeout: {work}\n"


def timeouts(*lines):
    return read_logs({"job.log": HEALTHY + "".join(lines)}).timeouts


@pytest.mark.parametrize(
    "group", ["", "PG 0 ", "PG ID 0 PG GUID 0 ", "PG ID 0 PG GUID 0(default_pg) "]
)
@pytest.mark.parametrize(
    "tag", ["", "[rank{rank}]:[E1118 03:20:00.1 ProcessGroupNCCL.cpp:629] ", "[E Process:474] "]
)
def test_the_ranks_that_report_no_timeout_are_named_with_their_hosts(group, tag):
    (found,) = timeouts(*(timeout(rank, group=group, tag=tag) for rank in (0, 1, 3)))
    assert (found.operation, found.number, found.timeout_s, found.ranks) == (
        "ALLREDUCE",
        41,
        600,
        (0, 1, 3),
    )
    assert (found.silent, found.silent_hosts) == ((2,), ("node1",))


def test_a_timeout_of_another_group_blames_no_rank_of_the_job():
    """The rank in brackets is that of the group; the one of the job precedes it."""
    line = timeout(1, group="PG ID 3 PG GUID 5(tp) ").replace("[rank1]", "[rank3]")
    (found,) = timeouts(line)
    assert (found.ranks, found.silent) == ((3,), None)
    (found,) = timeouts(timeout(9))  # of a job with more ranks than the log tells
    assert found.silent is None
    # no job has as many
    (found,) = timeouts(timeout(0), HEALTHY.replace("nranks 4", f"nranks {10**15}"))
    assert found.silent is None


def test_ranks_that_time_out_in_different_operations_are_told_apart():
    found = timeouts(*(timeout(rank) for rank in (0, 1, 2)), timeout(3, name="_ALLGATHER_BASE"))
    assert [(each.operation, each.ranks, each.silent) for each in found] == [
        ("ALLREDUCE", (0, 1, 2), ()),
        ("_ALLGATHER_BASE", (3,), ()),
    ]


def test_a_timeout_ends_with_3_also_if_every_rank_reports_it_twice(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(HEALTHY)
    assert invoke("evidence", log).code == 0
    again = "what():  [PG ID 0 PG GUID 0 Rank {rank}] Process group watchdog thread terminated with exception: "
    log.write_text(HEALTHY + "".join(timeout(rank) + timeout(rank, tag=again) for rank in range(4)))
    ran = invoke("evidence", log)
    assert (ran.code, ran.out.count("WRONG"), "ranks 0-3 timed out in ALLREDUCE 41" in ran.out) == (
        3,
        1,
        True,
    )
