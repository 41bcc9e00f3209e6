"""The reader of prefixes: whichever launcher or collector of logs wrote them, the text of each writer is as it was."""

import re

import pytest

from hpccoll.common.line_prefixes import MAX_PREFIXES, PrefixReader
from hpccoll.evidence.log_set import read_logs

ANCHOR = re.compile("# nccl-tests version")
ROW = "2048           256     float    12.50    0.08  12:00:11\n"
"""It begins with a number that may be a year."""
PREFIXES = [
    # Open MPI, both options
    ("Thu Jul 18 15:41:05 2024[1,0]<stdout>:", "Fri Jul  5 01:00:09 2024[1,0]<stdout>:"),
    # kubectl, both
    ("[pod/launcher-x/mpi] 2026-03-04T05:06:00.12Z ", "[pod/launcher-x/mpi] 2026-03-04T05:06:01Z "),
    # a container runtime
    ("2026-03-04T05:06:00.123Z stdout F ", "2026-03-04T05:06:01.123Z stdout F "),
    ("Jul 18 15:41:05 ", "Jul  8 15:41:06 "), ("00:00:05 ", "01:00:00 "),  # ts, ts -s
    # ts %.s, milliseconds
    ("1712345678.123456 ", "1712345679.000001 "), ("1712345678123,", "1712345679001,"),
    # journald, short and short-iso
    ("Jul 18 15:41:05 node1 slurmd[77]: ", "Jul 18 15:41:06 node1 slurmd[77]: "),
    ("2024-07-18T15:41:05+0200 node1 job[7]: ", "2024-07-18T15:41:06+0200 node1 job[7]: "),
    ("[   12.345678] ", "[  113.345678] "), ("2024-07-18 15:41:05,123 INFO ", "2024-07-18 15:41:06,456 INFO "),
    ("Thu 18 Jul 2024 03:41:05 PM UTC: ", "Thu 18 Jul 2024 11:41:05 AM UTC: "), ("\ufeff", ""),
    ("\x1b[1;36mrank0-1  | \x1b[0m", "\x1b[36mrank0-1  | \x1b[0m\x1b[K"),
    # without a time: PRRTE, Hydra, pdsh, stern, compose, torchrun, Ray
    *((prefix, prefix) for prefix in (
        "[prterun-node1-4711@1,0]<stdout>: ", "<0 of node1> ", "10.0.0.17: ", "launcher-x mpi ", "rank0-1  | ",
        "[default0]:", "(RayWorkerWrapper pid=285, ip=192.168.7.12) ",
    )),
]  # fmt: skip
"""The prefixes of two lines of a writer; tests/inputs has other ones."""


@pytest.mark.parametrize(("first", "later"), PREFIXES)
def test_the_text_after_a_prefix_is_that_of_the_program(first, later):
    reader = PrefixReader(ANCHOR)
    writer, title = reader.split(f"{first}# nccl-tests version 2.18.3\n")
    assert title == "# nccl-tests version 2.18.3\n"
    again, row = reader.split(f"{later}{ROW}")
    assert (again, row.split()) == (writer, ROW.split())
    assert reader.split(f"{later.rstrip()}\n")[1].strip() == ""


@pytest.mark.parametrize(
    ("one", "other"), [("[1,0]<stdout>:", "[1,1]<stdout>:"), ("node1: ", "node10: ")]
)
def test_lines_of_several_writers_are_distinguished(one, other):
    reader = PrefixReader(ANCHOR)
    writers = [reader.split(f"{prefix}# nccl-tests version 2.18.3")[0] for prefix in (one, other)]
    assert len(set(writers)) == 2
    assert [reader.split(f"{prefix}{ROW}")[0] for prefix in (one, other)] == writers
    # the beginning of a word is no prefix
    for line in (ROW, "node1:7:9 [0] NCCL INFO Connected all rings\n"):
        assert reader.split(line) == ("", line)


def test_a_text_that_a_collector_repeats_in_its_line_comes_once():
    line = "| 2025-05-16T16:39:51.208-07:00# nccl-tests version 2 | # nccl-tests version 2\n"
    assert PrefixReader(ANCHOR).split(line)[1] == "# nccl-tests version 2\n"


def test_any_number_of_prefixes_is_read():
    reader = PrefixReader(ANCHOR)
    read = [reader.split(f"{rank}: # nccl-tests version 2") for rank in range(2 * MAX_PREFIXES)]
    assert read == [(f"{rank}:", "# nccl-tests version 2") for rank in range(2 * MAX_PREFIXES)]


def test_a_sentence_about_a_version_is_no_banner():
    assert read_logs({"log": "pip: expected NCCL version 2.99.1\n"}).version is None
