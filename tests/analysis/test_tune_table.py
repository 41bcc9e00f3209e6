"""The making of a table: which choice for which sizes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from golden_page import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import (
    KIB,
    MIB,
    linear_curve,
    measured_results,
    measured_table,
    merged_results,
)

from hpccoll.analysis.choice_table import TuneTable
from hpccoll.analysis.measured_choices import ChoiceTime, comparable_seconds, measured_settings
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.size_ranges import MIN_CUT_PRICE, choose_ranges, ratio_noise
from hpccoll.analysis.tune_table import build_table, table_warnings, unmeasured_lines
from hpccoll.common.errors import BadInputError
from hpccoll.store.rows import Gap
from hpccoll.store.statistics import RoundStatistics

SIZES = [KIB << 2 * i for i in range(8)]
# they cross at 112.5 KB
EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)


SLOW, FAST = {size: 9 * seconds for size, seconds in EARLY.items()}, dict.fromkeys(SIZES, 1e-9)
UNSURE = {"ring": LATE, "star": linear_curve(1.1e-4, 2.2e-10, SIZES)}
LOOSE = measured_results(UNSURE, spread=0.4, number=2, in_place=True)
GAP = Gap(case="all_reduce.star", job="mpi.p2", status="not run", reason="no time")


def results(number=1, **curves):
    return measured_results(curves, number=number)


def next_to_ring(name, **more):
    return merged_results(results(ring=LATE), measured_results({name: FAST}, **more))


SCENARIOS = {
    "a cut is where the logarithms cross": results(ring={1024: 1.0, 4096: 4.0}, star={1024: 2.0, 4096: 2.0}),
    "what lies beyond the measured sizes of a choice is another's": results(
        ring={KIB: 1.0, 4 * KIB: 1.0}, star={16 * KIB: 9.0, 64 * KIB: 9.0}),
    "even if it was measured next to it": results(
        ring={KIB: 1.0, 4 * KIB: 1.0}, star={KIB: 9.0, 4 * KIB: 9.0, MIB: 9.0}),
    "the ratio to native is given": results(ring={KIB: 1.0, 4 * KIB: 2.0}, native={KIB: 2.0, 4 * KIB: 8.0}),
    "a lone choice has none, and no advice": results(ring=LATE),
    "compared choices are advice": results(ring=LATE, native=EARLY),
    "choices that no launch measured together": merged_results(
        results(ring=LATE, star=EARLY), results(native=SLOW, number=2)),
    "choices of which each was measured with the ring": merged_results(
        results(ring=LATE, native=SLOW), results(star=EARLY, ring=LATE, number=2)),
    "a floor is never chosen": next_to_ring("null"), "nor is auto": next_to_ring("auto"),
    "nor a wrong result": next_to_ring("star", status="wrong", wrong=3),
    "nor one without all rounds": next_to_ring("star", status="partial"),
    "the fastest choice is certain": measured_results(UNSURE, spread=0.02),
    "in one of two settings it is not": merged_results(measured_results(UNSURE, spread=0.02), LOOSE),
    "cases are missing": replace(measured_results(UNSURE), missing=(GAP,), planned=9),
}  # fmt: skip


def test_each_rule_of_tables_and_their_warnings_shows_in_its_times():
    lines = []
    for rule, found in SCENARIOS.items():
        lines.append(f"-- {rule}")
        lines += [
            f"from {each.first}: {each.choice.label}, over native {each.over_native}, unpaired {[*each.unpaired]}, "
            f"{each.strength}"
            for entry in build_table(found).entries
            for each in entry.ranges
        ]
        lines += table_warnings(found)
    assert_golden("tables", lines)


def test_without_a_complete_and_correct_result_of_several_ranks_there_is_no_table():
    both = measured_results({"ring": LATE})
    alone = replace(
        both, rows=tuple(replace(row, ranks=1, nodes=1, ranks_per_node=1) for row in both.rows)
    )
    with pytest.raises(BadInputError, match=r"PATHS: one rank exchanges nothing.*mpiexec -n 2"):
        build_table(alone)
    with pytest.raises(BadInputError, match=r"PATHS: no complete and correct result .*: 1 ok"):
        build_table(measured_results({"null": {8: 1e-6}}))


LARGE = {"ring": {256 * KIB: 1.0, MIB: 4.0}, "native": {256 * KIB: 2.24, MIB: 8.96}}


def first_choices(curves, **how):
    """Return the first size and the algorithm of each range of a table, and its lines on other sizes."""
    table = build_table(measured_results(curves), **how)
    (entry,) = table.entries
    ranges = [(part.first, part.choice.algorithm) for part in entry.ranges]
    return ranges, list(unmeasured_lines(table))


def test_below_the_smallest_measured_size_a_table_has_native():
    ranges, lines = first_choices(LARGE)
    assert ranges == [(0, "native"), (256 * KIB, "ring")]
    (line,) = lines
    assert "below 256 KiB auto takes native" in line


def test_without_native_or_where_its_bits_may_differ_the_first_choice_goes_on_with_a_warning():
    for how in ({"curves": {"ring": LARGE["ring"]}}, {"curves": LARGE, "native_below": False}):
        ranges, lines = first_choices(**how)
        assert ranges == [(0, "ring")]
        (line,) = lines
        assert "below 256 KiB auto takes ring there, too" in line


def test_a_table_whose_smallest_size_is_one_element_has_its_choice_for_all_sizes():
    small = {"ring": {8: 1.0, MIB: 4.0}, "native": {8: 2.24, MIB: 8.96}}
    assert first_choices(small) == ([(0, "ring")], [])


def test_a_line_on_some_of_the_settings_says_of_how_many():
    small = {"ring": {8: 1.0, MIB: 4.0}, "native": {8: 2.24, MIB: 8.96}}
    tables = [build_table(measured_results(curves)) for curves in (LARGE, small)]
    entries = tuple(entry for table in tables for entry in table.entries)
    (line,) = unmeasured_lines(replace(tables[0], entries=entries))
    assert "(1 of 2 settings)" in line
    (line,) = unmeasured_lines(tables[0])
    assert "settings" not in line


def test_a_table_whose_first_choice_is_native_needs_no_other_one_below():
    ranges, lines = first_choices({"ring": LARGE["native"], "native": LARGE["ring"]})
    assert (ranges, lines) == ([(0, "native")], [])


def of_rounds(seconds, *drift):
    """Return the rounds of a choice in one launch: ``seconds`` times the drift of each."""
    return {
        ("sum", "run-1", number): RoundStatistics(seconds * each, None)
        for number, each in enumerate(drift)
    }


def test_a_choice_without_a_slow_round_is_not_faster_for_it():
    slow = ChoiceTime(5.0, 0.0, of_rounds(1.0, 1, 5, 5))
    quick = ChoiceTime(1.1, 0.0, of_rounds(1.1, 1))
    ring, star = Choice("ring", "mpi"), Choice("star", "mpi")
    assert comparable_seconds({ring: slow, star: quick}) == {
        ring: pytest.approx(1.0),
        star: pytest.approx(1.1),
    }


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
    assert (
        noise_of_ratio(merged_results(ring, measured_results(star, number=2, drift=SLOW_FIRST))) > 1
    ), "that both begin slowly is chance"


@given(
    st.lists(st.lists(st.floats(1e-6, 1e-2), min_size=5, max_size=5), min_size=1, max_size=4),
    st.floats(0, 0.5),
)
def test_ranges_are_all_sizes_once_and_cost_no_more_than_any_single_choice_or_every_cut(
    times, spread
):
    names = ["ring", "star", "rabenseifner", "native"][: len(times)]
    results = measured_results(
        {n: dict(zip(SIZES, t, strict=False)) for n, t in zip(names, times, strict=True)},
        spread=spread,
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


def test_a_size_at_which_no_choice_of_both_placements_was_measured_has_no_ratio_to_native():
    both = {"star": {KIB: 1.0}, "native": {KIB: 2.0}}
    placements = [
        next(
            iter(
                measured_settings(
                    measured_results(both | {other: {KIB: 3.0, 4 * KIB: 3.0}})
                ).values()
            )
        )
        for other in ("ring", "swing")
    ]
    with np.errstate(all="raise"):
        joint = choose_ranges(*placements)
    assert [each.over_native for each in joint.ranges] == [0.5, None]
    assert joint.cost == np.inf


def test_several_runs_are_one_number_and_their_spread_is_noise():
    twice = merged_results(
        measured_results({"ring": {8: 1.0}}), measured_results({"ring": {8: 4.0}}, number=2)
    )
    ((found,),) = (list(m.curves.values()) for m in measured_settings(twice).values())
    assert found[8].seconds == pytest.approx(2.0)
    assert found[8].noise == pytest.approx(0.75)
    assert build_table(twice).entries[0].runs == ("run-1", "run-2")


def test_a_table_survives_its_json_and_names_its_runs():
    made = measured_table(
        {"recursive_doubling": EARLY, "ring channels=4": LATE, "native": LATE}, spread=0.1
    )
    assert TuneTable.from_json(made.to_json()) == made
    assert made.to_json()["runs"][0] == {
        "run_id": "run-1",
        "job": "mpi.p2",
        "created": "2026-01-05T10:00:00+00:00",
        "kind": "measured",
        "machine": "2 nodes",
        "hosts": ["n0", "n1"],
        "mpi": "MPICH 5",
        "path": "here.h5",
    }
    assert str(MIN_CUT_PRICE) in made.rule
