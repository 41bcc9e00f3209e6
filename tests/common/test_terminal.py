"""Escaping: no text of a file reaches a terminal as a control sequence, or a page as a script."""

import errno
import io
import sys
import unicodedata
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
import pytest
import raw_examples
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.terminal import ERASE_LINE, OutputError, PrintableStream, printable, show_status
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal

FULL = Path("/dev/full")
SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\x1b]0;x\x07\x9b31m\r\u202e"
"""What texts of a job, which are printable, may hold; and with a window title, a colour, a change of direction."""


@given(st.text())
def test_printable_text_has_no_control_character_and_can_be_encoded(text):
    escaped = printable(text)
    assert [c for c in escaped if unicodedata.category(c) == "Cc" and c not in "\n\t"] == []
    escaped.encode()
    assert printable(escaped) == escaped


@given(
    st.text(st.characters(categories=("L", "N", "P", "S", "Zs")))
    | st.sampled_from(["\n", "\t", "é", "±", "漢字"])
)
def test_ordinary_text_is_unchanged(text):
    assert printable(text) == text


def test_a_stream_escapes_text_and_bytes_and_what_its_encoding_lacks_and_otherwise_delegates():
    below = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = PrintableStream(below)
    click.echo("a\x1b[31m\N{MICRO SIGN}", file=stream, color=True)
    stream.flush()
    assert below.buffer.getvalue() == b"a\\x1b[31m\\xb5\n"
    assert (stream.isatty(), stream.encoding) == (False, "ascii")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_status_line_is_replaced_and_needs_a_terminal():
    log, terminal = io.StringIO(), Terminal()
    for stream in map(PrintableStream, (log, terminal)):
        show_status(stream, "1 of 2\x1b[31m")
        print("done", file=stream)
        show_status(stream, "2 of 2")
        show_status(stream, "")
    assert log.getvalue() == "done\n"
    *_, last = terminal.getvalue().split("\n")
    assert terminal.getvalue().startswith(f"{ERASE_LINE}1 of 2\\x1b[31m{ERASE_LINE}done\n")
    assert last == f"{ERASE_LINE}2 of 2{ERASE_LINE}"


def test_a_line_is_one_write_also_if_python_buffers_nothing():
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.writes = []

        def writable(self):
            return True

        def write(self, content):
            self.writes.append(bytes(content))
            return len(content)

    pipe = Pipe()
    stream = PrintableStream(io.TextIOWrapper(pipe, write_through=True))
    print("r0 | one line", file=stream)
    assert pipe.writes == [b"r0 | one line\n"]


@pytest.mark.parametrize("must_succeed", [True, False])
@pytest.mark.parametrize("buffering", [-1, 1])
def test_a_full_stdout_is_an_error_each_time_and_a_full_stderr_none_and_then_nothing_is_written(
    buffering, must_succeed
):
    with FULL.open("w", buffering=buffering) as below:
        stream = PrintableStream(below, must_succeed=must_succeed)
        for _ in range(2):
            with (
                pytest.raises(OutputError, match=str(errno.ENOSPC))
                if must_succeed
                else nullcontext()
            ):
                print("text", file=stream, flush=True)
        below.flush()  # as Python does when it exits


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A directory with a raw file and a journal in which all texts are hostile."""
    out = tmp_path_factory.mktemp("hostile")
    (out / "raw").mkdir()
    places = tuple(replace(place, host=HOSTILE) for place in raw_examples.attempt().places)
    provenance = {"mpi": {"version": HOSTILE, HOSTILE: HOSTILE}, "hosts": [HOSTILE]}
    attempt = raw_examples.attempt(
        machine=HOSTILE, places=places, provenance=provenance, run_id=HOSTILE
    )
    case = raw_examples.case(params={"channels": SCRIPT})
    outcome = raw_examples.outcome(
        case, reason=HOSTILE, evidence=HOSTILE, executed=HOSTILE, status="wrong", wrong=1
    )
    whole = replace(raw_examples.raw(), attempts=[(attempt, [outcome])], job=raw_examples.job(case))
    hdf5.write_raw_file(whole, out / "raw" / "mpi.p2.h5")
    other = raw_examples.case(64, algorithm=SCRIPT)
    journal = Journal(out / "raw" / "other.h5", raw_examples.job(case, other, name="other"))
    journal.begin(attempt)
    journal.record(raw_examples.skipped(other, reason=HOSTILE))
    journal.close(remove=False)
    return out


@pytest.mark.parametrize(
    "command", ["status", "report", "export", "export --format csv", "export --format nccl-tests"]
)
def test_a_command_prints_no_control_character_from_a_file(hostile, command):
    result = invoke(*command.split(), hostile)
    assert result.out
    assert result.code in (0, 3)
    assert printable(result.out + result.err) == result.out + result.err


def test_control_characters_of_a_log_and_on_stderr_are_escaped(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text(
        f"n1:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.8{HOSTILE}\n{HOSTILE}\n"
    )
    result = invoke("evidence", tmp_path)
    assert printable(result.out) == result.out

    def fail(*_):
        print(HOSTILE, file=sys.stderr)
        raise BadInputError("key", 1, "2")

    monkeypatch.setattr("hpccoll.store.load_results.read_results", fail)
    result = invoke("status", tmp_path)
    assert (result.code, printable(result.err)) == (2, result.err)
