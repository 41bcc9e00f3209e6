"""A rank stalls while a case over NCCL is measured, and the job continues; MPI, CuPy and nccl4py are real."""

import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import raw_examples

from hpccoll.analysis.opening_findings import opening_findings
from hpccoll.cases.case import Effort
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.store import hdf5
from hpccoll.store.journal import journal_path, read_journal
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).with_name("stalling_ranks.py")
WARMUP, ITERATIONS = 2, 10
SECOND = WARMUP + ITERATIONS + 5
"""The number of an operation of the second case."""
GATHER = {"collective": "gather", "algorithm": "binomial", "op": None, "root": 0}
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def launch(mpiexec, nccl_library):
    """Run a job of three cases and ``more`` of which a rank stalls; returns what the launch left, and the raw file."""

    def launch(
        place, ranks, timeout, who, where, when, how, *more, sizes=(64, 1024, 4096), **about
    ):
        effort = Effort(
            warmup=WARMUP, min_iterations=ITERATIONS, max_iterations=ITERATIONS, timeout=timeout
        )
        cases = [
            raw_examples.case(size, **{"transport": "nccl", "device": "cuda", **about})
            for size in sizes
        ]
        cases += more
        (place / "job.json").write_text(
            raw_examples.job(*cases, ranks=ranks, effort=effort).to_json()
        )
        out, fault = place / "F.h5", [nccl_library, who, where, when, how]
        return mpiexec(
            ranks, RANKS, *fault, "--device", "cuda", "--job", place / "job.json", "--out", out
        ), out

    return launch


OF_STEP = {"model": "resnet50", "scale": 4096, "compute_us": 2000}
LAST = 2 * (WARMUP + ITERATIONS)
"""The number of the last check of the second case."""
STEP = raw_examples.case(
    TrainingStep.of(OF_STEP).gradient_bytes("float32"),
    collective=TRAINING_STEP,
    transport="nccl",
    device="cuda",
    in_place=True,
    params={**TrainingStep.of(OF_STEP).params, "graph": 1},
)
PAUSE_TIMEOUT = 36
"""Long enough that a machine may pause for seconds: a rank that is an eighth of this late is named."""
LAUNCHES = {
    # who comes is to collect times, and the others abort NCCL
    "collects": ((3, PAUSE_TIMEOUT, 0, "wrong", LAST, "called"), {}),
    # rank 1 is a barrier ahead
    "ahead": ((3, PAUSE_TIMEOUT, 2, "run", SECOND, "called"), GATHER),
    # longer than its watchdog waits, and less than the others
    "spared": ((3, 12, 1, "run", SECOND, "spared"), {}),
    "alone": ((2, 12, 1, "run", SECOND, "stops"), {}),
    "keeper": ((3, 12, 0, "run", SECOND, "60"), {}),
    # two ranks wait in the kernel for the third one
    "peer": ((3, 12, 1, "run", SECOND, "spared"), {"transport": "peer"}),
    "broken": ((3, 60, 1, "run", SECOND, "breaks"), {}),
    # on the stream: all ranks respond
    "hangs": ((3, PAUSE_TIMEOUT, 1, "library", 90, "stall"), {}),
    "fails": ((3, 60, 0, "library", 90, "error"), {}),
    "step stops": ((3, 12, 2, "step", 5, "stops", STEP), {"sizes": [64]}),
    "rejects": ((2, 60, -1, "library", 5, "call:8", STEP), {"sizes": [64], "algorithm": "native"}),
}
"""The arguments of ``launch``; the longest first."""
AT_ONCE = 3
"""Launches: for the most part their ranks wait."""


@pytest.fixture(scope="module")
def launched(launch, tmp_path_factory):
    """What came of each launch, when it has ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(launch, tmp_path_factory.mktemp(name), *asked, **about)
            for name, (asked, about) in LAUNCHES.items()
        }


def test_the_other_ranks_continue_without_a_stalled_rank_and_record_it(launch, launched):
    ended, out = launched["spared"].result()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    who, (one, two) = f"rank 1 on {platform.node()}", hdf5.read_raw_file(out).attempts
    assert (one[0].ranks, [outcome.status for outcome in one[1]]) == (3, ["ok", "failed"])
    failed = one[1][1]
    assert failed.reason.startswith(f"{who} stalled: ")
    assert re.search(rf"in 3 s .* in 2 s; rank 0 on {platform.node()} and rank 2", failed.reason)
    assert (two[0].ranks, len(two[0].places), two[0].provenance["launched_as"]) == (2, 2, [0, 2])
    (behind,) = two[0].provenance["left_behind"]
    assert (behind["attempt"], behind["ranks"], behind["case"]) == (1, [1], failed.case.id)
    (of_two,) = two[1]
    assert (of_two.status, of_two.case.ranks, of_two.case.id.endswith(".p2.n1")) == ("ok", 2, True)
    # in the table at the end, which lost no line
    assert "# 2 ranks on 1 node" in ended.stdout.splitlines()
    # but its watchdog leaves the end to the others
    assert "r1 | stuck for 12 s: case" in ended.stderr
    assert "r1 | stalled; " in ended.stderr
    results = read_results([out])
    left = {gap.status: gap.reason for gap in results.missing}
    assert left == {
        "failed": failed.reason,
        "not run": f"the job ended before it: it needs all ranks: {failed.reason}",
    }
    (stall,) = (finding for finding in opening_findings(results) if finding.severity == "critical")
    assert (stall.kind, stall.values["jobs"]) == ("ranks_stalled", ("mpi.p2",))
    again, _ = launch(out.parent, 3, 12, 1, "run", 0, "never")
    assert again.returncode == 0, again.stderr
    raw = hdf5.read_raw_file(out)
    assert raw.complete
    assert [attempt.number for attempt, _ in raw.attempts] == [1, 2, 3]
    assert [outcome.case.id for _, last in raw.attempts[2:] for outcome in last][
        -1
    ] == failed.case.id
    results = read_results([out])
    found = [
        (finding.kind, finding.values)
        for finding in opening_findings(results)
        if "stall" in finding.kind
    ]
    assert (results.missing, found) == ((), [("stall_resolved", stall.values)])


def test_in_a_job_over_peer_alone_the_others_name_the_rank_and_go_on_without_it(launched):
    ended, out = launched["peer"].result()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    (one, of_three), (two, _) = hdf5.read_raw_file(out).attempts
    assert (one.ranks, two.ranks, two.provenance["launched_as"]) == (3, 2, [0, 2])
    failed = of_three[1]
    assert failed.status == "failed"
    # rank 0 may await rank 2, which awaits rank 1
    assert "to send it message" in failed.reason
    assert failed.reason.startswith("rank 1 on ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "collects",
            rf"rank 0 on {platform.node()}, .*s after the others: .* did not complete in 9 s",
        ),
        (
            "ahead",
            rf"rank 2 on {platform.node()}, .*s after the others: .* did not complete in 9 s",
        ),
        (
            "hangs",
            r"the operation did not complete in 9 s \(on the stream: .*; all ranks answered and continued$",
        ),
        (
            "fails",
            "NCCL reports: NCCL_ERROR_SYSTEM_ERROR: .* error at rank 0 on .*; all ranks answered and continued$",
        ),
    ],
)
def test_after_an_error_or_a_stall_that_ends_in_time_the_case_fails_and_all_ranks_continue(
    launched, name, reason
):
    ended, out = launched[name].result()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    ((attempt, outcomes),) = hdf5.read_raw_file(out).attempts
    assert (attempt.ranks, [outcome.status for outcome in outcomes]) == (3, ["ok", "failed", "ok"])
    assert re.match(reason, outcomes[1].reason)


def test_if_too_few_ranks_are_left_the_launch_is_aborted(launched):
    ended, out = launched["alone"].result()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "; the launch ends by MPI_Abort" in ended.stderr
    ((attempt, outcomes),) = hdf5.read_raw_file(out).attempts
    assert (attempt.ranks, [outcome.status for outcome in outcomes]) == (2, ["ok", "failed"])
    assert {gap.status for gap in read_results([out]).missing} == {"failed", "not run"}


def test_if_rank_0_stalls_the_job_ends_and_names_it(launched):
    ended, out = launched["keeper"].result()
    assert ended.returncode not in (0, 2, 3)
    who = f"rank 0 on {platform.node()} has stalled, which keeps the results"
    assert who in ended.stderr
    assert any(who in failure.message for failure in read_journal(journal_path(out)).failures)


def test_a_failed_gpu_ends_the_launch_with_one_line_and_nothing_measured_is_lost(launched):
    ended, out = launched["broken"].result()
    assert ended.returncode not in (0, 2, 3)
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("r")]
    (failure,) = read_journal(journal_path(out)).failures
    said = f"GPU 0000:01:00.0 of {platform.node()} failed: cudaErrorECCUncorrectable (case {failure.case_id})"
    assert (line, failure.rank, failure.message) == (f"r1 | {said}", 1, said)
    assert "Traceback" not in ended.stderr
    assert "stall" not in ended.stderr
    results = read_results([out.parent])
    assert [row.status for row in results.rows] == ["ok", "failed"]
    assert {gap.status for gap in results.missing} == {"failed", "not run"}


def test_what_each_gpu_reports_of_a_case_is_kept(launched):
    _, out = launched["ahead"].result()
    ((_, (outcome, *_)),) = hdf5.read_raw_file(out).attempts
    assert [*outcome.gpu_sm_clock] == [1980e6, 1780e6, 1580e6]
    assert [*outcome.gpu_clock_events] == [0x4, 0x80, 0x4]
    assert not (*outcome.gpu_memory_clock, *outcome.gpu_power)
    lowered = [seconds > 0 for seconds in outcome.gpu_power_limit_s]
    assert (lowered, outcome.lowered_rounds) == ([False, True, False], "1: power")
    row = next(row for row in read_results([out]).rows if row.status == "ok")
    assert [*row.gpu_throttled.values()] == [("power brake",)]
    assert [*row.gpu_slow.values()] == [pytest.approx(1580 / 1780)]


def test_a_stall_in_a_training_step_with_graphs_costs_that_step_only(launched):
    ended, out = launched["step stops"].result()
    assert "hangs NCCL" not in ended.stderr
    assert ended.returncode == 3, ended.stdout + ended.stderr
    attempts = hdf5.read_raw_file(out).attempts
    assert [[outcome.status for outcome in outcomes] for _, outcomes in attempts] == [
        ["failed"],
        ["ok"],
    ]
    assert [attempt.ranks for attempt, _ in attempts] == [3, 2]
    assert "(the step on the GPU)" in attempts[0][1][-1].reason


def test_a_status_of_nccl_without_a_name_in_cupy_fails_a_case_on_all_ranks_together(launched):
    ended, out = launched["rejects"].result()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    assert [outcome.status for outcome in outcomes].count("ok") == len(outcomes) - 1
    (failed,) = [outcome for outcome in outcomes if outcome.status != "ok"]
    assert (failed.status, failed.case.transport) == ("failed", "nccl")
    assert "status 8 of NCCL" in failed.reason


def test_graphs_are_destroyed_before_their_communicator_is_aborted(mpiexec, nccl_library):
    ran = mpiexec(2, Path(__file__).with_name("aborted_ranks.py"), nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("done") == 2
