"""The findings of a group: kinds and values, not sentences."""

from dataclasses import replace

import pytest
from finding_values import kinds_of, only_values, values_of_kind

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings


def test_the_highest_bandwidth_is_never_that_of_the_floor_or_of_auto_which_has_a_value_of_its_own(make_row, group_of):
    rows = make_row(busbw_Bps=3.2e9, in_place=True, half_interval=0), make_row("null", busbw_Bps=9e9)
    rows += (make_row("auto", busbw_Bps=3.4e9),)
    values = only_values(group_of(*rows), "highest_busbw")
    assert (values["busbw"], values["series"], values["shape"]) == (3.2e9, "ring", "2 ranks")
    assert (values["nbytes"], values["placement"]) == (1024, "in place")
    assert (values["interval"], values["auto_busbw"]) == (pytest.approx((3.2e9, 3.2e9)), 3.4e9)


def test_the_highest_bandwidth_has_the_interval_of_its_time(make_row, group_of):
    row = make_row(busbw_Bps=3.2e9, seconds=1e-5, ci_low_s=8e-6, ci_high_s=4e-4)
    assert only_values(group_of(row), "highest_busbw")["interval"] == pytest.approx((80e6, 4e9))
    without = replace(row, ci_low_s=None, ci_high_s=None)
    assert only_values(group_of(without), "highest_busbw")["interval"] is None


def test_a_testbed_has_the_share_of_the_wire_at_the_largest_size_on_each_number_of_nodes(testbed_results):
    (group,) = chart_groups(testbed_results)
    best = only_values(group, "wire_share")["best"]
    assert [(b["series"], round(b["share"], 2), b["nbytes"], b["shape"]) for b in best] == [
        ("ring", 0.98, 4 << 20, "2 nodes"), ("ring", 0.97, 4 << 20, "4 nodes"), ("ring", 0.95, 4 << 20, "8 nodes"),
    ]  # fmt: skip
    assert {b["wire"] for b in best} == {"the calibrated wire"}


def test_a_wire_that_was_calibrated_on_a_busy_machine_is_named_with_its_part_of_the_rate(
    make_node_row, make_bed_run, group_of, testbed_results
):
    busy = make_bed_run(wire_Bps=9_829_694, calibration=[{"bytes": 4 << 20, "Bps": 9_829_694}])
    values = only_values(group_of(make_node_row(), runs=(busy,)), "wire_uncalibrated")
    assert values == {"wire": "100 Mbit/s", "ratio": pytest.approx(0.792, abs=1e-3)}
    (group,) = chart_groups(testbed_results)
    assert "wire_uncalibrated" not in kinds_of(group)


def highest(group):
    (values,) = values_of_kind(group, "highest_busbw")
    return values["busbw"], values["nbytes"]


def test_a_cell_of_noise_is_not_the_highest_bandwidth(make_row, group_of):
    steady = make_row(nbytes=4096, seconds=1e-6, half_interval=0.02)
    noisy = make_row(nbytes=1024, seconds=1e-7, ci_low_s=5e-8, ci_high_s=4e-6)
    assert noisy.busbw_Bps > steady.busbw_Bps
    assert highest(group_of(steady, noisy)) == (steady.busbw_Bps, 4096)


def test_ranks_that_share_cores_have_the_highest_bandwidth_only_if_all_do(make_row, group_of):
    fitting, crowded = make_row(busbw_Bps=1e9), make_row(ranks=4, nbytes=64, busbw_Bps=2e9)
    assert highest(group_of(fitting, crowded)) == (1e9, 1024)
    assert highest(group_of(crowded)) == (2e9, 64)


def test_a_burst_above_the_wire_is_not_the_highest_bandwidth(make_node_row, make_bed_run, group_of):
    burst, sustained = make_node_row(nbytes=1024, busbw_Bps=33e6), make_node_row(busbw_Bps=12e6)
    assert highest(group_of(burst, sustained, runs=(make_bed_run(),))) == (12e6, 4 << 20)
    assert "highest_busbw" not in kinds_of(group_of(burst, runs=(make_bed_run(),)))


def test_warnings_come_first(make_row, group_of):
    rows = make_row(converged=False), make_row(ranks=4), make_row("tree", status="wrong", wrong=2)
    severities = [finding.severity for finding in group_findings(group_of(*rows))]
    assert {"info", "warning"} == set(severities)
    assert severities == sorted(severities, reverse=True)
