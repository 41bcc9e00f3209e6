"""The mesh of ranks: how many ways each kind of parallelism divides them, and the groups of each.

Consecutive ranks are tensor-parallel, because their collectives are the most frequent; then follow data-parallel ranks,
and last the stages of the pipeline, as Megatron-LM numbers them. A data-parallel group may be divided twice: ``shard``
ranks of it divide the parameters among themselves (ZeRO, FSDP), and ``ep`` ranks of it the experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import RANKS

AXES: Mapping[str, str] = {
    "tp": "tensor parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
    "shard": "ranks of a data-parallel group that divide the parameters",
    "ep": "ranks of a data-parallel group that divide the experts",
}
"""The axes of a mesh; the first three multiply to the number of ranks."""

REPLICAS = {"replica": "shard", "expert_replica": "ep"}
"""The axes whose groups join what is equal in the parts of a data-parallel group: equal shards, and equal experts."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """The numbers of ranks on each axis: see AXES."""

    tp: int = 1  # the ranks of a tensor-parallel group
    dp: int = 1  # the ranks of a data-parallel group
    pp: int = 1  # the stages of the pipeline
    shard: int = 1  # the ranks of a sharded group, a divisor of ``dp``
    ep: int = 1  # the ranks of an expert-parallel group, a divisor of ``dp``

    def __post_init__(self) -> None:
        for axis in fields(self):
            RANKS.check(f"parallel {axis.name}", getattr(self, axis.name))
        for name in ("shard", "ep"):
            if self.dp % getattr(self, name):
                raise BadInputError(f"parallel {name}", getattr(self, name), f"a divisor of dp={self.dp}")

    @classmethod
    def parse(cls, text: str, ranks: int) -> "Mesh":
        """Return the mesh of a text such as ``dp=4,tp=2,pp=2``; without dp it takes the ranks that are left.

        Raises:
            BadInputError: if the text is no list of axes, or the axes do not multiply to the number of ranks.
        """
        sizes: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = part.partition("=")
            if name not in AXES or not equals or name in sizes:
                raise BadInputError("parallel", part, f"axes such as dp=4,tp=2, each once; axes: {', '.join(AXES)}")
            sizes[name] = RANKS.read(f"parallel {name}", value)
        divided = prod(sizes.get(name, 1) for name in ("tp", "pp"))
        if "dp" not in sizes and ranks % divided == 0:
            sizes["dp"] = ranks // divided
        if divided * sizes.get("dp", 1) != ranks:
            raise BadInputError("parallel", text, f"tp x dp x pp = {ranks}, the number of ranks")
        return cls(**sizes)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.tp * self.dp * self.pp

    @property
    def text(self) -> str:
        """The mesh as text, without axes of 1: ``dp=4,tp=2``."""
        return ",".join(f"{name}={getattr(self, name)}" for name in AXES if getattr(self, name) > 1) or "dp=1"

    def groups(self, axis: str) -> list[Sequence[int]]:
        """Return the ranks of all groups of an axis, one of AXES or of REPLICAS."""
        numbers = np.arange(self.ranks).reshape(self.pp, self.dp, self.tp)
        if axis == "tp":
            rows = numbers.reshape(-1, self.tp)
        elif axis == "pp":
            rows = numbers.reshape(self.pp, -1).T
        else:
            columns, size = numbers.transpose(0, 2, 1).reshape(-1, self.dp), self.size(axis)  # data-parallel groups
            if axis in REPLICAS:
                columns = columns.reshape(-1, size, self.dp // size).transpose(0, 2, 1).reshape(-1, self.dp)
            rows = columns.reshape(-1, size)
        return [*rows.tolist()]

    def size(self, axis: str) -> int:
        """Return the number of ranks of a group of an axis."""
        return self.dp // int(getattr(self, REPLICAS[axis])) if axis in REPLICAS else int(getattr(self, axis))

    def stage_of(self, rank: int) -> int:
        """Return the number of the pipeline stage of a rank."""
        return rank // (self.dp * self.tp)

    def pairs(self, first: int, second: int) -> list[Sequence[int]]:
        """Return the pairs of ranks of two stages that exchange messages."""
        size = self.dp * self.tp
        return [(first * size + number, second * size + number) for number in range(size)]
