"""Comparisons of series: for each rule the rows that show it, and which factors follow."""

import pytest
from row_examples import make_row

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.series_points import best_placements, mixed_hosts
from hpccoll.analysis.speedups import efficiencies, evenly_spaced, repeated_points, speedups


@pytest.fixture
def points(of_rows):
    """The points of the rows given."""

    def make(*rows, runs=None):
        return [
            point for group in chart_groups(of_rows(*rows, runs=runs)) for point in group.points
        ]

    return make


def test_the_faster_placement_stands_for_its_series(points):
    rows = (
        make_row(seconds=2e-5),
        make_row(in_place=True, seconds=1e-5),
        make_row("native", seconds=3e-5),
    )
    assert [(p.series, p.row.in_place) for p in best_placements(points(*rows))] == [
        ("ring", True),
        ("native", False),
    ]


def test_the_floor_and_auto_are_in_no_comparison(results, points):
    found = points(
        *results.rows, *(make_row("auto", seconds=1e-6, executed="ring", nbytes=n) for n in (8, 32))
    )
    assert any(point.row.floor for point in found)
    compared = [
        *best_placements(found),
        *(e.point for e in efficiencies(found)),
        *(s.point for s in speedups(found)),
    ]
    assert {point.series for point in compared} == {"native", "recursive_doubling", "ring"}


BROADCAST = {"collective": "broadcast", "op": None}
BOTH = [make_row(in_place=in_place) for in_place in (False, True)]
CHAINS = [make_row("chain", in_place=in_place, **BROADCAST) for in_place in (False, True)]
ONE_RANK = [
    make_row(name, 1, seconds=s, **BROADCAST) for name, s in (("ring", 1e-5), ("native", 2e-5))
]


@pytest.mark.parametrize(
    ("rows", "factors"),
    [
        (
            [
                *BOTH,
                make_row("native", seconds=2e-5),
                make_row("native", in_place=True, seconds=3e-5),
                make_row("native", seconds=1e-6, run_id="run-2"),
            ],
            {("ring", False): 2, ("ring", True): 3},
        ),
        # a call with one buffer is compared with both placements
        (
            [*CHAINS, make_row("native", in_place=True, seconds=2e-5, **BROADCAST)],
            {("chain", False): 2, ("chain", True): 2},
        ),
        ([make_row(), make_row("native", run_id="run-2")], {}),
        ([make_row(), make_row("native", status="wrong", wrong=1)], {}),
        (ONE_RANK, {}),
    ],
)
def test_a_speedup_is_over_a_correct_result_of_native_in_the_same_placement_and_launch(
    rows, factors, points, make_run
):
    found = speedups(points(*rows, runs=(make_run(), make_run(run_id="run-2"))))
    assert {
        (each.point.series, each.point.row.in_place): each.value for each in found
    } == pytest.approx(factors)


def test_efficiency_is_busbw_over_that_on_the_fewest_ranks_but_one(points):
    rows = (
        make_row(ranks=4, busbw_Bps=3e9),
        make_row(ranks=2, busbw_Bps=4e9),
        make_row("native", 4, busbw_Bps=1e9),
    )
    found = {(e.point.series, e.point.row.ranks): e.value for e in efficiencies(points(*rows))}
    assert found == {("ring", 4): 0.75, ("ring", 2): 1.0, ("native", 4): 1.0}
    of_two = efficiencies(points(*ONE_RANK, make_row(**BROADCAST)))
    assert {(e.base.row.ranks, e.value) for e in of_two} == {(2, 1.0)}


def test_launches_are_mixed_if_a_line_joins_them_and_not_all_are_among_the_hosts_of_the_largest(
    make_node_row, make_bed_run, points
):
    def mixed(**hosts):
        runs = [make_bed_run(job, job=job, hosts=names) for job, names in hosts.items()]
        rows = [
            make_node_row(nodes=len(names), run_id=job, job=job) for job, names in hosts.items()
        ]
        return mixed_hosts(points(*rows, runs=runs))

    four = ["n1", "n2", "n3", "n4"]
    assert mixed(two=["n1", "n3"], four=four, other_two=["n2", "n4"]) == ()
    assert mixed(two=["n1", "n5"], four=four) == (
        ("two", frozenset({"n1", "n5"})),
        ("four", frozenset(four)),
    )
    # a repeated measurement is another line
    assert mixed(first=["n1", "n2"], again=["n3", "n4"]) == ()


@pytest.mark.parametrize(("seconds", "disagrees"), [(1.2e-5, True), (1.01e-5, False)])
def test_only_what_several_runs_measured_is_a_repeat(seconds, disagrees, make_run, points):
    rows = make_row(), make_row(seconds=seconds, run_id="run-2"), make_row(in_place=True)
    (repeat,) = repeated_points(points(*rows, runs=(make_run(), make_run(run_id="run-2"))))
    assert (repeat.time_ratio, repeat.disagrees) == (pytest.approx(seconds / 1e-5), disagrees)


def test_evenly_spaced_values_include_the_ends_and_respect_the_maximum():
    assert evenly_spaced([1, 2, 4, 8, 16, 32, 64], 4) == [1, 4, 16, 64]
    assert evenly_spaced([1, 2], 4) == [1, 2]
