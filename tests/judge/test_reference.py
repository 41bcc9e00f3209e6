"""References: bounds that hold for one more run as often as they say, and files that are read back or refused."""

import json
from dataclasses import replace

import compared_runs
import numpy as np
import pytest
from cli_runner import invoke
from row_examples import make_row
from written_runs import write_run

from hpccoll.common.errors import BadInputError
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.reference import (
    compare_with_reference,
    make_reference,
    read_reference,
    write_reference,
)
from hpccoll.store.rows import Results

CASES = 40
SLOW = {("ring", 4096): 1.3}


def run(generator, slow=()):
    """Return a run whose cases differ by 2 % from those of other runs, and by 0.5 % between rounds."""
    rows = []
    for number in range(CASES):
        factor = np.exp(0.02 * generator.standard_normal()) * dict(slow).get(number, 1.0)
        medians = (
            1e-6 * (number + 1) * factor * np.exp(0.005 * generator.standard_normal(5))
        ).tolist()
        rows.append(
            make_row(
                nbytes=1024 * (number + 1),
                seconds=float(np.median(medians)),
                round_medians_s=tuple(medians),
            )
        )
    return Results(rows=tuple(rows), runs=(), planned=CASES)


def test_a_slower_case_is_a_regression_and_runs_that_scatter_as_before_are_none():
    generator = np.random.default_rng(5)
    reference = make_reference([run(generator) for _ in range(8)])
    slower = compare_with_reference(reference, run(generator, slow={7: 1.2}), 0.05)
    assert [held.case.coordinates["requested_bytes"] for held in slower.of(HeldVerdict.SLOWER)] == [
        1024 * 8
    ]
    alarms = [compare_with_reference(reference, run(generator), 0.05).worse for _ in range(40)]
    assert sum(alarms) <= 2


def test_a_reference_has_the_cases_that_all_runs_have_with_a_time():
    one, other = run(np.random.default_rng(1)), run(np.random.default_rng(2))
    broken = make_row(nbytes=1024, status="wrong", reason="3 elements differ")
    untimed = replace(make_row(nbytes=2048), median_s=0.0, round_medians_s=(0.0,))
    other = Results(rows=(broken, untimed, *other.rows[2:-1]), runs=(), planned=CASES)
    assert len(make_reference([one, one, other]).cases) == CASES - 3


def test_of_a_training_step_transfer_and_waiting_of_a_run_are_held_against_the_medians_of_the_runs(
    tmp_path,
):
    runs = [
        compared_runs.results(seed=seed, transfer_s=transfer, waiting_s=1e-5, last_share=0.0)
        for seed, transfer in enumerate((0.001, 0.002, 0.009))
    ]
    write_reference(make_reference(runs), file := tmp_path / "F.json")
    new = compared_runs.results(
        {1024: 1.5}, seed=9, transfer_s=0.004, waiting_s=0.005, last_share=1.0, late_ranks=(1,)
    )
    (slower,) = compare_with_reference(read_reference(file), new, 0.05).of(HeldVerdict.SLOWER)
    assert slower.reason == "transfer 4 ms, was 2 ms; waiting up to 5 ms, was 10 us; rank 1 is late"
    for other in (
        of_an_earlier_version(file),
        make_reference([*runs[1:], compared_runs.results(seed=0)]),
    ):
        (slower,) = compare_with_reference(other, new, 0.05).of(HeldVerdict.SLOWER)
        assert not slower.reason


def of_an_earlier_version(file):
    """Return a reference as it is read from a file of before there were transfer and waiting in it."""
    content = json.loads(file.read_text())
    for case in content["cases"]:
        del case["transfer_s"], case["waiting_s"]
    file.write_text(json.dumps(content))
    return read_reference(file)


def test_two_runs_or_runs_without_a_common_case_make_no_reference():
    one = run(np.random.default_rng(1))
    with pytest.raises(BadInputError, match="3 runs"):
        make_reference([one, one])
    with pytest.raises(BadInputError, match="no case in common"):
        make_reference([one, one, Results(rows=(make_row(ranks=4),), runs=(), planned=1)])


def test_a_reference_is_read_as_it_was_written(tmp_path):
    reference = make_reference([run(np.random.default_rng(seed)) for seed in range(3)])
    write_reference(reference, tmp_path / "F.json")
    assert read_reference(tmp_path / "F.json") == reference


@pytest.mark.parametrize(
    "change",
    [
        lambda _case: {"low_s": -1.0},
        lambda case: {"low_s": case["high_s"], "high_s": case["low_s"]},
        lambda case: {"times_s": case["times_s"][:2]},
        lambda case: {"requested_bytes": case["requested_bytes"] ^ 1},
        lambda _case: {"collective": "all_reducd"},
        lambda _case: {"waiting_s": -1e-6},
        lambda _case: {"case_ie": "x"},
        lambda _case: {"identity": ""},
    ],
    ids=[
        "time below 0",
        "bounds exchanged",
        "too few times",
        "size",
        "collective",
        "waiting",
        "unknown key",
        "no identity",
    ],
)
def test_a_reference_whose_values_do_not_fit_is_refused_in_one_line(tmp_path, change):
    file = tmp_path / "F.json"
    write_reference(make_reference([run(np.random.default_rng(seed)) for seed in range(3)]), file)
    content = json.loads(file.read_text())
    content["cases"][0].update(change(content["cases"][0]))
    file.write_text(json.dumps(content))
    assert invoke("compare", write_run(tmp_path / "new.h5"), "--reference", file).is_bad_input(
        "--reference", file
    )


def test_the_command_makes_a_reference_and_compares_a_run_with_it(tmp_path):
    runs = [
        write_run(tmp_path / f"run-{seed}" / "raw" / "a.h5", seed=seed, between=0.01)
        for seed in range(8)
    ]
    file = tmp_path / "F.json"
    made = invoke("compare", "--make-reference", *(path.parents[1] for path in runs), "--out", file)
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(f"{file}: 8 cases of 8 runs")
    same, slower = (
        write_run(tmp_path / f"{n}.h5", factors, seed=9) for n, factors in enumerate(({}, SLOW))
    )
    assert invoke("compare", same, "--reference", file).code == 0
    compared = invoke("compare", slower, "--reference", file, "--json")
    assert compared.code == 3
    (regression,) = json.loads(compared.out)["regressions"]
    assert (regression["algorithm"], regression["requested_bytes"]) == ("ring", 4096)


def test_the_command_names_runs_that_were_disturbed_and_bounds_that_allow_too_much(tmp_path):
    load = {
        "host": "n0",
        "stolen": 0.0,
        "other_cores": 1.2,
        "busiest": [{"name": "make", "cores": 1.2}],
    }
    file = tmp_path / "F.json"

    def warnings(noise, *provenances):
        runs = [
            write_run(tmp_path / f"{seed}-{noise}.h5", seed=seed, between=noise, provenance=about)
            for seed, about in enumerate(provenances)
        ]
        made = invoke("compare", "--make-reference", *runs, "--out", file)
        assert made.code == 0
        return made.err, runs

    said, runs = warnings(0.01, None, {"host_load": [load]}, None)
    assert f"{runs[1]} was disturbed: other processes used 1.20 cores of n0 (make 1.20)" in said
    assert str(runs[0]) not in said
    assert "may allow too much; do: repeat" in said
    said, _ = warnings(3.0, None, None, None)
    assert "too much to call a run healthy" in said
    assert "may allow too much" in said


def test_the_command_says_how_many_cases_a_reference_leaves_out(tmp_path):
    gone = {("ring", 4096): None, ("ring", 1024): None}
    runs = [
        write_run(tmp_path / f"{seed}.h5", gone if seed else {}, seed=seed) for seed in range(3)
    ]
    made = invoke("compare", "--make-reference", *runs, "--out", tmp_path / "F.json")
    assert made.out.splitlines()[1].startswith("left out: 2 cases")


def test_the_command_refuses_what_makes_no_reference(tmp_path):
    one, other, third = (write_run(tmp_path / f"{seed}.h5", seed=seed) for seed in range(3))
    file = tmp_path / "F.json"
    make = "compare", "--make-reference"
    assert invoke(*make, one, other, "--out", file).is_bad_input("3 runs")
    assert invoke(*make, one, other, third).is_bad_input("--out")
    assert invoke(*make, one, other, third, "--out", tmp_path / "F.txt").is_bad_input("--out")
    for judging in (("--reference", one), ("--json",), ("--junit", "j.xml"), ("--require", 0)):
        assert invoke(*make, one, other, third, *judging, "--out", file).is_bad_input(
            judging[0], "exclude each other"
        )
    assert invoke(*make, one, other, one, "--out", file).is_bad_input("twice", one)
    copy = tmp_path / "copy.h5"
    copy.write_bytes(one.read_bytes())
    assert invoke(*make, one, other, copy, "--out", file).is_bad_input("twice", copy)
    assert not file.exists()
