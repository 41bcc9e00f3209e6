"""Results of other programs: solid lines in the charts of their call, a table next to ours, and nothing else."""

from dataclasses import replace

import pytest
from chart_outline import values
from golden_page import assert_golden
from row_examples import make_row

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.answers import Answers
from hpccoll.render.charts import FIGURES
from hpccoll.render.comparison_text import other_programs
from hpccoll.render.measured_summary import measured_heading, measured_summary
from hpccoll.render.report_columns import rows_table
from hpccoll.render.report_writer import answer_section
from hpccoll.store.rows import Results, Run
from hpccoll.store.sources import SOURCES

SIZES = 1024, 4096, 16384
TIMES = next(figure for figure in FIGURES if figure.name == "time")
DRAWN = {"time", "busbw", "scaling"}
"""The charts that show rows of other kinds."""


def call(size, nanoseconds, **changes):
    return make_row(
        "native",
        nbytes=size,
        **{"seconds": size * nanoseconds * 1e-9, "transport": "mpi"} | changes,
    )


def ours(size, **changes):
    return call(size, 1.0, **changes)


def theirs(size, factor=2.0, **changes):
    about = {
        "kind": "imported",
        "source": "osu",
        "rule": None,
        "run_id": "theirs",
        "ci_low_s": None,
        "ci_high_s": None,
    }
    return call(size, factor, **about | changes)


def predicted(size, algorithm="nccl_ring", **changes):
    about = {
        "nbytes": size,
        "seconds": size * 3e-9,
        "kind": "modelled",
        "run_id": "predicted",
        "in_place": True,
    }
    return make_row(algorithm, **about | changes)


def launch(run_id, library, **provenance):
    return Run(
        run_id=run_id,
        job="import",
        attempt=1,
        created="2026",
        status="complete",
        kind="imported",
        path="theirs.h5",
        machine=f"2 nodes (n0, n1), {library}",
        provenance={"library": library, **provenance},
    )


def results(*rows, runs=()):
    return Results(
        rows=rows, runs=(launch("theirs", "NCCL 2.18.5"), *runs), planned=len(rows), missing=()
    )


def lines_of(group):
    """Return the kinds of the lines of the chart of times, by series, in the order of the legend."""
    drawn = values(TIMES.specification(group))
    return {
        series: {each["line"] for each in drawn if each["series"] == series}
        for series in group.legend
    }


def test_their_times_are_lines_of_their_own_next_to_ours():
    (group,) = chart_groups(results(*map(ours, SIZES), *map(theirs, SIZES)))
    drawn = values(TIMES.specification(group))
    assert {(each["series"], each["bytes"]): each["value"] for each in drawn} == pytest.approx(
        {
            (who, n): n * ns * 1e-9
            for n in SIZES
            for who, ns in (("native", 1), ("osu native (single)", 2))
        }
    )
    assert lines_of(group) == {"native": {"measured"}, "osu native (single)": {"measured"}}
    colours = {each["series"]: each["fill"] for each in drawn}
    assert len({*colours.values()}) == 2


def test_measured_lines_are_solid_and_first_and_predictions_of_the_same_call_are_dashed_in_the_same_chart():
    """Transport, device and timing of what is imported may differ from ours, and its placements from a prediction's."""
    on_gpu = {"device": "cuda", "dtype": "float32", "ranks": 16, "nodes": 2, "ranks_per_node": 8}
    nccl = {"transport": "nccl", "source": "nccl-tests", "timing": "aggregated", **on_gpu}
    imported = [
        theirs(size, in_place=in_place, **nccl) for size in SIZES for in_place in (False, True)
    ]
    rows = [
        *imported,
        *(
            predicted(n, name, transport="nccl", **on_gpu)
            for n in SIZES
            for name in ("nccl_ring", "ring")
        ),
    ]
    everything = results(*rows)
    groups = chart_groups(everything)
    (group,) = groups
    assert list(lines_of(group).items())[:1] == [("nccl-tests native (aggregated)", {"measured"})]
    assert {"nccl_ring (modelled)", "ring (modelled)"} < lines_of(group).keys()
    panels = {
        each["panel"] for each in values(TIMES.specification(group)) if each["line"] == "modelled"
    }
    assert panels == {"2 nodes, out of place", "2 nodes, in place"}
    series = [cells[0][1] for _, cells in rows_table(groups).rows]
    assert series[: len(imported)] == ["nccl-tests native (aggregated)"] * len(imported)
    assert recommend(everything) == ()
    assert (
        "use"
        not in answer_section(everything, Answers(()), ["all_reduce"]).split("Evidence")[0].split()
    )
    assert_golden("imported_and_predicted", [measured_heading(groups), measured_summary(groups)])


def test_bytes_join_our_elements_where_nothing_is_reduced_and_are_another_call_where_something_is():
    gather = {"collective": "all_gather", "op": None}
    rows = (
        ours(1024, **gather),
        theirs(1024, dtype="int8", **gather),
        ours(1024),
        theirs(1024, dtype="int8"),
    )
    groups = chart_groups(results(*rows))
    found = [(group.collective, len(group.points), len(group.imports)) for group in groups]
    assert sorted(found) == [("all_gather", 1, 1), ("all_reduce", 0, 1), ("all_reduce", 1, 0)]


def test_they_join_the_rows_of_their_timing_if_there_are_any_and_of_their_ranks_on_a_node_only():
    rows = [ours(n, timing=timing) for n in SIZES for timing in ("single", "aggregated")]
    spread = theirs(1024, timing="aggregated", nodes=2, ranks_per_node=1)
    groups = chart_groups(results(*rows, *(theirs(n, timing="aggregated") for n in SIZES), spread))
    found = [({point.row.timing for point in group.points}, len(group.imports)) for group in groups]
    assert found == [({"single"}, 0), ({"aggregated"}, 3), (set(), 1)]


def test_a_line_is_named_after_the_call_and_after_the_library_if_there_are_several():
    rows = theirs(1024), theirs(1024, run_id="second", params={"call": "MPI_Iallreduce"})
    several = results(*rows, runs=[launch("second", "MPICH 5")])
    names = {point.series for group in chart_groups(several) for point in group.imports}
    assert names == {"osu native (single, NCCL 2.18.5)", "osu MPI_Iallreduce (single, MPICH 5)"}


def two_machines(of_first, of_second):
    """Return results of one call on two launches of other programs, whose files say this of their machines."""
    library = "NCCL 2.18.5"
    runs = launch("first", library, **of_first), launch("second", library, **of_second)
    return results(theirs(1024, run_id="first"), theirs(1024, run_id="second"), runs=runs)


def series_of(everything):
    return {
        point.row.run_id: point.series
        for group in chart_groups(everything)
        for point in group.imports
    }


@pytest.mark.parametrize(
    ("of_first", "of_second", "names"),
    [
        ({"machine": "lumi"}, {"machine": "fugaku"}, ("lumi", "fugaku")),
        ({"hosts": ["n1", "n2"]}, {"hosts": ["m1", "m2"]}, ("n[1-2]", "m[1-2]")),
    ],
)
def test_a_line_never_joins_machines_and_is_named_after_its_machine_if_there_are_several(
    of_first, of_second, names
):
    series = series_of(two_machines(of_first, of_second))
    assert series == {
        run: f"osu native (single, {name})"
        for run, name in zip(("first", "second"), names, strict=True)
    }


@pytest.mark.parametrize(
    ("of_first", "of_second"),
    [
        ({"machine": "lumi"}, {"machine": "lumi"}),
        ({"hosts": ["n1", "n2"]}, {"hosts": ["n2.cluster", "n3"]}),  # they share a host
        ({"hosts": ["n1", "n2"]}, {}),
    ],
)
def test_launches_of_one_machine_and_of_unknown_ones_are_named_as_before(of_first, of_second):
    series = series_of(two_machines(of_first, of_second))
    assert set(series.values()) == {"osu native (single)"}


def test_the_summary_and_the_table_beside_ours_name_the_machines_if_there_are_several():
    everything = two_machines({"machine": "lumi"}, {"machine": "fugaku"})
    assert measured_summary(chart_groups(everything)).count("of lumi and fugaku") == 1
    both = replace(everything, rows=(*everything.rows, ours(1024)))
    head, cells = other_programs(both)["table"]
    assert [line[head.index("their machine")] for line in cells] == ["lumi", "fugaku"]
    one_machine = two_machines({"machine": "lumi"}, {"machine": "lumi"})
    both = replace(one_machine, rows=(*one_machine.rows, ours(1024)))
    head, _ = other_programs(both)["table"]
    assert "their machine" not in head


def test_a_faster_time_of_another_program_changes_no_recommendation_no_finding_and_no_other_chart():
    measured, foreign = [*map(ours, SIZES)], [theirs(size, 0.01) for size in SIZES]
    alone, both = results(*measured), results(*measured, *foreign)
    assert recommend(alone) == recommend(both) != ()
    (group,), (beside,) = chart_groups(alone, recommend(alone)), chart_groups(both, recommend(both))
    assert group.points == beside.points
    assert group_findings(group) == group_findings(beside)
    for figure in FIGURES:
        if figure.name not in DRAWN and (specification := figure.specification(group)):
            assert values(figure.specification(beside)) == values(specification)


def test_the_section_says_what_each_number_means_and_has_a_table_of_what_we_measured_too():
    suites = [
        theirs(1024, source=f"{name}-tests", timing="aggregated") for name in ("nccl", "rccl")
    ]
    rows = [theirs(1024), theirs(1024, source="imb"), theirs(1024, source="pico"), *suites]
    beside = other_programs(results(*rows, ours(1024), theirs(1 << 20)))
    explained = [meaning.partition(":")[0] for meaning in beside["meanings"]]
    assert {*explained} == {source.title for source in SOURCES.values()} | {"hpccoll"}
    assert [cells[-1] for cells in beside["table"][1]] == ["2.00x"] * len(rows)
    alone = other_programs(results(*rows))
    assert (alone["table"], "hpccoll" in str(alone["meanings"])) == (None, False)
