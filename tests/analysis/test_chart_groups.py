"""Which rows share a chart, and the names of groups and series."""

import pytest

from hpccoll.analysis.chart_groups import MOST_SERIES, chart_groups, shared_words
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.colours import PALETTE, group_colours, group_shapes


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            [{}, {"dtype": "float64"}, {"collective": "all_gather", "op": None}],
            ["all_reduce-float32", "all_reduce-float64", "all_gather"],
        ),
        (
            [{"params": {"load": "gemm"}, "load": "gemm"}, {}],
            ["all_reduce-idle", "all_reduce-load_gemm"],
        ),
        (
            [{}, {"kind": "measured on a testbed"}],
            ["all_reduce-measured", "all_reduce-measured_on_a_testbed"],
        ),
        (
            [{"ranks": 4, "ranks_per_node": 4}, {"ranks": 4, "nodes": 4, "ranks_per_node": 1}],
            ["all_reduce-1_rank_per_node", "all_reduce-4_ranks_per_node"],
        ),
    ],
)
def test_every_setting_is_a_group_with_a_file_name_of_what_differs(
    make_row, of_rows, changes, names
):
    found = chart_groups(of_rows(*(make_row(**each) for each in changes)))
    assert [group.name for group in found] == names


NATIVE, COMPILED, PYTHON = {"algorithm": "native"}, {"executor": "compiled"}, {"executor": "python"}
SHM = {"transport": "shm"}
DIRECT = {"algorithm": "direct", **SHM}


@pytest.mark.parametrize(
    ("changes", "series"),
    [
        (
            [{}, {"params": {"channels": 2}}, NATIVE | {"transport": "vendor"}],
            ["ring", "ring channels=2", "native"],
        ),
        ([NATIVE | {"variant": "funneled"}, NATIVE], ["native funneled", "native"]),
        (
            [{"algorithm": "tree"} | PYTHON, {"status": "skipped", "median_s": None}],
            ["tree", "ring"],
        ),
        ([{"algorithm": "tree"} | PYTHON, NATIVE | COMPILED], ["tree (python)", "native"]),
        ([COMPILED, PYTHON | {"mapping": "cyclic"}], ["ring block", "ring (python) cyclic"]),
        # executors differ in one kind of memory only
        ([COMPILED, PYTHON | {"device": "cuda"}], ["ring", "ring"]),
        (
            [{}, SHM, DIRECT, NATIVE, {"algorithm": "auto"}, {"algorithm": "null"}],
            ["ring mpi", "ring shm", "direct shm", "native", "auto", "null (floor)"],
        ),
        ([{}, DIRECT], ["ring mpi", "direct shm"]),
    ],
)
def test_a_series_is_named_by_the_algorithm_and_only_by_what_differs(
    make_row, of_rows, changes, series
):
    groups = chart_groups(of_rows(*(make_row(**each) for each in changes)))
    assert [point.series for group in groups for point in group.points] == series


def test_only_correct_rows_with_a_time_are_usable(make_row, of_rows):
    partial = make_row(status="partial", reason="2 of 3 rounds")
    bad = [make_row(status=status) for status in ("wrong", "failed", "skipped")]
    bad += [
        make_row(wrong=3),
        make_row(seconds=1.0, median_s=None),
        make_row(status="partial", median_s=None),
    ]
    (group,) = chart_groups(of_rows(partial, *bad, make_row()))
    assert [point.row for point in group.usable] == [partial, make_row()]


def test_timings_are_different_groups_and_those_of_single_operations_come_first(make_row, of_rows):
    several = [make_row(nbytes=nbytes, timing="aggregated") for nbytes in (8, 16, 32)]
    groups = chart_groups(of_rows(make_row(), *several))
    assert [{point.row.timing for point in group.points} for group in groups] == [
        {"single"},
        {"aggregated"},
    ]
    assert [group.distinguishing_setting(shared_words(groups)) for group in groups] == [
        "single timing",
        "aggregated timing",
    ]


def test_the_setting_names_the_ranks_per_node_if_all_nodes_have_the_same(
    testbed_results, make_node_row, make_bed_run, of_rows
):
    (group,) = chart_groups(testbed_results)
    assert group.setting.endswith(", 1 rank per node")
    rows = [make_node_row(nodes=n, ranks=2 * n, ranks_per_node=2) for n in (2, 4)]
    (two,) = chart_groups(of_rows(*rows, runs=(make_bed_run(),)))
    assert (two.unit, two.unit_title, two.shape_label(rows[1])) == (
        "nodes",
        "nodes (2 ranks each)",
        "4 nodes",
    )


def test_aggregators_that_grow_with_the_ranks_are_one_series(make_row, of_rows):
    rows = [
        make_row("sharp_emulated", ranks=p, nbytes=n, aggregators=a)
        for p, a in ((4, 1), (8, 3))
        for n in (8, 64)
    ]
    (group,) = chart_groups(of_rows(*rows))
    assert {point.series for point in group.points} == {"sharp_emulated"}
    (emulation,) = group.emulations
    assert (
        emulation
        == "sharp_emulated: software, switches played by ranks, with 1 aggregator (4 ranks), 3 aggregators (8 ranks)"
    )


def test_lines_of_one_collective_differ_in_colour_and_mark_and_a_name_keeps_its_own(
    make_row, of_rows
):
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


@pytest.fixture
def group_of(make_row, of_rows):
    """Return the group of a number of variants of the ring, of which the last is the fastest, native and the floor."""

    def make(variants):
        rings = [
            make_row(params={"channels": n + 1}, seconds=1e-6 * (1000 - n)) for n in range(variants)
        ]
        results = of_rows(*rings, make_row("native", seconds=1e-3), make_row("null", seconds=1e-7))
        (group,) = chart_groups(results, recommend(results))
        return group

    return make


def test_a_chart_draws_every_series_up_to_the_most(group_of):
    group = group_of(MOST_SERIES - 2)
    assert group.of_few_series is group


def test_of_too_many_series_the_choice_native_and_the_floor_come_first_and_then_the_fastest_in_pale(
    group_of,
):
    group = group_of(MOST_SERIES + 10)
    few = group.of_few_series
    fastest = [f"ring channels={n}" for n in range(MOST_SERIES + 10, 0, -1)]
    first = [fastest[0], "native", "null (floor)"]
    assert few.series == {*first, *fastest[1 : MOST_SERIES - 2]}
    assert [*few.legend][:MOST_SERIES] == [*first, *fastest[1 : MOST_SERIES - 2]]
    assert {name for name in few.series if not few.legend[name].is_pale} == {*first}


def test_a_series_that_is_fast_at_one_size_only_is_drawn_before_one_that_is_nowhere(
    make_row, of_rows
):
    rings = [
        make_row(params={"channels": n + 1}, seconds=1e-6, nbytes=8) for n in range(MOST_SERIES - 1)
    ]
    rings += [
        make_row(params={"channels": 99}, seconds=s, nbytes=n) for n, s in ((8, 9e-6), (64, 1e-6))
    ]
    rings += [
        make_row(params={"channels": 98}, seconds=s, nbytes=n) for n, s in ((8, 2e-6), (64, 2e-6))
    ]
    (group,) = chart_groups(of_rows(*rings))
    assert group.series - group.of_few_series.series == {"ring channels=98"}


def test_predictions_are_drawn_if_what_they_predict_is(make_row, make_run, of_rows):
    rows = [
        make_row(params={"channels": n + 1}, seconds=1e-6 * (n + 1)) for n in range(MOST_SERIES + 1)
    ]
    predicted = [
        make_row(
            params={"channels": n},
            kind="modelled",
            run_id="run-2",
            source="model",
            executor=None,
            job="model",
        )
        for n in (1, MOST_SERIES + 1)
    ]
    runs = make_run(), make_run(run_id="run-2", kind="modelled")
    (group,) = chart_groups(of_rows(*rows, *predicted, runs=runs))
    assert [point.measured_series for point in group.of_few_series.predictions] == [
        "ring channels=1"
    ]
    assert len(group.predictions) == len(predicted)
