"""Commands that read raw files and directories of sweeps."""

import sys
from pathlib import Path

from hpccoll.cli.command import Command
from hpccoll.cli.common import INCOMPLETE, JSON, PATHS, report_damaged, show_found
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.options import Option, PositionalArgument
from hpccoll.common.terminal import write_bytes
from hpccoll.common.text import in_brackets


def report(paths: list[Path], out: Path | None = None, size: str | None = None) -> int:
    """Write a report of raw files.

    Curves, tables, missing results and provenance in one HTML file that opens offline. With --size,
    also a picture for a slide, of each collective: bus bandwidth against nodes or ranks. PATHS may
    also have files of 'order native --out': the report then says which choices keep native's bits.
    """
    from hpccoll.common.units import parse_size
    from hpccoll.render.output_directory import default_directory, other_inputs
    from hpccoll.store.result_files import without_order_files

    inputs = without_order_files(paths) or paths
    nbytes = None
    if size is not None:
        nbytes = parse_size(size, "--size")
    directory = out or default_directory(inputs)
    lost = other_inputs(inputs, directory)
    if lost and out is None:
        raise BadInputError(
            "--out", str(directory), f"another directory: it contains the report of {lost}"
        )
    where = "; --out DIR chooses another directory"
    if out or inputs[0].is_dir():
        where = ""
    note = f"{where}; it replaces the report of {lost}" if lost else where
    return write_report(paths, directory, note, nbytes)


REPORT = Command(
    name="report",
    run=report,
    example="Example: hpccoll report results/default",
    arguments=(PATHS,),
    options={
        OPTIONS: (
            Option(
                ("--out",),
                "directory of the report [DIR/report, or FILE.report, of the first of PATHS]",
                metavar="DIR",
                kind="path",
            ),
            Option(("--size",), "size of a picture for a slide, such as 64M", metavar="SIZE"),
        )
    },
)


def write_report(paths: list[Path], out: Path, note: str = "", size: int | None = None) -> int:
    """Write the report of results, and at a size the pictures of how they scale; return the exit code."""
    from hpccoll.analysis.recommendations import recommend
    from hpccoll.render.output_directory import results_name
    from hpccoll.render.report_writer import build_report
    from hpccoll.render.scaling_picture import write_scaling_pictures
    from hpccoll.render.terminal_summary import outcome_lines
    from hpccoll.store.load_results import read_results
    from hpccoll.store.result_files import without_order_files

    results = read_results(paths)
    recommendations = recommend(results)
    inputs = without_order_files(paths)
    title = ", ".join(dict.fromkeys(map(results_name, inputs)))
    with writing(out):
        page = build_report(results, out, title, inputs, recommendations)
        pictures = []
        if size is not None:
            pictures = write_scaling_pictures(results, recommendations, out / "charts", size)
    code = report_damaged(results)
    for line in outcome_lines(results, recommendations):
        print(line)
    print(f"report: {page}{note}")
    for picture in pictures:
        print(f"picture: {picture.paths[0]}{in_brackets(picture.note)}")
    if results.measured and not results.missing:
        return code
    return INCOMPLETE


def export(
    paths: list[Path],
    format_: str | None = None,
    columns: str | None = None,
    rule: str = "max",
    out: Path | None = None,
) -> int:
    """Print one row per case and attempt, in SI units, or write them into a file.

    Ends with 3 if a file cannot be read.
    """
    from hpccoll.render.export import export as write
    from hpccoll.store.load_results import read_results
    from hpccoll.store.rows import RULES

    if rule not in RULES:
        raise BadInputError("--rule", rule, RULES)
    name_of_format = format_ or _format_of(out)
    results = read_results(paths, rule)
    names: list[str] = []
    if columns is not None:
        names = columns.split(",")
    written = write(results, name_of_format, names)
    if out:
        _write_rows(written, out)
    elif isinstance(written, str):
        print(written, end="" if written.endswith("\n") else "\n")
    elif sys.stdout.isatty():
        raise UnusableError("--format", f"{name_of_format} is binary; do: give --out FILE")
    else:
        write_bytes(sys.stdout, written)
    return report_damaged(results)


def _format_of(out: Path | None) -> str:
    """Return the format by the ending of a file; that of stdout without one.

    Raises:
        BadInputError: if no format has the ending.
    """
    from hpccoll.render.export import ENDINGS

    if out is None:
        return "json"
    if out.suffix not in ENDINGS:
        endings = f"a file name that ends with {', '.join(ENDINGS)}, or any with --format"
        raise BadInputError("--out", str(out), endings)
    return ENDINGS[out.suffix]


def _write_rows(written: str | bytes, out: Path) -> None:
    """Write exported rows into a file, and name it on stderr; an existing file is replaced as a whole.

    Raises:
        UnusableError: if it cannot be written.
    """
    from hpccoll.store.durable_files import replacing_file

    content = written.encode() if isinstance(written, str) else written
    with writing(out), replacing_file(out) as unfinished:
        unfinished.write_bytes(content)
    print(f"rows: {out}", file=sys.stderr)


EXPORT = Command(
    name="export",
    run=export,
    example="Example: hpccoll export results/default --out default.csv",
    arguments=(PATHS,),
    options={
        OPTIONS: (
            Option(
                ("--format",),
                "output format: json, csv, nccl-tests, lines, openmetrics or parquet",
                shown_default="as --out ends, or json",
                name="format_",
                metavar="FORMAT",
            ),
            Option(
                ("--columns",),
                "columns of json or csv, such as algorithm,bytes,busbw_Bps [all]",
                metavar="NAME,..",
            ),
            Option(
                ("--rule", "--timing"),
                "rule for the time of an operation: max or span",
                "max",
                metavar="RULE",
            ),
            Option(
                ("--out",),
                "file of the rows [stdout]",
                metavar="F.csv|json|parquet|prom",
                kind="path",
            ),
        )
    },
)


def status(paths: list[Path] | None = None, *, as_json: bool = False) -> int:
    """Show progress, gaps and damage of results.

    Each job or raw file has a line with its cases, and the reasons of those that are missing. Ends
    with 3 if something is missing or damaged.
    """
    from hpccoll.analysis.sweep_status import sweep_statuses
    from hpccoll.cases.plan import PLAN_FILE
    from hpccoll.render.terminal_summary import status_lines
    from hpccoll.store.result_files import read_all
    from hpccoll.store.scheduler_log import read_scheduled
    from hpccoll.sweep.paths import newest_sweep
    from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
    from hpccoll.sweep.slurm.squeue import LIVE_STATES
    from hpccoll.sweep.workflow import is_running

    paths = paths or [newest_sweep(Path("results"))]
    paths += [
        plan.parent
        for path in paths
        if path.is_dir()
        for plan in sorted(path.glob(f"*/{PLAN_FILE}"))
    ]
    directories = [path for path in paths if path.is_dir()]
    running = [path for path in directories if is_running(path)]
    for path in directories:
        if path not in running and any(job.state in LIVE_STATES for job in read_scheduled(path)):
            SlurmMonitor(path).poll_now()  # the sweep that recorded them has ended
    files = read_all(paths, shows_damage=True)
    statuses = sweep_statuses(files, running)
    show_found(
        statuses, (line for status in statuses for line in status_lines(status)), as_json=as_json
    )
    return report_damaged(files) or (
        0 if all(status.is_complete for status in statuses) else INCOMPLETE
    )


STATUS = Command(
    name="status",
    run=status,
    example="Example: hpccoll status results/default",
    arguments=(
        PositionalArgument(
            "paths",
            "sweeps, directories or raw files [the newest sweep in results/]",
            "[PATHS...]",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={OPTIONS: (JSON,)},
)
