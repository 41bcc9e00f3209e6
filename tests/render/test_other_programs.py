"""The section of other programs: a chart and a table of their times next to ours, and no ranking."""

import pytest
from chart_outline import values
from row_examples import make_row

from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.side_by_side import side_by_side
from hpccoll.render.other_programs import other_programs, other_programs_chart
from hpccoll.store.rows import Results
from hpccoll.store.sources import SOURCES

SIZES = 1024, 4096, 16384


def ours(size, **changes):
    return make_row("native", nbytes=size, seconds=size * 1e-9, transport="mpi", device="cpu", **changes)


def theirs(size, factor=2.0, **changes):
    about = {"source": "osu", "rule": None, **changes}
    return make_row(
        "native", nbytes=size, seconds=size * 1e-9 * factor, transport="mpi", device="cpu", kind="imported", **about
    )


def results(*rows):
    return Results(rows=rows, runs=(), planned=len(rows), missing=())


def test_the_chart_has_their_times_and_ours_of_each_size():
    drawn = values(other_programs_chart(side_by_side(map(theirs, SIZES), map(ours, SIZES))))
    assert {(each["line"], each["bytes"]): each["value"] for each in drawn} == pytest.approx(
        {(who, n): n * ns * 1e-9 for n in SIZES for who, ns in (("measured", 1), ("of other programs", 2))}
    )
    assert len({each["panel"] for each in drawn}) == 1


def test_the_section_says_what_each_number_means():
    suites = [theirs(1024, source=f"{name}-tests", timing="aggregated") for name in ("nccl", "rccl")]
    rows = [theirs(1024), theirs(1024, source="imb"), *suites]
    beside = other_programs(results(*rows, ours(1024)))
    explained = [meaning.partition(":")[0] for meaning in beside["meanings"]]
    assert {source.title for source in SOURCES.values()} <= set(explained)
    assert [cells[-1] for cells in beside["table"][1]] == ["2.00x"] * len(rows)


def test_a_faster_time_of_another_program_changes_no_recommendation():
    measured, foreign = [*map(ours, SIZES)], [theirs(size, 0.01) for size in SIZES]
    assert recommend(results(*measured)) == recommend(results(*measured, *foreign)) != ()
