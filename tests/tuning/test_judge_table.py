"""Regret: what the choices of a table cost in results that it was not made of."""

import json

import pytest
from cli_runner import invoke
from raw_examples import case, outcome, raw
from synthetic_timings import KIB, both, lines, measured, table, taking

from hpccoll.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.tuning.judge_table import judge_table

SIZES = [KIB << 2 * i for i in range(8)]
BETWEEN = [KIB << i for i in range(15)]
EARLY, LATE = (1e-5, 1e-9), (1e-4, 2e-10)


def model(sizes, **more):
    curves = {"recursive_doubling": lines(*EARLY, sizes), "ring": lines(*LATE, sizes)}
    return measured(curves, **more)


@pytest.fixture(scope="module")
def made():
    return table({"recursive_doubling": lines(*EARLY, SIZES), "ring": lines(*LATE, SIZES)})


def test_what_is_best_costs_nothing_also_between_the_sizes_of_the_table(made):
    found = judge_table(made, model(BETWEEN))
    assert [regret.nbytes for regret in found.regrets] == BETWEEN
    assert found.mean == 1.0
    assert found.unjudged == ()


def test_a_choice_is_judged_by_its_own_time_over_that_of_the_best_there(made):
    found = judge_table(made, measured({"recursive_doubling": {KIB: 3.0}, "ring": {KIB: 2.0}, "null": {KIB: 0.1}}))
    (regret,) = found.regrets
    assert (regret.choice.label, regret.best.label) == ("recursive_doubling", "ring")
    assert regret.regret == pytest.approx(1.5)
    assert "       1 KiB  1.500  recursive_doubling: 3 s; best ring: 2 s" in found.lines()


def test_sizes_outside_of_those_that_the_table_was_made_of_are_marked(made):
    found = judge_table(made, model([KIB // 2, KIB, SIZES[-1], 2 * SIZES[-1]]))
    assert [regret.extrapolated for regret in found.regrets] == [True, False, False, True]
    assert sum("; outside the measured sizes of the table" in line for line in found.lines()) == 2


def test_a_regret_is_the_median_of_the_ratios_of_rounds_and_not_the_ratio_of_medians(made):
    mine = measured({"recursive_doubling": {KIB: 1.0}}, drift=(1.2, 6.0, 2.4))
    other = measured({"ring": {KIB: 1.0}}, drift=(1.0, 5.0, 4.0))  # in the same rounds
    (regret,) = judge_table(made, both(mine, other)).regrets
    assert regret.regret == pytest.approx(1.2)
    assert regret.best.label == "ring"


def test_the_mean_is_geometric_by_setting_and_in_all(made):
    times = {"recursive_doubling": {KIB: 2.0, 4 * KIB: 8.0}, "ring": {KIB: 1.0, 4 * KIB: 1.0}}
    found = judge_table(made, both(measured(times), measured(times, in_place=True)))
    assert found.mean == pytest.approx(4.0)
    assert [most for *_, most, _ in found.by_setting()] == [pytest.approx(4.0)]
    (words,) = found.unjudged
    assert words == "all_reduce in place, 2 ranks on 2 nodes: the table has no choice for it"


def test_a_choice_that_was_not_measured_is_told_and_not_guessed(made):
    found = judge_table(made, measured({"recursive_doubling": {KIB: 1.0}, "star": {KIB: 9.0, 16 * KIB: 9.0}}))
    assert [regret.nbytes for regret in found.regrets] == [KIB]
    assert found.unjudged == (
        "all_reduce out of place, 2 ranks on 2 nodes: recursive_doubling was not measured at 16 KiB",
    )
    with pytest.raises(BadInputError, match=r"PATHS: .*: recursive_doubling was not measured at 1 KiB"):
        judge_table(made, measured({"star": {KIB: 1.0}}))


def test_what_one_choice_for_all_sizes_would_cost_stands_beside_the_mean(made):
    times = {"recursive_doubling": {KIB: 3.0, 4096 * KIB: 20.0}, "ring": {KIB: 6.0, 4096 * KIB: 5.0}}
    found = judge_table(made, measured({**times, "star": {KIB: 3.0}}))  # one that was not measured at all sizes is none
    ((choice, mean),) = found.single_choices.values()
    assert (choice.label, mean) == ("ring", pytest.approx(2**0.5))
    assert " one for all  1.414  ring, the best single choice for these sizes" in found.lines()
    assert found.to_json()["settings"][0]["fixed"] == {"choice": "ring", "geometric_mean": mean}


def test_a_regret_that_rounds_do_not_tell_from_none_says_so(made):
    hardly, clearly = (
        measured({"recursive_doubling": {KIB: 2.1}, "ring": {KIB: 2.0}}, spread=spread) for spread in (0.5, 0.0)
    )
    (regret,) = judge_table(made, hardly).regrets
    assert regret.noise > regret.regret - 1
    assert not regret.is_significant
    assert any(
        "best ring: 2 s, but not clearly: noise may change the regret by " in line
        for line in judge_table(made, hardly).lines()
    )
    assert judge_table(made, clearly).regrets[0].is_significant
    assert not any("not clearly" in line for line in judge_table(made, clearly).lines())


def test_a_best_of_another_launch_is_marked(made):
    slow, quick = measured({"recursive_doubling": {KIB: 3.0}}), measured({"ring": {KIB: 2.0}}, number=2)
    found = judge_table(made, both(slow, quick))
    assert found.regrets[0].unpaired
    assert "       1 KiB  1.500  recursive_doubling: 3 s; best ring: 2 s, in another launch" in found.lines()
    assert not judge_table(made, measured({"recursive_doubling": {KIB: 3.0}, "ring": {KIB: 2.0}})).regrets[0].unpaired


@pytest.mark.parametrize("about", [{"machine": "3 nodes"}, {"provenance": {"mpi": {"version": "Open MPI"}}}])
def test_a_table_of_another_machine_or_library_is_judged_with_a_word(made, about):
    found = judge_table(made, model(SIZES, about=about))
    (words,) = found.other_conditions
    assert words.startswith("the table was made on 2 nodes with MPICH 5, and these results on ")
    assert words in found.lines()
    assert found.to_json()["strange"] == [words]
    assert judge_table(made, model(SIZES)).other_conditions == ()


def test_the_commands_make_a_table_of_raw_files_and_judge_it_by_others(tmp_path):
    for name, sizes in (("a.h5", SIZES), ("b.h5", BETWEEN)):
        curves = {"recursive_doubling": lines(*EARLY, sizes), "ring": lines(*LATE, sizes)}
        outcomes = [
            outcome(case(size, algorithm=algorithm), bytes=size, times=taking(seconds))
            for algorithm, curve in curves.items()
            for size, seconds in curve.items()
        ]
        hdf5.write_raw_file(raw(*outcomes), tmp_path / name)
    said = invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json")
    assert said.code == 0, said.err
    assert "  below 115788 B: recursive_doubling (1.00 of the best time)" in said.out.splitlines()
    said = invoke("tune", tmp_path / "b.h5", "--judge", tmp_path / "t.json")
    assert said.out.splitlines()[-1] == "geometric mean of the regret at 15 sizes: 1.000"
    said = invoke("tune", tmp_path / "b.h5", "--judge", tmp_path / "t.json", "--json")
    assert [size["regret"] for size in json.loads(said.out)["settings"][0]["sizes"]] == [1.0] * 15


def test_a_table_replaces_a_table_and_never_what_it_is_made_of(tmp_path):
    raws, made = tmp_path / "a.h5", tmp_path / "t.json"
    hdf5.write_raw_file(raw(outcome(case(KIB), bytes=KIB, times=taking(1e-5))), raws)
    before = raws.read_bytes()
    assert invoke("tune", raws, "--out", raws).is_bad_input("--out", "a new file, or a table")
    assert raws.read_bytes() == before
    assert [invoke("tune", raws, "--out", made).code for _ in range(2)] == [0, 0]


def test_a_table_is_made_or_judged_and_where_it_cannot_be_it_takes_one_line(tmp_path):
    hdf5.write_raw_file(raw(), tmp_path / "a.h5")
    assert invoke("tune", tmp_path / "a.h5").is_bad_input("hpccoll tune: it takes --out, ", "or --judge")
    assert invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json", "--json").is_bad_input("--json", "--out")
    both_ways = ["--out", tmp_path / "t.json", "--judge", tmp_path / "t.json"]
    assert invoke("tune", tmp_path / "a.h5", *both_ways).is_bad_input("it takes --out, ", "or --judge")
    assert invoke("tune", tmp_path / "a.h5", "--judge", tmp_path / "no.json").is_bad_input("--judge", "no.json")
    assert invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "t.json").is_bad_input("PATHS", "results: no rows")
