"""What shows which algorithm a library's own call ran, where the library does not say it. Extensions find it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hpccoll.common.extensions import contributions

if TYPE_CHECKING:
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.measure.timing_loop import RankProgress


class CallEvidence(Protocol):
    """What shows it."""

    @property
    def evidence(self) -> str:
        """What was seen, as a sentence."""

    @property
    def traffic(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """The bytes that each rank sends on its busiest connections: of the call (``""``), and with each algorithm."""

    def executed(self, requested: str | None) -> str:
        """Return the algorithm: the requested one if the evidence allows it, else all that it allows, or unknown."""


Recogniser: TypeAlias = Callable[["PreparedCase", float, "RankProgress"], CallEvidence | None]
"""Returns the evidence of a case, given the seconds of a call; all ranks of the case call it together.

Extensions name them under ``recognisers``. It returns None if it cannot tell.
"""


def call_evidence(
    prepared: "PreparedCase", call_s: float, progress: "RankProgress"
) -> CallEvidence | None:
    """Return the evidence of the first recogniser that finds some; all ranks of the case call this together."""
    recognisers: list[Recogniser] = list(contributions("recognisers"))
    for recognise in recognisers:
        evidence = recognise(prepared, call_s, progress)
        if evidence:
            return evidence
    return None
