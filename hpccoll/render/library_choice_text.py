"""Choices among a library's own algorithms in words."""

from collections.abc import Iterator
from itertools import groupby
from statistics import geometric_mean

from hpccoll.analysis.library_choices import DEFAULT, LibraryChoices, LibraryRange
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

MADE_BY = "made by hpccoll"
"""What the origin of every table begins with."""

_COLUMNS: Columns[LibraryRange] = (
    ("from", lambda each: format_rounded_size(each.first)),
    ("use", lambda each: DEFAULT if each.choice.is_native else each.choice.name),
    ("gain", lambda each: "" if each.choice.is_native else format_factor(geometric_mean(s.gain for s in each.sizes))),
    ("at", lambda each: format_rounded_size(each.sizes[-1].nbytes)),
    ("time", lambda each: format_seconds(each.sizes[-1].seconds)),
    ("95 % interval", lambda each: format_interval(each.sizes[-1].interval)),
    ("runner-up", lambda each: f"{each.sizes[-1].runner_up} {format_factor(each.sizes[-1].lead)}"),
    ("loses at most", lambda each: format_factor(max(1, *(1 / size.lead_at_least for size in each.sizes)))),
)


def library_choice_lines(choices: LibraryChoices) -> Iterator[str]:
    """Yield a table for each collective and number of ranks, and what does not count."""
    for (name, ranks, nodes), group in groupby(choices.ranges, lambda each: (each.collective, each.ranks, each.nodes)):
        ranges = [*group]
        crowded = " (more ranks than cores)" * ranges[0].oversubscribed
        yield f"{name}, {format_count(ranks, 'rank')} on {format_counts(nodes, 'node')}{crowded}"
        yield from table_lines(*table_of(_COLUMNS, ranges))
    yield from (f"left out: {each}" for each in choices.left_out)
    yield from (each.with_remedy for each in choices.under_load)
    if choices.ranges and all(each.choice.is_native for each in choices.ranges):
        yield f"no algorithm is clearly faster than the {DEFAULT}: the table leaves all calls to the library"


def origin_text(choices: LibraryChoices) -> str:
    """Return from what a table was made: hpccoll, the machine, the library and the runs, in lines."""
    machines = dict.fromkeys(machine_name(run.machine, run.provenance) for run in choices.runs)
    versions = (text for run in choices.runs for text in (recorded_mpi_version(run.provenance), nccl_name(run)))
    libraries = dict.fromkeys(filter(None, versions))
    head = f"{MADE_BY} {__version__} of runs on {join_words(machines)} with {join_words(libraries)}:"
    return "\n".join((head, *dict.fromkeys(f"  {run.created} {run.job} {run.run_id}" for run in choices.runs)))
