"""The journal: records are on disk at once, and the next attempt reads them back."""

import json
from contextlib import suppress

import pytest
import raw_examples
from hypothesis import given, settings
from journal_examples import CASES, JOB, begin

from hpccoll.common.errors import BadInputError
from hpccoll.store.checksummed_lines import append_records
from hpccoll.store.journal import (
    LAUNCHER_RANK,
    Journal,
    has_records,
    journal_path,
    read_failure_notes,
    read_journal,
    remove_failure_notes,
    write_failure_note,
)
from hpccoll.store.raw_results import Failure


@settings(max_examples=40)
@given(raw_examples.raw_results())
def test_recorded_outcomes_are_read_back_unchanged(tmp_path_factory, raw):
    out = tmp_path_factory.mktemp("journal") / "F.h5"
    journal = Journal(out, raw.job)
    for attempt, outcomes in raw.attempts:
        journal.begin(attempt)
        for outcome in outcomes:
            journal.start(outcome.case)
            journal.record(outcome)
    for read in (read_journal(journal_path(out)), journal.raw):
        assert raw_examples.comparable(read.attempts) == raw_examples.comparable(raw.attempts)
        assert raw_examples.comparable(read.job) == raw_examples.comparable(raw.job)
    journal.close(remove=True)
    assert not list(out.parent.iterdir())


@settings(max_examples=40)
@given(raw_examples.raw_results())
def test_a_new_journal_starts_with_the_content_of_a_partial_file(tmp_path_factory, raw):
    out = tmp_path_factory.mktemp("journal") / "F.h5"
    journal = Journal(out, raw.job, raw)
    assert raw_examples.comparable(journal.raw.attempts) == raw_examples.comparable(raw.attempts)
    journal.close(remove=False)
    again = Journal(out, raw.job, raw)  # not twice
    assert raw_examples.comparable(again.raw.attempts) == raw_examples.comparable(raw.attempts)
    again.close(remove=False)


def test_a_journal_of_schema_1_is_refused_and_unchanged(out):
    append_records(journal_path(out), {"lines": "000000000001"}, {"after": "0" * 16, "job": json.loads(JOB.to_json())})
    before = journal_path(out).read_bytes()
    for read in (lambda: read_journal(journal_path(out)), lambda: Journal(out, JOB)):
        with pytest.raises(BadInputError, match="is of schema 1"):
            read()
    assert journal_path(out).read_bytes() == before


@pytest.mark.parametrize("ending", [".journal", ".reserve", ".interrupted", ".failure-0"])
def test_symbolic_links_are_not_followed(out, ending):
    target = out.with_name("target")
    target.write_text("mine")
    out.with_name(f"F.h5{ending}").symlink_to(target)
    with suppress(BadInputError):
        journal = Journal(out, JOB)
        journal.begin(raw_examples.attempt())
        journal.end("stopped by SIGUSR1")
        with suppress(OSError):
            write_failure_note(out, Failure(case_id=CASES[0].id, rank=0, message="stuck"))
        journal.close(remove=False)
    assert target.read_text() == "mine"


def test_a_case_that_ended_the_job_without_a_note_has_a_failure_reason(out):
    begin(out).close(remove=False)
    read = read_journal(journal_path(out))
    assert read.failure_reason(CASES[1].id) == "the job ended while it ran, and no rank left a message"
    assert read.failure_reason(CASES[2].id) is None


def test_equal_failure_notes_of_several_ranks_are_combined(out):
    begin(out).close(remove=False)
    for rank in (0, 1, 1):
        write_failure_note(out, Failure(case_id=CASES[1].id, rank=rank, message="no"))
    assert read_journal(journal_path(out)).failure_reason(CASES[1].id) == "ranks 0, 1: no"


def test_each_rank_writes_its_own_failure_notes_file(out):
    begin(out).close(remove=False)
    before = journal_path(out).read_bytes()
    for rank in (3, LAUNCHER_RANK):
        write_failure_note(out, Failure(case_id=CASES[1].id, rank=rank, message="no"))
    assert sorted(path.name for path in out.parent.glob("*failure*")) == ["F.h5.failure-3", "F.h5.failure-launch"]
    assert journal_path(out).read_bytes() == before
    assert {failure.rank for failure in read_failure_notes(out)} == {3, LAUNCHER_RANK}
    remove_failure_notes(out, "launch")
    assert {failure.rank for failure in read_failure_notes(out)} == {3}


def test_the_stop_reason_of_an_attempt_is_kept_until_the_next_begins(out):
    journal = begin(out)
    journal.end("stopped by SIGUSR1")
    journal.close(remove=False)
    assert read_journal(journal_path(out)).stop_reason == "stopped by SIGUSR1"
    again = Journal(out, JOB)
    again.begin(raw_examples.attempt(2))
    again.close(remove=False)
    assert again.raw.stop_reason is None
    assert read_journal(journal_path(out)).stop_reason is None


def test_the_journal_of_another_job_is_refused_and_unchanged(out):
    begin(out).close(remove=False)
    before = journal_path(out).read_bytes()
    with pytest.raises(BadInputError, match=r"holds another job \(sizes 8 B,16 B,32 B there, 8 B here\)"):
        Journal(out, raw_examples.job(raw_examples.case(8)))
    assert journal_path(out).read_bytes() == before


@pytest.mark.parametrize("content", ["hello\n", '{"x": 1}\n', '\n{"attempt": {}}', "1\n", '\n{"job": 3}', "[]"])
def test_a_file_that_is_not_a_journal_is_refused_in_one_line_and_unchanged(out, content):
    journal_path(out).write_text(content)
    for read in (lambda: read_journal(journal_path(out)), lambda: Journal(out, JOB)):
        with pytest.raises(BadInputError) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert journal_path(out).read_text() == content


def test_an_empty_journal_has_no_records(out):
    journal_path(out).touch()
    assert not has_records(journal_path(out))
    Journal(out, JOB).close(remove=False)
    assert has_records(journal_path(out))


def test_an_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="cannot be written"):
        Journal(tmp_path / "file" / "F.h5", JOB)
