"""Nodes whose ranks waited for cores: what is slow may be their load, and not their wire.

A rank that has a core for a part of the time only moves its messages in that part. If it waits for w of the time, and
those of other nodes for v, its transfers take up to (1 - v) / (1 - w) as long as theirs.
Behind a slow wire a rank waits for no core.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from hpccoll.analysis.diagnosis.robust_statistics import median

CORE_WAITS = "core_waits"
"""The key of the provenance with the share of the time of its transfers, by host, in which a rank waited for a core: of
several ranks the largest. A host is missing if its kernel counts nothing, or it has not answered."""

LEAST_WAIT = 0.05
"""The least share that counts: what ranks of a node with free cores wait is below 1 %."""

EXPLAINED = 0.8
"""The part of the logarithm of an effect that the wait must explain: what is left would be no fault of its own."""


class CoreWait(NamedTuple):
    """A wait that may explain an effect: shares of the time."""

    host: str
    share: float
    of_others: float


def explaining_wait(
    waits: Mapping[str, float], hosts: Collection[str], accused: Collection[str], effect: float
) -> CoreWait | None:
    """Return the wait of one of some hosts that may explain their effect; None if there is none.

    Args:
        waits: CORE_WAITS.
        hosts: those of the fault.
        accused: those of all faults, with which none is compared.
        effect: how many times as long transfers take.
    """
    others = [share for host, share in waits.items() if host not in accused]
    known = [(waits[host], host) for host in hosts if host in waits]
    if not (others and known and math.isfinite(effect)):
        return None
    (share, host), usual = max(known), float(median(np.array(others)))
    explained = math.log((1 - min(usual, 0.999)) / (1 - min(share, 0.999)))
    is_explained = share >= LEAST_WAIT and explained >= EXPLAINED * math.log(effect)
    return CoreWait(host, share, usual) if is_explained else None
