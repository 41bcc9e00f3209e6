"""Results below some paths: rows, gaps with their reasons, each file once."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples

from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal, journal_path, write_failure_note
from hpccoll.store.load_results import read_results
from hpccoll.store.raw_results import Failure, RawResults
from hpccoll.store.result_files import find_raw_files, read_raw

SIZES = (8, 16, 32, 64)
CASES = [raw_examples.case(size) for size in SIZES]


@pytest.fixture
def sweep(tmp_path):
    """A sweep of two jobs: one ended in its third case, the other has no results; planning left out one case."""
    out = tmp_path / "sweep"
    first, second = raw_examples.job(*CASES, name="mpi.p2"), raw_examples.job(*CASES[:2], name="mpi.p3", ranks=3)
    plan = Plan(name="sweep", profile="local", jobs=(first, second), launcher=Launcher(command="mpiexec"),
                resources={}, estimated_s=1.0,
                skips=(Skip(case="x", job="mpi.p3", reason="needs a power of two"),))  # fmt: skip
    (out / "raw").mkdir(parents=True)
    (out / "plan.json").write_text(plan.to_json())
    journal = Journal(out / "raw" / "mpi.p2.h5", first)
    journal.begin(raw_examples.attempt())
    journal.record(raw_examples.outcome(CASES[0]))
    journal.record(raw_examples.outcome(CASES[1], status="wrong", reason="rank 0: bad", wrong=7))
    journal.start(CASES[2])
    write_failure_note(out / "raw" / "mpi.p2.h5", Failure(case_id=CASES[2].id, rank=1, message="stuck"))
    journal.close(remove=False)
    return out


def test_every_gap_has_its_reason(sweep):
    results = read_results([sweep])
    gaps = {(gap.job, gap.case): (gap.status, gap.reason) for gap in results.missing}
    assert gaps == {
        ("mpi.p2", CASES[1].id): ("wrong", "rank 0: bad"),
        ("mpi.p2", CASES[2].id): ("failed", "rank 1: stuck"),
        ("mpi.p2", CASES[3].id): ("not run", "the job ended before it"),
        ("mpi.p3", CASES[0].id): ("not run", "its job has not begun"),
        ("mpi.p3", CASES[1].id): ("not run", "its job has not begun"),
    }
    assert [(skip.status, skip.reason) for skip in results.skipped] == [("left out", "needs a power of two")]
    assert results.planned == 6
    assert [(row.case_id, row.status, row.wrong) for row in results.rows] == [
        (CASES[0].id, "ok", 0), (CASES[1].id, "wrong", 7), (CASES[2].id, "failed", None),
    ]  # fmt: skip


def test_a_run_is_partial_until_every_case_has_an_outcome(sweep):
    (run,) = read_results([sweep]).runs
    assert (run.status, run.job, run.attempt) == ("partial", "mpi.p2", 1)
    journal = Journal(sweep / "raw" / "mpi.p2.h5", raw_examples.job(*CASES, name="mpi.p2"))
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[2]))
    journal.record(raw_examples.skipped(CASES[3]))
    hdf5.write_raw_file(journal.raw, sweep / "raw" / "mpi.p2.h5")
    journal.close(remove=True)
    results = read_results([sweep])
    assert [(run.status, run.attempt) for run in results.runs] == [("complete", 1), ("complete", 2)]
    assert [gap.status for gap in results.missing] == ["wrong", "not run", "not run"]
    assert sorted(row.attempt for row in results.rows) == [1, 1, 2, 2]
    assert len(results.skipped) == 2


def test_a_file_named_several_times_is_read_once(tmp_path):
    file = tmp_path / "raw" / "F.h5"
    file.parent.mkdir()
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), file)
    (tmp_path / "link.h5").symlink_to(file)
    assert find_raw_files([file, tmp_path, file.parent, tmp_path / "link.h5"]) == [file]
    assert len(read_results([file, tmp_path]).rows) == 1


def test_a_complete_file_takes_precedence_over_its_journal(tmp_path):
    file = tmp_path / "F.h5"
    raw = raw_examples.raw(raw_examples.outcome())
    Journal(file, raw.job, raw).close(remove=False)
    hdf5.write_raw_file(raw, file)
    for named in (tmp_path, file, journal_path(file)):
        assert find_raw_files([named]) == [file]
        assert read_raw(file).path == file
    assert find_raw_files([file, journal_path(file)]) == [file]


def test_a_journal_takes_precedence_over_its_partial_file(tmp_path):
    file = tmp_path / "F.h5"
    raw = raw_examples.raw(raw_examples.outcome(CASES[0]), more=CASES[1:])
    hdf5.write_raw_file(raw, file)
    journal = Journal(file, raw.job, raw)
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[1]))
    assert read_raw(file).path == journal_path(file)
    assert len(read_results([tmp_path]).rows) == 2
    journal.close(remove=False)


def test_a_journal_alone_is_read_and_an_empty_one_ignored(tmp_path):
    journal_path(tmp_path / "empty.h5").touch()
    assert find_raw_files([tmp_path]) == []
    Journal(tmp_path / "F.h5", raw_examples.job(*CASES)).close(remove=False)
    assert find_raw_files([tmp_path]) == [tmp_path / "F.h5"]
    results = read_results([tmp_path])
    assert {gap.status for gap in results.missing} == {"not run"}
    assert results.rows == ()


def test_a_file_that_accompanies_a_raw_file_stands_for_it(sweep):
    journal = journal_path(sweep / "raw" / "mpi.p2.h5")
    for ending in ("reserve", "interrupted", "failure-launch", "failure-1"):
        journal.with_suffix(f".{ending}").touch()
    files = sorted((sweep / "raw").glob("mpi.p2.h5*"))
    assert len(files) == 5
    assert [find_raw_files([path]) for path in files] == [[journal.with_suffix("")]] * 5
    assert find_raw_files(files) == [journal.with_suffix("")]


def test_a_sweep_file_is_refused_with_the_directory_of_its_results(tmp_path):
    file = tmp_path / "accept.yaml"
    file.touch()
    with pytest.raises(BadInputError, match=r"accept\.yaml' is not valid: results; .* are in results/accept, unless"):
        find_raw_files([file])


def test_a_missing_path_or_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="there is no such raw file or directory"):
        read_results([tmp_path / "no"])
    with pytest.raises(BadInputError, match="that holds some"):
        read_results([tmp_path])


def test_an_unreadable_file_in_a_directory_is_a_gap_and_hides_no_other(sweep):
    before = read_results([sweep])
    (sweep / "raw" / "broken.h5").write_text("x")
    after = read_results([sweep])
    assert after.rows == before.rows
    (gap,) = set(after.missing) - set(before.missing)
    assert (gap.job, gap.status) == ("broken", "failed")
    assert "broken.h5" in gap.reason
    with pytest.raises(BadInputError, match=r"broken\.h5"):
        read_results([sweep / "raw" / "broken.h5"])


def test_unreadable_files_among_several_named_ones_are_listed(tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "F.h5")
    broken = tmp_path / "broken.h5", tmp_path / "another.h5"
    for path in broken:
        path.write_text("x")
    found = read_results([tmp_path / "F.h5", *broken])
    assert len(found.rows) == 1
    assert [str(path) in line for path, line in zip(broken, found.damaged, strict=True)] == [True, True]
    with pytest.raises(BadInputError) as caught:
        read_results(broken)
    assert len(caught.value.others) == 1


def test_an_unreadable_plan_hides_no_result(sweep):
    before = read_results([sweep]).rows
    (sweep / "plan.json").write_text("{")
    found = read_results([sweep])
    assert found.rows == before
    assert ["plan.json" in line for line in found.damaged] == [True]
    journal_path(sweep / "raw" / "mpi.p2.h5").unlink()
    with pytest.raises(BadInputError, match=r"plan\.json"):
        read_results([sweep])


def test_a_damaged_line_of_a_journal_is_named_and_its_case_is_missing(sweep):
    journal = journal_path(sweep / "raw" / "mpi.p2.h5")
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b'"status": "ok"', b'"status": "oK"'))
    before, found = len(content.split(b"\n")), read_results([sweep])
    assert before == len(journal.read_bytes().split(b"\n"))
    assert ["mpi.p2.h5.journal: line 6" in line for line in found.damaged] == [True]
    (gap,) = (gap for gap in found.missing if gap.case == CASES[0].id and gap.job == "mpi.p2")
    assert gap.reason == "the job ended before it, or a damaged line of its journal held it"


def test_copies_of_a_raw_file_count_once_and_are_noted(tmp_path):
    raw = raw_examples.raw(raw_examples.outcome(CASES[0]), raw_examples.outcome(CASES[1]))
    hdf5.write_raw_file(raw, tmp_path / "b.h5")
    shutil.copy(tmp_path / "b.h5", tmp_path / "a.h5")
    part = replace(raw, attempts=[(raw.attempts[0][0], raw.attempts[0][1][:1])])
    hdf5.write_raw_file(part, tmp_path / "0-part.h5")
    another = replace(raw, attempts=[(raw_examples.attempt(1, run_id="another"), raw.attempts[0][1])])
    hdf5.write_raw_file(another, tmp_path / "c.h5")
    found = read_results([tmp_path])
    assert [(row.case_id, row.run_id) for row in found.rows] == [
        (case.id, run) for case in CASES[:2] for run in ("run-1", "another")
    ]
    assert found.planned == 4
    left_out = {Path(note.split(" is left out: it is a copy of ")[0]).name for note in found.notes}
    assert left_out == {"b.h5", "0-part.h5"}
    assert sum("a.h5, or of a part" in note for note in found.notes) == 2


def test_two_files_that_resumed_the_same_file_share_its_launches_once(tmp_path):
    first = (raw_examples.attempt(1), [raw_examples.outcome(CASES[0])])
    for name, case in (("a", CASES[1]), ("b", CASES[2])):
        more = (raw_examples.attempt(2, run_id=f"run-2{name}"), [raw_examples.outcome(case)])
        hdf5.write_raw_file(
            RawResults(path=tmp_path, job=raw_examples.job(*CASES[:3]), attempts=[first, more]), tmp_path / f"{name}.h5"
        )
    found = read_results([tmp_path])
    assert sorted((row.requested_bytes, row.run_id) for row in found.rows) == [
        (8, "run-1"), (16, "run-2a"), (32, "run-2b"),
    ]  # fmt: skip
    (note,) = found.notes
    assert "b.h5: launches are left out that" in note


def test_a_journal_is_read_if_its_partial_file_is_damaged(tmp_path):
    file = tmp_path / "F.h5"
    raw = raw_examples.raw(raw_examples.outcome(CASES[0]), more=CASES[1:])
    hdf5.write_raw_file(raw, file)
    Journal(file, raw.job, raw).close(remove=False)
    for damaged in (file.read_bytes()[:-900], b"x"):
        file.write_bytes(damaged)
        found = read_results([tmp_path])
        assert [row.case_id for row in found.rows] == [CASES[0].id]
        assert ["its journal is read in its place" in note for note in found.notes] == [True]


def test_a_pipe_in_place_of_slurm_json_does_not_block(sweep):
    before = read_results([sweep])
    os.mkfifo(sweep / "slurm.json")
    assert read_results([sweep]).rows == before.rows


def test_failures_stay_in_the_finished_file(tmp_path):
    out = tmp_path / "F.h5"
    journal = Journal(out, raw_examples.job(CASES[0]))
    journal.begin(raw_examples.attempt(1))
    write_failure_note(out, Failure(case_id=CASES[0].id, rank=1, message="no", attempt=1))
    journal.close(remove=False)
    journal = Journal(out, raw_examples.job(CASES[0]))
    journal.begin(raw_examples.attempt(2))
    journal.record(raw_examples.outcome(CASES[0]))
    hdf5.write_raw_file(journal.raw, out)
    journal.close(remove=True)
    assert hdf5.read_raw_file(out).failures == [Failure(case_id=CASES[0].id, rank=1, message="no", attempt=1)]
    assert read_results([out]).missing == ()
