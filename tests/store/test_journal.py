"""The journal: the outcomes of a job survive a crash, a truncation and flipped bits."""

import base64
import errno
import json
import re
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
import raw_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.errors import BadInputError
from hpccoll.store import journal as journal_module
from hpccoll.store import json_lines
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
from hpccoll.store.json_lines import append_records
from hpccoll.store.raw_results import Failure


@pytest.fixture
def out(tmp_path):
    return tmp_path / "F.h5"


CASES = [raw_examples.case(size) for size in (8, 16, 32)]
JOB = raw_examples.job(*CASES)


def begin(out, done=1):
    """Return the journal of an attempt that has measured the first cases, and begun the next."""
    journal = Journal(out, JOB)
    journal.begin(raw_examples.attempt())
    for case in CASES[:done]:
        journal.start(case)
        journal.record(raw_examples.outcome(case))
    journal.start(CASES[done])
    return journal


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


def test_after_truncation_whole_records_are_kept_and_the_next_attempt_resumes(out):
    begin(out, done=2).close(remove=False)
    whole = journal_path(out).read_bytes()
    events = [at for at in range(len(whole)) if whole[at : at + 1] == b"\n"] + [len(whole)]
    begun = events[1]  # a journal is created with both lines of its job
    for cut in [*range(begun, len(whole), 297), *(end + step for end in events[2:] for step in (-1, 0, 1))]:
        journal_path(out).write_bytes(whole[: max(0, cut)])
        journal = Journal(out, JOB)
        kept = sum(end <= cut for end in events[1:])  # two of the job and of the attempt; a start and an outcome each
        assert len(journal.raw.done) == (kept >= 6) + (kept >= 8)
        assert bool(journal.raw.damage or journal.raw.notes) == (
            cut not in (*events, *(end + 1 for end in events), len(whole) + 1)
        )
        journal.begin(raw_examples.attempt(2))
        journal.record(raw_examples.outcome(CASES[2]))
        journal.close(remove=False)
        read = read_journal(journal_path(out))
        assert len(read.done) == (kept >= 6) + (kept >= 8) + 1
        assert read.attempts[-1][0].number == 2


def flipped(content, bit):
    """Return ``content`` with one bit flipped."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a journal with two outcomes, and these outcomes by case id."""
    out = tmp_path_factory.mktemp("whole") / "F.h5"
    begin(out, done=2).close(remove=False)
    return journal_path(out).read_bytes(), plain_outcomes(read_journal(journal_path(out)))


def plain_outcomes(raw):
    return {outcome.case.id: raw_examples.comparable(outcome) for _, outcomes in raw.attempts for outcome in outcomes}


@given(place=st.floats(0, 1, exclude_max=True))
def test_a_flipped_bit_damages_at_most_one_line_and_its_case_is_measured_again(tmp_path_factory, whole, place):
    content, before = whole
    out = tmp_path_factory.mktemp("flipped") / "F.h5"
    journal_path(out).write_bytes(flipped(content, int(place * 8 * len(content))))
    journal = Journal(out, JOB)
    left = plain_outcomes(journal.raw)
    lost = before.keys() - left.keys()
    assert len(lost) <= 1
    assert left.items() <= before.items()
    assert journal.raw.damage or journal.raw.notes or not lost
    assert all(re.match(r"line \d+ .*is damaged: ", damage.description) for damage in journal.raw.damage)
    journal.begin(raw_examples.attempt(2))
    for case in CASES:
        if case.id not in journal.raw.done:
            journal.record(raw_examples.outcome(case))
    journal.close(remove=False)
    assert read_journal(journal_path(out)).complete


def test_a_damaged_outcome_is_not_taken_for_the_end_of_the_job(out):
    begin(out, done=2).close(remove=False)
    lines = journal_path(out).read_bytes().split(b"\n")
    place = next(at for at, line in enumerate(lines) if b'"outcome"' in line)
    lines[place] = lines[place].replace(b"ok", b"no")
    journal_path(out).write_bytes(b"\n".join(lines))
    read = read_journal(journal_path(out))
    assert read.failure_reason(CASES[0].id) is None
    (damage,) = read.unrecovered_damage
    assert f"line {place + 1} (after the start of {CASES[0].id}) is damaged" in damage
    assert read.done == {CASES[1].id}
    journal = Journal(out, JOB)
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[0]))
    assert (journal.raw.unrecovered_damage, len(journal.raw.damage)) == ([], 1)
    journal.close(remove=False)


def test_a_truncated_last_line_is_a_note_and_no_damage(out):
    begin(out).close(remove=False)
    whole = journal_path(out).read_bytes()
    journal_path(out).write_bytes(whole + b'\n{"sha256": "0123456789abcdef", "start": "al')
    read = read_journal(journal_path(out))
    assert (read.damage, read.notes) == ([], ["as by a kill, lines were cut short: 9"])
    journal = Journal(out, JOB)
    assert read_journal(journal_path(out)).notes == []  # it may be one that is being written
    journal.close(remove=False)


def test_very_long_lines_are_one_damaged_line_each(out, monkeypatch):
    begin(out).close(remove=False)
    with journal_path(out).open("ab") as file:
        file.write(b"\n" + b'{"sha256": "x' * 3000 + b"\n" + b"\0" * 100_000 + b"}")
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 50_000)
    read = read_journal(journal_path(out))
    assert len(read.done) == 1
    assert len(read.damage) + len(read.notes) > 0
    assert [line.number for line in json_lines.read_json_lines(journal_path(out))][-1] == 10


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


def test_a_journal_without_checksums_is_read_with_a_note_and_resumed_with_checksums(out):
    journal = begin(out, done=2)
    journal.close(remove=False)
    lines = [json.loads(line) for line in journal_path(out).read_bytes().split(b"\n")[1:]]
    job, _, attempt, _, *events = lines
    for line in (job, attempt, *events):
        line.pop("sha256")
        line.pop("number", None)
    first = {**job, "attempts": [], "failures": []}
    old = "".join("\n" + json.dumps(line) for line in (first, attempt, *events)) + '\n{"outcome": {}}\n{"outcome": {"ca'
    journal_path(out).write_text(old)
    read = read_journal(journal_path(out))
    assert raw_examples.comparable(read.attempts) == raw_examples.comparable(journal.raw.attempts)
    assert any("without checksums" in note for note in read.notes)
    assert len(read.damage) == 1
    again = Journal(out, JOB)
    assert raw_examples.comparable(again.raw.attempts) == raw_examples.comparable(journal.raw.attempts)
    assert (again.raw.notes, again.raw.damage) == ([], read.damage)
    assert again.raw.started == read.started
    again.close(remove=False)


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


@pytest.mark.parametrize("ending", [".journal", ".reserve", ".told-to-end", ".words-0"])
def test_symbolic_links_are_not_followed(out, ending):
    target = out.with_name("target")
    target.write_text("mine")
    out.with_name(f"F.h5{ending}").symlink_to(target)
    with suppress(BadInputError):
        journal = Journal(out, JOB)
        journal.begin(raw_examples.attempt())
        journal.end("SIGUSR1 told it to")
        with suppress(OSError):
            write_failure_note(out, Failure(case_id=CASES[0].id, rank=0, message="stuck"))
        journal.close(remove=False)
    assert target.read_text() == "mine"


def test_a_decompression_bomb_is_a_damaged_line(out):
    begin(out).close(remove=False)
    bomb = base64.b64encode(zlib.compress(b"\0" * 10**7, 9)).decode()
    outcome = json.loads(journal_path(out).read_bytes().split(b"\n")[-2])["outcome"]
    for shape in ([1 << 40], [1250000], [-1], [1, 1 << 62, 16]):
        outcome["cpu_s"] = {"dtype": "<f8", "shape": shape, "data": bomb}
        append_records(journal_path(out), {"outcome": outcome, "number": 1})
    assert len(read_journal(journal_path(out)).damage) == 4


def test_failure_notes_are_read_after_a_truncated_line(out):
    begin(out).close(remove=False)
    with journal_path(out).open("ab") as file:
        file.write(b'\n{"outcome": {"case"')
    write_failure_note(out, Failure(case_id=CASES[1].id, rank=1, message="stuck"))
    read = read_journal(journal_path(out))
    assert read.failure_reason(CASES[1].id) == "rank 1: stuck"
    assert len(read.done) == 1


def test_a_case_that_ended_the_job_without_a_note_has_a_failure_reason(out):
    begin(out).close(remove=False)
    read = read_journal(journal_path(out))
    assert read.failure_reason(CASES[1].id) == "the job ended while it ran, without a word"
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
    assert sorted(path.name for path in out.parent.glob("*words*")) == ["F.h5.words-3", "F.h5.words-launch"]
    assert journal_path(out).read_bytes() == before
    assert {failure.rank for failure in read_failure_notes(out)} == {3, LAUNCHER_RANK}
    remove_failure_notes(out, "launch")
    assert {failure.rank for failure in read_failure_notes(out)} == {3}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_reserve_is_freed_for_failure_notes(out, monkeypatch, number):
    journal = begin(out)
    reserve = out.with_name("F.h5.reserve")
    assert reserve.stat().st_size >= 4096

    def full(path, *events):
        if reserve.exists():
            raise OSError(number, "no room")
        append_records(path, *events)

    monkeypatch.setattr(journal_module, "append_records", full)
    write_failure_note(out, Failure(case_id="x", rank=0, message="no room"))
    assert [failure.message for failure in read_failure_notes(out)] == ["no room"]
    assert not reserve.exists()
    journal.close(remove=False)


def test_other_errors_than_a_full_disk_are_raised(out, monkeypatch):
    journal = begin(out)

    def broken(_path, *_events):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(journal_module, "append_records", broken)
    with pytest.raises(OSError, match="broken"):
        write_failure_note(out, Failure(case_id="x", rank=0, message="no room"))
    assert out.with_name("F.h5.reserve").exists()
    journal.close(remove=False)


def test_the_stop_reason_of_an_attempt_is_kept_until_the_next_begins(out):
    journal = begin(out)
    journal.end("SIGUSR1 told it to")
    journal.close(remove=False)
    assert read_journal(journal_path(out)).stop_reason == "SIGUSR1 told it to"
    again = Journal(out, JOB)
    again.begin(raw_examples.attempt(2))
    again.close(remove=False)
    assert again.raw.stop_reason is None
    assert read_journal(journal_path(out)).stop_reason is None


def test_the_failures_of_a_partial_file_are_kept(out):
    failure = Failure(case_id=CASES[1].id, rank=1, message="no", attempt=1)
    earlier = raw_examples.raw(raw_examples.outcome(CASES[0]), more=CASES[1:])
    earlier.failures.append(failure)
    journal = Journal(out, earlier.job, earlier)
    journal.close(remove=False)
    assert journal.raw.failures == read_journal(journal_path(out)).failures == [failure]


def test_the_journal_of_another_job_is_refused_and_unchanged(out):
    begin(out).close(remove=False)
    before = journal_path(out).read_bytes()
    with pytest.raises(BadInputError, match=r"holds another job \(sizes 8 B,16 B,32 B there, 8 B here\)"):
        Journal(out, raw_examples.job(raw_examples.case(8)))
    assert journal_path(out).read_bytes() == before


def test_a_second_writer_is_refused_until_the_first_has_ended(out):
    program = (
        "import sys, raw_examples; from pathlib import Path; from hpccoll.store.journal import Journal;"
        "j = Journal(Path(sys.argv[1]), raw_examples.job(raw_examples.case(8)));"
        "print('open', flush=True); sys.stdin.read()"
    )
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(out)], env={"PYTHONPATH": tests}, stdin=-1, stdout=-1
    ) as first:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(BadInputError, match="no other process writes"):
            Journal(out, raw_examples.job(raw_examples.case(8)))
        assert read_journal(journal_path(out)).is_running
        first.kill()
        first.wait()
    Journal(out, raw_examples.job(raw_examples.case(8))).close(remove=True)


@pytest.mark.parametrize("content", ["hello\n", '{"x": 1}\n', '\n{"attempt": {}}', "1\n", '\n{"job": 3}', "[]"])
def test_a_file_that_is_not_a_journal_is_refused_in_one_line_and_unchanged(out, content):
    journal_path(out).write_text(content)
    for read in (lambda: read_journal(journal_path(out)), lambda: Journal(out, JOB)):
        with pytest.raises(BadInputError) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert journal_path(out).read_text() == content


@given(st.lists(st.sampled_from(['{"start": 1}', '{"outcome": {}}', '{"failure": 3}', '{"attempt": []}', "2", "{"])))
def test_a_damaged_journal_is_either_read_or_refused(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("journal") / "F.h5.journal"
    append_records(path, {"job": json.loads(JOB.to_json()), "attempts": []})
    with path.open("a") as file:
        file.write("".join("\n" + line for line in lines))
    try:
        read_journal(path)
    except BadInputError as error:
        assert "\n" not in str(error)  # noqa: PT017  it may as well be read


def test_an_empty_journal_has_no_records(out):
    journal_path(out).touch()
    assert not has_records(journal_path(out))
    Journal(out, JOB).close(remove=False)
    assert has_records(journal_path(out))


def test_an_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="cannot be written"):
        Journal(tmp_path / "file" / "F.h5", JOB)


def test_records_are_on_disk_before_the_next_case_begins(out):
    journal = begin(out, done=2)
    assert len(read_journal(journal_path(out)).done) == 2  # read through another descriptor, nothing flushed here
    journal.close(remove=True)
