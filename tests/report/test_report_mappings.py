"""Mappings side by side: ratios at each size, what crosses between racks, and a sentence that says both."""

from dataclasses import replace

import pytest

from hpccoll.report.groups import groups
from hpccoll.report.mappings import mapping_findings, mapping_table
from hpccoll.report.page import page

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
        )
        for (algorithm, mapping), (seconds, crossed) in CASES.items()
        for nbytes, time in ((4096, 1e-3), (LARGE, seconds))
        for in_place in (False, True)
    ]
    return of_rows(*rows, runs=(make_bed_run(),))


def test_every_series_stands_beside_the_fastest_at_each_size_with_what_it_sends_between_racks(racked):
    (group,) = groups(racked)
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
    assert "<td>ring cyclic</td>" in page(racked, (group,), (), "racks")


def test_a_sentence_says_what_the_worse_mapping_costs_and_why(racked):
    (group,) = groups(racked)
    says = (
        "ring takes 4.00 times as long cyclic as block, and sends 14 S between racks instead of 3.5 S; "
        "hierarchical takes as long either way; native takes 3.00 times as long cyclic as block."
    )
    assert list(mapping_findings(group)) == [("Mapping, 4 MiB, 8 nodes", says)]


def test_in_one_rack_nothing_is_said_of_racks(racked, of_rows):
    rows = (replace(row, rack_bytes_predicted=None) for row in racked.rows)
    (group,) = groups(of_rows(*rows, runs=racked.runs))
    head, body = mapping_table(group)
    assert {len(head)} == {len(line) for line in body} == {4}
    ((_, says),) = mapping_findings(group)
    assert "racks" not in says


def test_where_no_run_has_several_mappings_there_is_nothing_to_set_side_by_side(results, racked, make_bed_run, of_rows):
    apart = [replace(row, run_id=row.mapping) for row in racked.rows]
    for found in (results, of_rows(*apart, runs=(make_bed_run("block"), make_bed_run("cyclic")))):
        (group,) = groups(found)
        assert mapping_table(group)[1] == list(mapping_findings(group)) == []
