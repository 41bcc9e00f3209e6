"""Rows of the library are named, described and compared by what ran, not by what was requested."""

from dataclasses import replace

import pytest
from finding_values import kinds_of, only_values

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.row_labels import fell_back, node_of_rank, offloaded, placement_label
from hpccoll.render.charts import FIGURES
from hpccoll.render.report_columns import rows_table
from hpccoll.store.schema import ON_SHARED_GPU

LINE = "SHARP coll init error: Cannot create SHARP job(-11)"
REFUSED = {"requested": "sharp", "executed": f"ring (fallback: {LINE})", "variant": "nccl-sharp"}


@pytest.fixture
def refused(make_row, of_rows):
    """A sweep in which SHARP was asked for, and refused."""
    rows = [make_row("native", nbytes=n, **REFUSED) for n in (1024, 4096)]
    rows += [make_row("native", nbytes=n, requested="sharp", executed="sharp", run_id="run-2") for n in (1024, 4096)]
    return of_rows(*rows)


def test_a_row_is_named_after_what_ran_and_what_was_requested(refused):
    (group,) = chart_groups(refused)
    fallback, measured = "native (sharp asked, ring ran) nccl-sharp", "native (sharp)"
    assert {point.series for point in group.points} == {fallback, measured}
    assert group.legend[measured].number == -1 != group.legend[fallback].number  # only SHARP is drawn as the library's
    time = next(figure for figure in FIGURES if figure.name == "time").specification(group)
    data = [d for values in time["datasets"].values() for d in values] if "datasets" in time else time["data"]["values"]
    executed = {d["series"]: d["ran"] for d in data if "ran" in d}
    assert executed[fallback] == f"ring (fallback: {LINE})"


def test_a_row_without_evidence_is_named_as_not_shown(make_row, of_rows):
    (group,) = chart_groups(
        of_rows(make_row("native", requested="sharp", executed="unknown", evidence="the probe failed"))
    )
    assert [point.series for point in group.points] == ["native (sharp asked, not shown)"]
    values = only_values(group, "fallback")
    assert (values["requested"], values["executed"], values["rows"]) == ("sharp", None, 1)
    assert values["reasons"] == ("the probe failed",)


def test_the_reason_is_in_the_findings_and_in_the_table(refused):
    (group,) = chart_groups(refused)
    values = only_values(group, "fallback")
    assert (values["requested"], values["executed"], values["rows"]) == ("sharp", "ring", 2)
    assert values["reasons"] == (f"fallback: {LINE}",)
    assert LINE in str(rows_table([group]))


def test_an_executed_request_and_a_row_without_a_request_are_no_fallback(make_row):
    row = make_row("native", requested="ring", executed="ring LL128, 16 channels")
    assert not fell_back(row)
    assert not fell_back(replace(row, requested=None))
    assert fell_back(replace(row, requested="tree"))
    by_switches = replace(row, executed="sharp (collnet_direct)")
    assert [fell_back(replace(by_switches, requested=word)) for word in ("sharp", "collnet_direct", "ring")] == [
        False, False, True,
    ]  # fmt: skip
    assert fell_back(replace(row, requested="sharp", executed="nvls (not shown to be SHARP)"))


def test_switches_have_no_share_of_a_wire_but_their_algbw(make_node_row, make_bed_run, of_rows):
    def group_of(**changes):
        row = make_node_row("native", 4, seconds=(4 << 20) / 1e7, **changes)
        (group,) = chart_groups(of_rows(row, runs=[make_bed_run()]))
        return group

    assert "wire_share" in kinds_of(group_of(executed="ring"))
    for executed in ("ring (fallback: no nvls)", "unknown"):
        assert not offloaded(make_node_row("native", 4, executed=executed))
    for executed in ("nvls", "sharp (by CollNet)", "collnet_chain"):
        group = group_of(executed=executed)
        assert "wire_share" not in kinds_of(group)
        assert only_values(group, "highest_busbw")["offloaded_algbw"] == pytest.approx(1e7)
    assert "wire_share" not in kinds_of(group_of(executed="ring", kind=ON_SHARED_GPU))


def test_the_buffers_of_a_library_that_has_one_are_no_placement(make_row):
    native = make_row("native", collective="broadcast", in_place=True)
    assert placement_label(native) == ""
    assert placement_label(make_row(collective="broadcast", in_place=True)) == "in place"
    assert placement_label(make_row(collective="send_recv")) == ""


@pytest.mark.parametrize(
    ("mapping", "nodes"), [("block", (0, 0, 1, 1)), ("cyclic", (0, 1, 0, 1)), ("mixed", (None,) * 4)]
)
def test_a_rank_is_on_the_node_that_its_mapping_says(make_row, mapping, nodes):
    row = make_row(ranks=4, nodes=2, ranks_per_node=2, mapping=mapping)
    assert tuple(node_of_rank(row, rank) for rank in range(4)) == nodes
