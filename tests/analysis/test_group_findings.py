"""The findings of a group, by kinds and values: for each rule the rows that show it, on golden pages."""

from dataclasses import replace

import pytest
from finding_values import assert_findings
from row_examples import make_row, rounds_row
from synthetic_timings import KIB, MIB, measured_results

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.mapping_comparison import mapping_table
from hpccoll.analysis.measurement_quality import noise_note
from hpccoll.analysis.sent_bytes import sent_bytes_table
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.charts import FIGURES
from hpccoll.store.schema import COPY_RATES, ON_SHARED_GPU

BIG = 16 << 20


def test_each_rule_of_the_highest_bandwidth_and_the_library_shows_in_its_rows(
    make_node_row, make_bed_run, make_run, of_rows
):
    busbw, certain = "highest_busbw", make_row(busbw_Bps=3.2e9, in_place=True, half_interval=0)
    steady = make_row(nbytes=4096, seconds=1e-6, half_interval=0.02)
    noisy = make_row(nbytes=1024, seconds=1e-7, ci_low_s=5e-8, ci_high_s=4e-6)
    crowded = make_row(ranks=4, nbytes=64, busbw_Bps=2e9)
    burst, sustained = make_node_row(nbytes=1024, busbw_Bps=33e6), make_node_row(busbw_Bps=12e6)
    busy = make_bed_run(wire_Bps=9_829_694, calibration=[{"bytes": 4 << 20, "Bps": 9_829_694}])
    record = LogRecord(library="nccl", version="2.30.7")
    nccl = make_run(
        evidence=ProbeResult(record=record, balance="balanced: each GPU has a NIC at PIX").to_json()
    )

    shared = make_run(
        provenance={
            COPY_RATES: {
                "ranks": 2,
                "sizes": [{"bytes": size, "Bps": 40e9} for size in (1 << 16, 1 << 26)],
            }
        }
    )

    def on_node(share, **changes):
        """Return rows of two ranks: a ring that reaches such a share of what memory allows, and native with half."""
        seconds = 5 * BIG / 40e9 / share
        rows = (
            make_row(nbytes=BIG, seconds=seconds, **changes),
            make_row("native", nbytes=BIG, seconds=2 * seconds),
        )
        return "memory_share", of_rows(*rows, make_row(nbytes=MIB), runs=[shared])

    def library(**changes):
        row = make_node_row("native", 4, seconds=(4 << 20) / 1e7, **changes)
        return f"wire_share {busbw}", of_rows(row, runs=[make_bed_run()])

    unknown = make_row("native", requested="sharp", executed="unknown", evidence="the probe failed")
    assert_findings("group_findings", {
        "it is not of the floor or of auto, which has a value of its own": (
            busbw, of_rows(certain, make_row("null", busbw_Bps=9e9), make_row("auto", busbw_Bps=3.4e9))),
        "it has no interval if its time has none": (busbw, of_rows(replace(certain, ci_low_s=None, ci_high_s=None))),
        "it is no cell of noise": (busbw, of_rows(steady, noisy)),
        "it is of ranks with cores of their own": (busbw, of_rows(make_row(busbw_Bps=1e9), crowded)),
        "unless all share cores": (busbw, of_rows(crowded)),
        "it is no burst above the wire": (busbw, of_rows(burst, sustained, runs=[make_bed_run()])),
        "not even of bursts alone": (busbw, of_rows(burst, runs=[make_bed_run()])),
        "a wire was calibrated on a busy machine": ("wire_uncalibrated", of_rows(make_node_row(), runs=[busy])),
        "on one node the best has a share of what memory allows, at the largest size": on_node(0.95),
        "more than all is caches or a disturbed copy": on_node(1.2),
        "a ring has a share of the wire": library(executed="ring"),
        "so has a fallback": library(executed="ring (fallback: no nvls)"),
        "and what is not shown": library(executed="unknown"),
        "switches have algbw instead": library(executed="sharp (by CollNet)"),
        "so has NVLS": library(executed="nvls"),
        "and a chain of CollNet": library(executed="collnet_chain"),
        "ranks that share a GPU have neither": library(executed="ring", kind=ON_SHARED_GPU),
        "a request without evidence is no fallback to a known algorithm": ("fallback", of_rows(unknown)),
        "the library has its version and the balance of adapters": (
            "library", of_rows(make_row("native", transport="nccl"), runs=[nccl])),
    })  # fmt: skip


def test_each_rule_of_the_quality_of_measurements_shows_in_its_rows(
    make_node_row, make_bed_run, make_run, of_rows
):
    two = make_run(), make_run(run_id="run-2")
    whole = rounds_row("ring", 10, 10)
    resumed = replace(
        rounds_row("ring", 10, 10, runs=["run-1", "run-2"]), bytes=8, requested_bytes=8
    )
    twice = [make_row(nbytes=n, seconds=s, run_id=r) for r, n, s in (
        ("run-1", 1024, 1e-5), ("run-1", 64, 1e-5), ("run-2", 1024, 1.5e-5), ("run-2", 64, 1e-5),
    )]  # fmt: skip
    joined = make_node_row(run_id="a", job="small"), make_node_row(nodes=4, run_id="b")
    beds = make_bed_run("a", job="small", hosts=["n9", "n10"]), make_bed_run("b", 4)

    def on_hosts(*names):
        runs = make_run(run_id="a"), make_run(run_id="b", provenance={"hosts": names})
        return "rounds_on_different_hosts", of_rows(
            rounds_row("ring", 10, 10, runs=["a", "b"]), runs=runs
        )

    assert_findings("quality_findings", {
        "each case was measured by one launch": ("measured_once", of_rows(whole, runs=two)),
        "a case has rounds of several launches": ("measured_once", of_rows(whole, resumed, runs=two)),
        "two runs disagree at one of two points": ("repeated_points", of_rows(*twice, runs=two)),
        "a line joins launches on other hosts": ("mixed_hosts", of_rows(*joined, runs=beds)),
        "rounds on the same host": on_hosts("alpha"),
        "whose name has a domain": on_hosts("alpha.cluster.example"),
        "rounds on different hosts": on_hosts("beta"),
        "the slowest round over the fastest, typically and at most": ("between_rounds", of_rows(
            rounds_row("ring", 10, 10, 20), rounds_row("native", 10, 11, 10), rounds_row("tree", 10, 10, 13))),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("curves", "drift", "words"),
    [
        (
            {"ring": {KIB: 1e-5}, "star": {KIB: 1e-5}},
            (1, 1.1, 3),
            "Noise: the slowest round of a case takes 3.00x as long",
        ),
        (
            {"ring": {KIB: 1e-5}},
            (1, 1.01, 1.02),
            "Noise: the slowest round of a case takes 1.02x as long",
        ),
        ({"ring": {KIB: 1e-4, MIB: 2e-4}}, (1,), "Noise: each case was measured in one round"),
        ({"null": {KIB: 1e-4}}, (1,), ""),
    ],
)
def test_noise_is_one_sentence(curves, drift, words):
    sentence = noise_note(measured_results(curves, drift=drift))
    assert sentence.startswith(words)
    assert bool(sentence) == bool(words)


def test_intervals_that_are_too_wide_are_beside_the_widths_that_their_runs_requested(
    of_rows, make_run
):
    runs = [
        replace(make_run(run_id=name), precision=precision)
        for name, precision in (("a", 0.02), ("b", 0.005))
    ]
    rows = [
        make_row(run_id=run_id, nbytes=nbytes, converged=nbytes > 8)
        for run_id in "ab"
        for nbytes in (8, 64)
    ]
    assert noise_note(of_rows(*rows, runs=runs)).endswith(
        "; 2 of 4 intervals are wider than the requested +-0.5 % or +-2 %."
    )
    assert noise_note(of_rows(*rows[:2], runs=runs)).endswith(
        "1 of 2 intervals are wider than the requested +-2 %."
    )


LARGE = 4 << 20
CASES = {
    ("ring", "block"): (1.25, 3.5), ("ring", "cyclic"): (5.0, 14.0), ("hierarchical", "block"): (1.0, 2.0),
    ("hierarchical", "cyclic"): (1.01, 2.0), ("native", "block"): (1.5, None), ("native", "cyclic"): (4.5, None),
}  # fmt: skip
"""The seconds that a large message takes, and its bytes between two racks of four nodes over S."""


def test_each_rule_of_the_comparison_of_mappings_shows_in_its_rows(
    results, make_node_row, make_bed_run, of_rows
):
    rows = [
        replace(
            make_node_row(
                nodes=8,
                nbytes=nbytes,
                in_place=in_place,
                mapping=mapping,
                seconds=time * (1 + in_place),
            ),
            algorithm=algorithm,
            rack_bytes_predicted=crossed and round(crossed * nbytes),
            racks=2,
        )
        for (algorithm, mapping), (seconds, crossed) in CASES.items()
        for nbytes, time in ((4096, 1e-3), (LARGE, seconds))
        for in_place in (False, True)
    ]
    block, cyclic = (
        row for row in rows if row.algorithm == "ring" and not row.in_place and row.bytes == LARGE
    )

    def of_rounds(row, *seconds, runs=("run-1",) * 3):
        ends = tuple((time * 0.99, time * 1.01) for time in seconds)
        return replace(
            row,
            median_s=seconds[-1],
            rounds=3,
            round_medians_s=seconds,
            round_intervals_s=ends,
            round_run_ids=runs,
            run_id=runs[-1],
        )

    def on_beds(*rows, names=("run-1",)):
        return of_rows(*rows, runs=[make_bed_run(name) for name in names])

    launches = [
        of_rounds(r, *[r.median_s] * 3, runs=("a", "a", "b" if r.algorithm == "ring" else "a"))
        for r in rows
    ]
    one_each = on_beds(
        *(replace(row, run_id=row.mapping) for row in rows), names=("block", "cyclic")
    )
    small = on_beds(*(row for row in rows if row.mapping == "block" or row.bytes < LARGE))
    one_rack = on_beds(*(replace(row, rack_bytes_predicted=None) for row in rows))
    cost = "mapping_cost"
    assert_findings("mapping_findings", {
        "the ratio to the fastest at each size, and the bytes between racks": (mapping_table, on_beds(*rows)),
        "what the slower mapping of each series costs": (cost, on_beds(*rows)),
        "a job that was interrupted between its rounds has one table": (
            mapping_table, on_beds(*launches, names=("a", "b"))),
        "no ratio is below 1, even if another is faster in two rounds of three": (
            mapping_table, on_beds(of_rounds(block, 1.2, 6.0, 2.4), of_rounds(cyclic, 1.0, 5.0, 4.0))),
        "the largest size with several mappings counts": (cost, small),
        "one rack has no bytes between racks": (mapping_table, one_rack),
        "nor has the finding": (cost, one_rack),
        "one mapping is not compared": (cost, results),
        "nor are mappings of different runs": (cost, one_each),
        "and have no table": (mapping_table, one_each),
    })  # fmt: skip


ONE, BOTH = {"eth0": 0.99 * BIG, "rail2": 0.01 * BIG}, {"eth0": 0.5 * BIG, "rail2": 0.5 * BIG}
"""What the library has to say goes over the other rail even where messages do not."""


def test_each_rule_of_the_bytes_of_nodes_shows_in_its_rows(
    valid, testbed_results, make_node_row, make_bed_run, of_rows
):
    def on_bed(*rows, nodes=2):
        runs = [
            make_bed_run(run, nodes, rails=2) for run in dict.fromkeys(row.run_id for row in rows)
        ]
        return of_rows(*rows, runs=runs)

    def row(**changes):
        return make_node_row(**{"nbytes": BIG, "seconds": 1.0, "port_sent": BOTH, **changes})

    one = row(seconds=2.0, port_sent=ONE)
    rails = [
        row(algorithm=name, nbytes=nbytes, seconds=seconds, variant=variant, port_sent=ports, run_id=f"run-{variant}")
        for name, variant, seconds, ports in (
            ("ring", "one", 2.0, ONE), ("ring", "two", 1.0, BOTH), ("native", "one", 2.0, ONE),
            ("native", "two", 2.1, ONE),
        )
        for nbytes in (4096, BIG)
    ]  # fmt: skip
    aggregated = row(
        nodes=4,
        aggregators=1,
        worker_sent_predicted=1.0 * BIG,
        worker_sent_measured=1.01 * BIG,
        worker_received_predicted=1.0 * BIG,
        worker_received_measured=1.02 * BIG,
        wire_bytes_predicted=8 * BIG,
        wire_bytes_measured=8 * BIG,
    )
    control = row(
        algorithm="native",
        nodes=4,
        worker_sent_measured=1.52 * BIG,
        variant="nccl-sharp-off",
        executed="ring",
    )
    sharp = replace(
        control,
        worker_sent_measured=1.01 * BIG,
        variant="nccl-sharp",
        requested="sharp",
        executed="sharp (collnet_direct)",
    )
    assert_findings("sent_bytes", {
        "the ports of each series, and the gain of a second rail": ("rails", on_bed(*rails)),
        "a gain is over the same mapping": ("rails", on_bed(one, row(mapping="cyclic"))),
        "and over the same transport": ("rails", on_bed(one, row(transport="tiered"))),
        "the most nodes count": ("rails", on_bed(row(), row(nodes=4), nodes=4)),
        "nodes with one port have no rails": ("rails", testbed_results),
        "measured and counted bytes at the largest size": (sent_bytes_table, testbed_results),
        "workers and aggregators have separate cells": (sent_bytes_table, on_bed(aggregated, nodes=4)),
        "requested switches have the bytes with and without them": (
            sent_bytes_table, on_bed(sharp, control, nodes=4)),
        "without a request the schedule is not known": (sent_bytes_table, on_bed(control, nodes=4)),
    })  # fmt: skip
    (figure,) = (figure for figure in FIGURES if figure.name == "rails")
    ((of_rails,), (one_port,)) = (chart_groups(each) for each in (on_bed(*rails), testbed_results))
    (drawn,) = valid(figure.specification(of_rails))["datasets"].values()
    bars = {(bar["series"], bar["port"]): bar["value"] for bar in drawn}
    assert [bars["ring two", port] for port in BOTH] == [0.5, 0.5]
    assert [bars["native two", port] for port in ONE] == [0.99, 0.01]
    assert figure.specification(one_port) is None
