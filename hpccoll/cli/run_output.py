"""What rank 0 of ``hpccoll run`` and ``hpccoll train`` prints beside the rounds of cases; others do not import it."""

import signal
from typing import TYPE_CHECKING

from hpccoll.common.text import join_ends
from hpccoll.common.units import format_size

if TYPE_CHECKING:
    from hpccoll.common.text import Finding
    from hpccoll.measure.ranks import Ranks
    from hpccoll.measure.run.job_runner import JobRunner
    from hpccoll.render.run_table import PrintedTable

DRY_RANKS = "8"
"""The default number of ranks of a dry run."""


def print_results(program: "JobRunner", table: "PrintedTable") -> None:
    """Print the table, what to use, how noisy the measurements were, and what NCCL's own calls ran as."""
    if table.empty:
        return
    from hpccoll.analysis.measurement_quality import lowered_clocks, noise_note
    from hpccoll.analysis.recommendations import ranges_by_setting, recommend
    from hpccoll.render.answers import Answers, conclusion_lines
    from hpccoll.render.printed_evidence import executed_lines
    from hpccoll.render.workload_page import workload_pages
    from hpccoll.store.load_results import to_results
    from hpccoll.store.result_files import ResultFiles

    results = to_results(ResultFiles(raw_results=[program.results.raw]), with_orders=False)
    recommendations = recommend(results)
    table.end(program.job, program.results.raw.histories(), ranges_by_setting(recommendations))
    findings: list[Finding] = []
    for page in workload_pages(row.collective for row in results.rows):
        findings += page.remarks(results)
    findings += lowered_clocks(results)
    remarks = (*(f"{finding} {finding.remedy}" for finding in findings), noise_note(results))
    for line in filter(None, (*conclusion_lines(results, Answers(recommendations)), *remarks)):
        print(f"# {line}")
    for line in executed_lines(program.results.raw):
        print(f"# executed: {line}")


def warn_if_busy(program: "JobRunner") -> None:
    """Print what else used the machine during the measurements, if it was enough to disturb them."""
    from hpccoll.store.host_load import busy_hosts, describe_busy

    attempt = next((attempt for attempt, _ in reversed(program.results.raw.attempts)), None)
    if attempt and program.has_results and (busy := busy_hosts(attempt.provenance)):
        print(f"# busy machine: {describe_busy(busy)}; do: measure when it is idle")


def print_remaining(program: "JobRunner", *, nothing: bool) -> None:
    """Print why measurements are missing, or that none were left."""
    from hpccoll.store.journal import journal_path

    job = program.job
    out = program.results.out
    if program.stop_signal:
        kept = "nothing is kept without --out"
        if out:
            done = f"{program.results.raw.measurements} of {job.measurements} measurements are in {journal_path(out)}"
            kept = f"{done}; the same command measures the rest"
        print(f"# interrupted by {signal.Signals(program.stop_signal).name}: {kept}")
    elif not program.has_results:
        print("# nothing was measured; see the reason of each case")
    elif nothing and out:
        ends = join_ends(map(format_size, sorted(case.bytes for case in job.cases)))
        print(f"# {out} is complete, {ends}: nothing left to measure")


def print_ranks(ranks: "Ranks") -> None:
    """Print that the ranks are connected, and where they run."""
    counts = ", ".join(f"{count} on {name}" for (name, _), count in ranks.ranks_by_node.items())
    if ranks.comm.size > 1:
        print(f"# {ranks.comm.size} ranks are connected: {counts}")
    else:
        print(
            f"# MPI works, and this rank is alone: {counts}; do: start two ranks to check their connection,"
        )
        print("# such as mpiexec -n 2 hpccoll run --check")
