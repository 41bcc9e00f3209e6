"""Mapping: in which order the workers of a layout are numbered, by the words of Slurm's --distribution.

The numbers of eight ranks, two on each node:

    rack         A               B
    node         a       b       c       d
    launched     0   1   2   3   4   5   6   7
    block        0   1   2   3   4   5   6   7       neighbours are as close as can be
    cyclic       0   4   2   6   1   5   3   7       neighbours are in different racks

A ring crosses from rack to rack as often as there are racks in the first, at every step in the
second. Where there is one rack, cyclic deals over its nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest

from hpccoll.schedule.layout import Layout

Groups = Sequence[Sequence[int]]


def _round_robin(groups: Groups) -> list[int]:
    """Return the first rank of each group, then the second of each, until none is left."""
    turns = zip_longest(*groups)  # the i-th rank of each group, None for a group without one
    return [me for me in chain.from_iterable(turns) if me is not None]


MAPPINGS: Mapping[str, Callable[[Groups], list[int]]] = {
    "block": lambda groups: list(chain.from_iterable(groups)),
    "cyclic": _round_robin,
}
"""How groups of ranks become one sequence: first the nodes of each rack, then all racks."""


def numbering(layout: Layout, mapping: str) -> tuple[int, ...]:
    """Return the ranks in the order in which ``mapping`` numbers them: the i-th becomes rank i; aggregators stay last.

    Places are taken in the order of their first rank.
    """
    sequence = MAPPINGS[mapping]
    racks: dict[int, list[list[int]]] = {}
    for ranks in layout.groups("node"):
        racks.setdefault(layout.rack[ranks[0]], []).append(ranks)
    workers = sequence([sequence(nodes) for nodes in racks.values()])
    return (*workers, *range(layout.workers, layout.ranks))
