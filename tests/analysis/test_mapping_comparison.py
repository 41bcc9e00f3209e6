"""Comparison of mappings: ratios at each size, bytes between racks, and the finding about both."""

from dataclasses import replace

import pytest

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.mapping_comparison import mapping_findings, mapping_table
from hpccoll.render.answers import Answers
from hpccoll.render.report_writer import render_page

LARGE = 4 << 20
CASES = {
    ("ring", "block"): (1.25, 3.5),
    ("ring", "cyclic"): (5.0, 14.0),
    ("hierarchical", "block"): (1.0, 2.0),
    ("hierarchical", "cyclic"): (1.01, 2.0),
    ("native", "block"): (1.5, None),
    ("native", "cyclic"): (4.5, None),
}
"""The seconds that a large message takes, and its bytes between two racks of four nodes over S."""


@pytest.fixture
def racked(make_node_row, make_bed_run, of_rows):
    """A sweep on eight nodes in two racks: small messages take the same all, and half of the calls twice as long."""
    rows = [
        replace(
            make_node_row(nodes=8, nbytes=nbytes, in_place=in_place, mapping=mapping, seconds=time * (1 + in_place)),
            algorithm=algorithm,
            rack_bytes_predicted=crossed and round(crossed * nbytes),
            racks=2,
        )
        for (algorithm, mapping), (seconds, crossed) in CASES.items()
        for nbytes, time in ((4096, 1e-3), (LARGE, seconds))
        for in_place in (False, True)
    ]
    return of_rows(*rows, runs=(make_bed_run(),))


def test_the_table_has_the_ratio_at_each_size_and_the_bytes_between_racks(racked):
    (group,) = chart_groups(racked)
    head, body = mapping_table(group)
    assert head == ["time over the fastest's", "on", "4 KiB", "4 MiB", "between racks"]
    assert body == [
        ["hierarchical block", "8 nodes", "1.00x", "1.00x", "2.000 S"],
        ["hierarchical cyclic", "8 nodes", "1.00x", "1.01x", "2.000 S"],
        ["ring block", "8 nodes", "1.00x", "1.25x", "3.500 S"],
        ["native block", "8 nodes", "1.00x", "1.50x", "its schedule is not known"],
        ["native cyclic", "8 nodes", "1.00x", "4.50x", "its schedule is not known"],
        ["ring cyclic", "8 nodes", "1.00x", "5.00x", "14.000 S"],
    ]
    assert "<td>ring cyclic</td>" in render_page(racked, Answers([]), (group,), (), "racks")


def test_the_finding_has_the_cost_of_the_slower_mapping_and_its_bytes(racked):
    (group,) = chart_groups(racked)
    (finding,) = mapping_findings(group)
    assert (finding.values["nbytes"], finding.values["shape"]) == (LARGE, "8 nodes")
    slow = {"fast": "block", "slow": "cyclic"}
    assert finding.values["series"] == (
        {"name": "ring", "ratio": pytest.approx(4.0), "clear": True, "rack_sizes": pytest.approx((3.5, 14.0)), **slow},
        {"name": "hierarchical", "ratio": pytest.approx(1.01), "clear": False, "rack_sizes": None, **slow},
        {"name": "native", "ratio": pytest.approx(3.0), "clear": True, "rack_sizes": None, **slow},
    )


def of_rounds(row, *seconds, runs=("run-1",) * 3):
    """The row as three rounds of a few seconds had it, each sure to 1 %, measured by the runs given."""
    ends = tuple((time * 0.99, time * 1.01) for time in seconds)
    return replace(row, rounds=3, round_medians_s=seconds, round_intervals_s=ends, round_run_ids=runs, run_id=runs[-1])


def test_no_ratio_to_the_fastest_is_below_1(racked, of_rows):
    rows = [row for row in racked.rows if row.algorithm == "ring" and not row.in_place and row.bytes == LARGE]
    block, cyclic = (next(row for row in rows if row.mapping == mapping) for mapping in ("block", "cyclic"))
    several = (
        of_rounds(replace(block, median_s=2.4), 1.2, 6.0, 2.4),
        of_rounds(replace(cyclic, median_s=4.0), 1.0, 5.0, 4.0),  # faster in two rounds of three
    )
    (group,) = chart_groups(of_rows(*several, runs=racked.runs))
    assert [line[0:3:2] for line in mapping_table(group)[1]] == [["ring cyclic", "1.00x"], ["ring block", "1.20x"]]


def test_a_job_that_was_interrupted_between_its_rounds_has_one_table(racked, make_bed_run, of_rows):
    rows = (
        of_rounds(row, *[row.median_s] * 3, runs=("a", "a", "b" if row.algorithm == "ring" else "a"))
        for row in racked.rows
    )
    (resumed,) = chart_groups(of_rows(*rows, runs=(make_bed_run("a"), make_bed_run("b"))))
    (whole,) = chart_groups(racked)
    assert mapping_table(resumed) == mapping_table(whole)


def test_the_finding_uses_the_largest_size_with_several_mappings(racked, of_rows):
    rows = [row for row in racked.rows if row.mapping == "block" or row.bytes < LARGE]
    (group,) = chart_groups(of_rows(*rows, runs=racked.runs))
    (finding,) = mapping_findings(group)
    assert finding.values["nbytes"] == 4096
    assert [(cost["clear"], cost["ratio"]) for cost in finding.values["series"]] == [(False, 1.0)] * 3


def test_one_rack_has_no_bytes_between_racks(racked, of_rows):
    rows = (replace(row, rack_bytes_predicted=None) for row in racked.rows)
    (group,) = chart_groups(of_rows(*rows, runs=racked.runs))
    head, body = mapping_table(group)
    assert {len(head)} == {len(line) for line in body} == {4}
    (finding,) = mapping_findings(group)
    assert {cost["rack_sizes"] for cost in finding.values["series"]} == {None}


def test_runs_with_one_mapping_each_are_not_compared(results, racked, make_bed_run, of_rows):
    separate = [replace(row, run_id=row.mapping) for row in racked.rows]
    for found in (results, of_rows(*separate, runs=(make_bed_run("block"), make_bed_run("cyclic")))):
        (group,) = chart_groups(found)
        assert mapping_table(group)[1] == list(mapping_findings(group)) == []
