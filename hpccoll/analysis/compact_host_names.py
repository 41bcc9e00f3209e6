"""Host names as ranges, as Slurm writes them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby


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
        by_name[name, len(digits), dot + domain].append(digits)  # node01 and node1 are different hosts
    return ", ".join(
        f"{name}{run}{domain}"
        for (name, _, domain), digits in sorted(by_name.items())
        for run in _number_ranges(sorted(digits))
    )


def _number_ranges(digits: Iterable[str]) -> Iterator[str]:
    for _, run in groupby(enumerate(digits), lambda pair: int(pair[1] or 0) - pair[0]):
        first, *rest = [text for _, text in run]
        yield f"[{first}-{rest[-1]}]" if rest else first
