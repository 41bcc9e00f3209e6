"""A killed job resumes: no round is measured twice, and none is lost."""

from pathlib import Path

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.journal import journal_path, read_journal
from hpccoll.store.load_results import read_results

pytestmark = pytest.mark.mpi
RANKS = Path(__file__).with_name("dying_ranks.py")
CASES = [
    raw_examples.case(2**k, algorithm=name) for k in range(10, 20) for name in ("ring", "native")
]
JOB = raw_examples.job(
    *CASES, effort=Effort(warmup=1, min_iterations=60, max_iterations=60, rounds=3)
)


@pytest.fixture
def launch(out, mpiexec):
    """Run the job; in a round of a case, counted from 1, rank 1 kills itself."""

    def run(dies_in=0):
        return mpiexec(2, RANKS, dies_in, "--job", out.with_name("job.json"), "--out", out)

    out.with_name("job.json").write_text(JOB.to_json())
    return run


def test_rounds_before_a_kill_are_kept_and_the_rest_is_measured_once(out, launch):
    assert launch(dies_in=len(CASES) + 6).returncode != 0
    assert not out.exists()
    before = read_journal(journal_path(out))
    measured_before = raw_examples.comparable(before.attempts[0])  # while its journal is there
    assert sum(map(len, before.measured.values())) == len(CASES) + 5
    assert {(row.status, row.rounds) for row in read_results([out]).rows} == {
        ("partial", 1),
        ("partial", 2),
    }
    crashed = before.started[-1]

    second = launch()
    assert second.returncode == 0, second.stderr
    left = 2 * len(CASES) - 5
    assert f"attempt 2: {left} measurements ({len(CASES)} cases in 3 rounds)" in second.stdout
    rows = [
        line for line in second.stdout.splitlines() if line.split()[:1] in (["ring"], ["native"])
    ]
    assert len(rows) == len(CASES)  # one for each, when its last round is in
    assert second.stdout.index("# round 3 of 3") < second.stdout.index(rows[0])
    raw = hdf5.read_raw_file(out)
    assert raw.complete
    assert raw_examples.comparable(raw.attempts[0]) == measured_before
    of_second = [outcome.case.id for outcome in raw.attempts[1][1] if 2 in outcome.rounds]
    assert of_second[-1] == crashed  # the case that ended a job is measured last
    rounds = [1] * 20 + [2] * 20 + [3] * 20
    assert [history.outcome.times.round.tolist() for history in raw.histories()] == [rounds] * len(
        CASES
    )
    assert {(row.status, row.rounds, row.attempt) for row in read_results([out]).rows} == {
        ("ok", 3, 2)
    }

    written = out.stat().st_mtime_ns, out.read_bytes()
    third = launch()
    assert (third.returncode, third.stdout) == (
        0,
        f"# {out} is complete, 1 KiB to 512 KiB: nothing left to measure\n",
    )
    assert (out.stat().st_mtime_ns, out.read_bytes()) == written
    assert sorted(path.name for path in out.parent.iterdir()) == ["F.h5", "job.json"]
