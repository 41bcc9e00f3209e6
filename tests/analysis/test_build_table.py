"""The making of a table: which choice for which sizes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import (
    KIB,
    MIB,
    choices_by_first_size,
    linear_curve,
    measured_results,
    measured_table,
    merged_results,
)

from hpccoll.analysis.build_table import build_table, table_warnings
from hpccoll.analysis.choice_table import TuneTable
from hpccoll.analysis.measured_choices import ChoiceTime, comparable_seconds, measured_settings
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.size_ranges import MIN_CUT_PRICE, choose_ranges, ratio_noise
from hpccoll.common.errors import BadInputError
from hpccoll.store.rows import Gap
from hpccoll.store.statistics import RoundStatistics

SIZES = [KIB << 2 * i for i in range(8)]
EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)  # they cross at 112.5 KB


def test_a_cut_between_two_sizes_is_where_the_logarithms_cross():
    assert choices_by_first_size(measured_table({"ring": {1024: 1.0, 4096: 4.0}, "star": {1024: 2.0, 4096: 2.0}}))[
        1
    ] == (2048, "star")


def of_rounds(seconds, *drift):
    """Return the rounds of a choice in one launch: ``seconds`` times the drift of each."""
    return {("sum", "run-1", number): RoundStatistics(seconds * each, None) for number, each in enumerate(drift)}


def test_settings_whose_fastest_choice_is_uncertain_and_partial_results_have_a_warning():
    curves = {"ring": LATE, "star": linear_curve(1.1e-4, 2.2e-10, SIZES)}
    assert list(table_warnings(measured_results(curves, spread=0.02))) == []
    loose = measured_results(curves, spread=0.4, number=2, in_place=True)
    unsure, warning = table_warnings(merged_results(measured_results(curves, spread=0.02), loose))
    assert unsure.startswith("no advice: for 1 range of the table")
    assert warning.startswith("noise: in 1 of 2 settings the ratio of the two fastest may be off by 10 % or more")
    assert "in all_reduce in place, " in warning
    gap = Gap(case="all_reduce.star", job="mpi.p2", status="not run", reason="no time")
    partial = replace(measured_results(curves), missing=(gap,), planned=9)
    assert next(table_warnings(partial)) == "partial: 1 of 9 cases are missing, and the table does not consider them"


def test_a_choice_without_another_one_has_a_warning_and_no_advice():
    lone, compared = measured_results({"ring": LATE}), measured_results({"ring": LATE, "native": EARLY})
    (warning,) = table_warnings(lone)
    assert warning.startswith("no advice: for 1 range of the table")
    assert [[r.advice for entry in build_table(of).entries for r in entry.ranges] for of in (lone, compared)] == [
        [False], [True, True],
    ]  # fmt: skip


def test_a_choice_without_a_slow_round_is_not_faster_for_it():
    slow = ChoiceTime(5.0, 0.0, of_rounds(1.0, 1, 5, 5))
    quick = ChoiceTime(1.1, 0.0, of_rounds(1.1, 1))
    ring, star = Choice("ring", "mpi"), Choice("star", "mpi")
    assert comparable_seconds({ring: slow, star: quick}) == {ring: pytest.approx(1.0), star: pytest.approx(1.1)}


SLOW_FIRST = (5, 1, 2)


def noise_of_ratio(results):
    """Return the uncertainty of the ratio of two choices at one size."""
    (of,) = measured_settings(results).values()
    one, other = (curve[KIB] for curve in of.curves.values())
    return one.ratio_noise(other)


def test_rounds_of_different_launches_are_not_paired():
    ring, star = measured_results({"ring": {KIB: 1.0}}, drift=SLOW_FIRST), {"star": {KIB: 1.0}}
    together = measured_results({"ring": {KIB: 1.0}, **star}, drift=SLOW_FIRST)
    assert noise_of_ratio(together) == 0
    assert noise_of_ratio(merged_results(ring, measured_results(star, number=2, drift=SLOW_FIRST))) > 1, (
        "that both begin slowly is chance"
    )


def test_choices_that_no_launch_measured_together_are_named():
    slow = {size: 9 * seconds for size, seconds in EARLY.items()}
    unpaired = build_table(
        merged_results(measured_results({"ring": LATE, "star": EARLY}), measured_results({"native": slow}, number=2))
    )
    assert [r.unpaired for r in unpaired.entries[0].ranges] == [("native",), ("native",)]
    joined = merged_results(
        measured_results({"ring": LATE, "native": slow}), measured_results({"star": EARLY, "ring": LATE}, number=2)
    )
    ring = next(r for r in build_table(joined).entries[0].ranges if r.choice.algorithm == "ring")
    assert ring.unpaired == ()


@given(
    st.lists(st.lists(st.floats(1e-6, 1e-2), min_size=5, max_size=5), min_size=1, max_size=4),
    st.floats(0, 0.5),
)
def test_ranges_are_all_sizes_once_and_cost_no_more_than_any_single_choice_or_every_cut(times, spread):
    names = ["ring", "star", "rabenseifner", "native"][: len(times)]
    results = measured_results(
        {n: dict(zip(SIZES, t, strict=False)) for n, t in zip(names, times, strict=True)}, spread=spread
    )
    (of,) = measured_settings(results).values()
    cut = choose_ranges(of).ranges
    assert cut[0].first == 0
    assert cut[-1].below is None
    assert all(a.below == b.first and a.choice != b.choice for a, b in pairwise(cut))
    for r in cut:
        assert all(r.first <= size and (r.below is None or size < r.below) for size in r.sizes)
    logs = np.log(times)
    price, native_is_known = max(MIN_CUT_PRICE, ratio_noise(of)), "native" in names
    entry = np.array([price * (native_is_known and name != "native") for name in names])  # see RULE
    lost = sum(len(r.sizes) * np.log(r.over_best) for r in cut)  # which is rounded
    changes = int((np.diff(logs.argmin(axis=0)) != 0).sum())
    total = lost + price * (len(cut) - 1) + entry[names.index(cut[0].choice.algorithm)]
    single = ((logs - logs.min(axis=0)).sum(axis=1) + entry).min()
    every_cut = price * changes + entry[logs[:, 0].argmin()]
    assert total <= min(single, every_cut) + 1e-3


def test_floors_policies_and_wrong_or_failed_results_are_never_chosen():
    fast = dict.fromkeys(SIZES, 1e-9)
    bad = {"status": "wrong", "wrong": 3}, {"status": "partial"}
    for name, more in (("null", {}), ("auto", {}), *(("star", how) for how in bad)):
        found = merged_results(measured_results({"ring": LATE}), measured_results({name: fast}, **more))
        assert choices_by_first_size(build_table(found)) == [(0, "ring")]
    with pytest.raises(BadInputError, match=r"PATHS: no complete and correct result .*: 1 ok"):
        build_table(measured_results({"null": {8: 1e-6}}))


def test_a_choice_is_never_extrapolated():
    made = measured_table({"ring": {KIB: 1.0, 4 * KIB: 1.0}, "star": {16 * KIB: 9.0, 64 * KIB: 9.0}})
    assert choices_by_first_size(made) == [(0, "ring"), (8 * KIB, "star")]
    made = measured_table({"ring": {KIB: 1.0, 4 * KIB: 1.0}, "star": {KIB: 9.0, 4 * KIB: 9.0, MIB: 9.0}})
    assert choices_by_first_size(made) == [(0, "ring"), (4 * KIB + 1, "star")]


def test_the_ratio_to_native_is_given_if_that_was_measured():
    (entry,) = measured_table({"ring": {KIB: 1.0, 4 * KIB: 2.0}, "native": {KIB: 2.0, 4 * KIB: 8.0}}).entries
    assert entry.ranges[0].over_native == pytest.approx(8**-0.5, abs=1e-4)
    assert measured_table({"ring": LATE}).entries[0].ranges[0].over_native is None


def test_several_runs_are_one_number_and_their_spread_is_noise():
    twice = merged_results(measured_results({"ring": {8: 1.0}}), measured_results({"ring": {8: 4.0}}, number=2))
    ((found,),) = (list(m.curves.values()) for m in measured_settings(twice).values())
    assert found[8].seconds == pytest.approx(2.0)
    assert found[8].noise == pytest.approx(0.75)
    assert build_table(twice).entries[0].runs == ("run-1", "run-2")


def test_a_table_survives_its_json_and_names_its_runs():
    made = measured_table({"recursive_doubling": EARLY, "ring channels=4": LATE, "native": LATE}, spread=0.1)
    assert TuneTable.from_json(made.to_json()) == made
    assert made.to_json()["runs"][0] == {
        "run_id": "run-1", "job": "mpi.p2", "created": "2026-01-05T10:00:00+00:00", "kind": "measured",
        "machine": "2 nodes", "hosts": ["n0", "n1"], "mpi": "MPICH 5", "path": "here.h5",
    }  # fmt: skip
    assert str(MIN_CUT_PRICE) in made.rule
