"""The table of a run: the lines printed during the measurement, and the sorted rows at the end."""

import io
import random
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples
from golden_page import assert_golden
from synthetic_timings import times_around

from hpccoll.analysis.recommendations import ranges_by_setting, recommend
from hpccoll.cases.case import AGGREGATED, SINGLE, Effort
from hpccoll.common.terminal import ERASE_LINE, PrintableStream
from hpccoll.evidence.gpu_pair import NOT_TRIED
from hpccoll.render import run_table
from hpccoll.render.run_table import PrintedTable
from hpccoll.store.load_results import to_results
from hpccoll.store.raw_results import CaseHistory, RawResults
from hpccoll.store.result_files import ResultFiles

SIZES = (8, 1024, 65536)
CASES = [
    raw_examples.case(size, algorithm=name, in_place=in_place)
    for name in ("ring", "native")
    for size in SIZES
    for in_place in (False, True)
]
JOB = raw_examples.job(*CASES, effort=Effort(rounds=1))
MPI = {
    "mpi": {"version": "MPICH 5", "path": "libmpi.so", "threads": "multiple"},
    "executor": "compiled",
    "waiting": "spins",
}


def whole(of, number=1, ranks=2, **more):
    outcome = raw_examples.outcome(
        of, **{"bytes": of.bytes, "times": raw_examples.times(ranks=ranks), **more}
    )
    return CaseHistory.of(JOB, raw_examples.attempt(number, ranks, provenance=MPI), outcome)


def in_job(job, history):
    """Return a history as that of another job, which may have more rounds."""
    return CaseHistory.of(job, history.attempt, history.outcome)


def verdicts(job, histories):
    """Return what to use at each size of a job of which some cases have been measured."""
    attempts = {}
    for history in histories:
        attempts.setdefault(history.attempt.run_id, (history.attempt, []))[1].append(
            history.outcome
        )
    raw = RawResults(path=Path("here.h5"), job=job, attempts=[*attempts.values()])
    return ranges_by_setting(recommend(to_results(ResultFiles(raw_results=[raw]))))


@pytest.fixture
def printed(capsys):
    """What a table prints of some outcomes, after those of an earlier launch."""

    def show(*wholes, job=JOB, earlier=()):
        table = PrintedTable()
        histories = [in_job(job, whole) for whole in wholes]
        for place, history in enumerate(histories, 1):
            table.show(job, history, place, len(wholes))
        before = [in_job(job, whole) for whole in earlier]
        table.end(job, [*before, *histories], verdicts(job, [*before, *histories]))
        return capsys.readouterr().out

    return show


def lasting(case, *rounds_us, **more):
    """Return the history of a case that took so many microseconds in each round, to within 2 %."""
    times = times_around(1e-6, spread=0.02, drift=rounds_us, iterations=9)
    return whole(case, times=times, **more)


def without(case, reason="too large", **provenance):
    attempt = raw_examples.attempt(provenance=MPI | provenance)
    return CaseHistory.of(JOB, attempt, raw_examples.skipped(case, reason))


def test_the_lines_of_runs(printed):
    """Rounds that are missing, wrong and skipped cases; both placements, shuffled; fewer ranks;
    another timing; choices that all rounds separate, or that have nothing to be compared with; and
    the widest cells."""
    cases = [
        raw_examples.case(size, algorithm=name) for size in SIZES for name in ("ring", "native")
    ]
    job = raw_examples.job(
        *cases,
        *(raw_examples.case(size, algorithm="bruck") for size in SIZES),
        effort=Effort(rounds=3),
    )
    wrong = lasting(cases[2], 20, 30, 40, status="wrong", reason="off by one", wrong=7)
    ring, native = lasting(cases[0], 10, 12, 14), lasting(cases[1], 20, 24, 22)
    skipped = [
        without(case, "no room" if case.bytes < SIZES[2] else "too large")
        for case in job.cases[-3:]
    ]
    said = [printed(ring, wrong, lasting(cases[3], 40), *skipped, job=job, earlier=[native])]
    both = [lasting(case, 10 if case.algorithm == "ring" else 0.001) for case in CASES]
    said.append(printed(*random.Random(3).sample(both, len(both))))  # noqa: S311  an order, not a secret
    three = raw_examples.case(8, ranks=3)
    said.append(printed(whole(CASES[0]), whole(three, number=2, ranks=3)))
    timed = [raw_examples.case(timing=timing) for timing in (SINGLE, AGGREGATED)]
    histories = [
        without(timed[0], ranks_seeing_one_gpu=[0, 1]),
        whole(timed[0]),
        whole(timed[1], operations=7),
    ]
    said.append(printed(*histories, job=raw_examples.job(*timed, effort=Effort(operations=7))))
    separated, close = ([case for case in CASES if case.bytes == size] for size in (8, 1024))
    times = (
        (separated[0], 10, 20, 40),
        (separated[2], 12, 24, 48),
        (close[0], 10, 10, 13),
        (close[2], 12, 12, 12),
    )
    said.append(
        printed(*(lasting(*each) for each in times), job=replace(JOB, effort=Effort(rounds=3)))
    )
    floor, wrong = (
        raw_examples.case(8, algorithm="null"),
        {"status": "wrong", "reason": "off by one", "wrong": 1},
    )
    unmarked = lasting(CASES[0], 20), lasting(floor, 1, floor=True), lasting(CASES[6], 5, **wrong)
    said.append(printed(*unmarked, job=raw_examples.job(*CASES, floor)))
    apart = [raw_examples.case(8, params={"channels": 2}), raw_examples.case(8, algorithm="native")]
    said.append(printed(*map(whole, apart), job=raw_examples.job(*apart, effort=Effort(rounds=1))))
    names = ("recursive_doubling", "bidirectional_ring", "native")
    cases = [raw_examples.case(size, algorithm=name) for name in names for size in (8, 512 << 20)]
    job = raw_examples.job(*cases, effort=Effort(rounds=3))
    said.append(printed(*(lasting(case, 123456, 987654, 400000) for case in cases), job=job))
    assert max(len(line) for line in said[-1].splitlines() if not line.endswith("/6]")) <= 100
    over_nccl = raw_examples.case(8, transport="nccl")
    said.append(
        printed(
            without(over_nccl, mpi=MPI["mpi"] | {"threads": "serialized"}),
            job=raw_examples.job(over_nccl),
        )
    )
    untried = [{"hosts": ["n0", "n1"], "verdict": {"aware": True, "between_nodes": NOT_TRIED}}]
    said.append(printed(without(apart[0], cuda_aware_mpi=untried), job=raw_examples.job(apart[0])))
    assert_golden("run", "\n".join(said))


def test_per_cents_of_times_that_noise_hides_are_capped(printed):
    job = replace(JOB, effort=Effort(rounds=3))
    wide = printed(lasting(CASES[0], 1, 1, 10**6), job=job).splitlines()[-1].split()
    headings = "algorithm", "size", "unit", "place", "time", "+-", "p99", "algbw", "busbw"
    cells = dict(zip((*headings, "#wrong", "iters", "rounds"), wide, strict=False))
    assert (cells["+-"], cells["rounds"]) == (">999", ">999")
    near = printed(lasting(CASES[0], 100, 100, 1090), job=job).splitlines()[-1].split()
    assert (
        dict(zip((*headings, "#wrong", "iters", "rounds"), near, strict=False))["rounds"] == "990"
    )


@pytest.mark.parametrize(
    ("lost_s", "every_s", "expected"),
    [
        (0, 12, ["# [3/9], about 72 s left", "# [6/9], about 36 s left"]),
        (
            3600,
            20,
            ["# [3/9], about 2 min left", "# [5/9], about 80 s left", "# [7/9], about 40 s left"],
        ),
    ],
)
def test_a_log_is_never_silent_for_long_and_says_the_time_left(
    capsys, monkeypatch, lost_s, every_s, expected
):
    """Ranks may be lost, and others go on after ``lost_s`` seconds in another attempt, from which the time counts."""
    now, attempt = 0.0, 1 + bool(lost_s)
    monkeypatch.setattr(run_table.time, "monotonic", lambda: now)
    job, table = raw_examples.job(CASES[0], effort=Effort(rounds=9)), PrintedTable()
    table.show(job, in_job(job, lasting(CASES[0], 20)), 0, 9)
    now += lost_s
    for number in range(1, 9):
        now += every_s
        history = lasting(CASES[0], *[20] * number, number=attempt)
        table.show(job, in_job(job, history), number, 9)
    assert [line for line in capsys.readouterr().out.splitlines() if "left" in line] == expected


def test_a_terminal_keeps_nothing_of_a_line_about_the_progress(monkeypatch):
    below = io.StringIO()
    below.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", PrintableStream(below))
    job, table = raw_examples.job(CASES[0], effort=Effort(rounds=4)), PrintedTable()
    for number in range(1, 5):
        history = lasting(CASES[0], *[20] * number)
        table.show(job, in_job(job, history), number, 4)
    printed = below.getvalue()
    # after the first and the last round
    assert (printed.count(f" left{ERASE_LINE}"), printed.count("ring ")) == (2, 2)


def test_a_reason_to_skip_is_printed_once_with_the_number_of_its_cases(printed):
    cases = [
        replace(CASES[0], bytes=size, in_place=place) for size in (8, 64) for place in (False, True)
    ]
    histories = [without(case, "ranks are few") for case in cases]
    lines = [line for line in printed(*histories).splitlines() if "ranks are few" in line]
    assert len(lines) == 1
    assert "4 cases" in lines[0]
