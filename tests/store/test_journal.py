"""The journal: records outlive the process, the next attempt reads them back, and one process writes at a time."""

import errno
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_examples
from hypothesis import given, settings
from journal_examples import CASES, JOB, begin

from hpccoll.common.errors import BadInputError
from hpccoll.store import durable_files
from hpccoll.store import journal as journal_module
from hpccoll.store.checksummed_lines import append_records, encode_line
from hpccoll.store.durable_files import open_without_links
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


def note(rank, message="no"):
    return Failure(case_id=CASES[1].id, rank=rank, message=message)


@settings(max_examples=40)
@given(raw_examples.raw_results())
def test_recorded_outcomes_are_read_back_unchanged_also_if_a_journal_begins_with_them(
    tmp_path_factory, raw
):
    out = tmp_path_factory.mktemp("journal") / "F.h5"
    journal = Journal(out, raw.job)
    for attempt, outcomes in raw.attempts:
        journal.begin(attempt)
        for outcome in outcomes:
            journal.start(outcome.case)
            journal.record(outcome)
    copies = []
    for _ in range(2):  # the second one finds them, and adds them no more
        copies.append(Journal(out.with_name("copy.h5"), raw.job, raw))
        copies[-1].close(remove=len(copies) == 2)
    for read in (read_journal(journal_path(out)), journal.raw, *(copy.raw for copy in copies)):
        assert raw_examples.comparable((read.job, read.attempts)) == raw_examples.comparable(
            (raw.job, raw.attempts)
        )
    journal.close(remove=True)
    assert not list(out.parent.iterdir())


OF_SCHEMA_1 = b"".join(
    encode_line(record)
    for record in ({"lines": "000000000001"}, {"after": "0" * 16, "job": json.loads(JOB.to_json())})
)
NO_JOURNAL = "is not a journal of hpccoll that names its job"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (OF_SCHEMA_1, "is of schema 1"),
        (b"hello\n", NO_JOURNAL),
        (b'{"x": 1}\n', NO_JOURNAL),
        (b'\n{"attempt": {}}', NO_JOURNAL),
        (b'\n{"job": 3}', NO_JOURNAL),
        (b"[]", NO_JOURNAL),
    ],
)
def test_a_file_that_is_no_journal_is_refused_in_one_line_and_unchanged(out, content, words):
    journal_path(out).write_bytes(content)
    for read in (lambda: read_journal(journal_path(out)), lambda: Journal(out, JOB)):
        with pytest.raises(BadInputError, match=words) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert journal_path(out).read_bytes() == content


def test_the_journal_of_another_job_is_refused_and_unchanged(out):
    begin(out).close(remove=False)
    before = journal_path(out).read_bytes()
    with pytest.raises(
        BadInputError, match=r"holds another job \(sizes 8 B,16 B,32 B there, 8 B here\)"
    ):
        Journal(out, raw_examples.job(raw_examples.case(8)))
    assert journal_path(out).read_bytes() == before


def test_a_case_that_ended_the_job_has_the_notes_of_its_ranks_as_its_reason(out):
    begin(out).close(remove=False)
    before = read_journal(journal_path(out))
    assert (
        before.failure_reasons().of(CASES[1].id)
        == "the job ended while it ran, and no rank left a message"
    )
    assert before.failure_reasons().of(CASES[2].id) is None
    content = journal_path(out).read_bytes()
    for rank in (0, 1, 1, LAUNCHER_RANK):
        write_failure_note(out, note(rank, "no" if rank >= 0 else "lost"))
    assert sorted(path.name[5:] for path in out.parent.glob("*failure*")) == [
        "failure-0",
        "failure-1",
        "failure-launch",
    ]
    assert journal_path(out).read_bytes() == content
    assert (
        read_journal(journal_path(out)).failure_reasons().of(CASES[1].id)
        == "ranks 0, 1 on n[0-1]: no; rank -1: lost"
    )
    remove_failure_notes(out, "launch")
    assert {failure.rank for failure in read_failure_notes(out)} == {0, 1}


@pytest.mark.parametrize(("seconds_between", "synced"), [(0.0, 1), (journal_module.SYNC_S, 6)])
def test_small_cases_do_not_wait_for_the_disk_each_and_are_readable_at_once(
    out, monkeypatch, seconds_between, synced
):
    journal, calls, clock = Journal(out, JOB), [], [0.0]
    monkeypatch.setattr(durable_files.os, "fsync", calls.append)
    monkeypatch.setattr(journal_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    journal.begin(raw_examples.attempt())
    for number in range(1, 6):
        clock[0] = number * seconds_between
        journal.start(CASES[0])
        assert read_journal(journal_path(out)).started == [CASES[0].id] * number
    assert len(calls) == synced
    journal.close(remove=False)
    assert len(calls) == synced + 1


def test_the_stop_reason_of_an_attempt_is_kept_until_the_next_begins(out):
    journal = begin(out)
    journal.end("stopped by SIGUSR1")
    journal.close(remove=False)
    assert read_journal(journal_path(out)).stop_reason == "stopped by SIGUSR1"
    again = Journal(out, JOB)
    again.begin(raw_examples.attempt(2))
    again.close(remove=False)
    assert again.raw.stop_reason is read_journal(journal_path(out)).stop_reason is None


def test_an_empty_journal_has_no_records_and_an_unwritable_path_is_refused(out):
    journal_path(out).touch()
    assert not has_records(journal_path(out))
    Journal(out, JOB).close(remove=False)
    assert has_records(journal_path(out))
    with pytest.raises(BadInputError, match="cannot be written"):
        Journal(journal_path(out) / "F.h5", JOB)


def test_a_second_writer_is_refused_until_the_first_has_ended(out):
    program = (
        "import sys, journal_examples; from pathlib import Path\n"
        "journal = journal_examples.begin(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    command, environment = (
        [sys.executable, "-c", program, str(out)],
        {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1) as first:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(BadInputError, match="no other process writes"):
            Journal(out, JOB)
        assert read_journal(journal_path(out)).is_running
        first.kill()
        first.wait()
    Journal(out, JOB).close(remove=True)


def test_a_journal_that_another_process_just_replaced_is_refused(out, monkeypatch):
    begin(out).close(remove=False)
    other = out.with_name("other")
    other.write_bytes(journal_path(out).read_bytes())

    def open_after_replacement(path, flags):
        descriptor = open_without_links(path, flags)
        if other.exists():
            other.replace(path)
        return descriptor

    monkeypatch.setattr(journal_module, "open_without_links", open_after_replacement)
    with pytest.raises(BadInputError, match="no other process writes"):
        Journal(out, JOB)


@pytest.mark.parametrize(
    ("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_on_a_full_disk_alone_the_reserve_is_freed_for_failure_notes(
    out, monkeypatch, number, is_full
):
    journal, reserve = begin(out), out.with_name("F.h5.reserve")
    assert reserve.stat().st_size >= 4096

    def append(path, *events):
        if reserve.exists():
            raise OSError(number, "no room")
        append_records(path, *events)

    monkeypatch.setattr(journal_module, "append_records", append)
    with nullcontext() if is_full else pytest.raises(OSError, match="no room"):
        write_failure_note(out, note(0))
    assert (len(read_failure_notes(out)), reserve.exists()) == (int(is_full), not is_full)
    journal.close(remove=False)
