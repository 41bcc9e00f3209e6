"""Commands that read results: what raw files and directories of sweeps hold."""

from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE, PATHS, report_damaged
from hpccoll.errors import BadInputError, file_error

family = typer.Typer()


@family.command(epilog="Example: hpccoll report results/default")
def report(
    paths: PATHS,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the report [DIR/report, or FILE.report next to FILE.h5, of the first of PATHS]."
        ),
    ] = None,
) -> int:
    """Write a report of raw files.

    Curves, tables, what is missing, provenance: one HTML file that opens offline.
    """
    from hpccoll.report.output_directory import default_directory, other_inputs

    directory = out or default_directory(paths)
    other = other_inputs(paths, directory)
    if other and out is None:
        raise BadInputError("--out", str(directory), f"another directory: it already contains the report of {other}")
    where = "" if out or paths[0].is_dir() else "; --out DIR selects another directory"
    return write_report(paths, directory, f"{where}, replaces the report of {other}" if other else where)


def write_report(paths: list[Path], out: Path, note: str = "") -> int:
    from hpccoll.report.output_directory import results_name
    from hpccoll.report.report_writer import build_report
    from hpccoll.report.terminal_summary import outcome_lines
    from hpccoll.store.load import read_results

    results = read_results(paths)
    try:
        page = build_report(results, out, title=results_name(paths[0]), paths=paths)
    except OSError as error:
        raise file_error("--out", out, error, "written") from None
    code = report_damaged(results)
    for line in outcome_lines(results):
        typer.echo(line)
    typer.echo(f"report: {page}{note}")
    return code if results.measured and not results.missing else INCOMPLETE


@family.command(epilog="Example: hpccoll export results/default --format csv > default.csv")
def export(
    paths: PATHS,
    format_: Annotated[str, typer.Option("--format", help="json, csv or nccl-tests.")] = "json",
    timing: Annotated[str, typer.Option(help="The time of an operation: max or span.")] = "max",
) -> int:
    """Print the rows, one a case and attempt, in SI units. Ends with 3 where a file cannot be read."""
    from hpccoll.report.export import export as write
    from hpccoll.store.load import read_results

    if timing not in ("max", "span"):
        raise BadInputError("--timing", timing, ("max", "span"))
    results = read_results(paths, timing)
    typer.echo(write(results, format_))
    return report_damaged(results)


@family.command(epilog="Example: hpccoll validate results/default")
def validate(paths: PATHS) -> int:
    """See that raw files are whole, and say what they hold. Ends with 3 where one is not."""
    from hpccoll.report.terminal_summary import case_counts
    from hpccoll.store.load import to_results
    from hpccoll.store.result_files import ResultFiles, absent_files, read_all

    found = read_all(paths)
    if not found.raw_results and not found.unreadable:
        raise BadInputError("path", ", ".join(map(str, paths)), "raw files (*.h5) or a directory that holds some")
    partial = 0
    for raw in found.raw_results:
        results = to_results(ResultFiles(raw_results=[raw]))
        partial += not raw.complete
        state = "complete" if raw.complete else "partial"
        typer.echo(f"{raw.path}: {state}, {case_counts(results)}, {len(results.runs)} attempts")
    absent = sorted(absent_files(found))
    for path in absent:
        typer.echo(f"{path}: planned, and not there")
    return report_damaged(found) or (INCOMPLETE if partial or absent else 0)


@family.command(epilog="Example: hpccoll status results/default")
def status(directory: Annotated[Path, typer.Argument(help="The results of a sweep.")]) -> int:
    """Show how far a sweep is, how long it takes, and what failed."""
    from hpccoll.report.terminal_summary import measurement_progress, status_lines
    from hpccoll.store.load import read_results
    from hpccoll.store.scheduler_log import read_scheduled
    from hpccoll.sweep.slurm.monitor import SlurmMonitor
    from hpccoll.sweep.slurm.squeue import LIVE_STATES
    from hpccoll.sweep.workflow import is_running

    busy = is_running(directory)
    if not busy and any(job.state in LIVE_STATES for job in read_scheduled(directory)):
        SlurmMonitor(directory).poll_now()  # the sweep that looked last is gone
    results = read_results([directory])
    typer.echo(f"{'a' if busy else 'no'} sweep is at work: {measurement_progress(results.progress)}")
    for line in status_lines(results, directory):
        typer.echo(line)
    code = report_damaged(results)
    return code if results.measured and not results.missing else INCOMPLETE
