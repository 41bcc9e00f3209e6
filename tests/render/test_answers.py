"""The answer in words: a golden page of all kinds of answers, and what no wording may change."""

import re
from dataclasses import replace

import pytest
from golden_page import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import KIB, MIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.recommendations import recommend
from hpccoll.render.answers import Answers, answer_lines, library_name, sizes_in_words
from hpccoll.render.choice_table_text import choice_table_lines

SIZES = [KIB << 2 * i for i in range(8)]
EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)
DRIFT = (1, 3, 2)
ON_GPU = {"device": "cuda", "transport": "nccl"}


def scaled(curve, factor, *, until=None):
    """Return a curve with other times, or with other ones from a size on and nearly the same ones before it."""
    return {size: seconds * (factor if until is None or size >= until else 1.001) for size, seconds in curve.items()}


def rounds_of(*factors):
    """Return launches of two choices, in each of which native takes so many times as long as ring."""
    return [
        measured_results({"ring": LATE, "native": scaled(LATE, factor)}, number=number)
        for number, factor in enumerate(factors, 1)
    ]


def graphs(**curves):
    return measured_results({name.replace("_graph", " graph="): curve for name, curve in curves.items()},
                            drift=DRIFT, **ON_GPU)  # fmt: skip


CLOSE = {"ring": LATE, "star": scaled(LATE, 1.01), "native": scaled(LATE, 1.5)}
TIED = {size: LATE[size] * (0.97 if size < 256 * KIB else 2) for size in SIZES}
SCENARIOS = {
    "a choice for small and one for large sizes": (
        "advice", measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT)
    ),
    "graphs": ("advice", graphs(native_graph0=LATE, native_graph1=scaled(LATE, 0.5), ring_graph0=EARLY)),
    "a rival": ("advice", measured_results(CLOSE, spread=0.05)),
    "advice for some sizes": (
        "advice", measured_results({"ring": LATE, "native": TIED, "star": scaled(LATE, 9)}, spread=0.05)
    ),
    "without native": (
        "advice", measured_results({"ring": LATE, "star": scaled(LATE, 2, until=16 * KIB)}, spread=0.05)
    ),
    "without native, hardly clear": (
        "no_advice", measured_results({"ring": LATE, "star": scaled(LATE, 2, until=4 * MIB)}, spread=0.05)
    ),
    "a small gain": ("advice", measured_results({"ring": LATE, "native": scaled(LATE, 1.004)}, spread=0.0001)),
    "native at some sizes": (
        "advice",
        measured_results({"ring": LATE, "star": scaled(LATE, 2), "native": {n: 1.5 * LATE[n] for n in SIZES[4:]}},
                         spread=0.05),
    ),
    "a tie": ("no_advice", measured_results({"ring": scaled(LATE, 1.01), "native": LATE}, spread=0.05)),
    "sizes of their own": ("no_advice", measured_results({"ring": {KIB: 1e-5}, "native": {MIB: 1e-5}})),
    "one choice": ("only_choice", measured_results({"ring": {KIB: 1e-5, 4 * KIB: 2e-5}})),
    "no sizes": (
        "advice",
        measured_results({"dissemination": {1: 1e-5}, "native": {1: 2e-5}}, collective="barrier", op=None,
                         in_place=True),
    ),
    "auto is fast": ("auto", measured_results({"auto": scaled(LATE, 0.5), "native": LATE}, spread=0.05)),
    "auto is fast at some sizes": (
        "auto", measured_results({"auto": {KIB: 1.0, MIB: 1.0}, "native": {KIB: 1.0, MIB: 1.69}}, spread=0.05)
    ),
    "auto is fast and slow": (
        "auto", measured_results({"auto": {KIB: 1.0, MIB: 2.0}, "native": {KIB: 2.0, MIB: 1.0}}, spread=0.05)
    ),
    "auto is no faster": ("auto_unclear", measured_results({"auto": LATE, "native": scaled(LATE, 1.001)}, spread=0.05)),
    "auto is rarely faster": (
        "auto_unclear",
        measured_results({"auto": LATE, "native": {n: LATE[n] * (2 if n < 4 * KIB else 1.001) for n in SIZES}},
                         spread=0.05),
    ),
    "a gain that a round denies": ("no_advice", merged_results(*rounds_of(1.01, 1.05, 1.5))),
    "a gain in each round": ("advice", merged_results(*rounds_of(1.2, 1.5, 2))),
    "two timings": (
        "advice",
        merged_results(
            measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT, **ON_GPU),
            measured_results({"ring": EARLY, "native": LATE}, drift=DRIFT, number=2, timing="aggregated",
                             operations=1, **ON_GPU),
        ),
    ),
    "two mappings": (
        "only_choice",
        merged_results(*(measured_results({"ring": {KIB: 1e-5}}, number=number, mapping=name)
                         for number, name in enumerate(("block", "cyclic"), 1))),
    ),
    "choices of different launches": (
        "no_advice",
        merged_results(measured_results({"ring": LATE}), measured_results({"native": scaled(LATE, 2)}, number=2)),
    ),
}  # fmt: skip
"""For each kind of results, the kind of the first answer."""


def answers(*several):
    return Answers(recommend(merged_results(*several)))


def only_answer(found):
    (answer,) = found.findings("all_reduce")
    return answer


def test_the_answers_and_tables_of_a_terminal():
    lines = []
    for title, (_, results) in SCENARIOS.items():
        found = Answers(recommend(results))
        lines += [f"-- {title}", *answer_lines(found), *choice_table_lines(found), ""]
    assert_golden("answers", lines)


@pytest.mark.parametrize("title", SCENARIOS)
def test_an_answer_is_of_its_kind_and_advises_only_if_that_is_advice(title):
    kind, results = SCENARIOS[title]
    found = Answers(recommend(results))
    for name in found.by_collective:
        first, *_ = found.findings(name)
        assert first.kind == kind
        assert first.text.startswith("use ") == (kind == "advice")


def test_timings_are_answered_each_for_itself_and_single_operations_come_first():
    both = Answers(recommend(SCENARIOS["two timings"][1]))
    assert only_answer(both) == only_answer(
        answers(measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT, **ON_GPU))
    )
    assert {line.setting for line in both.table("all_reduce")} == {"2 nodes", "2 nodes, aggregated timing"}


def test_too_few_iterations_for_an_interval_are_the_reason_for_no_advice():
    (few,) = recommend(measured_results({"ring": LATE, "native": scaled(LATE, 2)}))
    bare = {
        choice: {size: replace(time, rounds={}) for size, time in curve.items()}
        for choice, curve in few.measured.curves.items()
    }
    undecided = tuple(
        replace(each, verdicts=tuple(replace(of, verdict="tie", beats_native=False) for of in each.verdicts))
        for each in few.ranges
    )
    answer = only_answer(Answers([replace(few, measured=replace(few.measured, curves=bare), ranges=undecided)]))
    assert (answer.kind, "6 iterations" in answer.text) == ("no_advice", True)


def test_auto_is_no_choice_and_stands_beside_the_answer():
    both = answers(measured_results({"auto": scaled(LATE, 0.5), "native": LATE, "ring": scaled(LATE, 2)}, spread=0.05))
    assert [answer.kind for answer in both.findings("all_reduce")] == ["advice", "auto"]
    assert {line.choice for line in both.table("all_reduce")} == {"native"}
    assert answers(measured_results({"auto": LATE})).by_collective == {}


def test_the_foremost_setting_has_the_most_ranks_with_cores_of_their_own():
    def on(ranks, *, oversubscribed):
        results = measured_results({"ring": LATE, "native": EARLY}, number=ranks)
        rows = tuple(replace(row, ranks=ranks, oversubscribed=oversubscribed) for row in results.rows)
        return replace(results, rows=rows)

    several = answers(on(2, oversubscribed=False), on(4, oversubscribed=False), on(8, oversubscribed=True))
    assert [each.setting.ranks for each in several.foremost("all_reduce")] == [4]
    assert [line.setting for line in several.table("all_reduce")][::2] == [
        "4 ranks on 2 nodes", "2 nodes", "8 ranks on 2 nodes",
    ]  # fmt: skip
    assert "more ranks than cores" in only_answer(answers(on(8, oversubscribed=True))).title
    assert "more ranks than cores" in next(choice_table_lines(answers(on(8, oversubscribed=True))))


def test_transports_and_parameters_are_named_where_they_differ():
    curves = {"ring channels=1": LATE, "ring channels=4": EARLY, "star": scaled(LATE, 3)}
    assert [line.choice for line in answers(measured_results(curves)).table("all_reduce")] == [
        "ring channels=4", "ring channels=1",
    ]  # fmt: skip
    shm = measured_results({"star": scaled(EARLY, 9)}, transport="shm", number=2)
    assert [line.choice for line in answers(measured_results({"ring": LATE}), shm).table("all_reduce")] == ["ring mpi"]


@given(st.lists(st.floats(1e-6, 1e-2), min_size=16, max_size=16))
def test_a_size_in_words_lies_between_the_sizes_of_its_ranges(times):
    curves = {"ring": dict(zip(SIZES, times[:8], strict=True)), "star": dict(zip(SIZES, times[8:], strict=True))}
    (found,) = recommend(measured_results(curves))
    for number, (before, after) in enumerate(zip(found.ranges, found.ranges[1:], strict=False), 1):
        value, unit = re.search(r"(?:from|at) (\d+) (B|KiB|MiB)", sizes_in_words(found, number)).groups()
        cut = int(value) * {"B": 1, "KiB": KIB, "MiB": KIB**2}[unit]
        assert before.sizes.sizes[-1] < cut <= after.sizes.sizes[0]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("MPICH 5.0.2", "MPICH"),
        ("Open MPI v5.0.11", "Open MPI"),
        ("Intel(R) MPI Library 2021.13 for Linux", "Intel(R) MPI Library"),
        ("CRAY MPICH version 8.1.28", "CRAY MPICH"),
        ("", "the library"),
    ],
)
def test_the_name_of_a_library_is_its_version_without_the_number(version, name):
    assert library_name(version) == name
