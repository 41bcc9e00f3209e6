"""Names of hosts: a host may be named with and without its domain, and several are written as ranges."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

Labels = tuple[str, ...]


def canonical_hosts(names: Iterable[str]) -> dict[str, str]:
    """Return one name for each host: names are of one host if they differ in case, or one of them lacks a domain.

    Slurm's names of nodes usually lack the domain that the host's own name may have. A short
    name that fits hosts in different domains is a host of its own, because it may be any of them.

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
        longest = [labels for labels in longer.get(parts, ()) if labels not in longer]
        return longest[0] if len(longest) == 1 else parts

    first: dict[Labels, str] = {}
    return {name: first.setdefault(full(parts), name) for name, parts in labels.items()}


def host_order(name: str) -> list[tuple[int, str]]:
    """Return the sort key of a host, or of another name with numbers: n2 precedes n10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", name)
    ]


def jobs_and_hosts(launches: Iterable[tuple[str, frozenset[str]]]) -> str:
    """Return jobs and their hosts: ``job a on n[1-2]; job b on n3, n7``."""
    return "; ".join(f"job {job} on {host_ranges(hosts)}" for job, hosts in launches)


def host_ranges(hosts: Iterable[str]) -> str:
    """Return host names, with consecutive numbers as a range: ``n[1-4], n7``, ``n[1-4].cluster``."""
    by_name: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for host in hosts:
        first, dot, domain = host.partition(".")
        name = first.rstrip("0123456789")
        digits = first[len(name) :]
        # node01 and node1 are different hosts
        by_name[name, len(digits), dot + domain].append(digits)
    return ", ".join(
        f"{name}{run}{domain}"
        for (name, _, domain), digits in sorted(by_name.items())
        for run in _number_ranges(sorted(digits))
    )


def _number_ranges(digits: Iterable[str]) -> Iterator[str]:
    for _, run in groupby(enumerate(digits), lambda pair: int(pair[1] or 0) - pair[0]):
        first, *rest = [text for _, text in run]
        yield f"[{first}-{rest[-1]}]" if rest else first
