"""Escaping: no text of a file reaches a terminal as a control sequence, or a page as a script."""

import io
import unicodedata
from dataclasses import replace

import click
import pytest
import raw_examples
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.store import hdf5
from hpccoll.store.journal import Journal
from hpccoll.terminal import PrintableStream, printable

HOSTILE = "<script>alert(1)</script>\x1b]0;x\x07\x9b31m\r\u202e"
"""A script, a window title, a colour, a carriage return and a change of the writing direction."""


def test_bytes_cannot_bypass_the_stream():
    stream = PrintableStream(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    click.echo("a\x1b[31m", file=stream, color=True)
    stream.flush()
    assert stream._stream.buffer.getvalue() == b"a\\x1b[31m\n"


@given(st.text())
def test_printable_text_has_no_control_character_and_can_be_encoded(text):
    escaped = printable(text)
    assert [c for c in escaped if unicodedata.category(c) == "Cc" and c not in "\n\t"] == []
    escaped.encode()
    assert printable(escaped) == escaped


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))) | st.sampled_from(["\n", "\t", "é", "±", "漢字"]))
def test_ordinary_text_is_unchanged(text):
    assert printable(text) == text


def test_a_stream_escapes_text_and_otherwise_delegates():
    below = io.StringIO()
    stream = PrintableStream(below)
    print("a\x1b[2Jb", file=stream, flush=True)
    assert below.getvalue() == "a\\x1b[2Jb\n"
    assert stream.getvalue() == below.getvalue()
    assert not stream.isatty()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A directory with a raw file and a journal whose every name is hostile."""
    out = tmp_path_factory.mktemp("hostile")
    (out / "raw").mkdir()
    places = tuple(replace(place, host=HOSTILE) for place in raw_examples.attempt().places)
    provenance = {"mpi": {"version": HOSTILE, HOSTILE: HOSTILE}, "hosts": [HOSTILE]}
    attempt = raw_examples.attempt(machine=HOSTILE, places=places, provenance=provenance, run_id=HOSTILE)
    case = raw_examples.case(params={"channels": HOSTILE})
    outcome = raw_examples.outcome(case, reason=HOSTILE, evidence=HOSTILE, executed=HOSTILE, status="wrong", wrong=1)
    whole = replace(raw_examples.raw(), attempts=[(attempt, [outcome])], job=raw_examples.job(case))
    hdf5.write_raw_file(whole, out / "raw" / "mpi.p2.h5")
    other = raw_examples.case(64, algorithm=HOSTILE)
    journal = Journal(out / "raw" / "other.h5", raw_examples.job(case, other, name="other"))
    journal.begin(attempt)
    journal.record(raw_examples.skipped(other, reason=HOSTILE))
    journal.close(remove=False)
    return out


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["validate"],
        ["report"],
        ["export"],
        ["export", "--format", "csv"],
        ["export", "--format", "nccl-tests"],
    ],
    ids=" ".join,
)
def test_a_command_prints_no_control_character_from_a_file(hostile, arguments):
    result = invoke(*arguments, hostile)
    assert result.out
    assert result.code in (0, 3)
    assert printable(result.out) == result.out


def test_control_characters_of_a_log_are_escaped(tmp_path):
    (tmp_path / "a.log").write_text(f"n1:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.8{HOSTILE}\n{HOSTILE}\n")
    result = invoke("evidence", tmp_path)
    assert printable(result.out) == result.out


def test_the_report_of_a_hostile_file_escapes_scripts_and_draws_charts(hostile, tmp_path):
    result = invoke("report", hostile, "--out", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert result.code == 3
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert printable(page.partition("<noscript>")[0]) == page.partition("<noscript>")[0]
    assert all("\x1b" not in picture.read_text() for picture in tmp_path.rglob("*.svg"))
