"""The algorithms of PICO, by its names, and those of ours that take the same steps: ``pico_algorithms.toml``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hpccoll.cases.case import Parameter

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
"""What an algorithm may need to take the steps of ours: a power of two of ranks, as many elements as ranks."""

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
    # where it does: POWER_OF_TWO, ELEMENTS
    needs: Sequence[str]
    why: str  # why none of ours is the same; empty if one is
    peers: str  # to which other ranks its messages go; empty if to those of ours
    source: str  # where its steps can be read

    def takes_our_steps(self, ranks: int, elements: int) -> bool:
        """Return whether it sends the messages of ours on a number of ranks, for a vector of ``elements``."""
        if POWER_OF_TWO in self.needs and ranks & (ranks - 1):
            return False
        return bool(self.ours) and (ELEMENTS not in self.needs or elements >= ranks)


@cache
def algorithm_table() -> Mapping[str, Any]:
    """Return the whole table, as TOML has it."""
    import tomllib  # ranks never need it

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


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
            peers=entry.get("peers", ""),
            source=entry["source"],
        )
    return by_name
