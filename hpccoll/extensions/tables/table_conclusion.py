"""What a table of a library's own algorithms changes, and where noise leaves its choices open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from hpccoll.analysis.unmeasured import are_smaller_unmeasured
from hpccoll.common.text import Finding, info, warning
from hpccoll.common.units import format_count, format_rounded_size
from hpccoll.extensions.tables.library_choices import DEFAULT, LibraryChoices, LibraryRange
from hpccoll.schedule import collective

TOO_NOISY = "too noisy to decide at {where}; do: measure again on an idle machine, with more seconds for each case"


@dataclass(frozen=True, slots=True)
class TableConclusion:
    """How much of a table noise decides, over all collectives and numbers of ranks."""

    sizes: int  # the measured sizes
    noisy_sizes: int  # those at which noise leaves the choice open
    # whether an algorithm is clearly faster than the default, and another one is better over the
    # range of its sizes
    is_any_clear: bool
    changes_nothing: bool  # whether all calls are left to the library
    is_any_inexpressible: bool  # whether an algorithm is left out that its format cannot name

    @classmethod
    def of(cls, choices: LibraryChoices) -> "TableConclusion":
        """Return the conclusion on choices."""
        sizes = 0
        noisy_sizes = 0
        is_any_clear = False
        for key, ranges in groupby(choices.ranges, attrgetter("ranks_of_call")):
            sizes += sum(len(size_range.sizes) for size_range in ranges)
            noisy_sizes_of_call: set[int] = set()
            for gain in choices.unused.get(key, ()):
                is_any_clear |= gain.reason == "range"
                if gain.reason == "noise":
                    noisy_sizes_of_call.update(gain.gains)
            noisy_sizes += len(noisy_sizes_of_call)
        changes_nothing = all(size_range.choice.is_native for size_range in choices.ranges)
        is_any_inexpressible = any(not chosen.choice.is_native for chosen in choices.inexpressible)
        return cls(sizes, noisy_sizes, is_any_clear, changes_nothing, is_any_inexpressible)


def conclusion_findings(choices: LibraryChoices) -> Iterator[Finding]:
    """Yield that a table changes nothing, or that noise leaves some of its choices open, with the reason."""
    conclusion = TableConclusion.of(choices)
    sizes = conclusion.sizes
    noisy = conclusion.noisy_sizes
    too_noisy = TOO_NOISY.format(where=f"{noisy} of {format_count(sizes, 'size')}")
    if conclusion.changes_nothing:
        why = _why_nothing(conclusion, too_noisy)
        text = f"the table leaves all calls to the library: {why}"
        yield info("changes_nothing", text, sizes=sizes, noisy_sizes=noisy)
    elif noisy:
        text = f"the table leaves calls to the library: {too_noisy}"
        yield warning("too_noisy", text, sizes=sizes, noisy_sizes=noisy)


def _why_nothing(conclusion: TableConclusion, too_noisy: str) -> str:
    """Return why a table leaves all calls to the library."""
    is_all_noisy = 0 < conclusion.noisy_sizes == conclusion.sizes
    if is_all_noisy and not conclusion.is_any_inexpressible:
        return too_noisy
    why = f"no algorithm is clearly faster than the {DEFAULT}"
    if conclusion.is_any_clear:
        why += " over a range of sizes"
    if conclusion.is_any_inexpressible:
        why = "its format cannot name the faster algorithms, which are left out"
    if conclusion.noisy_sizes:
        why += f"; {too_noisy}"
    return why


def unmeasured_findings(ranges: Sequence[LibraryRange]) -> Iterator[Finding]:
    """Yield the sizes of a collective on a number of ranks that were not measured, and what a table does below."""
    first = ranges[0]
    smallest = first.sizes[0].nbytes
    largest = ranges[-1].sizes[-1].nbytes
    below, above = format_rounded_size(smallest), format_rounded_size(largest)
    values: dict[str, Any] = {
        "collective": first.collective,
        "ranks": first.ranks,
        "nodes": first.nodes,
        "smallest": smallest,
        "largest": largest,
    }
    if first.reaches_below:
        use = f"{first.choice.name}, too, which may be slow there; do: measure smaller sizes"
        text = f"sizes below {below} or above {above}; below, the table uses {use}"
        yield warning("not_measured", text, **values)
    elif are_smaller_unmeasured(first.collective, first.ranks, smallest):
        yield info("not_measured", f"sizes below {below} or above {above}", **values)
    elif not collective(first.collective).token:
        yield info("not_measured", f"sizes above {above}", **values)
