"""What is printed: no text of a file reaches a terminal as a command to it, nor a page as a script."""

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
"""A script, the title of a window, a colour, the start of a line, and a turn of the direction of writing."""


def test_bytes_have_no_way_around_it():
    stream = PrintableStream(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    click.echo("a\x1b[31m", file=stream, color=True)
    stream.flush()
    assert stream._stream.buffer.getvalue() == b"a\\x1b[31m\n"


@given(st.text())
def test_what_is_printable_has_no_control_character_and_can_be_encoded(text):
    shown = printable(text)
    assert [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"] == []
    shown.encode()
    assert printable(shown) == shown


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))) | st.sampled_from(["\n", "\t", "é", "±", "漢字"]))
def test_what_people_write_stays_as_it_is(text):
    assert printable(text) == text


def test_a_stream_shows_what_it_is_given_and_is_else_the_one_below_it():
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
def test_a_command_prints_no_control_character_of_a_file(hostile, arguments):
    said = invoke(*arguments, hostile)
    assert said.out
    assert said.code in (0, 3)
    assert printable(said.out) == said.out


def test_a_log_that_is_read_for_evidence_commands_no_terminal(tmp_path):
    (tmp_path / "a.log").write_text(f"n1:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.8{HOSTILE}\n{HOSTILE}\n")
    said = invoke("evidence", tmp_path)
    assert printable(said.out) == said.out


def test_the_report_of_a_hostile_file_runs_no_script_of_it_and_its_pictures_are_drawn(hostile, tmp_path):
    said = invoke("report", hostile, "--out", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert said.code == 3
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert printable(page.partition("<noscript>")[0]) == page.partition("<noscript>")[0]
    assert all("\x1b" not in picture.read_text() for picture in tmp_path.rglob("*.svg"))
