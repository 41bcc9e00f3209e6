"""Rank 0 writes cases as they finish, and has the times of one case in memory."""

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.measure.run.job_results import JobResults
from hpccoll.store import hdf5
from hpccoll.store.result_files import has_results, read_raw
from hpccoll.store.sealed_file import DiskFile

CASES = [raw_examples.case(2**k) for k in range(10, 14)]
JOB = raw_examples.job(*CASES, effort=Effort(min_iterations=2, max_iterations=8, rounds=2))


@pytest.fixture
def written(monkeypatch):
    """Return the cases that are written, as they are."""
    cases, write = [], hdf5.AttemptWriter.write
    monkeypatch.setattr(
        hdf5.AttemptWriter,
        "write",
        lambda self, number, of: cases.append(of.case.bytes) or write(self, number, of),
    )
    return cases


def begun(out, number=1):
    results = JobResults(JOB, out)
    results.open()
    results.records.begin(raw_examples.attempt(number))
    return results


def measure(results, number, cases=CASES):
    for case in cases:
        results.records.start(case)
        results.record(raw_examples.round_outcome(number, case, iterations=3 + number))


def content(out):
    return raw_examples.comparable(hdf5.read_raw_file(out).attempts)


def whole(tmp_path):
    """Return what a file holds whose cases are in memory until the end."""
    outcomes = [raw_examples.round_outcome(1, case, iterations=4) for case in CASES]
    outcomes = [of.merge(raw_examples.round_outcome(2, of.case, iterations=5)) for of in outcomes]
    raw = raw_examples.raw(*outcomes)
    raw.job = JOB
    hdf5.write_raw_file(raw, tmp_path / "whole.h5")
    return content(tmp_path / "whole.h5")


def times_of(out):
    return [history.outcome.times for history in hdf5.read_raw_file(out).histories()]


def test_a_case_is_written_when_its_last_round_is_measured_and_its_times_leave_the_memory(
    tmp_path, written
):
    out = tmp_path / "results" / "F.h5"
    results = begun(out)
    measure(results, 1)
    assert not written
    for number, case in enumerate(CASES, 1):
        measure(results, 2, [case])
        assert len(written) == number
        assert not out.exists()
    assert not any(of.times.kept.is_in_memory for of in results.raw.attempts[0][1])
    results.finish()
    assert len(written) == len(CASES)
    assert content(out) == whole(tmp_path)
    assert [path.name for path in out.parent.iterdir()] == ["F.h5"]
    # rows may need them when the journal is gone
    starts = [of.times.start_ns for of in results.raw.attempts[0][1]]
    assert all(np.shape(of_case) == (9, 2) for of_case in starts)


def test_a_launch_that_resumes_writes_what_earlier_ones_measured_in_between(tmp_path, written):
    out = tmp_path / "F.h5"
    first = begun(out)
    measure(first, 1)
    first.records.close(remove=False)
    second = begun(out, 2)
    measure(second, 2, CASES[:2])
    assert written == [case.bytes for case in CASES[:2]]
    second.finish()
    assert not out.exists()  # nothing says why it ended: another launch goes on
    assert [path.name for path in tmp_path.iterdir()] == ["F.h5.journal"]
    third = begun(out, 3)
    measure(third, 2, CASES[2:])
    third.finish()
    assert [len(outcomes) for _, outcomes in hdf5.read_raw_file(out).attempts] == [4, 2, 2]
    assert hdf5.read_raw_file(out).complete


def test_a_disk_that_was_full_for_a_while_costs_no_case(tmp_path, monkeypatch, capsys):
    out = tmp_path / "F.h5"
    results = begun(out)
    measure(results, 1)
    with monkeypatch.context() as full:
        full.setattr(
            DiskFile,
            "_write_to_disk",
            lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")),
        )
        measure(results, 2, CASES[:2])
    assert capsys.readouterr().out.count("is written in the end") == 1
    measure(results, 2, CASES[2:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["F.h5.journal", "F.h5.reserve"]
    results.finish()
    assert content(out) == whole(tmp_path)


def test_without_a_file_the_times_of_ranks_are_not_kept():
    results = JobResults(JOB, None)
    results.open()
    results.records.begin(raw_examples.attempt())
    measure(results, 1)
    ((_, outcomes),) = results.raw.attempts
    assert [(of.times.max_ns.size, of.times.start_ns.size) for of in outcomes] == [(4, 0)] * 4


KILLED = """
import os, signal, sys
from pathlib import Path
import raw_examples
from test_job_results import CASES, JOB, measure
from hpccoll.measure.run.job_results import JobResults

step = 0
def kill_at(frame, event, argument):
    global step
    if event == "c_call":
        step += 1
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
import h5py, hpccoll.store.hdf5
out, number = Path(sys.argv[1]), int(sys.argv[3])
sys.setprofile(kill_at)
results = JobResults(JOB, out)
done = results.open().measured_rounds
left = [(each, case) for each in (1, 2) for case in CASES if each not in done.get(case.id, ())]
if left:
    results.records.begin(raw_examples.attempt(number))
    for round_number, case in left:
        measure(results, round_number, [case])
        os.write(1, b"recorded ")
results.finish()
sys.setprofile(None)
print(step)
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_recorded(tmp_path):
    places = str(Path(__file__).parent), str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}

    def launch(out, step, number=1):
        program = [sys.executable, "-c", KILLED, str(out), str(step), str(number)]
        return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)

    *recorded, steps = launch(tmp_path / "F.h5", -1).stdout.split()
    expected = whole(tmp_path)
    assert content(tmp_path / "F.h5") == expected
    assert len(recorded) == 2 * len(CASES)
    draw = random.Random(61)  # noqa: S311 - moments, not secrets
    moments = [*draw.sample(range(int(steps)), 8), int(steps) - 3]
    ends = []
    for number, step in enumerate(moments):
        out = tmp_path / f"{number}" / "F.h5"
        killed = launch(out, step)
        # 0: it needed fewer steps than the first one
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
        ends.append(killed.returncode)
        kept = read_raw(out).measurements if has_results(out) else 0
        assert kept >= killed.stdout.count("recorded")
        resumed = launch(out, -1, 2)
        assert resumed.returncode == 0, resumed.stderr
        raw = hdf5.read_raw_file(out)
        assert raw.complete
        assert 2 * len(CASES) - kept == resumed.stdout.count("recorded")
        every = [raw_examples.comparable(history.outcome.times) for history in raw.histories()]
        assert every == [
            raw_examples.comparable(outcome) for outcome in times_of(tmp_path / "whole.h5")
        ]
        assert [path.name for path in out.parent.iterdir()] == ["F.h5"]
    assert ends.count(-signal.SIGKILL) > len(moments) // 2
