"""Regret: what the choices of a table cost in results that it was not made of."""

import json
import re

import pytest
from cli_runner import invoke
from golden_page import assert_golden
from raw_examples import case, outcome, raw
from synthetic_timings import (
    KIB,
    linear_curve,
    measured_results,
    measured_table,
    merged_results,
    times_around,
)

from hpccoll.analysis.judge_table import judge_table
from hpccoll.common.errors import BadInputError
from hpccoll.render.choice_table_text import judgement_lines
from hpccoll.store import hdf5

SIZES = [KIB << 2 * i for i in range(8)]
BETWEEN = [KIB << i for i in range(15)]
EARLY, LATE = (1e-5, 1e-9), (1e-4, 2e-10)


def model(sizes, **more):
    curves = {"recursive_doubling": linear_curve(*EARLY, sizes), "ring": linear_curve(*LATE, sizes)}
    return measured_results(curves, **more)


@pytest.fixture(scope="module")
def made():
    curves = {"recursive_doubling": linear_curve(*EARLY, SIZES), "ring": linear_curve(*LATE, SIZES)}
    return measured_table(curves, number=9)  # another run than those that are judged


def test_regret_is_the_time_of_the_choice_over_that_of_the_best(made):
    judgement = judge_table(
        made,
        measured_results(
            {"recursive_doubling": {KIB: 3.0}, "ring": {KIB: 2.0}, "null": {KIB: 0.1}}
        ),
    )
    (regret,) = judgement.regrets
    assert (regret.choice.label, regret.best.label) == ("recursive_doubling", "ring")
    assert regret.regret == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("others", "alone", "why"),
    [
        (
            {"star": {KIB: 9.0, 16 * KIB: 9.0}},
            {"star": {16 * KIB: 1.0}},
            "recursive_doubling was not measured",
        ),
        (
            {"ring": {KIB: 2.0}},
            {"recursive_doubling": {16 * KIB: 1.0}},
            "only recursive_doubling was measured",
        ),
    ],
)
def test_a_choice_without_measurement_or_without_another_one_is_not_judged(
    made, others, alone, why
):
    sizes = [KIB] if "star" in others else [KIB, 16 * KIB]
    judgement = judge_table(
        made, measured_results({"recursive_doubling": dict.fromkeys(sizes, 1.0), **others})
    )
    assert [regret.nbytes for regret in judgement.regrets] == [KIB]
    assert judgement.unjudged == (f"all_reduce out of place, 2 ranks on 2 nodes: {why} at 16 KiB",)
    with pytest.raises(BadInputError, match=f"PATHS: .*: {why} at 16 KiB"):
        judge_table(made, measured_results(alone))


def test_the_best_single_choice_is_listed_with_its_mean(made):
    times = {
        "recursive_doubling": {KIB: 3.0, 4096 * KIB: 20.0},
        "ring": {KIB: 6.0, 4096 * KIB: 5.0},
    }
    judgement = judge_table(
        made, measured_results({**times, "star": {KIB: 3.0}})
    )  # one that was not measured at all sizes is none
    ((choice, mean),) = judgement.single_choices.values()
    assert (choice.label, mean) == ("ring", pytest.approx(2**0.5))
    assert judgement.to_json()["settings"][0]["fixed"] == {"choice": "ring", "geometric_mean": mean}


def test_the_lines_are_the_golden_text(made):
    """Every kind of line and note that a judgement has."""
    slow = measured_results(
        {"recursive_doubling": {KIB // 2: 3.0, KIB: 2.1, 4096 * KIB: 20.0}}, spread=0.5
    )
    quick = measured_results(
        {"ring": {KIB // 2: 2.0, KIB: 2.0, 4096 * KIB: 5.0}}, number=2, spread=0.5
    )
    other = measured_results({"ring": {KIB: 1.0}}, number=3, in_place=True)
    judgement = judge_table(made, merged_results(slow, quick, other))
    assert_golden("judge", judgement_lines(judgement))


def test_a_table_that_was_made_from_the_same_results_is_marked(made):
    (words,) = judge_table(made, model(SIZES, number=9)).other_conditions
    assert "the table was made from these results" in words


def test_a_table_of_another_machine_is_marked(made):
    judgement = judge_table(made, model(SIZES, about={"machine": "3 nodes"}))
    (words,) = judgement.other_conditions
    assert "2 nodes with MPICH 5" in words
    assert judgement.to_json()["strange"] == [words]
    assert judge_table(made, model(SIZES)).other_conditions == ()


def test_the_commands_make_a_table_of_raw_files_and_judge_it_by_others(tmp_path):
    for name, sizes in (("a.h5", SIZES), ("b.h5", BETWEEN)):
        curves = {
            "recursive_doubling": linear_curve(*EARLY, sizes),
            "ring": linear_curve(*LATE, sizes),
        }
        outcomes = [
            outcome(case(size, algorithm=algorithm), bytes=size, times=times_around(seconds))
            for algorithm, curve in curves.items()
            for size, seconds in curve.items()
        ]
        hdf5.write_raw_file(raw(*outcomes), tmp_path / name)
    result = invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json")
    assert result.code == 0, result.err
    assert result.out.splitlines()[0] == "all_reduce on 2 nodes"
    assert re.match(
        r" +weak +1 KiB to 120 KiB +recursive_doubling may be the best choice",
        result.out.splitlines()[1],
    )
    assert result.out.splitlines()[-1] == f"table: {tmp_path / 't.json'}"
    result = invoke("tune", tmp_path / "b.h5", "--judge", tmp_path / "t.json", "--json")
    assert [size["regret"] for size in json.loads(result.out)["settings"][0]["sizes"]] == [1.0] * 15


def test_a_table_overwrites_a_table_and_never_a_raw_file(tmp_path):
    raws, made = tmp_path / "a.h5", tmp_path / "t.json"
    hdf5.write_raw_file(raw(outcome(case(KIB), bytes=KIB, times=times_around(1e-5))), raws)
    before = raws.read_bytes()
    assert invoke("tune", raws, "--out", raws).is_bad_input("--out", "a new file, or a table")
    assert raws.read_bytes() == before
    assert [invoke("tune", raws, "--out", made).code for _ in range(2)] == [0, 0]


def test_wrong_options_and_empty_results_take_one_line(tmp_path):
    hdf5.write_raw_file(raw(), tmp_path / "a.h5")
    assert invoke("tune", tmp_path / "a.h5").is_bad_input("hpccoll: tune: ", "--out", "--judge")
    assert invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json", "--json").is_bad_input(
        "--json", "--out"
    )
    both_ways = ["--out", tmp_path / "t.json", "--judge", tmp_path / "a.h5"]
    assert invoke("tune", tmp_path / "a.h5", *both_ways).is_bad_input("--out", "--judge")
    assert invoke("tune", tmp_path / "a.h5", "--judge", tmp_path / "no.json").is_bad_input(
        "--judge", "no.json"
    )
    assert invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json").is_bad_input(
        "PATHS", "results: no rows"
    )


@pytest.mark.parametrize("place", ["--profile", "--site"])
def test_only_what_measures_has_a_place_to_measure_at(place, tmp_path):
    hdf5.write_raw_file(raw(), tmp_path / "a.h5")
    words = tmp_path / "a.h5", "--out", tmp_path / "t.json", place, "local"
    assert invoke("tune", *words).is_bad_input(place, "--for")


def test_a_check_of_a_table_keeps_no_bits(tmp_path):
    table = tmp_path / "t.json"
    table.touch()
    assert invoke("tune", "--lint", table, "--keep-bits-of", "ring").is_bad_input("--lint")
