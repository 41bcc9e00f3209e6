"""What is to be revealed: an algorithm, its collectives, sizes and element type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.case import Case
from hpccoll.cases.communicator_settings import CommunicatorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """A request to reveal the order of an algorithm's sums."""

    algorithm: str  # native: the library's own
    collectives: Sequence[str]
    sizes: Sequence[int]  # in bytes, ascending
    # whether to probe also every power of two, and three times it, between the first and the last size
    ladder: bool
    dtype: str
    root: int
    transport: str
    device: str
    params: Mapping[str, int | str] = field(default_factory=dict)
    variant: str | None = None  # the named variant of the library
    # the environment variables that it sets, and its settings of NCCL's communicators
    environment: Mapping[str, str] = field(default_factory=dict)
    communicator: CommunicatorSettings = field(default_factory=dict)

    def case(self, collective: str, nbytes: int, *, in_place: bool = False) -> Case:
        """Return the case of a call."""
        return Case(
            collective=collective,
            algorithm=self.algorithm,
            transport=self.transport,
            device=self.device,
            bytes=nbytes,
            dtype=self.dtype,
            in_place=in_place,
            root=self.root if COLLECTIVES[collective].rooted else None,
            params=self.params,
        )


def reducing_collectives() -> list[str]:
    """Return the names of the collectives whose sums have an order."""
    return [name for name, family in COLLECTIVES.items() if family.has_op]
