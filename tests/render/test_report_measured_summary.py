"""The heading of the page and the sentence below it: what was measured where."""

import pytest

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.measured_summary import gpu_machines, measured_heading, measured_summary

LOADED = [{"hosts": ["n1"], "library": {"version": "2.30.7", "files": ["/opt/libnccl.so.2"]}}]
"""The NCCL that the ranks of each host have loaded."""


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


def test_the_summary_names_series_sizes_and_machines(make_row, make_run, of_rows):
    rows = [make_row(name, nbytes=n) for name in ("ring", "native", "null") for n in (8, 64)]
    run = make_run(provenance={})
    summary = measured_summary(chart_groups(of_rows(*rows, runs=(run,))))
    assert summary == f"ring, native, 8 B to 64 B, float32 sum, 1 round; measured on {run.machine}."


LOG = ProbeResult(record=LogRecord(library="nccl", version="2.30.7", build="+cuda12.9")).to_json()
MPICH, NEWER = {"version": "MPICH 5.0.2"}, [{"hosts": ["n1"], "library": {"version": "2.30.70", "files": []}}]


@pytest.mark.parametrize(
    ("transport", "runs", "libraries"),
    [
        ("mpi", [({"mpi": MPICH}, None)], "MPICH 5.0.2 (native: MPICH's own)"),
        ("nccl", [({"mpi": MPICH, "nccl": LOADED}, LOG)], "MPICH 5.0.2 and NCCL 2.30.7+cuda12.9 (native: NCCL's own)"),
        ("nccl", [({"mpi": MPICH, "nccl": LOADED}, None)], "MPICH 5.0.2 and NCCL 2.30.7 (native: NCCL's own)"),
        (  # the same version with and without its build, and another one that begins with it
            "nccl",
            [({"nccl": LOADED}, LOG), ({"nccl": LOADED}, None), ({"nccl": NEWER}, None)],
            "NCCL 2.30.7+cuda12.9 and NCCL 2.30.70",
        ),
    ],
)
def test_the_libraries_have_their_builds_by_their_logs_and_else_their_versions(
    make_row, make_run, of_rows, transport, runs, libraries
):
    made = [
        make_run(run_id=str(number), provenance=known, evidence=evidence)
        for number, (known, evidence) in enumerate(runs)
    ]
    rows = [make_row("native", transport=transport, run_id=run.run_id) for run in made]
    assert measured_summary(chart_groups(of_rows(*rows, runs=made))).endswith(f"; {libraries}.")


def test_a_terminal_gets_each_machine_with_gpus_once_and_no_other(make_run, of_rows, make_row):
    gpus = [{"hosts": ["n1"], "gpus": [{"name": "NVIDIA H100"}]}]
    with_gpus = [make_run(run_id=name, provenance={"gpus": gpus, "nccl": LOADED}) for name in ("a", "b")]
    results = of_rows(make_row(), runs=(*with_gpus, make_run(run_id="c", provenance={"gpus": None})))
    assert [*gpu_machines(results)] == [f"measured on {with_gpus[0].machine}; NCCL 2.30.7"]


def test_without_a_usable_row_the_heading_says_what_was_attempted(make_row, of_rows):
    groups = chart_groups(of_rows(make_row(status="failed", median_s=None, busbw_Bps=None)))
    assert measured_heading(groups) == "all_reduce on 2 ranks"
    assert "no usable result" in measured_summary(groups)
    assert measured_heading(()) == "No results"
