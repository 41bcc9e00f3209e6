"""The line that ends answers: what they do not cover, because it was not measured."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hpccoll.analysis.unmeasured import Unmeasured, unmeasured
from hpccoll.common.text import first_few, join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.store.rows import Results

MAX_NAMED = 6
"""Numbers of ranks, and collectives, that the line names."""


def not_measured(results: Results, names: Sequence[str]) -> str:
    """Return what the answers of some collectives do not cover, after "Not measured: "; empty if they have none.

    What holds for some of them only is followed by their names.
    """
    found = {name: each for name in names if (each := unmeasured(results, name))}
    clauses = [clause for words in _CLAUSES for clause in _clauses(words, found)]
    statuses = Counter(gap.status for gap in results.missing if gap.case.partition(".")[0] in names)
    gaps = [f"{format_count(count, 'planned case')} ({status})" for status, count in statuses.items()]
    return f"{'; '.join((*clauses, *gaps))}." if found and (clauses or gaps) else ""


def _clauses(words: Callable[[Unmeasured], str | None], found: Mapping[str, Unmeasured]) -> Iterator[str]:
    """Yield what ``words`` says of the collectives; it returns None of those that it does not concern."""
    concerned: dict[str, list[str]] = defaultdict(list)
    for name, each in found.items():
        if (clause := words(each)) is not None:
            concerned[clause].append(name)
    for clause, names in concerned.items():
        if clause:
            yield clause if len(concerned) == 1 else f"{clause} ({', '.join(names)})"


def _unmeasured_sizes(of: Unmeasured) -> str | None:
    if not of.sizes:
        return None
    least, most = format_size(of.sizes[0]), format_size(of.sizes[-1])
    return f"sizes other than {least}" if least == most else f"sizes below {least} or above {most}"


def _unmeasured_shapes(of: Unmeasured) -> str:
    if not of.shapes:
        return "ranks with a core each"
    on_one_node, with_one_rank = all(nodes == 1 for nodes, _ in of.shapes), all(n == ranks for n, ranks in of.shapes)
    noun, numbers = "ranks" if on_one_node else "nodes", [ranks for _, ranks in of.shapes]
    alike = all(nodes == 1 if on_one_node else with_one_rank and nodes == ranks for nodes, ranks in of.crowded)
    crowded = f"{_listed(ranks for _, ranks in of.crowded)} {noun}" if alike else _listed_shapes(of.crowded)
    cores = f" with a core each ({crowded} shared cores)" if of.crowded else ""
    if not (on_one_node or with_one_rank):
        return f"shapes other than {_listed_shapes(of.shapes)}{cores}"
    if numbers == [*range(2, numbers[-1] + 1)]:
        return f"more than {numbers[-1]} {noun}{cores}"
    return f"{noun} other than {_listed(numbers)}{cores}"


def _listed(numbers: Iterable[int]) -> str:
    return join_words(first_few(map(str, numbers), MAX_NAMED, "number"))


def _listed_shapes(shapes: Iterable[tuple[int, int]]) -> str:
    words = (f"{format_count(ranks, 'rank')} on {format_count(nodes, 'node')}" for nodes, ranks in shapes)
    return join_words(first_few(words, MAX_NAMED, "shape"))


_CLAUSES: tuple[Callable[[Unmeasured], str | None], ...] = (
    _unmeasured_sizes,
    lambda of: "the library's own call" if of.native else "",
    _unmeasured_shapes,
    lambda of: f"types other than {join_words(of.dtypes)}" if of.dtypes else None,
    lambda of: f"reductions other than {join_words(of.ops)}" if of.ops else None,
    lambda of: of.placement and f"calls {of.placement}",
)
"""What a sentence says of what was not measured, in this order; None where it does not apply."""
