"""Damaged journals: truncation, flipped bits, missing, repeated and moved lines, overlong lines and invalid records."""

import base64
import json
import zlib

import pytest
import raw_examples
from journal_examples import CASES, JOB, begin

from hpccoll.store import checksummed_lines
from hpccoll.store.checksummed_lines import ChainEnd, append_records
from hpccoll.store.journal import Journal, journal_path, read_journal


def test_after_truncation_whole_records_are_kept_and_the_next_attempt_resumes(out):
    begin(out, done=2).close(remove=False)
    intact = journal_path(out).read_bytes()
    events = [at for at in range(len(intact)) if intact[at : at + 1] == b"\n"] + [len(intact)]
    begun = events[1]  # a journal is created with both lines of its job
    for cut in [
        *range(begun, len(intact), 297),
        *(end + step for end in events[2:] for step in (-1, 0, 1)),
    ]:
        journal_path(out).write_bytes(intact[: max(0, cut)])
        journal = Journal(out, JOB)
        # two of the job and of the attempt; a start and an outcome each
        kept = sum(end <= cut for end in events[1:])
        assert len(journal.raw.done) == (kept >= 6) + (kept >= 8)
        assert bool(journal.raw.damage) == (cut < len(intact))
        journal.begin(raw_examples.attempt(2))
        journal.record(raw_examples.outcome(CASES[2]))
        journal.close(remove=False)
        read = read_journal(journal_path(out))
        assert len(read.done) == (kept >= 6) + (kept >= 8) + 1
        assert read.attempts[-1][0].number == 2
        assert len(read.damage) == len(journal.raw.damage)


@pytest.mark.parametrize("torn", [b"", b'\n{"sha256": "0123'])
@pytest.mark.parametrize("counted", [True, False])
def test_a_kill_between_or_within_records_is_no_damage(out, torn, counted):
    """The number of lines in the first line may lack the last record, because it is written later."""
    journal = begin(out, done=1)
    before = journal_path(out).read_bytes()[: len(ChainEnd().first_line)]
    journal.start(CASES[2])
    journal.close(remove=False)
    content = journal_path(out).read_bytes()
    journal_path(out).write_bytes((content if counted else before + content[len(before) :]) + torn)
    for number in (2, 3):
        again = Journal(out, JOB)
        assert not again.raw.damage
        assert again.raw.started == [case.id for case in CASES[1:]]
        assert len(again.raw.notes) == bool(torn)
        again.begin(raw_examples.attempt(number))
        again.close(remove=False)


def test_a_damaged_outcome_is_not_taken_for_the_end_of_the_job(out):
    begin(out, done=2).close(remove=False)
    lines = journal_path(out).read_bytes().split(b"\n")
    index = next(at for at, line in enumerate(lines) if b'"outcome"' in line)
    lines[index] = lines[index].replace(b"ok", b"no")
    journal_path(out).write_bytes(b"\n".join(lines))
    read = read_journal(journal_path(out))
    assert read.failure_reasons().of(CASES[0].id) is None
    (damage,) = read.unrecovered_damage
    assert f"line {index + 1} (after the start of {CASES[0].id}) is damaged" in damage
    assert read.done == {CASES[1].id}
    journal = Journal(out, JOB)
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[0]))
    assert (journal.raw.unrecovered_damage, len(journal.raw.damage)) == ([], 1)
    journal.close(remove=False)


def test_very_long_lines_are_one_damaged_line_each(out, monkeypatch):
    begin(out).close(remove=False)
    with journal_path(out).open("ab") as file:
        file.write(b"\n" + b'{"sha256": "x' * 3000 + b"\n" + b"\0" * 100_000 + b"}")
    monkeypatch.setattr(checksummed_lines, "MAX_LINE_BYTES", 50_000)
    read = read_journal(journal_path(out))
    assert (len(read.done), bool(read.damage or read.notes)) == (1, True)
    assert [line.number for line in checksummed_lines.read_json_lines(journal_path(out))][-1] == 10


def test_outcomes_of_a_damaged_attempt_are_not_added_to_another_attempt(out):
    begin(out).close(remove=False)
    journal = Journal(out, JOB)
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[1]))
    journal.close(remove=False)
    content = journal_path(out).read_bytes()
    journal_path(out).write_bytes(content.replace(b'"run-2"', b'"run-3"'))
    read = read_journal(journal_path(out))
    assert read.done == {CASES[0].id}
    assert len(read.damage) == 3


def test_a_decompression_bomb_is_a_damaged_line(out):
    begin(out).close(remove=False)
    bomb = base64.b64encode(zlib.compress(b"\0" * 10**7, 9)).decode()
    outcome = json.loads(journal_path(out).read_bytes().split(b"\n")[-2])["outcome"]
    for shape in ([1 << 40], [1250000], [-1], [1, 1 << 62, 16]):
        outcome["cpu_s"] = {"dtype": "<f8", "shape": shape, "data": bomb}
        append_records(journal_path(out), {"outcome": outcome, "number": 1})
    assert (
        sum("is damaged" in damage.description for damage in read_journal(journal_path(out)).damage)
        == 4
    )
