"""The command trace."""

from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli import common
from hpccoll.common.errors import UnusableError

family = typer.Typer()


@family.command(epilog="Example: hpccoll trace /tmp/nccl_trace_rank_*")
def trace(
    files: Annotated[
        list[Path],
        typer.Argument(help="files that the job wrote, archives of them, or directories", metavar="FILES..."),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output, in SI units")] = False,
) -> int:
    """Show who waits for whom in a recorded job.

    It reads dumps of PyTorch's Flight Recorder and reports of ncclras; several polls of ncclras, in files of their own,
    tell late ranks from absent ones. Nothing in a file is executed. Ends with 3 if a rank did not join an operation, or
    ranks wait for one another.
    """
    from hpccoll.render.trace_text import trace_lines, trace_record
    from hpccoll.traces.hangs import find_hangs
    from hpccoll.traces.read_job import read_job

    read = read_job(files)
    for line in read.damaged:
        typer.echo(f"hpccoll: {line}", err=True)
    if not read.jobs:
        raise UnusableError("FILES", "no file is of a recorded job")
    jobs = [(job, find_hangs(job)) for job in read.jobs]
    common.show_found(trace_record(jobs), trace_lines(jobs), as_json=as_json)
    return common.INCOMPLETE if any(hang.is_absence for _, hangs in jobs for hang in hangs) else 0
