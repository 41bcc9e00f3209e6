"""Rows of the library are named, described and compared by what ran, not by what was requested."""

from dataclasses import replace

import pytest

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.row_labels import fell_back, node_of_rank, placement_label
from hpccoll.render.charts import FIGURES

LINE = "SHARP coll init error: Cannot create SHARP job(-11)"
REFUSED = {"requested": "sharp", "executed": f"ring (fallback: {LINE})", "variant": "nccl-sharp"}


def test_a_row_is_named_after_what_ran_and_what_was_requested(make_row, of_rows):
    rows = [make_row("native", nbytes=n, **REFUSED) for n in (1024, 4096)]
    rows += [
        make_row("native", nbytes=n, requested="sharp", executed="sharp", run_id="run-2")
        for n in (1024, 4096)
    ]
    (group,) = chart_groups(of_rows(*rows))
    fallback, measured = "native (sharp asked, ring ran) nccl-sharp", "native (sharp)"
    assert {point.series for point in group.points} == {fallback, measured}
    # only SHARP is drawn as the library's
    assert group.legend[measured].number == -1 != group.legend[fallback].number
    time = next(figure for figure in FIGURES if figure.name == "time").specification(group)
    data = (
        [d for values in time["datasets"].values() for d in values]
        if "datasets" in time
        else time["data"]["values"]
    )
    executed = {d["series"]: d["ran"] for d in data if "ran" in d}
    assert executed[fallback] == f"ring (fallback: {LINE})"


def test_an_executed_request_and_a_row_without_a_request_are_no_fallback(make_row):
    row = make_row("native", requested="ring", executed="ring LL128, 16 channels")
    assert not fell_back(row)
    assert not fell_back(replace(row, requested=None))
    assert fell_back(replace(row, requested="tree"))
    by_switches = replace(row, executed="sharp (collnet_direct)")
    assert [
        fell_back(replace(by_switches, requested=word))
        for word in ("sharp", "collnet_direct", "ring")
    ] == [
        False,
        False,
        True,
    ]
    assert fell_back(replace(row, requested="sharp", executed="nvls (not shown to be SHARP)"))


def test_the_buffers_of_a_library_that_has_one_are_no_placement(make_row):
    native = make_row("native", collective="broadcast", in_place=True)
    assert placement_label(native) == ""
    assert placement_label(make_row(collective="broadcast", in_place=True)) == "in place"
    assert placement_label(make_row(collective="send_recv")) == ""


@pytest.mark.parametrize(
    ("mapping", "nodes"),
    [("block", (0, 0, 1, 1)), ("cyclic", (0, 1, 0, 1)), ("mixed", (None,) * 4)],
)
def test_a_rank_is_on_the_node_that_its_mapping_says(make_row, mapping, nodes):
    row = make_row(ranks=4, nodes=2, ranks_per_node=2, mapping=mapping)
    assert tuple(node_of_rank(row, rank) for rank in range(4)) == nodes
