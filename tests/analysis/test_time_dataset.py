"""Raw times as xarray: joined over attempts, jobs and rounds, exact, and the source of the rows' medians."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import raw_examples
import step_examples
from hypothesis import given, settings
from hypothesis import strategies as st

import hpccoll
from hpccoll.cases.case import Effort
from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.journal import Journal
from hpccoll.store.raw_results import RawResults

pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")

CASES = [raw_examples.case(size) for size in (8, 16, 32)]
JOB = raw_examples.job(*CASES, effort=Effort(rounds=3))


def medians(times):
    """Return the median over rounds of the medians over iterations, by the index of the rows."""
    return times.time_s.median("iteration").median("round").to_series()


def write(raw, path):
    """Write a raw file, or a journal if the job is not complete, as a launch leaves it."""
    if raw.complete:
        hdf5.write_raw_file(raw, path)
    else:
        Journal(path, raw.job, raw).close(remove=False)


offsets = st.integers(0, 10**6)


@st.composite
def interrupted_jobs(draw):
    """Draw rounds of cases measured in a random order by up to four launches, and the samples of each."""
    planned = draw(st.permutations([(case, number) for case in CASES for number in (1, 2, 3)]))
    ends = sorted(draw(st.lists(st.integers(1, len(planned)), min_size=1, max_size=4)))
    raw, samples, begin = RawResults(path=Path("here.h5"), job=JOB), {}, 0
    for launch, end in enumerate(ends, 1):
        hosts = tuple(
            replace(place, host=f"host{launch}") for place in raw_examples.attempt().places
        )
        raw.attempts.append((raw_examples.attempt(launch, places=hosts), []))
        for case, number in planned[begin:end]:
            values = draw(
                st.lists(st.tuples(offsets, offsets, offsets, offsets), min_size=1, max_size=9)
            )
            start, durations = np.array(values, np.int64).reshape(-1, 2, 2).swapaxes(0, 1)
            start += draw(st.integers(0, 2**62))
            end_ns = start + durations
            samples[case.id, number] = f"run-{launch}", f"host{launch}", start, end_ns
            times = CaseTimes.from_samples(start, end_ns, one_clock=True, round_number=number)
            raw.record(raw_examples.outcome(case, times=times))
        begin = end
    return raw, samples


@settings(max_examples=15)
@given(interrupted_jobs())
def test_every_sample_of_every_launch_is_there_and_exact(tmp_path_factory, job):
    raw, samples = job
    path = tmp_path_factory.mktemp("times") / "F.h5"
    write(raw, path)
    results = hpccoll.open(path)
    times = results.times()
    found = {}
    for case in range(times.sizes["case"]):
        for number in times["round"].values.tolist():
            one = times.isel(case=case).sel(round=number)
            n = int(one.iterations)
            assert np.isnan(one.start_ns[n:]).all()
            if n:
                start, end = (
                    one[name][:n].values.astype(np.int64) + one.zero_ns.values
                    for name in ("start_ns", "end_ns")
                )
                found[one.case_id.item(), number] = (
                    one.run_id.item(),
                    one.host.values[0],
                    start,
                    end,
                )
    assert raw_examples.comparable(found) == raw_examples.comparable(samples)
    assert (medians(times) == results.rows.median_s).all()
    by_span = hpccoll.open(path, rule="span")
    assert set(by_span.rows.rule) == {"span"}
    assert (medians(by_span.times()) == by_span.rows.median_s).all()


def several_jobs(directory):
    """Write a job of 2 ranks and one of 4, which has a case of the first; one case is skipped."""
    two, four = (
        raw_examples.job(*CASES[:2], name=f"mpi.p{p}", ranks=p, effort=Effort(rounds=2))
        for p in (2, 4)
    )
    on_four = {"times": raw_examples.times(3, 4, events=True), "cpu_s": np.zeros(4)}
    outcomes = {
        2: [raw_examples.round_outcome(1, CASES[0], 4), raw_examples.skipped(CASES[1])],
        4: [raw_examples.outcome(case, **on_four) for case in CASES[:2]],
    }
    for job in (two, four):
        raw = RawResults(path=directory, job=job)
        raw.attempts = [(raw_examples.attempt(job.ranks, job.ranks), outcomes[job.ranks])]
        hdf5.write_raw_file(raw, directory / f"{job.name}.h5")


def test_cases_of_the_rows_are_selected_by_rows_by_a_row_and_by_name(tmp_path):
    several_jobs(tmp_path)
    results = hpccoll.open(tmp_path)
    rows = results.rows
    reverse = rows.sort_values(["bytes", "ranks"], ascending=False)
    for selection, expected in [
        (None, [*range(4)]),
        (CASES[0].id, rows.index[rows.case_id == CASES[0].id].tolist()),
        (reverse.reset_index(drop=True)[["case_id", "job", "run_id"]], reverse.index.tolist()),
        (rows.loc[2], [2]),
        (rows[:0], []),
    ]:
        assert results.times(selection).case.values.tolist() == expected
    for selection in ("all_reduce.ring", rows[["bytes"]], rows.assign(job="other")):
        with pytest.raises(BadInputError, match="case") as caught:
            results.times(selection)
        assert "\n" not in str(caught.value)


def test_variables_have_units_and_meanings_and_fit_into_a_file(tmp_path):
    pytest.importorskip("h5netcdf")
    several_jobs(tmp_path)
    times = hpccoll.open(tmp_path).times()
    assert all(variable.attrs["long_name"] for name, variable in times.data_vars.items())
    assert {
        str(name): variable.attrs.get("units") for name, variable in times.data_vars.items()
    } == {
        "time_s": "s",
        "slowest_rank": None,
        "mean_ns": "ns",
        **dict.fromkeys(
            ("min_ns", "median_ns", "max_ns", "span_ns", "start_ns", "end_ns", "device_ns"), "ns"
        ),
    }
    assert times.bytes.attrs["units"] == "B"
    times.to_netcdf(tmp_path / "times.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "times.nc", engine="h5netcdf") as read:
        assert read.equals(times)


def test_ranks_that_were_not_kept_are_announced_and_times_are_of_all(tmp_path):
    sampled, whole = (raw_examples.times(4, 6, limit=limit) for limit in (8, 1 << 22))
    outcomes = [
        raw_examples.outcome(case, times=times, cpu_s=np.zeros(6))
        for case, times in zip(CASES, (sampled, whole), strict=False)
    ]
    job = raw_examples.job(*CASES[:2], ranks=6)
    raw = RawResults(path=tmp_path, job=job, attempts=[(raw_examples.attempt(ranks=6), outcomes)])
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    results = hpccoll.open(tmp_path)
    with pytest.warns(UserWarning, match="rank_stride"):
        times = results.times(CASES[0].id)
    assert (times["rank"].values.tolist(), times.rank_stride.values.tolist()) == ([0, 4], [4])
    assert (times.max_ns.values.ravel() == whole.max_ns).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert results.times(CASES[1].id)["rank"].size == 6
        assert "start_ns" not in results.times(per_rank=False)


def test_times_stay_those_of_the_rows_while_the_job_goes_on(tmp_path):
    path = tmp_path / "F.h5"
    journal = Journal(path, JOB)
    journal.begin(raw_examples.attempt(1))
    journal.record(raw_examples.round_outcome(1, CASES[0]))
    results = hpccoll.open(tmp_path)
    before = results.times()
    assert (medians(before) == results.rows.median_s).all()
    journal.record(raw_examples.round_outcome(2, CASES[0], 9))
    assert results.times().identical(before)
    journal.begin(raw_examples.attempt(2))
    for number, case in [
        (3, CASES[0]),
        *((number, case) for case in CASES[1:] for number in (1, 2, 3)),
    ]:
        journal.record(raw_examples.round_outcome(number, case))
    hdf5.write_raw_file(journal.raw, path)
    journal.close(remove=True)
    assert results.times().identical(before)
    assert hpccoll.open(tmp_path).times().iterations.values.tolist()[0] == [4, 9, 4]


def test_a_file_that_was_replaced_or_removed_is_refused(tmp_path):
    path = tmp_path / "F.h5"
    raw = raw_examples.raw(raw_examples.outcome())
    hdf5.write_raw_file(raw, path)
    results = hpccoll.open(path)
    hdf5.write_raw_file(
        replace(raw, attempts=[(raw_examples.attempt(2), raw.attempts[0][1])]), path
    )
    with pytest.raises(BadInputError, match="changed since"):
        results.times()
    path.unlink()
    with pytest.raises(BadInputError, match=r"F\.h5"):
        results.times()


def test_the_parts_of_a_training_step_are_times_too_and_other_cases_have_none(tmp_path):
    raw = step_examples.steps({"ring": 12})
    attempt, (step,) = raw.attempts[0]
    other = raw_examples.outcome(CASES[0], times=raw_examples.times(2))
    raw.attempts[0] = attempt, [step, other]
    raw.job = raw_examples.job(step.case, other.case, effort=raw.job.effort)
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    opened = hpccoll.open(tmp_path / "F.h5")
    times, collectives = opened.times(), [*opened.rows.collective]
    parts = times.isel(case=collectives.index("training_step"))
    assert ((parts.event_ns + parts.zero_ns).to_numpy()[0] == step.times.event_ns).all()
    assert [part["label"] for part in json.loads(parts.program.item())[0][:2]] == [
        "bucket 1",
        "bucket 2",
    ]
    assert times.event_ns.isel(case=collectives.index("all_reduce")).isnull().all()
    assert "event_ns" not in opened.times(opened.rows[opened.rows.collective == "all_reduce"])
