"""Choices among a library's own algorithms in words."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import geometric_mean

from hpccoll.analysis.library_evidence import nccl_name
from hpccoll.analysis.setting import machine_name, recorded_mpi_version
from hpccoll.common.text import Columns, join_words, table_lines, table_of
from hpccoll.common.units import (
    format_count,
    format_counts,
    format_factor,
    format_interval,
    format_rounded_size,
    format_seconds,
)
from hpccoll.common.version import __version__
from hpccoll.extensions.tables.library_choices import DEFAULT, LibraryChoices, LibraryRange
from hpccoll.extensions.tables.table_conclusion import conclusion_findings, unmeasured_findings
from hpccoll.extensions.tables.unused_gains import Reason, UnusedGain
from hpccoll.render.answer_lines import WITHIN_NOISE

MADE_BY = "made by hpccoll"
"""What the origin of every table begins with."""


def _mean_gain(size_range: LibraryRange) -> str:
    if size_range.choice.is_native:
        return ""
    return format_factor(geometric_mean(size.gain for size in size_range.sizes))


def _runner_up(size_range: LibraryRange) -> str:
    """Return the runner-up, and how many times as long it takes; if it measured faster, how many times as fast."""
    largest = size_range.sizes[-1]
    if largest.lead >= 1:
        return f"{largest.runner_up}, {format_factor(largest.lead)} as long"
    faster = f"{largest.runner_up}, {format_factor(1 / largest.lead)} as fast"
    if not largest.within_noise:
        return faster
    return f"{faster}, {WITHIN_NOISE}"


def _greatest_loss(size_range: LibraryRange) -> str:
    losses = [1 / size.lead_at_least for size in size_range.sizes]
    return format_factor(max(1, *losses))


_COLUMNS: Columns[LibraryRange] = (
    ("from", lambda size_range: format_rounded_size(size_range.first)),
    ("use", lambda size_range: DEFAULT if size_range.choice.is_native else size_range.choice.name),
    ("gain", _mean_gain),
    ("at", lambda size_range: format_rounded_size(size_range.sizes[-1].nbytes)),
    ("time", lambda size_range: format_seconds(size_range.sizes[-1].seconds)),
    ("95 % interval", lambda size_range: format_interval(size_range.sizes[-1].interval)),
    ("runner-up", _runner_up),
    ("loses at most", _greatest_loss),
)


def _row_below(head: Sequence[str]) -> list[str]:
    """Return the row of the sizes that a table leaves to the library because they were not measured."""
    row = ["0 B", f"{DEFAULT} (not measured)"]
    return row + [""] * (len(head) - len(row))


def _unmeasured_lines(ranges: Sequence[LibraryRange]) -> Iterator[str]:
    for finding in unmeasured_findings(ranges):
        yield f"  not measured: {finding.text}"


LEGEND = (
    "  gain: the time of the default over that of the choice; time, interval and runner-up: at the largest size",
    "  runner-up: the fastest other algorithm, beside the choice",
    "  loses at most: the time of the choice over that of any other algorithm, by the worst ends of their intervals",
)


def library_choice_lines(choices: LibraryChoices) -> Iterator[str]:
    """Yield a table for each collective and number of ranks, and what does not count."""
    by_shape = groupby(
        choices.ranges,
        lambda size_range: (size_range.collective, size_range.ranks, size_range.nodes),
    )
    for (name, ranks, nodes), group in by_shape:
        unused = choices.unused.get((name, ranks, nodes), ())
        ranges = list(group)
        crowded = ""
        if ranges[0].oversubscribed:
            crowded = " (more ranks than cores)"
        yield f"{name}, {format_count(ranks, 'rank')} on {format_counts(nodes, 'node')}{crowded}"
        head, rows = table_of(_COLUMNS, ranges)
        if ranges[0].first:
            rows.insert(0, _row_below(head))
        yield from table_lines(head, rows)
        yield from _unmeasured_lines(ranges)
        yield from _unused_lines(unused, ranges)
    if choices.ranges:
        yield from LEGEND
    for reason in choices.left_out:
        yield f"left out: {reason}"
    for finding in choices.under_load:
        yield finding.with_remedy
    findings = list(conclusion_findings(choices))
    for finding in findings:
        yield finding.text
    if any(finding.values["noisy_sizes"] for finding in findings):
        yield from choices.noise


_REASONS: Mapping[Reason, str] = {
    "noise": f"{WITHIN_NOISE}: their 95 % intervals overlap",
    "other calls": "but not in all types and placements, which the table cannot tell apart",
    "range": "but another choice measured faster over that range of sizes",
}
"""Why a table does not name what measured faster."""


def _unused_lines(unused: Sequence[UnusedGain], ranges: Sequence[LibraryRange]) -> Iterator[str]:
    """Yield what measured faster than the default where that stays, and why it stays."""
    measured = sum(len(size_range.sizes) for size_range in ranges)
    for gain in unused:
        faster = gain.measured_gains
        if faster:
            where = f"{len(faster)} of {format_count(measured, 'size')}"
            factor = format_factor(geometric_mean(faster))
            claim = f"{factor} as fast as the {DEFAULT} at {where}"
            yield f"  {gain.algorithm} measured {claim}, {_REASONS[gain.reason]}"


def origin_text(choices: LibraryChoices) -> str:
    """Return what a table was made from: hpccoll, the machine, the library and the runs, in lines."""
    machines: dict[str, None] = {}
    libraries: dict[str, None] = {}
    runs: dict[str, None] = {}
    for run in choices.runs:
        machines[machine_name(run.machine, run.provenance)] = None
        for version in (recorded_mpi_version(run.provenance), nccl_name(run)):
            if version:
                libraries[version] = None
        runs[f"  {run.created} {run.job} {run.run_id}"] = None
    head = (
        f"{MADE_BY} {__version__} of runs on {join_words(machines)} with {join_words(libraries)}:"
    )
    return "\n".join((head, *runs))
