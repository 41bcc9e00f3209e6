"""Choices among a library's own algorithms in words."""

from collections.abc import Iterator
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

MADE_BY = "made by hpccoll"
"""What the origin of every table begins with."""


def _mean_gain(size_range: LibraryRange) -> str:
    if size_range.choice.is_native:
        return ""
    return format_factor(geometric_mean(size.gain for size in size_range.sizes))


def _runner_up(size_range: LibraryRange) -> str:
    largest = size_range.sizes[-1]
    return f"{largest.runner_up} {format_factor(largest.lead)}"


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


LEGEND = (
    "  gain: the time of the default over that of the choice; time, interval and runner-up: at the largest size",
    "  runner-up: the fastest other algorithm, and its time over that of the choice",
    "  loses at most: the time of the choice over that of any other algorithm, by the worst ends of their intervals",
)


def library_choice_lines(choices: LibraryChoices) -> Iterator[str]:
    """Yield a table for each collective and number of ranks, and what does not count."""
    by_shape = groupby(
        choices.ranges,
        lambda size_range: (size_range.collective, size_range.ranks, size_range.nodes),
    )
    for (name, ranks, nodes), group in by_shape:
        ranges = list(group)
        crowded = ""
        if ranges[0].oversubscribed:
            crowded = " (more ranks than cores)"
        yield f"{name}, {format_count(ranks, 'rank')} on {format_counts(nodes, 'node')}{crowded}"
        yield from table_lines(*table_of(_COLUMNS, ranges))
    if choices.ranges:
        yield from LEGEND
    for reason in choices.left_out:
        yield f"left out: {reason}"
    for finding in choices.under_load:
        yield finding.with_remedy
    if choices.ranges and all(size_range.choice.is_native for size_range in choices.ranges):
        yield f"no algorithm is clearly faster than the {DEFAULT}: the table leaves all calls to the library"


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
