"""Reports of NCCL's RAS, as JSON and in words: one poll, and several."""

import json
import os
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from tests.traces.recorded_files import as_nccl_2_28, ras


def read(directory, *reports):
    for number, report in enumerate(reports):
        text = report if isinstance(report, str) else json.dumps(report)
        (directory / f"ras{number}.txt").write_text(text)
    (job,) = read_job([directory]).jobs
    return job


def hangs(directory, *reports):
    return find_hangs(read(directory, *reports))


def test_a_rank_that_launched_fewer_is_named_with_the_operation(tmp_path):
    (hang,) = hangs(tmp_path, ras({0: 101, 1: 100, 2: 101}))
    assert (hang.reason, hang.ranks) == ("not joined", (1,))
    assert (hang.operation.collective, hang.operation.sequence) == ("all_reduce", 101)
    assert [(wait.ranks, wait.awaited) for wait in hang.waits] == [((0, 2), (1,))]


def test_a_count_that_rises_from_poll_to_poll_is_late_and_not_absent(tmp_path):
    first, second = ras({0: 101, 1: 100}), ras({0: 105, 1: 104}, time="2026-01-02 03:04:15")
    assert hangs(tmp_path, second, first) == []


def test_a_count_that_stays_from_poll_to_poll_is_absent_in_whatever_order_the_files_are(tmp_path):
    polls = [
        ras({0: count, 1: 100}, time=f"2026-01-02 03:04:{second}")
        for second, count in ((25, 105), (15, 105))
    ]
    job = read(tmp_path, *polls, ras({0: 90, 1: 90}))
    (hang,) = find_hangs(job)
    assert (hang.ranks, job.polls, hang.may_be_late(job)) == ((1,), 3, False)


def test_ranks_that_waited_for_one_that_goes_on_are_not_absent(tmp_path):
    counts = {0: 101, 1: 100, 2: 101, 3: 101}
    polls = [ras(counts, time=f"2026-01-02 03:04:0{second}") for second in (1, 2)]
    assert hangs(tmp_path, *polls, ras(counts | {0: 102, 1: 101}, time="2026-01-02 03:04:03")) == []


def with_another(report, counts, members):
    """Return a report with a second communicator, of some ranks of the first one."""
    places = {number: ("10.0.0.1", 100 + rank, rank) for number, rank in enumerate(members)}
    other = ras(dict(enumerate(counts)), digits="0xcd", places=places)["communicators"]
    return {**report, "communicators": [*report["communicators"], *other]}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_a_communicator_that_is_there_at_one_of_two_polls_only_names_no_rank(
    tmp_path, whole, turned
):
    """It is destroyed or made in between, or another one, which numbers the ranks anew, is."""
    first, second = (
        ras(dict.fromkeys(range(4), 9), time=f"2026-01-02 03:04:0{number}") for number in (1, 2)
    )
    if whole:
        first = first | {"communicators": with_another(first, (3, 2), (3, 2))["communicators"][1:]}
        second = with_another(second, (8, 8), (3, 2))
    else:
        first = with_another(first, (3, 2), (0, 1))
    if turned:
        first["timestamp"], second["timestamp"] = second["timestamp"], first["timestamp"]
    assert hangs(tmp_path, first, second) == []


def test_of_several_ranks_that_are_late_the_one_that_stays_is_named(tmp_path):
    counts = {0: 9, 1: 5, 2: 6, 3: 9}
    later = ras(counts | {0: 12, 1: 11}, time="2026-01-02 03:04:15")
    assert [each.ranks for each in hangs(tmp_path, ras(counts), later)] == [(2,)]


def test_one_poll_in_two_files_is_one_poll(tmp_path):
    job = read(tmp_path, ras({0: 101, 1: 100}), ras({0: 101, 1: 100}))
    assert (job.polls, find_hangs(job)[0].may_be_late(job)) == (1, True)


def test_equal_counts_name_no_rank(tmp_path):
    assert hangs(tmp_path, ras({0: 7, 1: 7})) == []


def test_types_count_each_by_itself_and_opposite_orders_are_a_circle(tmp_path):
    (hang,) = hangs(
        tmp_path, ras({0: {"AllReduce": 5, "AllGather": 3}, 1: {"AllReduce": 4, "AllGather": 4}})
    )
    assert (hang.reason, hang.ranks) == ("circle", (0, 1))


@pytest.mark.parametrize("write", [json.dumps, as_nccl_2_28])
def test_a_process_that_does_not_answer_is_named_also_from_what_is_no_json(tmp_path, write):
    text = write(ras({0: 4, 2: 4}, missing=(1,)))
    if write is as_nccl_2_28:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    (hang,) = hangs(tmp_path, text)
    assert (hang.reason, hang.ranks, hang.status) == ("failed", (1,), "does not answer")


def test_ranks_are_those_of_the_largest_communicator(tmp_path):
    """Ranks 0 and 1 of the small one are the processes of ranks 2 and 3 of the large one."""
    whole = ras(dict.fromkeys(range(4), 9))
    places = {rank: ("10.0.0.1", 102 + rank, 2 + rank) for rank in range(2)}
    part = ras({0: 6, 1: 5}, digits="0xcd", places=places)["communicators"]
    (hang,) = hangs(tmp_path, {**whole, "communicators": [*part, *whole["communicators"]]})
    assert (hang.ranks, hang.group.ranks) == ((3,), (2, 3))


@pytest.mark.parametrize("turned", [False, True])
def test_processes_that_a_report_leaves_out_share_no_number_whatever_the_order_of_communicators(
    tmp_path, turned
):
    """Two communicators of 4, of which the first lists ranks 0, 1 and 3 only."""
    reports = []
    for digits, host in (("0xa", "n0"), ("0xb", "n1")):
        places = {rank: (host, 100 + rank, rank) for rank in range(4)}
        reports += ras(dict.fromkeys(range(4), 9), digits=digits, places=places)["communicators"]
    del reports[0]["ranks"][2]
    found = ras({0: 1}) | {"communicators": reports[::-1] if turned else reports}
    (tmp_path / "ras.json").write_text(json.dumps(found))
    (job,) = read_job([tmp_path]).jobs
    assert [(each.rank, each.host) for each in job.ranks] == [
        *((rank, "n0") for rank in (0, 1, 3)),
        *((rank, "n1") for rank in (4, 5, 6, 7)),
    ]


TABLE = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH
"""
BLOCK = "\nWarnings\n========\n\n#0-0 (00c0ffee12345678) MISMATCH\n"
TYPE = "  Communicator ranks have different {} operation counts\n"
PLACE = "-- GPU 0 managed by process 12 on node n2"
WORDS = {
    "one behind": ("7 ranks have launched up to operation 64\n  Rank 7 has launched up to operation 60 " + PLACE, [7]),
    "one ahead": (
        "7 ranks have launched up to operation 64\n  Rank 2 has launched up to operation 65 " + PLACE,
        [0, 1, 3, 4, 5, 6, 7],
    ),
    "two behind": (
        "6 ranks have launched up to operation 64\n2 ranks have launched up to operation 9\nRank 1 -- [\nRank 4 -- [",
        [1, 4],
    ),
    "one that never called": (
        f"7 ranks have launched up to operation 64\n  Rank 3 has not launched any operations {PLACE}", [3],
    ),
    "many on both sides": ("4 ranks have launched up to operation 64\n  4 ranks have launched up to operation 63", []),
}  # fmt: skip


@pytest.mark.parametrize(("words", "absent"), WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("collective", ["AllReduce", "collective"])
def test_a_report_in_words_names_who_is_behind_also_where_it_names_the_leaders(
    tmp_path, words, absent, collective
):
    found = hangs(tmp_path, f"{TABLE}{BLOCK}{TYPE.format(collective)}  {words}\n")
    assert [rank for hang in found for rank in hang.ranks] == absent


def test_ranks_that_a_report_does_not_name_are_said_to_be_unknown(tmp_path):
    (tmp_path / "ras.txt").write_text(
        f"{TABLE}{BLOCK}{TYPE.format('Reduce')}  {WORDS['many on both sides'][0]}\n"
    )
    (job,) = read_job([tmp_path]).jobs
    assert [fact for fact in job.cannot_say if "which 4 ranks" in fact]


def test_a_healthy_report_in_words_says_how_many_ranks_it_counts_and_who_timed_out_beside_it(
    tmp_path,
):
    watchdog = (
        "[rank6]:[E603 17:48:01.0 ProcessGroupNCCL.cpp:632] [Rank 6] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=2398459, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800068 ms"
    )
    job = read(
        tmp_path,
        TABLE.replace("MISMATCH", "OK") + f"\nErrors\n======\n\nWarnings\n========\n\n{watchdog}\n",
    )
    assert find_hangs(job) == []
    lacking = " ".join(job.cannot_say)
    assert "8 ranks" in lacking
    assert "rank 6 timed out in ALLREDUCE 2398459" in lacking


def test_ranks_of_a_communicator_that_is_listed_with_0_ranks_are_no_ranks_of_the_job(tmp_path):
    """As NCCL 2.27.3 lists them (NVIDIA/nccl#1762); of the other communicator, the data of rank 1 are missing."""
    row = "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n"
    nothing = (
        "    2         4         0         0         0         0    NOCOMM  INCOMPLETE,MISMATCH\n"
    )
    head = TABLE.splitlines(keepends=True)[:2]
    incomplete = (
        "#0-0 (b3398875b8b2a063) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 1 -- GPU 0 managed by process 60004 on node 10.4.90.13\n\n"
        "#2-0 (93d7000200000001) INCOMPLETE\n  Missing communicator data from 255 ranks\n"
        "  Rank 1057455228 -- [process information not found]\n  Rank 0 -- [process information not found]\n"
    )
    job = read(tmp_path, "".join((*head, row, nothing, "\nErrors\n======\n\n", incomplete)))
    (hang,) = find_hangs(job)
    assert (hang.ranks, [each.host for each in job.ranks]) == ((1,), ["10.4.90.13"])
    assert "0x93d7000200000001" in " ".join(job.cannot_say)


INCOMPLETE = TABLE.replace("MISMATCH", "INCOMPLETE") + "\nErrors\n======\n\n"
DEAD = "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
PROCESS = "  Process 3487984 on node n7 managing GPU 5\n\n"
NO_DATA = "#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from {}\n"


@pytest.mark.parametrize(
    ("report", "missing", "hosts"),
    [
        (DEAD + PROCESS + NO_DATA.format("1 rank") + "  The missing rank: 5\n", [(5,)], ["n7"]),
        (NO_DATA.format("1 rank") + "  The missing rank: 5\n", [(5,)], [None]),
        (NO_DATA.format("4 ranks") + "  The missing ranks: 1, 4-6\n", [(1, 4, 5, 6)], [None] * 4),
        (
            DEAD + PROCESS + NO_DATA.format("2 ranks") + "  The missing ranks: 1,2\n",
            [(), (1, 2)],
            ["n7", None, None],
        ),
    ],
    ids=["with its process", "alone", "several", "more than processes"],
)
def test_a_report_in_words_names_the_ranks_of_which_it_has_no_data(
    tmp_path, report, missing, hosts
):
    job = read(tmp_path, INCOMPLETE + report)
    assert [(hang.reason, hang.ranks) for hang in find_hangs(job)] == [
        ("failed", ranks) for ranks in missing
    ]
    assert [each.host for each in job.ranks] == hosts


@pytest.mark.parametrize("errors", ["INCOMPLETE", "ERROR", "ERROR,MISMATCH"])
def test_ranks_that_report_nothing_or_an_error_and_are_not_named_end_with_3(tmp_path, errors):
    """Of many such ranks the report gives the number only, or no more than a word in its summary."""
    block = NO_DATA.format("6 ranks") if errors == "INCOMPLETE" else ""
    for number, more in enumerate((block, "")):
        path = tmp_path / f"ras{number}.txt"
        path.write_text(INCOMPLETE.replace("INCOMPLETE", errors) + more)
        result = invoke("trace", path)
        assert (result.code, "no rank waits" in result.out) == (3, False)
    assert ("6 ranks of 0xcf264af53edbe986" in invoke("trace", tmp_path / "ras0.txt").out) == bool(
        block
    )


with_data = pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of jobs"
)


@with_data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a10g-mismatch.json", [("not joined", (1,))]),
        ("dead-rank-malformed.json", [("failed", (1,))]),
        ("healthy.json", []),
        ("docs-2.30.7-healthy.txt", []),
        ("docs-2.30.7-mismatch.txt", [("not joined", (7,))]),
        ("docs-2.30.7-incomplete.txt", [("failed", (7,))]),
        ("docs-2.30.7-dead.txt", [("failed", ())]),
    ],
)
def test_recorded_reports_name_the_missing_rank(name, expected):
    (job,) = read_job([Path(os.environ["HPCCOLL_DATA"]) / "jobs" / "nccl-ras" / name]).jobs
    assert [(hang.reason, hang.ranks) for hang in find_hangs(job)] == expected


def test_ranks_that_are_behind_and_not_named_are_counted_and_nobody_says_that_no_rank_waits(
    tmp_path,
):
    path = tmp_path / "ras.txt"
    path.write_text(
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    0         1         4         8        32        32   RUNNING  MISMATCH\n"
        "#0-0 (000000000000ab12) MISMATCH\n"
        "Communicator ranks have different AllReduce operation counts\n"
        "16 ranks have launched up to operation 12\n"
        "16 ranks have launched up to operation 13\n"
    )
    result = invoke("trace", str(path))
    assert (result.code, "no rank waits" in result.out) == (3, False)
    assert "16 ranks of 0xab12 have launched all_reduce up to 12, others up to 13" in result.out
