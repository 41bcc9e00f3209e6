"""The findings of a group: kinds and values, not sentences."""

from dataclasses import replace

import pytest
from finding_values import kinds_of, only_values, values_of_kind

from hpccoll.report.chart_groups import chart_groups
from hpccoll.report.findings import native_ratio_table


@pytest.fixture
def group_of(of_rows):
    """``group_of(*rows, runs=None)`` returns the only group of some rows."""

    def make(*rows, runs=None):
        (group,) = chart_groups(of_rows(*rows, runs=runs))
        return group

    return make


def by_place(group):
    return {values["shape"]: values for values in values_of_kind(group, "fastest")}


def test_the_fastest_series_has_its_sizes_and_its_lead(make_row, group_of):
    ring = {8: 1.0, 64: 1.25, 512: 2.0, 4096: 1.5}
    rows = [make_row(nbytes=n, seconds=1e-5 * t) for n, t in ring.items()]
    rows += [make_row("native", nbytes=n, seconds=1.5e-5) for n in ring]
    values = by_place(group_of(*rows))["2 ranks"]
    assert values["leaders"] == (
        {"series": "ring", "sizes": ((8, 64),), "ratios": pytest.approx((1.2, 1.5))},
        {"series": "native", "sizes": ((512, 512),), "ratios": pytest.approx((4 / 3, 4 / 3))},
    )
    assert (values["undecided"], values["undecided_sizes"]) == (((4096, 4096),), 1)


def test_without_a_rival_there_is_no_fastest_series(make_row, group_of):
    assert kinds_of(group_of(make_row())) == ["highest_busbw", "measured_once"]


def test_the_highest_bandwidth_is_never_that_of_the_floor(make_row, group_of):
    rows = make_row(busbw_Bps=3.2e9, in_place=True, half_interval=0), make_row("null", busbw_Bps=9e9)
    values = only_values(group_of(*rows), "highest_busbw")
    assert (values["busbw"], values["series"], values["shape"]) == (3.2e9, "ring", "2 ranks")
    assert (values["nbytes"], values["placement"], values["burst"]) == (1024, "in place", None)
    assert values["interval"] == pytest.approx((3.2e9, 3.2e9))


def test_the_highest_bandwidth_has_the_interval_of_its_time(make_row, group_of):
    row = make_row(busbw_Bps=3.2e9, seconds=1e-5, ci_low_s=8e-6, ci_high_s=4e-4)
    assert only_values(group_of(row), "highest_busbw")["interval"] == pytest.approx((80e6, 4e9))
    without = replace(row, ci_low_s=None, ci_high_s=None)
    assert only_values(group_of(without), "highest_busbw")["interval"] is None


def test_auto_is_left_out_of_the_highest_bandwidth_and_has_a_value_of_its_own(make_row, group_of):
    best = make_row(busbw_Bps=3.2e9)
    rows = best, make_row("auto", busbw_Bps=3.4e9), make_row("auto", nbytes=8, busbw_Bps=1e9)
    values = only_values(group_of(*rows), "highest_busbw")
    assert (values["series"], values["busbw"], values["auto_busbw"]) == ("ring", 3.2e9, 3.4e9)


def test_missing_convergence_of_nearly_all_rows_comes_first(make_row, group_of):
    rows = [make_row(nbytes=8 << i, converged=False) for i in range(9)]
    group = group_of(*rows, make_row(nbytes=4))
    assert kinds_of(group)[0] == "not_converged"
    assert only_values(group, "not_converged") == {"loose": 9, "rows": 10, "oversubscribed": False}
    fewer = group_of(*rows, make_row(nbytes=4), make_row(nbytes=2))
    assert kinds_of(fewer)[-1] == "not_converged"


def test_every_rank_count_of_a_sweep_has_a_finding(results):
    (group,) = chart_groups(results)
    assert list(by_place(group)) == ["2 ranks", "3 ranks", "4 ranks"]
    assert {"highest_busbw", "oversubscribed"} <= set(kinds_of(group))


def test_the_table_of_ratios_has_lowest_and_highest_and_what_was_not_measured(results, make_row, group_of):
    (group,) = chart_groups(results)
    head, body = native_ratio_table(group)
    assert head == ["time over native's", "2 ranks", "3 ranks", "4 ranks"]
    assert [row[0] for row in body] == ["recursive_doubling", "ring"]
    assert body[0][2] == "not measured"
    rows = [make_row(nbytes=n, seconds=s) for n, s in ((8, 2e-5), (64, 1e-5))]
    small = group_of(*rows, *(make_row("native", nbytes=n) for n in (8, 64)))
    assert native_ratio_table(small)[1] == [["ring", "1.00x (64 B) to 2.00x (8 B)"]]


def test_a_testbed_has_the_share_of_the_wire_at_the_largest_size_on_each_number_of_nodes(testbed_results):
    (group,) = chart_groups(testbed_results)
    best = only_values(group, "wire_share")["best"]
    assert [(b["series"], round(b["share"], 2), b["nbytes"], b["shape"]) for b in best] == [
        ("ring", 0.98, 4 << 20, "2 nodes"), ("ring", 0.97, 4 << 20, "4 nodes"), ("ring", 0.95, 4 << 20, "8 nodes"),
    ]  # fmt: skip
    assert {b["wire"] for b in best} == {"the calibrated wire"}


def test_no_share_of_the_wire_without_a_wire_that_keeps_its_rate(make_node_row, make_bed_run, group_of, results):
    for changes in ({"wire_Bps": 12_100_000}, {"rate": "none", "rate_bps": None, "wire_Bps": None}):
        assert "wire_share" not in kinds_of(group_of(make_node_row(), runs=(make_bed_run(**changes),)))
    (group,) = chart_groups(results)
    assert "wire_share" not in kinds_of(group)


def test_a_wire_that_was_calibrated_on_a_busy_machine_is_named_with_its_part_of_the_rate(
    make_node_row, make_bed_run, group_of, testbed_results
):
    busy = make_bed_run(wire_Bps=9_829_694, calibration=[{"bytes": 4 << 20, "Bps": 9_829_694}])
    values = only_values(group_of(make_node_row(), runs=(busy,)), "wire_below_rate")
    assert values == {"wire": "100 Mbit/s", "ratio": pytest.approx(0.792, abs=1e-3)}
    (group,) = chart_groups(testbed_results)
    assert "wire_below_rate" not in kinds_of(group)


def test_a_bandwidth_above_the_wire_is_a_burst(make_node_row, make_bed_run, group_of):
    rows = make_node_row(nbytes=1024, busbw_Bps=33e6), make_node_row(busbw_Bps=12e6)
    values = only_values(group_of(*rows, runs=(make_bed_run(),)), "highest_busbw")
    assert (values["busbw"], values["nbytes"]) == (33e6, 1024)
    assert values["burst"] == {"wire": "the calibrated wire", "rate": 12_400_000}


@pytest.mark.parametrize(
    "may",
    [
        {"ranks": 16, "ranks_per_node": 8},
        {"collective": "all_to_all_v"},
        {"aggregators": 1, "worker_sent_predicted": 512, "algbw_Bps": 20e6},
        {"nodes": 1, "ranks_per_node": 2},
    ],
)
def test_what_may_exceed_the_wire_is_no_burst(may, make_node_row, make_bed_run, group_of):
    row = make_node_row(nbytes=1024, busbw_Bps=33e6)
    runs = (make_bed_run(),)
    assert only_values(group_of(row, runs=runs), "highest_busbw")["burst"]
    assert only_values(group_of(replace(row, **may), runs=runs), "highest_busbw")["burst"] is None


def test_a_burst_on_two_rails_exceeds_both(make_node_row, make_bed_run, group_of):
    runs = (make_bed_run(rails=2),)
    both = {"port_sent": {"eth0": 512.0, "rail2": 512.0}}
    for busbw, burst in ((33e6, {"wire": "2 calibrated wires", "rate": 24_800_000}), (20e6, None)):
        row = make_node_row(nbytes=1024, busbw_Bps=busbw, **both)
        assert only_values(group_of(row, runs=runs), "highest_busbw")["burst"] == burst


def test_findings_of_nodes_are_about_nodes(testbed_results):
    (group,) = chart_groups(testbed_results)
    assert list(by_place(group)) == ["2 nodes", "4 nodes", "8 nodes"]
    assert native_ratio_table(group)[0] == ["time over native's", "2 nodes", "4 nodes", "8 nodes"]


def test_each_variant_has_its_own_fastest_series(make_row, make_run, group_of):
    runs = [make_run(run_id=variant) for variant in ("funneled", "multiple")]
    rows = [
        make_row(algorithm, variant=run.run_id, run_id=run.run_id, seconds=seconds * (1 + (run is runs[0])))
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
    ]
    found = by_place(group_of(*rows, runs=runs))
    assert {place: values["leaders"][0]["series"] for place, values in found.items()} == {
        "2 ranks, funneled": "ring funneled", "2 ranks, multiple": "ring multiple",
    }  # fmt: skip


def test_each_executor_has_its_own_fastest_series(make_row, make_run, group_of):
    runs = [make_run(run_id=executor) for executor in ("compiled", "python")]
    rows = [
        make_row(algorithm, executor=run.run_id, run_id=run.run_id, seconds=seconds)
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
    ]
    found = by_place(group_of(*rows, runs=runs))
    assert {place: values["leaders"][0]["series"] for place, values in found.items()} == {
        "2 ranks, compiled executor": "ring", "2 ranks, python executor": "ring (python)",
    }  # fmt: skip
