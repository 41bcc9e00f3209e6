"""The log of NCCL in this process: where it is, what it says, and when it is kept."""

import os
import platform

import pytest

from hpccoll.evidence import own_nccl_log
from hpccoll.evidence.own_nccl_log import MOST_WARNINGS, OwnNcclLog, last_warnings, log_path


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch, tmp_path):
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)
    monkeypatch.setattr(own_nccl_log, "mkdtemp", lambda prefix: str((tmp_path / prefix).absolute()))
    (tmp_path / "hpccoll-nccl-").mkdir()


def warn(path, *warnings):
    lines = [f"n1:7:9 [0] transport/net_ib.cc:12 NCCL WARN {text}\n" for text in warnings]
    path.write_text("n1:7:7 [0] NCCL INFO cudaDriverVersion 12080\n" + "".join(lines))


def test_the_last_warnings_are_named_once_with_the_log_which_is_kept():
    log = OwnNcclLog()
    log.begin()
    path = log_path()
    assert path.name == f"nccl.{platform.node().partition('.')[0]}.{os.getpid()}.log"
    assert "no warning" in log.report()
    many = [f"warning {number}" for number in range(2 * MOST_WARNINGS)]
    warn(path, *many, *many[-2:])
    assert last_warnings(path) == many[-MOST_WARNINGS:]
    assert all(
        text in log.report() for text in (*many[-MOST_WARNINGS:], f"{platform.node()}:{path}")
    )
    log.end()
    assert path.exists()


def test_warnings_of_a_log_that_no_message_names_are_printed_and_the_log_is_removed(capsys):
    log = OwnNcclLog()
    log.begin()
    path = log_path()
    warn(path, "a link is down")
    log.end()
    captured = capsys.readouterr()
    assert [line.partition("NCCL WARN ")[2] for line in captured.err.splitlines()] == [
        "a link is down"
    ]
    assert not path.parent.exists()
    assert "NCCL_DEBUG_FILE" not in os.environ


def test_a_log_that_the_user_has_chosen_stays_the_user_s(monkeypatch, tmp_path):
    log = OwnNcclLog()
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    log.begin()
    assert log_path() is None
    assert "in the output of this launch" in log.report()
    own = tmp_path / "mine.%h.log"
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(own))
    warn(log_path(), "a link is down")
    assert "a link is down" in log.report()
    log.end()
    assert log_path().exists()
