"""What a rank reports of its machine to rank 0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RankReport:
    """The machine of a rank."""

    host: str
    boot: str
    rack: str
    pid: int
    cpus: frozenset[int]
    quotas: Mapping[str, float]
    cpu: str
    testbed: dict[str, object] | None
    ports: Sequence[Mapping[str, object]]  # of its host; empty but for the first rank there
    gpu: Mapping[str, Any]
