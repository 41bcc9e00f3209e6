"""Times by round, Markdown tables of them, and lines that say whether what is asked was reached."""

from collections.abc import Iterable, Sequence

from hpccoll.store.statistics import median_ratio

Times = tuple[float, ...]
"""Of each round, the median over iterations of the slowest rank, in seconds."""


def fastest(several: Iterable[Times]) -> Times:
    """Return the shortest time of each round."""
    return tuple(map(min, zip(*several, strict=True)))


def ratios(one: Times, other: Times) -> Times:
    """Return the ratio of each round."""
    return tuple(a / b for a, b in zip(one, other, strict=True))


def ratio(one: Times, other: Times) -> float:
    return median_ratio(ratios(one, other))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; columns whose heading ends with a colon are aligned to the right."""
    print(f"| {' | '.join(name.rstrip(':') for name in head)} |")
    print(f"| {' | '.join('--:' if name.endswith(':') else '---' for name in head)} |")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print()


def verdict(what: str, got: str, reached: object) -> bool:
    print(f"- {what}: {got}: {'reached' if reached else '**missed**'}", flush=True)
    return bool(reached)
