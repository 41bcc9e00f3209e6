"""A killed job resumes: no round is measured twice, and none is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.journal import journal_path, read_journal
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).with_name("dying_ranks.py")
pytestmark = pytest.mark.mpi
EFFORT = Effort(warmup=1, min_iterations=30, max_iterations=30)
LONG_S = 240
"""The timeout of launches that take seconds, because processors may be busy."""


@pytest.fixture
def job(tmp_path):
    cases = [raw_examples.case(2**k, in_place=in_place, algorithm=name)
             for k in range(3, 19) for in_place in (False, True)
             for name in ("ring", "recursive_doubling")]  # fmt: skip
    job = raw_examples.job(*cases, effort=EFFORT)
    (tmp_path / "job.json").write_text(job.to_json())
    return job


def start(tmp_path, dies_in=0):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    job = ["--job", tmp_path / "job.json", "--out", tmp_path / "F.h5"]
    return subprocess.Popen(
        ["mpiexec", "-n", "2", sys.executable, RANKS, str(dies_in), *job],
        env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def kill_a_rank_once(tmp_path, outcomes):
    """Start a launch whose rank 1 kills itself after so many outcomes."""
    process = start(tmp_path, dies_in=outcomes + 1)
    process.communicate(timeout=LONG_S)
    assert process.returncode != 0


def test_measurements_before_a_kill_are_kept_and_the_rest_is_measured_once(job, tmp_path, mpiexec):  # noqa: ARG001
    file, journal = tmp_path / "F.h5", journal_path(tmp_path / "F.h5")
    kill_a_rank_once(tmp_path, 10)
    assert not file.exists()
    (before,) = read_journal(journal).attempts
    assert len(before[1]) == 10
    read = read_journal(journal)
    (crashed,) = set(read.started) - read.done

    second = start(tmp_path)
    stdout, stderr = second.communicate(timeout=LONG_S)
    assert second.returncode == 0, stderr
    assert f"attempt 2: {len(job.cases) - len(before[1])} measurements ({len(job.cases)} cases in 1 round)" in stdout
    assert not journal.exists()
    raw = hdf5.read_raw_file(file)
    assert raw.complete
    assert [attempt.number for attempt, _ in raw.attempts] == [1, 2]
    assert raw_examples.comparable(raw.attempts[0]) == raw_examples.comparable(before)
    ids = [outcome.case.id for _, outcomes in raw.attempts for outcome in outcomes]
    assert sorted(ids) == sorted(case.id for case in job.cases)
    assert ids[-1] == crashed  # the case that ended a job is measured last
    assert raw.attempts[0][0].run_id != raw.attempts[1][0].run_id

    written = file.stat().st_mtime_ns, file.read_bytes()
    third = start(tmp_path)
    stdout, _ = third.communicate(timeout=LONG_S)
    assert third.returncode == 0
    assert stdout == f"# {file} is complete, 8 B to 256 KiB: nothing left to measure\n"
    assert (file.stat().st_mtime_ns, file.read_bytes()) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["F.h5", "job.json"]


def test_a_job_resumes_with_the_remaining_rounds(tmp_path, mpiexec):  # noqa: ARG001
    cases = [raw_examples.case(2**k, algorithm=name) for k in range(10, 20) for name in ("ring", "native")]
    job = raw_examples.job(*cases, effort=Effort(warmup=1, min_iterations=60, max_iterations=60, rounds=3))
    (tmp_path / "job.json").write_text(job.to_json())
    file, journal = tmp_path / "F.h5", journal_path(tmp_path / "F.h5")
    kill_a_rank_once(tmp_path, len(cases) + 5)
    before = read_journal(journal)
    assert set(before.measured.values()) >= {frozenset([1]), frozenset([1, 2])}
    assert {(row.status, row.rounds) for row in read_results([journal]).rows} == {("partial", 1), ("partial", 2)}

    stdout, stderr = (second := start(tmp_path)).communicate(timeout=LONG_S)
    assert second.returncode == 0, stderr
    left = 3 * len(cases) - sum(map(len, before.measured.values()))
    assert f"attempt 2: {left} measurements ({len(cases)} cases in 3 rounds)" in stdout
    raw = hdf5.read_raw_file(file)
    assert raw.complete
    assert raw_examples.comparable(raw.attempts[0]) == raw_examples.comparable(before.attempts[0])
    assert [history.outcome.times.round.tolist() for history in raw.histories()] == [
        [1] * 20 + [2] * 20 + [3] * 20
    ] * len(cases)
    assert {(row.status, row.rounds, row.attempt, row.iterations) for row in read_results([file]).rows} == {
        ("ok", 3, 2, 60)
    }
    rows = [line for line in stdout.splitlines() if line.split()[:1] in (["ring"], ["native"])]
    assert len(rows) == len(cases)  # one for each, when its last round is in
    assert stdout.index("# round 3 of 3") < stdout.index(rows[0])


def test_a_partial_file_without_a_journal_is_resumed(job, tmp_path, mpiexec):  # noqa: ARG001
    raw = raw_examples.raw(*(raw_examples.outcome(case) for case in job.cases[:-2]))
    raw.job = job
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    process = start(tmp_path)
    process.communicate(timeout=LONG_S)
    assert process.returncode == 0
    read = hdf5.read_raw_file(tmp_path / "F.h5")
    assert [len(outcomes) for _, outcomes in read.attempts] == [len(job.cases) - 2, 2]
    assert raw_examples.comparable(read.attempts[0]) == raw_examples.comparable(raw.attempts[0])
