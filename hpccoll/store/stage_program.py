"""What the ranks of a pipeline stage ran, as the column ``program`` of a raw file has it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StageProgram:
    """What the ranks of a pipeline stage run."""

    # of each operation ``label``, ``collective``, ``axis``, ``bytes`` and ``phase``, in order of start; ``receives`` if
    # it is the receipt of a message
    operations: tuple[Mapping[str, Any], ...]
    phases: tuple[str, ...]  # the phase of each computation, in order
    # the number of computations that are to be products of matrices, and are too small for one
    without_product: int = 0

    @property
    def events(self) -> int:
        """The number of times of a run: three of each operation, then two of each computation."""
        return 3 * len(self.operations) + 2 * len(self.phases)


def stage_programs(text: str) -> tuple[StageProgram, ...]:
    """Return the programs of the column ``program`` of a raw file, one for each pipeline stage."""
    return tuple(
        StageProgram(
            tuple(each for each in stage if "label" in each),
            tuple(each["phase"] for each in stage if "label" not in each),
            sum(each.get("products") == [] for each in stage),
        )
        for stage in json.loads(text)
    )
