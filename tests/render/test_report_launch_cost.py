"""The finding that launches, not wires, set the time of operations."""

from dataclasses import replace

from hpccoll.render.critical_findings import opening_findings
from hpccoll.render.launch_cost import find_launch_cost

NCCL = {"transport": "nccl", "device": "cuda"}


def graphs(make_row, nbytes, seconds, captured, **changes):
    for graph, time in enumerate((seconds, captured)):
        yield make_row(nbytes=nbytes, seconds=time, params={"graph": graph}, **NCCL, **changes)


def test_cases_that_are_clearly_faster_as_a_graph_are_a_finding_with_their_times(make_row, of_rows):
    rows = [
        *graphs(make_row, 8, 2e-4, 5e-5), *graphs(make_row, 1024, 2.1e-4, 6e-5),
        *graphs(make_row, 1 << 20, 3e-4, 2.9e-4),
    ]  # fmt: skip
    (found,) = opening_findings(of_rows(*rows))
    assert (found.kind, found.severity) == ("launch_cost", "info")
    assert found.values == {
        "collective": "all_reduce", "cases": 2, "compared": 3, "largest": 1024, "choice": "ring",
        "shape": "2 ranks", "nbytes": 8, "pair": "", "placement": "out of place", "seconds": 2e-4,
        "without_launches": 5e-5,
    }  # fmt: skip


def test_a_lead_that_is_small_or_not_clear_is_no_finding(make_row, of_rows):
    small = [*graphs(make_row, 8, 1.2e-5, 1e-5, half_interval=0.001)]
    unclear = [*graphs(make_row, 8, 2e-5, 1e-5, half_interval=0.6)]
    for rows in (small, unclear, [small[0]], [small[0], replace(unclear[1], run_id="another")]):
        assert find_launch_cost(of_rows(*rows)) == ()


def test_graphs_of_other_timings_are_not_compared(make_row, of_rows):
    aggregated = [replace(row, timing="aggregated") for row in graphs(make_row, 8, 2e-4, 5e-5)]
    assert find_launch_cost(of_rows(*aggregated)) == ()
    assert find_launch_cost(of_rows(next(graphs(make_row, 8, 2e-4, 5e-5)), aggregated[1])) == ()
