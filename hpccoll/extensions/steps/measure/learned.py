"""What a training has shown beside its times: every case has such a record, and few ranks train."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Learned:
    """What a training has shown; on other ranks than rank 0 only how much is wrong."""

    wrong: int = 0  # replicas with other weights than most, over all steps, and 1 if a serial run has other weights
    reasons: tuple[str, ...] = ()
    of_steps: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # [step], by the names of CaseTimes
    results: Mapping[str, Any] = field(default_factory=dict)  # by the names of CaseResult
