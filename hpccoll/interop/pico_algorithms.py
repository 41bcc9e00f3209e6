"""The algorithms of PICO, by its names, and those of ours that take the same steps: ``pico_algorithms.toml``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from hpccoll.cases.case import Parameter
from hpccoll.store.schema import ADDRESSES, COPIED, PEERS, PORT_USE

COLLECTIVES = {
    "ALLREDUCE": "all_reduce",
    "REDUCE_SCATTER": "reduce_scatter",
    "ALLGATHER": "all_gather",
    "BCAST": "broadcast",
    "REDUCE": "reduce",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "ALLTOALL": "all_to_all",
}
"""Our name of each of PICO's collectives."""

UTOFU = "utofu"
"""The transport of the algorithms that send over uTofu, the interface of Fugaku's network, and not over MPI."""

POWER_OF_TWO, ELEMENTS = "power of two", "elements"
TORUS = "torus"
"""What an algorithm may need to take the steps of ours.

A power of two of ranks, as many elements as ranks, or a torus of up to three dimensions with one rank
on each node, whose lengths are then parameters of ours.
"""

UNUSED, FOLDED = "unused", "folded"
"""What may become of a segment: it has no effect, or each is folded while the next one is on its way."""

MOST_DIMENSIONS = 3
"""The most dimensions of a torus that ours go along."""

DIFFERENCES = PEERS, ADDRESSES, PORT_USE, COPIED
"""The keys of the table that are parameters of results."""

_NAME_WITH_TRANSPORT = re.compile(
    r"(?P<name>.+)-(?P<transport>MPI|UTOFU)-(?P<segment>\d{1,10})-(?P<ports>\d{1,2})"
)
_NAME_WITH_SEGMENT = re.compile(r"(?P<name>.+_over)_(?P<segment>\d{1,10})")


@dataclass(frozen=True, slots=True)
class PicoName:
    """What the name of an algorithm in the name of a file says."""

    name: str  # the algorithm without what follows
    transport: str = "mpi"
    # the ``segment`` in bytes of a pipelined algorithm, and the ``ports`` of uTofu
    params: Mapping[str, Parameter] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "PicoName":
        """Return the parts of a name such as ``BINE-L-UTOFU-4096-6`` or ``bine_bdw_remap_segmented_over_16384``."""
        params: dict[str, Parameter] = {}
        match = _NAME_WITH_TRANSPORT.fullmatch(text) or _NAME_WITH_SEGMENT.fullmatch(text)
        if match is None:
            return cls(text)
        parts = match.groupdict()
        segment = int(parts["segment"])
        if segment:
            params["segment"] = segment
        transport = parts.get("transport", "MPI").lower()
        if transport == UTOFU:
            params["ports"] = int(parts["ports"])
        return cls(parts["name"], transport, params)


@dataclass(frozen=True, slots=True)
class PicoAlgorithm:
    """An algorithm of a collective, as the table has it."""

    # the algorithm of ours that sends the same messages, ``native`` for the library's own choice;
    # empty if none does
    ours: str
    params: Mapping[str, Parameter]  # the parameters with which ours does
    # where it does: POWER_OF_TWO, ELEMENTS, TORUS
    needs: Sequence[str]
    why: str  # why none of ours is the same; empty if one is
    # what results say besides: to which other ranks its messages go, to whom ranks tell their
    # addresses first, how they use several ports, and what they copy; without what is as in ours
    differences: Mapping[str, Parameter]
    # what becomes of a segment: UNUSED, FOLDED; empty if it changes the steps
    segments: str
    source: str  # where its steps can be read

    def takes_our_steps(self, ranks: int, elements: int, torus: Sequence[int] = ()) -> bool:
        """Return whether it sends the messages of ours.

        Args:
            ranks: the number of ranks.
            elements: the elements of the vector.
            torus: the nodes along each dimension, if they are on a torus.
        """
        if POWER_OF_TWO in self.needs and ranks & (ranks - 1):
            return False
        if ELEMENTS in self.needs and elements < ranks:
            return False
        if TORUS in self.needs and not _is_torus_of_ranks(torus, ranks):
            return False
        return bool(self.ours)

    def our_params(self, torus: Sequence[int] = ()) -> Mapping[str, Parameter]:
        """Return the parameters of ours, on a torus with its lengths if it goes along them."""
        if TORUS not in self.needs:
            return self.params
        lengths = [1] * (MOST_DIMENSIONS - len(torus)) + list(torus)
        return {**self.params, "planes": lengths[0], "rows": lengths[1]}


@cache
def algorithm_table() -> Mapping[str, Any]:
    """Return the whole table, as TOML has it."""
    import tomllib  # ranks never need it

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def _is_torus_of_ranks(torus: Sequence[int], ranks: int) -> bool:
    """Return whether nodes are on a torus that ours can go along, with one rank on each."""
    return 0 < len(torus) <= MOST_DIMENSIONS and prod(torus) == ranks


@cache
def pico_algorithms(collective: str) -> Mapping[str, PicoAlgorithm]:
    """Return the algorithms of one of our collectives, by PICO's names without segments and ports."""
    by_name = {}
    for name, entry in algorithm_table()[collective].items():
        by_name[name] = PicoAlgorithm(
            ours=entry.get("ours", ""),
            params=entry.get("params", {}),
            needs=entry.get("needs", ()),
            why=entry.get("why", ""),
            differences={name: entry[name] for name in DIFFERENCES if name in entry},
            segments=entry.get("segments", ""),
            source=entry["source"],
        )
    return by_name
