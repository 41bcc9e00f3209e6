"""The heading of the page and the sentence below it: what was measured where."""

from golden_page import assert_golden

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.measured_summary import (
    MAX_SERIES,
    library_name,
    measured_heading,
    measured_summary,
)

LOADED = [{"hosts": ["n1"], "library": {"version": "2.30.7", "files": ["/opt/libnccl.so.2"]}}]
"""The NCCL that the ranks of each host have loaded."""
NEWER = [{"hosts": ["n1"], "library": {"version": "2.30.70", "files": []}}]
LOG = ProbeResult(record=LogRecord(library="nccl", version="2.30.7", build="+cuda12.9")).to_json()
MPICH = {"version": "MPICH 5.0.2"}


def test_the_headings_and_summaries_of_pages(make_row, make_run, of_rows):
    def on(*shapes):
        return of_rows(
            *(make_row(ranks=n, nodes=nodes, ranks_per_node=n // nodes) for n, nodes in shapes)
        )

    def with_runs(transports, *known):
        runs = [
            make_run(run_id=str(i), provenance=facts, evidence=log)
            for i, (facts, log) in enumerate(known)
        ]
        rows = [
            make_row("native", transport=name, run_id=run.run_id)
            for run in runs
            for name in transports
        ]
        return of_rows(*rows, runs=runs)

    several = {
        "ranks": on((2, 1), (4, 1), (8, 1)), "nodes": on((4, 4), (2, 2)), "ranks of nodes": on((8, 4), (4, 4)),
        "two collectives": of_rows(make_row(), make_row(collective="all_gather", op=None)),
        "sizes": of_rows(*(make_row(name, nbytes=n) for name in ("ring", "native", "null") for n in (8, 64))),
        "many series": of_rows(
            *(make_row(name, params={"channels": n}) for name in ("ring", "swing") for n in range(1, MAX_SERIES))
        ),
        "MPICH": with_runs(["mpi"], ({"mpi": MPICH}, None)),
        "NCCL with its log": with_runs(["nccl"], ({"mpi": MPICH, "nccl": LOADED}, LOG)),
        "NCCL without a log": with_runs(["nccl"], ({"mpi": MPICH, "nccl": LOADED}, None)),
        "NCCL with and without its build, and another one that begins with it": with_runs(
            ["nccl"], ({"nccl": LOADED}, LOG), ({"nccl": LOADED}, None), ({"nccl": NEWER}, None)
        ),
        "both libraries": with_runs(["nccl", "mpi"], ({"mpi": MPICH, "nccl": LOADED}, None)),
        "nothing usable": of_rows(make_row(status="failed", median_s=None, busbw_Bps=None)),
        "nothing": of_rows(),
    }  # fmt: skip
    page = []
    for title, results in several.items():
        groups = chart_groups(results)
        page += [f"-- {title}", measured_heading(groups), measured_summary(groups)]
    assert_golden("summaries", page)


def test_the_name_of_a_library_is_its_version_without_the_number():
    versions = (
        "Open MPI v5.0.11",
        "Intel(R) MPI Library 2021.13 for Linux",
        "CRAY MPICH version 8.1.28",
        "",
    )
    assert [*map(library_name, versions)] == [
        "Open MPI",
        "Intel(R) MPI Library",
        "CRAY MPICH",
        "the library",
    ]
