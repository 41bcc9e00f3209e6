from dataclasses import replace

import pytest

from hpccoll.report.chart_groups import chart_groups
from hpccoll.report.findings import findings, ratio_table


def said(results):
    (group,) = chart_groups(results)
    return {finding.about: finding.says for finding in findings(group)}


def test_the_fastest_is_named_with_its_sizes_and_its_lead(make_row, of_rows):
    ring = {8: 1.0, 64: 1.25, 512: 2.0, 4096: 1.5}
    rows = [make_row(nbytes=n, seconds=1e-5 * t) for n, t in ring.items()]
    rows += [make_row("native", nbytes=n, seconds=1.5e-5) for n in ring]
    assert said(of_rows(*rows))["2 ranks"] == (
        "ring is fastest from 8 B to 64 B (1.20x to 1.50x ahead); native is fastest at 512 B (1.33x ahead); "
        "no clear winner at 4 KiB."
    )


def test_without_a_rival_nothing_is_said_of_the_fastest(make_row, of_rows):
    assert set(said(of_rows(make_row()))) == {"Highest busbw", "Between launches"}


def test_the_highest_bandwidth_is_never_the_floor(make_row, of_rows):
    rows = make_row(busbw_Bps=3.2e9, in_place=True, half_interval=0), make_row("null", busbw_Bps=9e9)
    assert said(of_rows(*rows))["Highest busbw"] == "3.2 GB/s by ring with 2 ranks at 1 KiB, in place."


def test_the_highest_bandwidth_is_told_with_what_its_interval_leaves_it(make_row, of_rows):
    row = make_row(busbw_Bps=3.2e9, seconds=1e-5, ci_low_s=8e-6, ci_high_s=4e-4)
    begin = "3.2 GB/s (80 MB/s to 4 GB/s by its 95 % interval) by ring with"
    assert said(of_rows(row))["Highest busbw"].startswith(begin)
    few = replace(row, ci_low_s=None, ci_high_s=None)
    assert said(of_rows(few))["Highest busbw"].startswith("3.2 GB/s by ring with")


def test_auto_has_no_highest_bandwidth_and_that_it_was_left_out_is_said(make_row, of_rows):
    best = make_row(busbw_Bps=3.2e9, half_interval=0)
    rows = best, make_row("auto", busbw_Bps=3.4e9), make_row("auto", nbytes=8, busbw_Bps=1e9)
    assert said(of_rows(*rows))["Highest busbw"] == (
        "3.2 GB/s by ring with 2 ranks at 1 KiB, out of place. "
        "auto, which chooses among these and is left out, reached 3.4 GB/s."
    )


def test_what_weakens_a_result_is_said(make_row, make_run, of_rows):
    rows = make_row(ranks=4, converged=False), make_row(run_id="run-2"), make_row("tree", status="wrong", wrong=2)
    words = said(of_rows(*rows, runs=(make_run(), make_run(run_id="run-2", machine="another"))))
    assert words["Wrong"] == "1 row with a wrong result, not drawn: tree."
    assert words["Not converged"].startswith("the interval of 1 of 2 rows")
    assert words["Oversubscribed"].startswith("with 4 ranks there are more processes than cores")
    assert "another" in words["Several machines"]


def test_what_crowds_the_cores_is_counted_with_the_aggregators_that_are_among_it(make_row, of_rows):
    rows = [make_row(ranks=ranks, oversubscribed=True) for ranks in (4, 6, 8)]
    alone = make_row(ranks=2, oversubscribed=False, aggregators=3)
    assert said(of_rows(*rows, alone))["Oversubscribed"].startswith("with 4, 6 and 8 ranks there are more processes")
    beside = make_row("tree", ranks=2, oversubscribed=True, aggregators=1)
    assert said(of_rows(beside))["Oversubscribed"].startswith("with 2 ranks and 1 aggregator there are more processes")


def test_that_nearly_no_row_is_sure_comes_first_with_what_to_do(make_row, of_rows):
    rows = [make_row(nbytes=8 << i, converged=False) for i in range(9)]
    (group,) = chart_groups(of_rows(*rows, make_row(nbytes=4)))
    first = findings(group)[0]
    assert first.about == "Not converged"
    assert first.says.startswith("the interval of 9 of 10 rows did not become tight in time: more time for each case")
    assert first.says.endswith("a machine that nobody else uses.")
    (group,) = chart_groups(of_rows(*rows, make_row(nbytes=4), make_row(nbytes=2)))
    assert findings(group)[0].about != "Not converged"
    (group,) = chart_groups(of_rows(make_row(ranks=4, converged=False)))
    assert "fewer ranks, which wait for a core" in findings(group)[0].says


def test_a_sweep_speaks_of_every_rank_count(results):
    assert {"2 ranks", "3 ranks", "4 ranks", "Highest busbw", "Oversubscribed"} <= set(said(results))


def test_the_table_of_ratios_says_lowest_and_highest_and_what_was_not_measured(results, make_row, of_rows):
    (group,) = chart_groups(results)
    head, body = ratio_table(group)
    assert head == ["time over native's", "2 ranks", "3 ranks", "4 ranks"]
    assert [row[0] for row in body] == ["recursive_doubling", "ring"]
    assert body[0][2] == "not measured"
    rows = [make_row(nbytes=n, seconds=s) for n, s in ((8, 2e-5), (64, 1e-5))]
    (small,) = chart_groups(of_rows(*rows, *(make_row("native", nbytes=n) for n in (8, 64))))
    assert ratio_table(small)[1] == [["ring", "1.00x (64 B) to 2.00x (8 B)"]]


def test_a_testbed_says_what_the_best_reaches_of_the_wire_at_the_largest_size(testbed_results):
    assert said(testbed_results)["Per cent of wire"] == (
        "ring reaches 98 % of the calibrated wire at 4 MiB on 2 nodes; "
        "ring reaches 97 % of the calibrated wire at 4 MiB on 4 nodes; "
        "ring reaches 95 % of the calibrated wire at 4 MiB on 8 nodes."
    )


def test_no_per_cent_of_wire_is_said_without_a_wire_that_keeps_its_rate(make_node_row, make_bed_run, of_rows, results):
    for changes in ({"wire_Bps": 12_100_000}, {"rate": "none", "rate_bps": None, "wire_Bps": None}):
        assert "Per cent of wire" not in said(of_rows(make_node_row(), runs=(make_bed_run(**changes),)))
    assert "Per cent of wire" not in said(results)


def test_why_there_is_no_per_cent_is_said_where_the_machine_was_busy_as_the_wire_was_calibrated(
    make_node_row, make_bed_run, of_rows, testbed_results
):
    busy = make_bed_run(wire_Bps=9_829_694, calibration=[{"bytes": 4 << 20, "Bps": 9_829_694}])
    assert said(of_rows(make_node_row(), runs=(busy,)))["No per cent of wire"] == (
        "a wire carried 79.2 % of what TCP should get of 100 Mbit/s when the testbed came up: "
        "bring it up while the machine is idle."
    )
    assert "No per cent of wire" not in said(testbed_results)


def test_a_burst_above_the_wire_is_said_to_be_one(make_node_row, make_bed_run, of_rows):
    rows = make_node_row(nbytes=1024, busbw_Bps=33e6, half_interval=0), make_node_row(busbw_Bps=12e6)
    assert said(of_rows(*rows, runs=(make_bed_run(),)))["Highest busbw"] == (
        "33 MB/s by ring with 2 nodes at 1 KiB, out of place: a burst, above the calibrated wire (12.4 MB/s)."
    )


@pytest.mark.parametrize(
    "may",
    [
        {"ranks": 16, "ranks_per_node": 8},
        {"collective": "all_to_all_v"},
        {"aggregators": 1, "worker_sent_predicted": 512, "algbw_Bps": 20e6},
        {"nodes": 1, "ranks_per_node": 2},
    ],
)
def test_what_may_pass_the_wire_is_no_burst(may, make_node_row, make_bed_run, of_rows):
    row = make_node_row(nbytes=1024, busbw_Bps=33e6)
    runs = (make_bed_run(),)
    assert "a burst" in said(of_rows(row, runs=runs))["Highest busbw"]
    assert "burst" not in said(of_rows(replace(row, **may), runs=runs))["Highest busbw"]


def test_a_burst_on_two_rails_is_one_above_both(make_node_row, make_bed_run, of_rows):
    runs = (make_bed_run(rails=2),)
    both = {"port_sent": {"eth0": 512.0, "rail2": 512.0}}
    for busbw, says in ((33e6, ": a burst, above 2 calibrated wires (24.8 MB/s)."), (20e6, "out of place.")):
        row = make_node_row(nbytes=1024, busbw_Bps=busbw, **both)
        assert said(of_rows(row, runs=runs))["Highest busbw"].endswith(says)


def test_a_case_whose_rounds_are_of_several_launches_is_not_said_to_be_of_one(make_row, make_run, of_rows):
    runs = make_run(), make_run(run_id="run-2")
    whole = make_row(nbytes=64, round_medians_s=(1e-5,) * 2, round_intervals_s=(None,) * 2)
    whole = replace(whole, round_run_ids=("run-1", "run-1"))
    resumed = replace(whole, bytes=8, requested_bytes=8, round_run_ids=("run-1", "run-2"))
    assert said(of_rows(whole, runs=runs))["Between launches"].startswith("each case was measured in one launch.")
    assert said(of_rows(whole, resumed, runs=runs))["Between launches"].startswith(
        "each case was measured once, the rounds of 1 case in several launches: an interrupted job went on."
    )


def test_findings_of_nodes_are_about_nodes(testbed_results):
    assert {"2 nodes", "4 nodes", "8 nodes"} <= set(said(testbed_results))
    (group,) = chart_groups(testbed_results)
    assert ratio_table(group)[0] == ["time over native's", "2 nodes", "4 nodes", "8 nodes"]


def test_variants_are_spoken_of_apart(make_row, make_run, of_rows):
    runs = [make_run(run_id=variant) for variant in ("funneled", "multiple")]
    rows = [
        make_row(algorithm, variant=run.run_id, run_id=run.run_id, seconds=seconds * (1 + (run is runs[0])))
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
    ]
    words = said(of_rows(*rows, runs=runs))
    assert words["2 ranks, funneled"] == "ring funneled is fastest at 1 KiB (2.00x ahead)."
    assert words["2 ranks, multiple"] == "ring multiple is fastest at 1 KiB (2.00x ahead)."


def test_launches_on_different_hosts_are_named(make_node_row, make_bed_run, of_rows):
    rows = make_node_row(run_id="a"), make_node_row(nodes=4, run_id="b")
    runs = make_bed_run("a", job="small", hosts=["n9", "n10"]), make_bed_run("b", 4)
    words = said(of_rows(*(replace(row, job=run.job) for row, run in zip(rows, runs, strict=True)), runs=runs))
    assert words["Different hosts"].endswith("hosts differ: job small on n9, n10; job mpi.n8x1 on n[1-4].")


def test_runs_that_disagree_are_found(make_row, make_run, of_rows):
    again = make_run(run_id="run-2")
    rows = (
        make_row(),
        make_row(nbytes=64),
        make_row(seconds=1.5e-5, run_id="run-2"),
        make_row(nbytes=64, run_id="run-2"),
    )
    assert said(of_rows(*rows, runs=(make_run(), again)))["Between launches"] == (
        "2 points measured more than once, 1 of them with intervals that do not touch; "
        "at most 1.50x apart: ring with 2 ranks at 1 KiB, out of place."
    )
