"""The timing osu: its loop, and what a run with it leaves in its rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import raw_examples
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.case import EXECUTORS, Effort
from hpccoll.measure.run import osu_timing
from hpccoll.measure.run.osu_timing import OsuLoop, osu_effort
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results


def test_the_numbers_of_iterations_are_those_of_osu():
    assert [(effort.warmup, effort.min_iterations, effort.max_iterations)
            for effort in (osu_effort(Effort(rounds=3), nbytes) for nbytes in (8, 8192, 8193, 1 << 20))] == [
        (100, 1000, 1000), (100, 1000, 1000), (10, 100, 100), (10, 100, 100),
    ]  # fmt: skip


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 1 << 20))
def test_the_numbers_of_the_user_hold_for_all_sizes(warmup, iterations, nbytes):
    effort = osu_effort(Effort(loop_warmup=warmup, loop_iterations=iterations), nbytes)
    assert (effort.warmup, effort.min_iterations, effort.max_iterations) == (
        warmup,
        iterations,
        iterations,
    )


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_buffers_are_written_once_and_a_barrier_follows_each_call(blocks):
    """However the iterations are cut into blocks, each of which begins with a barrier, one more is checked."""
    log = []
    note = log.append
    operation = SimpleNamespace(
        reset=lambda: note("fill"),
        run=lambda: note("call"),
        wrong=lambda: note("check") or 3,
        device_ns=lambda: -1,
    )
    comm = SimpleNamespace(Barrier=lambda: note("barrier"))
    loop = OsuLoop(operation, comm, RankProgress(), sum(blocks), None)
    results = [loop.run(count) for count in blocks]
    done = ["fill"]
    for count in blocks:
        done += ["barrier", *["call", "barrier"] * count]
    assert log == [*done, "fill", "call", "check"]
    assert [wrong for _, wrong in results] == [*[0] * (len(blocks) - 1), 3]
    assert all((times[1] >= times[0]).all() for times, _ in results)


@pytest.mark.mpi
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_row_is_the_mean_over_iterations_and_ranks(mpiexec, tmp_path, executor):
    out, counts = tmp_path / "F.h5", {8: 1000, 32768: 100}
    run = (
        "-a",
        "native,ring",
        "-b",
        "8",
        "-e",
        "32K",
        "-f",
        "4096",
        "--timing",
        "osu",
        "--rounds",
        "2",
    )
    ended = mpiexec(2, "-m", "hpccoll", "run", *run, "--executor", executor, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = {row.case_id: row for row in read_results([out], "span").rows}
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    assert len(outcomes) == 8
    for outcome in outcomes:
        row, times = rows[outcome.case.id], outcome.times
        durations = times.end_ns - times.start_ns
        assert (row.timing, row.rule, row.status, row.wrong, row.interval, row.p99_s) == (
            "osu",
            "mean",
            "ok",
            0,
            None,
            None,
        )
        assert np.bincount(times.round).tolist() == [
            0,
            counts[outcome.case.bytes],
            counts[outcome.case.bytes],
        ]
        assert (np.abs(times.mean_ns - durations.mean(axis=1)) <= 0.5).all()
        means = [times.mean_ns[times.round == number].mean() for number in (1, 2)]
        assert row.round_medians_s == pytest.approx([mean / 1e9 for mean in means])
        assert row.median_s == pytest.approx(np.median(means) / 1e9)
        assert not row.may_answer


def test_a_time_by_the_loop_of_another_program_has_a_mean():
    from hpccoll.store.plausibility import ImplausibleError, check_plausible

    of = raw_examples.case(timing="osu")
    check_plausible(
        raw_examples.raw(raw_examples.outcome(of, times=raw_examples.times(has_mean=True)))
    )
    with pytest.raises(ImplausibleError, match="no mean"):
        check_plausible(raw_examples.raw(raw_examples.outcome(of)))


def test_the_barrier_is_that_of_the_library():
    assert (
        osu_timing.LibraryCall(SimpleNamespace(Barrier=lambda: 7), "Barrier", ()).in_python()() == 7
    )
