"""Which rows share a chart, and the names of groups and series."""

import pytest

from hpccoll.analysis.chart_groups import chart_groups, shared_words
from hpccoll.render.colours import PALETTE, group_colours, group_shapes


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            [{}, {"dtype": "float64"}, {"collective": "all_gather", "op": None}],
            ["all_reduce-float32", "all_reduce-float64", "all_gather"],
        ),
        ([{"params": {"load": "gemm"}, "load": "gemm"}, {}], ["all_reduce-idle", "all_reduce-load_gemm"]),
        ([{}, {"kind": "measured on a testbed"}], ["all_reduce-measured", "all_reduce-measured_on_a_testbed"]),
        (
            [{"ranks": 4, "ranks_per_node": 4}, {"ranks": 4, "nodes": 4, "ranks_per_node": 1}],
            ["all_reduce-1_rank_per_node", "all_reduce-4_ranks_per_node"],
        ),
    ],
)
def test_every_setting_is_a_group_with_a_file_name_of_what_differs(make_row, of_rows, changes, names):
    found = chart_groups(of_rows(*(make_row(**each) for each in changes)))
    assert [group.name for group in found] == names


NATIVE, COMPILED, PYTHON = {"algorithm": "native"}, {"executor": "compiled"}, {"executor": "python"}
SHM = {"transport": "shm"}
DIRECT = {"algorithm": "direct", **SHM}


@pytest.mark.parametrize(
    ("changes", "series"),
    [
        ([{}, {"params": {"channels": 2}}, NATIVE | {"transport": "vendor"}], ["ring", "ring channels=2", "native"]),
        ([NATIVE | {"variant": "funneled"}, NATIVE], ["native funneled", "native"]),
        ([{"algorithm": "tree"} | PYTHON, {"status": "skipped", "median_s": None}], ["tree", "ring"]),
        ([{"algorithm": "tree"} | PYTHON, NATIVE | COMPILED], ["tree (python)", "native"]),
        ([COMPILED, PYTHON | {"mapping": "cyclic"}], ["ring block", "ring (python) cyclic"]),
        ([COMPILED, PYTHON | {"device": "cuda"}], ["ring", "ring"]),  # executors differ in one kind of memory only
        ([{}, SHM, DIRECT, NATIVE, {"algorithm": "auto"}, {"algorithm": "null"}],
         ["ring mpi", "ring shm", "direct shm", "native", "auto", "null (floor)"]),
        ([{}, DIRECT], ["ring mpi", "direct shm"]),
    ],
)  # fmt: skip
def test_a_series_is_named_by_the_algorithm_and_only_by_what_differs(make_row, of_rows, changes, series):
    groups = chart_groups(of_rows(*(make_row(**each) for each in changes)))
    assert [point.series for group in groups for point in group.points] == series


def test_only_correct_rows_with_a_time_are_usable(make_row, of_rows):
    partial = make_row(status="partial", reason="2 of 3 rounds")
    bad = [make_row(status=status) for status in ("wrong", "failed", "skipped")]
    bad += [make_row(wrong=3), make_row(seconds=1.0, median_s=None), make_row(status="partial", median_s=None)]
    (group,) = chart_groups(of_rows(partial, *bad, make_row()))
    assert [point.row for point in group.usable] == [partial, make_row()]


def test_timings_are_different_groups_and_those_of_single_operations_come_first(make_row, of_rows):
    several = [make_row(nbytes=nbytes, timing="aggregated") for nbytes in (8, 16, 32)]
    groups = chart_groups(of_rows(make_row(), *several))
    assert [{point.row.timing for point in group.points} for group in groups] == [{"single"}, {"aggregated"}]
    assert [group.distinguishing_setting(shared_words(groups)) for group in groups] == [
        "single timing", "aggregated timing",
    ]  # fmt: skip


def test_the_setting_names_the_ranks_per_node_if_all_nodes_have_the_same(
    testbed_results, make_node_row, make_bed_run, of_rows
):
    (group,) = chart_groups(testbed_results)
    assert group.setting.endswith(", 1 rank per node")
    rows = [make_node_row(nodes=n, ranks=2 * n, ranks_per_node=2) for n in (2, 4)]
    (two,) = chart_groups(of_rows(*rows, runs=(make_bed_run(),)))
    assert (two.unit, two.unit_title, two.shape_label(rows[1])) == ("nodes", "nodes (2 ranks each)", "4 nodes")


def test_aggregators_that_grow_with_the_ranks_are_one_series(make_row, of_rows):
    rows = [make_row("sharp_emulated", ranks=p, nbytes=n, aggregators=a) for p, a in ((4, 1), (8, 3)) for n in (8, 64)]
    (group,) = chart_groups(of_rows(*rows))
    assert {point.series for point in group.points} == {"sharp_emulated"}
    (emulation,) = group.emulations
    assert (
        emulation
        == "sharp_emulated: software, switches played by ranks, with 1 aggregator (4 ranks), 3 aggregators (8 ranks)"
    )


def test_lines_of_one_collective_differ_in_colour_and_mark_and_a_name_keeps_its_own(make_row, of_rows):
    names = [f"algorithm_{i}" for i in range(11)]
    rows = [make_row(name) for name in names]
    rows += [make_row(name, collective="all_gather", op=None) for name in (*names[5:], "another")]
    first, second = chart_groups(of_rows(*rows))
    assert first.legend == second.legend
    for group in (first, second):
        drawn = {point.series for point in group.points}
        colours, shapes = group_colours(group.legend), group_shapes(group.legend)
        assert len({colours[name] for name in drawn}) == len(drawn)
        assert len({(colours[name], shapes[name]) for name in drawn}) == len(drawn)
    assert set(group_colours(first.legend).values()) <= set(PALETTE)
