"""The line that ends answers: what they do not cover, because it was not measured."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from hpccoll.analysis.unmeasured import Unmeasured, unmeasured
from hpccoll.common.text import first_few, join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.store.rows import Results

CLOSE = 4
"""The ratio of two neighbouring sizes up to which answers hold between them, too: libraries switch
algorithms at powers of two, and a curve may bend once between two sizes."""

MAX_NAMED = 6
"""Numbers of ranks, and collectives, that the line names."""


def not_measured(results: Results, names: Sequence[str]) -> str:
    """Return what the answers of some collectives do not cover, after "Not measured: "; empty if they have none.

    What holds for some of them only is followed by their names.
    """
    gaps: dict[str, Unmeasured] = {}
    for name in names:
        gap = unmeasured(results, name)
        if gap:
            gaps[name] = gap
    if not gaps:
        return ""
    clauses = [clause for words in _CLAUSES for clause in _clauses(words, gaps)]
    statuses = Counter(
        planned.status for planned in results.missing if planned.case.partition(".")[0] in names
    )
    clauses += [
        f"{format_count(count, 'planned case')} ({status})" for status, count in statuses.items()
    ]
    return f"{'; '.join(clauses)}." if clauses else ""


def _clauses(
    words: Callable[[Unmeasured], str | None], gaps: Mapping[str, Unmeasured]
) -> Iterator[str]:
    """Yield what ``words`` says of the collectives; it returns None of those that it does not concern."""
    concerned: dict[str, list[str]] = defaultdict(list)
    for name, gap in gaps.items():
        clause = words(gap)
        if clause is not None:
            concerned[clause].append(name)
    for clause, names in concerned.items():
        if clause and len(concerned) == 1:
            yield clause
        elif clause:
            yield f"{clause} ({', '.join(names)})"


def _unmeasured_sizes(gap: Unmeasured) -> str | None:
    if not gap.sizes:
        return None
    least, most = format_size(gap.sizes[0]), format_size(gap.sizes[-1])
    if least == most:
        return f"sizes other than {least}"
    outside = f"sizes below {least} or above {most}"
    ratios = [following / size for size, following in pairwise(gap.sizes) if size]
    widest = max(ratios, default=1)
    if widest <= CLOSE:
        return outside
    return f"{outside}, or between two that are {widest:,.0f} times apart"


def _unmeasured_shapes(gap: Unmeasured) -> str:
    if not gap.shapes:
        return "ranks with a core each"
    if all(nodes == 1 for nodes, _ in gap.shapes):
        noun = "ranks"
        crowded_alike = all(nodes == 1 for nodes, _ in gap.crowded)
    elif all(nodes == ranks for nodes, ranks in gap.shapes):
        noun = "nodes"
        crowded_alike = all(nodes == ranks for nodes, ranks in gap.crowded)
    else:
        return f"shapes other than {_listed_shapes(gap.shapes)}{_crowded_words(_listed_shapes(gap.crowded))}"
    crowded = (
        f"{_listed(ranks for _, ranks in gap.crowded)} {noun}"
        if crowded_alike
        else _listed_shapes(gap.crowded)
    )
    cores = _crowded_words(crowded if gap.crowded else "")
    numbers = [ranks for _, ranks in gap.shapes]
    most = numbers[-1]
    if numbers == list(range(2, most + 1)):
        return f"more than {most} {noun}{cores}"
    return f"{noun} other than {_listed(numbers)}{cores}"


def _crowded_words(crowded: str) -> str:
    """Return that other shapes count only with a core for each rank, and where ranks shared cores; empty without."""
    return f" with a core each ({crowded} shared cores)" if crowded else ""


def _listed(numbers: Iterable[int]) -> str:
    return join_words(first_few(map(str, numbers), MAX_NAMED, "number"))


def _listed_shapes(shapes: Iterable[tuple[int, int]]) -> str:
    words = (
        f"{format_count(ranks, 'rank')} on {format_count(nodes, 'node')}" for nodes, ranks in shapes
    )
    return join_words(first_few(words, MAX_NAMED, "shape"))


_CLAUSES: tuple[Callable[[Unmeasured], str | None], ...] = (
    _unmeasured_sizes,
    lambda gap: "the library's own call" if gap.native else "",
    _unmeasured_shapes,
    lambda gap: f"types other than {join_words(gap.dtypes)}" if gap.dtypes else None,
    lambda gap: f"reductions other than {join_words(gap.ops)}" if gap.ops else None,
    lambda gap: gap.placement and f"calls {gap.placement}",
)
"""What a sentence says of what was not measured, in this order; None where it does not apply."""
