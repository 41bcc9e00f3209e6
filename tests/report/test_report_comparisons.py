import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.report.chart_groups import chart_groups
from hpccoll.report.comparisons import (
    best_placements,
    efficiencies,
    evenly_spaced,
    find_comparisons,
    mixed_hosts,
    native_ratios,
    repeated_points,
    size_intervals,
)


@pytest.fixture
def points(of_rows):
    """The points of the rows given."""

    def make(*rows, runs=None):
        return [point for group in chart_groups(of_rows(*rows, runs=runs)) for point in group.points]

    return make


def test_the_faster_placement_stands_for_its_series(make_row, points):
    rows = make_row(seconds=2e-5), make_row(in_place=True, seconds=1e-5), make_row("native", seconds=3e-5)
    assert [(p.series, p.row.in_place) for p in best_placements(points(*rows))] == [("ring", True), ("native", False)]


def test_a_faster_placement_of_another_run_is_not_taken(make_row, make_run, points):
    rows = make_row(seconds=2e-5), make_row(in_place=True, seconds=1e-5, run_id="run-2")
    found = best_placements(points(*rows, runs=(make_run(), make_run(run_id="run-2"))))
    assert [p.row.run_id for p in found] == ["run-1", "run-2"]


def test_the_floor_is_in_no_comparison(results, points):
    found = points(*results.rows)
    assert any(point.row.floor for point in found)
    compared = [entry for comparison in find_comparisons(found) for entry in comparison.entries]
    compared += [e.point for e in efficiencies(found)]
    assert not any(point.row.floor for point in compared)


def test_auto_is_left_out_of_rankings(make_row, points):
    rows = (
        make_row("auto", seconds=1e-6, executed="ring"),
        make_row("ring", seconds=2e-6),
        make_row("star", seconds=3e-6),
    )
    (comparison,) = find_comparisons(points(*rows))
    assert [entry.row.algorithm for entry in comparison.entries] == ["ring", "star"]


def test_wrong_rows_do_not_win(make_row, points):
    rows = make_row(seconds=1e-6, status="wrong", wrong=5), make_row("native")
    (comparison,) = find_comparisons(points(*rows))
    assert (comparison.fastest.series, comparison.runner_up_ratio) == ("native", None)


def test_a_comparison_has_a_clear_winner_and_the_ratio_of_the_runner_up(make_row, points):
    rows = make_row(seconds=1e-5), make_row("native", seconds=1.5e-5), make_row("tree", seconds=3e-5)
    (comparison,) = find_comparisons(points(*rows))
    assert (comparison.clear_winner, comparison.runner_up_ratio) == ("ring", pytest.approx(1.5))


def test_touching_intervals_are_a_tie(make_row, points):
    rows = make_row(seconds=1e-5, half_interval=0.1), make_row("native", seconds=1.2e-5, half_interval=0.1)
    (comparison,) = find_comparisons(points(*rows))
    assert comparison.clear_winner is None
    assert comparison.fastest.series == "ring"


def test_without_intervals_there_is_no_winner_and_no_disagreement(make_row, make_run, points):
    none = {"ci_low_s": None, "ci_high_s": None}
    (comparison,) = find_comparisons(points(make_row(seconds=1e-5, **none), make_row("native", seconds=9e-5, **none)))
    assert (comparison.fastest.series, comparison.clear_winner) == ("ring", None)
    again = make_row(seconds=1e-5, **none), make_row(seconds=9e-5, run_id="run-2", **none)
    (repeat,) = repeated_points(points(*again, runs=(make_run(), make_run(run_id="run-2"))))
    assert (repeat.time_ratio, repeat.disagrees) == (pytest.approx(9), False)


def test_of_two_runs_the_one_with_more_series_is_compared(make_row, make_run, points):
    rows = make_row(seconds=9e-6), make_row(run_id="run-2"), make_row("native", run_id="run-2")
    later = make_run(run_id="run-2", created="2025-01-01T00:00:00Z")
    (comparison,) = find_comparisons(points(*rows, runs=(make_run(), later)))
    assert {entry.row.run_id for entry in comparison.entries} == {"run-2"}


def test_two_machines_are_two_comparisons(make_row, make_run, points):
    rows = make_row(), make_row("native"), make_row(run_id="run-2"), make_row("native", run_id="run-2")
    found = find_comparisons(points(*rows, runs=(make_run(), make_run(run_id="run-2", machine="another"))))
    assert len(found) == 2


def test_the_ratio_is_to_the_faster_native_call_of_the_same_run(make_row, make_run, points):
    rows = (
        make_row(seconds=3e-5),
        make_row("native", seconds=2e-5),
        make_row("native", in_place=True, seconds=1e-5),
        make_row("native", seconds=1e-6, run_id="run-2"),
    )
    ratios = native_ratios(find_comparisons(points(*rows, runs=(make_run(), make_run(run_id="run-2", created="2025")))))
    assert ratios == {("ring", 2): [(1024, pytest.approx(3.0))]}


def test_a_forced_variant_of_native_is_compared_and_not_the_reference(make_row, points):
    rows = make_row("native", seconds=2e-5), make_row("native", variant="tree", seconds=1e-5)
    assert native_ratios(find_comparisons(points(*rows))) == {("native tree", 2): [(1024, pytest.approx(0.5))]}


def test_adjacent_sizes_with_the_same_winner_are_one_interval(make_row, points):
    ring = {8: 1.0, 64: 1.0, 512: 2.0, 4096: 2.0, 32768: 1.0}
    rows = [make_row(nbytes=n, seconds=1e-5 * t) for n, t in ring.items()]
    rows += [make_row("native", nbytes=n, seconds=1.5e-5) for n in ring]
    found = size_intervals(find_comparisons(points(*rows)))
    assert [(s.clear_winner, s.sizes) for s in found] == [
        ("ring", (8, 64)),
        ("native", (512, 4096)),
        ("ring", (32768,)),
    ]
    assert found[0].runner_up_ratios == (pytest.approx(1.5), pytest.approx(1.5))


def test_efficiency_is_busbw_over_that_on_the_fewest_ranks(make_row, points):
    rows = make_row(ranks=4, busbw_Bps=3e9), make_row(ranks=2, busbw_Bps=4e9), make_row("native", 4, busbw_Bps=1e9)
    found = {(e.point.series, e.point.row.ranks): e.value for e in efficiencies(points(*rows))}
    assert found == {("ring", 4): 0.75, ("ring", 2): 1.0, ("native", 4): 1.0}


def test_efficiency_needs_a_bandwidth(make_row, points):
    rows = make_row(ranks=1, busbw_Bps=0.0), make_row(ranks=2, busbw_Bps=4e9), make_row(ranks=4, busbw_Bps=None)
    assert [(e.point.row.ranks, e.value) for e in efficiencies(points(*rows))] == [(2, 1.0)]


@given(st.sets(st.integers(1, 2**30), min_size=1), st.integers(2, 6))
def test_evenly_spaced_values_include_the_ends_and_respect_the_maximum(values, count):
    values = sorted(values)
    chosen = evenly_spaced(values, count)
    assert chosen[0] == values[0]
    assert chosen[-1] == values[-1]
    assert len(chosen) == min(count, len(values))
    assert chosen == sorted(set(chosen))


def test_runs_of_two_variants_are_two_comparisons_each_with_its_own_native(make_row, make_run, points):
    runs = [make_run(run_id=variant) for variant in ("funneled", "multiple")]
    rows = [
        make_row(algorithm, variant=variant, run_id=variant, seconds=seconds)
        for variant, times in (("funneled", (2e-5, 1e-5)), ("multiple", (2e-5, 4e-5)))
        for algorithm, seconds in zip(("ring", "native"), times, strict=True)
    ]
    found = find_comparisons(points(*rows, runs=runs))
    assert [comparison.variant for comparison in found] == ["funneled", "multiple"]
    assert native_ratios(found) == {
        ("ring funneled", 2): [(1024, pytest.approx(2.0))],
        ("ring multiple", 2): [(1024, pytest.approx(0.5))],
    }


@pytest.fixture
def launches(make_node_row, make_bed_run, points):
    """Points of launches of one job each, on so many nodes with those hosts."""

    def make(**hosts):
        runs = [make_bed_run(job, job=job, hosts=names) for job, names in hosts.items()]
        rows = [make_node_row(nodes=len(names), run_id=job, job=job) for job, names in hosts.items()]
        return points(*rows, runs=runs)

    return make


def test_launches_on_a_subset_of_the_hosts_of_the_largest_are_not_mixed(launches):
    nested = launches(two=["n1", "n3"], four=["n1", "n2", "n3", "n4"], other_two=["n2", "n4"])
    assert mixed_hosts(nested) == ()


def test_launches_that_a_line_joins_across_hosts_are_mixed(launches):
    found = mixed_hosts(launches(two=["n1", "n5"], four=["n1", "n2", "n3", "n4"]))
    assert found == (("two", frozenset({"n1", "n5"})), ("four", frozenset({"n1", "n2", "n3", "n4"})))


def test_a_measurement_repeated_on_other_hosts_is_another_line(launches):
    assert mixed_hosts(launches(first=["n1", "n2"], again=["n3", "n4"])) == ()


def test_only_what_several_runs_measured_is_a_repeat(make_row, make_run, points):
    rows = make_row(), make_row(seconds=1.2e-5, run_id="run-2"), make_row(in_place=True)
    (repeat,) = repeated_points(points(*rows, runs=(make_run(), make_run(run_id="run-2"))))
    assert (repeat.time_ratio, repeat.disagrees) == (pytest.approx(1.2), True)
    (close,) = repeated_points(
        points(make_row(), make_row(seconds=1.01e-5, run_id="run-2"), runs=(make_run(), make_run(run_id="run-2")))
    )
    assert not close.disagrees


def test_each_mapping_has_its_own_comparison_and_native(make_row, points):
    times = {("ring", "block"): 2e-5, ("native", "block"): 4e-5, ("ring", "cyclic"): 9e-5, ("native", "cyclic"): 6e-5}
    found = find_comparisons(points(*(make_row(a, mapping=mapping, seconds=t) for (a, mapping), t in times.items())))
    assert {comparison.mapping: comparison.fastest.row.algorithm for comparison in found} == {
        "block": "ring",
        "cyclic": "native",
    }
    assert native_ratios(found) == {
        ("ring block", 2): [(1024, pytest.approx(0.5))], ("ring cyclic", 2): [(1024, pytest.approx(1.5))],
    }  # fmt: skip


def test_the_traffic_of_a_call_is_no_parameter_of_native(make_row, points):
    call = {"collective": "all_to_all_v", "op": None, "params": {"traffic": "random"}}
    found = points(make_row("pairwise", seconds=2e-5, **call), make_row("native", **call))
    assert native_ratios(find_comparisons(found)) == {("pairwise", 2): [(1024, pytest.approx(2.0))]}


@pytest.fixture
def by_executor(make_row, make_run, points):
    """Points of two launches of the same work: by the compiled executor, and later by the Python executor."""
    times = {"compiled": {"ring": 2e-6, "native": 1e-6}, "python": {"ring": 9e-6, "native": 6e-6, "tree": 9e-6}}
    rows = [
        make_row(name, executor=executor, run_id=executor, seconds=seconds)
        for executor, of_launch in times.items()
        for name, seconds in of_launch.items()
    ]
    return points(*rows, runs=[make_run(run_id=executor, created=executor) for executor in times])


def test_each_executor_has_its_own_comparison_and_native(by_executor):
    found = find_comparisons(by_executor)
    assert {comparison.executor: comparison.fastest.series for comparison in found} == {
        "compiled executor": "native", "python executor": "native (python)",
    }  # fmt: skip
    assert native_ratios(found) == {
        ("ring", 2): [(1024, pytest.approx(2.0))],
        ("ring (python)", 2): [(1024, pytest.approx(1.5))],
        ("tree (python)", 2): [(1024, pytest.approx(1.5))],
    }


def test_a_point_of_the_other_executor_is_no_repeat(by_executor):
    assert repeated_points(by_executor) == ()


def test_rows_of_one_launch_by_different_executors_are_not_compared(make_row, points):
    found = find_comparisons(points(make_row(executor="python"), make_row("native", executor="compiled")))
    assert [comparison.runner_up_ratio for comparison in found] == [None, None]
