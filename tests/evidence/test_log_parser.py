"""Messages of log lines: with cut and anonymous headers, all levels, and in exports."""

import json

import pytest
from library_logs import ran

from hpccoll.evidence.log_parser import split_messages
from hpccoll.evidence.log_set import read_log_files, read_logs

LINE = "n1:7:8 [0] NCCL INFO Using network IB"
TEXTS = (
    "NCCL INFO NCCL version 2.24.3+cuda12.2", "NCCL INFO Using network Socket",
    "NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0",
    "NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
)  # fmt: skip


@pytest.mark.parametrize(
    "head",
    [
        "", " ", "[0] ", ":700:720 [0] ", "<my node>:700:720 [0] ", "***:700:720 [0] ", "[host]:700:720 [0] ",
        "{host}:700:720 [0] ", "host:pid:tid [0] ", "<node>:<pid>:<tid> [0] ", "700:720 [0] ", "2026-03-04 05:06:07 ",
        "[2026-03-04 05:06:07] ", "3: ", "[1,0]<stdout>:", "(RayWorker pid=12) ", "[rank0]: ", "worker-0 | ",
    ],
)  # fmt: skip
def test_lines_with_a_cut_or_anonymous_header_are_read(head):
    record = read_logs({"a": "\n".join(head + text for text in TEXTS)})
    assert (record.version, record.network, record.paths) == ("2.24.3", ("Socket",), {"NET/Socket": 1})
    assert ran(record) == [("all_reduce", 8388608, "ring", "SIMPLE", 2)]


@pytest.mark.parametrize(
    "line", ["Set NCCL_DEBUG=INFO to see NCCL INFO Using network IB", "grep 'NCCL INFO Using x' a"]
)
def test_a_sentence_about_nccl_is_no_line_of_it(line):
    assert {message.origin for message in split_messages([line])} == {None}


def test_an_overwritten_header_makes_no_launch_of_its_own(tmp_path):
    init = "n1:{0}:{0} [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 commId 0x{0} - Init START"
    (tmp_path / "a.log").write_text("\n".join([init.format(1), "20 [0] NCCL INFO Using network IB", init.format(2)]))
    assert len(read_log_files([tmp_path]).launches) == 2


@pytest.mark.parametrize(
    "head",
    [
        "n1:7:8 [0] 12.345600 ncclInit:23 NCCL TRACE", "[2026-03-04 05:06:07] n1:7:8 [0] NCCL INFO",
        "[2026-03-04 05:06:07.123456] n1:7:8 [0] NCCL INFO", "05:06:07.123 n1:7:8 [0] NCCL INFO",
        "2025-05-16T16:39:51.208-07:00n1:7:8 [0] NCCL INFO",
    ],
)  # fmt: skip
def test_all_levels_and_times_of_nccl_are_read(head):
    (message,) = [message for message in split_messages([f"{head} Using network IB"]) if message.origin]
    assert (message.process, message.text) == ("n1:7", "Using network IB")


def test_a_call_of_the_api_at_level_trace_is_a_message_of_its_own():
    messages = split_messages([f"{LINE} n1:7:8 NCCL CALL ncclAllReduce(0x1)"])
    assert [message.text for message in messages] == ["Using network IB", "ncclAllReduce(0x1)"]


@pytest.mark.parametrize(
    "exported",
    [
        f"  | 2025-05-16T16:39:51.208-07:00{LINE} | {LINE}", f"| 2025-05-16 | {LINE} |", f"2025-05-16\t{LINE}\t{LINE}",
        f'"2025-05-16 16:39:51.208","{LINE}"', json.dumps({"log": f"{LINE}\n", "time": "2025-05-16T16:39:51.208Z"}),
        f'            "message": "{LINE}",',
        json.dumps({"_index": "logs", "_source": {"message": LINE, "pod": {"name": "a"}}}) + ",",
    ],
)  # fmt: skip
def test_columns_and_json_of_exports_leave_nothing_in_names(exported):
    assert read_logs({"a": exported}).network == ("IB",)


def test_json_that_is_no_export_of_a_log_is_ignored():
    for text in ("{", "{}", '{"log": 1}', '{"log": "x"}', "[" * 100000, '{"a":' * 100000):
        assert read_logs({"a": text}).library is None


def test_characters_of_a_web_page_are_those_that_the_library_wrote():
    record = read_logs({"a": "\n".join(TEXTS).replace(">", "&gt;")})
    assert (ran(record)[0][2], record.paths) == ("ring", {"NET/Socket": 1})


def test_warnings_and_errors_have_the_place_in_the_source():
    lines = ["n1:7:8 [0] /x/src/init.cc:9 NCCL WARN w", "[1.2] [n1:7:0] ucc_team.c:2 UCC ERROR e", LINE]
    placed = [message.placed_text for message in split_messages(lines)]
    assert placed == ["init.cc:9: w", "ucc_team.c:2: e", "Using network IB"]
