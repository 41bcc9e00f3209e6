"""The heading of the page and the sentence below it: what was measured where."""

import pytest

from hpccoll.report.chart_groups import chart_groups
from hpccoll.report.measured_summary import measured_heading, measured_summary


@pytest.mark.parametrize(
    ("shapes", "heading"),
    [
        ([(2, 1)], "all_reduce on 2 ranks"),
        ([(2, 1), (4, 1), (8, 1)], "all_reduce on 2, 4 and 8 ranks"),
        ([(4, 4), (2, 2)], "all_reduce on 2 and 4 nodes"),
        ([(8, 4), (4, 4)], "all_reduce on 4 and 8 ranks of 4 nodes"),
    ],
)
def test_the_heading_has_the_collective_and_its_ranks_or_nodes(make_row, of_rows, shapes, heading):
    rows = [make_row(ranks=ranks, nodes=nodes, ranks_per_node=ranks // nodes) for ranks, nodes in shapes]
    assert measured_heading(chart_groups(of_rows(*rows))) == heading


def test_several_collectives_are_counted(make_row, of_rows):
    groups = chart_groups(of_rows(make_row(), make_row(collective="all_gather", op=None)))
    assert measured_heading(groups) == "2 collectives on 2 ranks"
    assert measured_summary(groups).startswith("1 algorithm, 1 KiB, float32 sum, 1 round; measured on ")


def test_the_summary_names_series_sizes_machines_and_the_library_of_native(make_row, make_run, of_rows):
    rows = [make_row(name, nbytes=n) for name in ("ring", "native", "null") for n in (8, 64)]
    known = make_run(provenance={"mpi": {"version": "MPICH 5.0.2"}})
    summary = measured_summary(chart_groups(of_rows(*rows, runs=(known,))))
    assert summary == (
        f"ring, native, 8 B to 64 B, float32 sum, 1 round; measured on {known.machine}; MPICH 5.0.2 (native: MPICH's "
        "own)."
    )
    unknown = measured_summary(chart_groups(of_rows(*rows, runs=(make_run(provenance={}),))))
    assert unknown.endswith(f"measured on {known.machine}.")


def test_without_a_usable_row_the_heading_says_what_was_attempted(make_row, of_rows):
    groups = chart_groups(of_rows(make_row(status="failed", median_s=None, busbw_Bps=None)))
    assert measured_heading(groups) == "all_reduce on 2 ranks"
    assert "no usable result" in measured_summary(groups)
    assert measured_heading(()) == "No results"
