"""A counted job as text, as JSON and as a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccoll.analysis.counted_shares import (
    OTHERS,
    CountedShares,
    KindShare,
    call_text,
    communicator_text,
    element_text,
    reduction_text,
    size_text,
)
from hpccoll.common.records import to_builtins
from hpccoll.common.text import (
    Columns,
    Finding,
    filled_columns,
    finding_line,
    first_few,
    table_lines,
    table_of,
)
from hpccoll.common.units import (
    format_count,
    format_cpu_list,
    format_per_cent,
    format_seconds,
)
from hpccoll.render.page_frame import render, write_page_or_picture
from hpccoll.store.counted_job import (
    CountedGroup,
    CountedJob,
    CountedLaunch,
    CountedRank,
    mpi_library_name,
    ranks_of_runs,
)

WORLD = "MPI_COMM_WORLD"

MOST_RUNS = 8
"""The most runs of ranks that a line has of a communicator."""

MOST_LINES = 15
"""The most kinds of calls in the terminal; the page and JSON have all."""


def _waiting(share: KindShare) -> str:
    return format_seconds(share.waiting_s) if share.waiting_s else ""


def _creator(group: CountedGroup) -> str:
    """Return the function that created a communicator, empty for MPI_COMM_WORLD; lines may differ in it alone."""
    if group.created_by in (WORLD, OTHERS):
        return ""
    return group.created_by


def _variant(share: KindShare) -> str:
    return "" if share.kind.variant == "blocking" else share.kind.variant


def _members_text(group: CountedGroup) -> str:
    """Return the ranks of a communicator, in ascending order."""
    ranks = ranks_of_runs(group.members)
    if ranks is None:
        return "unknown"
    return "; ".join(first_few(format_cpu_list(ranks).split(","), MOST_RUNS, "run"))


CALLS: Columns[KindShare] = (
    ("collective", lambda share: share.kind.collective),
    ("start", _variant),
    ("size", lambda share: size_text(share) if share.most_bytes else ""),
    ("type", element_text),
    ("op", reduction_text),
    ("in place", lambda share: "yes" if share.kind.in_place else ""),
    ("communicator", lambda share: communicator_text(share.group)),
    ("created by", lambda share: _creator(share.group)),
    ("calls", lambda share: f"{share.calls:,}"),
    ("a call", lambda share: format_seconds(share.call_s)),
    ("time", lambda share: format_seconds(share.seconds)),
    ("waiting", _waiting),
    ("of the run", lambda share: format_per_cent(share.share)),
)
"""The columns of the kinds of calls: calls of the rank with most of them, times as the mean over ranks."""

NUMBERS = ("size", "calls", "a call", "time", "waiting", "of the run", "how many")
"""The columns with numbers, which a page aligns."""

GROUPS: Columns[CountedGroup] = (
    ("created by", lambda group: group.created_by),
    ("ranks", communicator_text),
    ("ranks of MPI_COMM_WORLD", _members_text),
    ("how many", lambda group: f"{group.communicators:,}"),
)

LAUNCHES: Columns[CountedLaunch] = (
    ("ranks", lambda launch: launch.ranks),
    ("ABI", lambda launch: launch.abi),
    ("library", lambda launch: mpi_library_name(launch.library)),
    ("file", lambda launch: launch.path),
)


def count_lines(shares: CountedShares) -> Iterator[str]:
    """Yield what a counted job says: findings, and the kinds of calls that take longest."""
    job = shares.job
    if job.command:
        yield job.command
    for finding in shares.findings:
        yield finding_line(finding)
    shown = shares.kinds[:MOST_LINES]
    if shown:
        yield from table_lines(*filled_columns(*table_of(CALLS, shown)))
    hidden = len(shares.kinds) - len(shown)
    if hidden:
        yield f"  {format_count(hidden, 'more kind')} of calls: see the page, or --json"


def last_line(shares: CountedShares, *files: Path) -> str:
    """Return the line that ends the run of a counted program."""
    share = shares.findings[0].text
    largest = ""
    if shares.kinds:
        largest = f", {format_per_cent(shares.kinds[0].share)} {call_text(shares.kinds[0])}"
    return f"count: {share}{largest}; {', '.join(map(str, files))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountJson:
    """A counted job as JSON has it."""

    command: str
    exit_code: int
    began: str
    wall_s: float
    barrier: bool
    run_s: float
    share: float
    waiting_share: float
    overhead: float
    launches: Sequence[CountedLaunch]
    ranks: Sequence[CountedRank]
    groups: Sequence[CountedGroup]
    missing: Sequence[int]
    calls: Sequence[KindShare]
    findings: Sequence[Finding]


def count_record(shares: CountedShares) -> Any:
    """Return a counted job as JSON has it; times are seconds, sizes bytes."""
    job = shares.job
    record = CountJson(
        command=job.command,
        exit_code=job.exit_code,
        began=job.began,
        wall_s=job.wall_s,
        barrier=job.barrier,
        run_s=shares.run_s,
        share=shares.share,
        waiting_share=shares.waiting_share,
        overhead=shares.overhead,
        launches=job.launches,
        ranks=job.ranks,
        groups=job.groups,
        missing=[rank for _, rank in job.missing],
        calls=shares.kinds,
        findings=shares.findings,
    )
    return to_builtins(record)


def write_count_page(shares: CountedShares, path: Path) -> None:
    """Write the page of a counted job.

    Raises:
        OSError: if it cannot be written.
    """
    write_page_or_picture(path, lambda: render("count.html", _context(shares)), dict)


def _context(shares: CountedShares) -> dict[str, object]:
    job = shares.job
    lines = []
    for finding in shares.findings[1:]:  # the first one is the summary
        lines.append(_sentence("; ".join(filter(None, (finding.text, finding.remedy)))))
    context: dict[str, object] = {"title": "Counted collectives", "vega": ""}
    context["summary"] = shares.findings[0].text
    context["lines"] = lines
    context["calls"] = filled_columns(*table_of(CALLS, shares.kinds))
    context["numbers"] = NUMBERS
    context["groups"] = table_of(GROUPS, job.groups)
    context["launches"] = table_of(LAUNCHES, job.launches)
    context["facts"] = _facts(job, shares)
    return context


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _facts(job: CountedJob, shares: CountedShares) -> dict[str, str]:
    nodes = {rank.host for rank in job.ranks}
    facts = {"began": job.began, "wall time": format_seconds(job.wall_s)}
    facts["between MPI_Init and MPI_Finalize"] = format_seconds(shares.run_s)
    facts["processes"] = str(len(job.ranks))
    facts["nodes"] = str(len(nodes))
    if job.command:
        facts["command"] = job.command
        facts["exit code"] = str(job.exit_code)
    return facts
