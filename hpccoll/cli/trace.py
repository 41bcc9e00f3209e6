"""The command trace."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli import common
from hpccoll.cli.command import Command
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import UnusableError, writing
from hpccoll.common.options import Option, PositionalArgument

if TYPE_CHECKING:
    from hpccoll.render.trace_text import JobFindings


MOST_LINES = 20
"""The most files that have a line each on why they cannot be read."""


def _print_damaged(lines: Sequence[str]) -> None:
    """Print why files cannot be read, and how many more there are."""
    for line in lines[:MOST_LINES]:
        print(f"hpccoll: {line}", file=sys.stderr)
    hidden = len(lines) - MOST_LINES
    if hidden > 0:
        print(f"hpccoll: FILES: {hidden} more files cannot be read", file=sys.stderr)


def trace(
    files: list[Path],
    *,
    against: list[Path] | None = None,
    out: Path | None = None,
    as_json: bool = False,
) -> int:
    """Show who waits for whom in a recorded job, and what is slow.

    It reads dumps of PyTorch's Flight Recorder, reports of ncclras, traces of PyTorch's profiler
    and its execution traces, files of NCCL's Inspector, and logs of NCCL. Dumps, reports or logs of
    two times tell late ranks from absent ones: give the files of both. Nothing in a file is
    executed. Ends with 3 if an operation cannot end because a rank is missing or failed, if a file
    cannot be read, or if no operation is recorded of a rank or of the whole job. A late rank slows
    the job, and the command ends with 0.
    """
    from hpccoll.common.memory import collector_paused
    from hpccoll.judge.against_curve import against_curves
    from hpccoll.render.trace_text import JobFindings, trace_lines, trace_record
    from hpccoll.store.load_results import read_results
    from hpccoll.traces.hangs import find_hangs
    from hpccoll.traces.read_job import read_job
    from hpccoll.traces.slow import slow_parts

    rows = read_results(against).rows if against else None
    with collector_paused(), progress_counter("files") as progress:
        read = read_job(files, progress)
    if not read.jobs and not read.damaged:
        raise UnusableError("FILES", "there is no file in the directory")
    _print_damaged(read.damaged)
    if not read.jobs:
        return UnusableError.exit_code
    jobs = list[JobFindings]()
    with collector_paused():
        for job in read.jobs:
            slow = slow_parts(job)
            beside = None
            if slow and rows is not None:
                beside = against_curves(slow.times, rows, slow.hosts)
            jobs.append(JobFindings(job, find_hangs(job), slow, beside))
    if out:
        from hpccoll.render.trace_page import write_trace_page

        with writing(out):
            page = write_trace_page(jobs, files, out)
    common.show_found(trace_record(jobs), trace_lines(jobs), as_json=as_json)
    if out:
        print(f"page: {page}", file=sys.stderr if as_json else sys.stdout)
    if read.damaged or any(map(_is_incomplete, jobs)):
        return common.INCOMPLETE
    return 0


TRACE = Command(
    name="trace",
    run=trace,
    example="Example: hpccoll trace /tmp/nccl_trace_rank_*",
    arguments=(
        PositionalArgument(
            "files",
            "files that the job wrote, archives of them, or directories",
            "FILES...",
            kind="path",
            repeated=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(
                ("--against",),
                "results of this machine, beside which collectives are held",
                metavar="RESULTS",
                kind="path-list",
                must_exist=True,
            ),
            Option(("--out",), "directory for a page with all of it", metavar="DIR", kind="path"),
            common.JSON_IN_SI,
        )
    },
)


def _is_incomplete(findings: "JobFindings") -> bool:
    """Return whether ranks are awaited, or nothing can be said of some, or of any."""
    job = findings.job
    if job.unnamed_behind:
        return True
    is_partial = bool(job.unrecorded or job.idle)
    is_wrong = any(hang.is_absence or hang.reason == "older" for hang in findings.hangs)
    return job.is_silent or is_partial or is_wrong
