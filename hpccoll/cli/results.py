"""Commands that read raw files and directories of sweeps."""

from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE, PATHS, report_damaged
from hpccoll.common.errors import BadInputError, writing

family = typer.Typer()


@family.command(epilog="Example: hpccoll report results/default")
def report(
    paths: PATHS,
    out: Annotated[
        Path | None,
        typer.Option(
            help="directory of the report [DIR/report, or FILE.report next to FILE.h5, for the first of PATHS]"
        ),
    ] = None,
) -> int:
    """Write a report of raw files.

    Curves, tables, missing results and provenance in one HTML file that opens offline.
    """
    from hpccoll.render.output_directory import default_directory, other_inputs

    directory = out or default_directory(paths)
    lost = other_inputs(paths, directory)
    if lost and out is None:
        raise BadInputError("--out", str(directory), f"another directory: it contains the report of {lost}")
    where = "" if out or paths[0].is_dir() else "; --out DIR chooses another directory"
    return write_report(paths, directory, f"{where}; it replaces the report of {lost}" if lost else where)


def write_report(paths: list[Path], out: Path, note: str = "") -> int:
    from hpccoll.render.output_directory import results_name
    from hpccoll.render.report_writer import build_report
    from hpccoll.render.terminal_summary import outcome_lines
    from hpccoll.store.load_results import read_results

    results = read_results(paths)
    with writing(out):
        page = build_report(results, out, title=", ".join(dict.fromkeys(map(results_name, paths))), paths=paths)
    code = report_damaged(results)
    for line in outcome_lines(results):
        typer.echo(line)
    typer.echo(f"report: {page}{note}")
    return code if results.measured and not results.missing else INCOMPLETE


@family.command(epilog="Example: hpccoll export results/default --format csv > default.csv")
def export(
    paths: PATHS,
    format_: Annotated[str, typer.Option("--format", help="output format: json, csv, nccl-tests or lines")] = "json",
    rule: Annotated[
        str, typer.Option("--rule", "--timing", help="rule for the time of an operation: max or span")
    ] = "max",
) -> int:
    """Print one row per case and attempt, in SI units.

    Ends with 3 if a file cannot be read.
    """
    from hpccoll.render.export import export as write
    from hpccoll.store.load_results import read_results
    from hpccoll.store.rows import RULES

    if rule not in RULES:
        raise BadInputError("--rule", rule, RULES)
    results = read_results(paths, rule)
    text = write(results, format_)
    typer.echo(text, nl=not text.endswith("\n"))
    return report_damaged(results)


@family.command(epilog="Example: hpccoll validate results/default")
def validate(paths: PATHS) -> int:
    """Check that raw files are complete and undamaged.

    It counts their results, and ends with 3 if a file is incomplete or damaged.
    """
    from hpccoll.common.units import format_count
    from hpccoll.render.terminal_summary import case_counts
    from hpccoll.store.load_results import to_results
    from hpccoll.store.result_files import ResultFiles, absent_files, read_all

    files = read_all(paths)
    partial = 0
    for raw in files.raw_results:
        results = to_results(ResultFiles(raw_results=[raw]))
        partial += not raw.complete
        state = "complete" if raw.complete else "partial"
        typer.echo(f"{raw.path}: {state}, {case_counts(results)}, {format_count(len(results.runs), 'attempt')}")
    absent = sorted(absent_files(files))
    for path in absent:
        typer.echo(f"{path}: planned, but missing")
    return report_damaged(files) or (INCOMPLETE if partial or absent else 0)


@family.command(epilog="Example: hpccoll status results/default")
def status(directory: Annotated[Path, typer.Argument(help="directory of the results of a sweep")]) -> int:
    """Show progress, time left and failures of a sweep."""
    from hpccoll.render.terminal_summary import measurement_progress, status_lines
    from hpccoll.store.load_results import read_results
    from hpccoll.store.scheduler_log import read_scheduled
    from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
    from hpccoll.sweep.slurm.squeue import LIVE_STATES
    from hpccoll.sweep.workflow import is_running

    busy = is_running(directory)
    if not busy and any(job.state in LIVE_STATES for job in read_scheduled(directory)):
        SlurmMonitor(directory).poll_now()  # the sweep that recorded them has ended
    results = read_results([directory])
    typer.echo(f"{'a' if busy else 'no'} sweep is running: {measurement_progress(results.progress)}")
    for line in status_lines(results, directory):
        typer.echo(line)
    code = report_damaged(results)
    return code if results.measured and not results.missing else INCOMPLETE
