"""Whether a run over NCCL or the memory of peers could go on after a rank had stalled."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from hpccoll.cases.transport_table import TRANSPORTS

RECOVERS = "multiple"
"""The thread level of MPI that recovery needs: the watchdog's thread looks for messages of the other ranks."""


def level_without_recovery(
    provenance: Mapping[str, object], ranks: int, transports: Iterable[str]
) -> str | None:
    """Return the thread level of MPI if a rank that stalls over NCCL or peer ends the launch because of it, else None.

    Args:
        provenance: of an attempt; one of another program does not say.
        ranks: the number of ranks of the attempt; with a single one no rank could go on.
        transports: those of its cases.
    """
    mpi = cast("Mapping[str, Any]", provenance.get("mpi") or {})
    level = mpi.get("threads", RECOVERS)
    if level == RECOVERS or ranks == 1 or not any(map(_is_queued, transports)):
        return None
    return str(level)


def _is_queued(transport: str) -> bool:
    """Return whether a transport queues its operations on a stream; other programs may have one that is unknown."""
    return transport in TRANSPORTS and TRANSPORTS[transport].graphs
