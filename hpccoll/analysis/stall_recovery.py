"""Whether a run over NCCL could go on after a rank had stalled."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

RECOVERS = "multiple"
"""The thread level of MPI that recovery needs: the watchdog's thread looks for messages of the other ranks."""


def level_without_recovery(
    provenance: Mapping[str, object], ranks: int, transports: Iterable[str]
) -> str | None:
    """Return the thread level of MPI if a rank that stalls in NCCL ends the launch because of it, else None.

    Args:
        provenance: of an attempt; one of another program does not say.
        ranks: the number of ranks of the attempt; with a single one no rank could go on.
        transports: those of its cases.
    """
    mpi = cast("Mapping[str, Any]", provenance.get("mpi") or {})
    level = mpi.get("threads", RECOVERS)
    if level == RECOVERS or ranks == 1 or "nccl" not in transports:
        return None
    return str(level)
