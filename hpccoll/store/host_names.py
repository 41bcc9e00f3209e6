"""Names of hosts: a host may be named with and without its domain."""

from collections import defaultdict
from collections.abc import Iterable

Labels = tuple[str, ...]


def canonical_hosts(names: Iterable[str]) -> dict[str, str]:
    """Return one name for each host: names are of one host if they differ in case, or one of them lacks a domain.

    Slurm's names of nodes usually lack the domain that the host's own name may have. A name that lacks the domain of
    several hosts is a host of its own, because it may be any of them.

    Args:
        names: the names to compare.

    Returns:
        The first of the names of its host, by name.
    """
    labels: dict[str, Labels] = {name: tuple(name.lower().rstrip(".").split(".")) for name in names}
    longer: defaultdict[Labels, set[Labels]] = defaultdict(set)
    for parts in labels.values():
        for length in range(1, len(parts)):
            longer[parts[:length]].add(parts)

    def full(parts: Labels) -> Labels:
        longest = [each for each in longer.get(parts, ()) if each not in longer]
        return longest[0] if len(longest) == 1 else parts

    first: dict[Labels, str] = {}
    return {name: first.setdefault(full(parts), name) for name, parts in labels.items()}
