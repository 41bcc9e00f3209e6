"""Reading of logs: damaged ones, several libraries, configuration files, and several launches."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library_logs import TEXTS, ran, read_log

from hpccoll.evidence.log_message import MessageReader, split_messages
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.log_survey import LogSurvey, split_launches

NCCL = "{}:{} [0] NCCL INFO {}"
SHARP = "[{}:0:{} - comm.c:400][x] INFO [group#:0] tree_type:LLT group size:2"
WARN = "[2026-03-01 10:00:00] n1:9:9 [0] init.cc:68 (fillInfo) NCCL WARN "


def test_settings_of_a_configuration_file_hold_unless_the_environment_sets_them():
    conf = "# a comment\nNCCL_ALGO=Tree\n NCCL_IB_HCA = mlx5 \nnot a setting\n"
    record = read_logs({"n1.log": TEXTS["rdma-2.27"], "/etc/nccl.conf": conf})
    assert record.files == ("/etc/nccl.conf",)
    assert (record.settings["NCCL_ALGO"], record.settings["NCCL_IB_HCA"]) == ("Ring,Tree", "mlx5")


CHANNEL = "n1:7:8 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA"
AT = "2025-05-16T16:39:51.208Z"


def channels_of(**logs):
    return sum(read_logs(logs).paths.values())


def test_a_message_that_an_export_repeats_counts_once():
    other = CHANNEL.replace("Channel 00", "Channel 01")
    assert channels_of(a=f"  | {AT}{CHANNEL} | {CHANNEL} | {CHANNEL}") == 1
    assert channels_of(a=f"{CHANNEL}\n{CHANNEL}\n{other}\n{other}") == 2
    assert channels_of(a=f"{AT} {CHANNEL}\n{AT} {other}\n{AT} {CHANNEL}") == 2
    assert channels_of(a=f"{CHANNEL}\n{other}", b=f"0: {CHANNEL}\n0: {other}") == 2
    assert (
        channels_of(a="\n".join([begins(7, "abc").replace(":27", ":8"), CHANNEL, other] * 2)) == 2
    )


def test_what_two_ranks_or_communicators_log_alike_counts_for_each():
    other = CHANNEL.replace("Channel 00", "Channel 01")
    for another in ("n2:7:8", "n1:9:9", "n1:7:9"):
        assert channels_of(a=f"{AT} {CHANNEL}\n{AT} {CHANNEL.replace('n1:7:8', another)}") == 2
    assert channels_of(a=f"{CHANNEL}\n{other}\n{CHANNEL}\n{other}") == 4
    later = AT.replace("208", "209")
    assert channels_of(a=f"{AT} {CHANNEL}\n{AT} {other}\n{later} {CHANNEL}") == 3
    created = [begins(7, of).replace(":27", ":8") for of in ("abc", "def")]
    assert channels_of(a="\n".join([created[0], CHANNEL, other, created[1], CHANNEL])) == 3


def test_without_logs_the_record_is_empty():
    assert read_logs({"a": "", "b": "a program's own output\n"}) == LogRecord()


def test_numbers_of_any_length_never_raise():
    long = {
        name: re.sub(r"\d+", lambda number: number[0] * 5000, TEXTS[name])
        for name in ("rdma-2.27", "ucc-sharp")
    }
    assert read_logs(long).collectives == ()


@given(name=st.sampled_from(sorted(TEXTS)), seed=st.integers())
def test_a_damaged_log_never_raises_and_never_adds_a_collective(name, seed):
    whole, chance = {one[:3] for one in ran(read_log(name))}, random.Random(seed)  # noqa: S311
    lines = TEXTS[name].splitlines()
    cut = [
        line[: chance.randrange(len(line) + 1)] if chance.random() < 0.5 else line for line in lines
    ]
    glued = "".join(line + chance.choice(["\n", "", "\x00"]) for line in cut)
    record = read_logs({f"{name}.log": glued})
    assert {one[:3] for one in ran(record)} <= whole


def begins(pid, of, host="n1", parent=""):
    words = f"ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 busId 7000 {parent}commId 0x{of} - Init START"
    return NCCL.format(host, f"{pid}:{pid + 20}", words)


def collective_line(host, pid):
    return NCCL.format(
        host, f"{pid}:{pid}", "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"
    )


def launches_of(**logs):
    """Return for each launch its logs, and how many messages of each are of it."""
    return [
        {name: len(messages) for name, messages in launch.items()}
        for launch in messages_of_launches(logs)
    ]


def messages_of_launches(logs):
    """Yield for each launch its messages by log."""
    surveys = {
        name: LogSurvey(MessageReader().first_messages(lines)) for name, lines in logs.items()
    }
    for launch in split_launches(surveys):
        yield {
            name: [
                message for message in split_messages(logs[name]) if message.process in processes
            ]
            for name, processes in launch.items()
        }


PLAIN, SPLIT = "a program's own output", "ncclCommSplit parent 0x5 "
ONE, TWO, OTHER = (
    begins(1, "abc"),
    begins(1, "def"),
    [SHARP.format(host, 1) for host in ("n1", "n2")],
)


FIRST, EIGHTH, SECOND = (collective_line("n1", pid) for pid in (1, 8, 2))
TWO_IN_ONE = [ONE, begins(2, "abc"), FIRST, begins(8, "def"), EIGHTH, SECOND]
SPLITS = {
    "a": [ONE, begins(1, "0", parent=SPLIT)],
    "b": [begins(2, "def"), begins(2, "0", parent=SPLIT)],
}


@pytest.mark.parametrize(
    ("logs", "launches"),
    [
        ({"a": [ONE], "b": [begins(1, "abc", "n2"), collective_line("n2", 1)]}, [{"a": 1, "b": 2}]),
        ({"a": [ONE], "b": [TWO]}, [{"a": 1}, {"b": 1}]),  # no common communicator
        ({"a": [collective_line("n1", 1)], "b": [collective_line("n2", 2)]}, [{"a": 1}, {"b": 1}]),
        ({"a": TWO_IN_ONE}, [{"a": 4}, {"a": 2}]),
        ({"a": [ONE, TWO, begins(1, "def", "n2")]}, [{"a": 3}]),
        (SPLITS, [{"a": 2}, {"b": 2}]),  # a split has no id
        # lines of another library: in another log, in the launch of its process, or of one by
        # directory, or of none
        ({"nccl": [ONE], "launch": OTHER}, [{"nccl": 1, "launch": 2}]),
        (
            {"launch": OTHER[:1], "a": [ONE], "b": [begins(2, "def")]},
            [{"launch": 1, "a": 1}, {"b": 1}],
        ),
        ({"a/x": [ONE], "b/x": [TWO], "b/y": OTHER[:1]}, [{"a/x": 1}, {"b/x": 1, "b/y": 1}]),
        ({"a/x": [ONE], "a/z": [TWO], "a/y": OTHER[:1]}, [{"a/x": 1}, {"a/z": 1}, {"a/y": 1}]),
        # lines that name no process of a launch: of the only one of a log
        ({"a": [ONE, PLAIN, collective_line("n9", 9)]}, [{"a": 3}]),
        ({"a": [ONE, begins(2, "def"), PLAIN]}, [{"a": 1}, {"a": 1}]),
        ({"a": [PLAIN]}, []),
    ],
)
def test_processes_belong_to_one_launch_if_communicators_or_their_log_connect_them(logs, launches):
    assert launches_of(**logs) == launches


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 5), st.sampled_from("abc")), max_size=12
    )
)
def test_no_process_and_no_communicator_is_in_two_launches(writers):
    logs = {}
    for log, pid, of in writers:
        logs.setdefault(log, []).append(begins(pid + 10 * "xyz".index(log), of))
    launches = [
        [line for lines in launch.values() for line in lines]
        for launch in messages_of_launches(logs)
    ]
    for fact in (lambda line: line.process, lambda line: line.text.partition("commId ")[2]):
        facts = [{fact(line) for line in launch} for launch in launches]
        assert sum(map(len, facts)) == len(set().union(*facts))
