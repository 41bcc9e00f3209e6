"""Nodes whose ranks waited for cores: what is slow may be their load, and not their wire.

A rank that waits for a core in a share w of the time of its transfers moves messages in the rest.
Without the wait its transfers would take 1 - w of the time, at the least: load explains a factor of
up to 1 / (1 - w). If ranks of other nodes wait for a share v, it is less: (1 - v) / (1 - w) for
what the rank waits beyond them, and what differs between ranks that wait alike. How much of a wait
a transfer feels depends on the messages that are under way when it begins. That differs from slot
to slot, and shows as noise, and from rank to rank, by a part of the noise. Behind a slow wire a
rank waits for no core.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from hpccoll.common.text import Finding, warning
from hpccoll.common.units import format_per_cent
from hpccoll.diagnosis.robust_statistics import median
from hpccoll.store.host_load import describe_load

CORE_WAITS = "core_waits"
"""The key of the provenance with the share of the time of its transfers, by host, in which a rank
waited for a core: of all its ranks the largest. A host is missing if its kernel counts nothing, or
it has not answered."""

LEAST_WAIT = 0.05
"""The least share that counts: what ranks of a node with free cores wait is below 1 %."""

EXPLAINED = 0.8
"""The part of the logarithm of an effect that the wait must explain: what is left would not be a fault by itself."""

UNEVEN = 2
"""How many standard deviations of a pair ranks that wait alike may differ by: a rank that made one
call of MPI less whenever it looked for messages took up to 1.2 of them longer, on two cores with a
load of 8 to 18."""


class CoreWait(NamedTuple):
    """A wait that may explain an effect."""

    host: str
    share: float  # of the time
    share_of_others: float  # the median; NaN if none is known
    explained: float  # how many times as long transfers take because of it, at the most


def explaining_wait(
    waits: Mapping[str, float],
    hosts: Collection[str],
    accused: Collection[str],
    effect: float,
    noise: float,
) -> CoreWait | None:
    """Return the longest wait of some hosts if it may explain their effect; None if it does not.

    Args:
        waits: CORE_WAITS.
        hosts: those of the fault.
        accused: the hosts of all faults, which are not among the others that a host is compared
            with.
        effect: how many times as long transfers take.
        noise: the standard deviation of the logarithm of the time of a pair; NaN if it is unknown.
    """
    share, host = max(((waits[host], host) for host in hosts if host in waits), default=(0.0, ""))
    if share < LEAST_WAIT or math.isinf(effect):
        return None
    usual_waits = [wait for name, wait in waits.items() if name not in accused]
    usual_share = median(np.array(usual_waits))
    explained = _slowdown(share)
    beyond_others = max(explained - _slowdown(usual_share), 0.0) + UNEVEN * noise
    if not math.isnan(beyond_others):
        explained = min(explained, beyond_others)
    if explained < EXPLAINED * math.log(effect):
        return None
    return CoreWait(host, share, usual_share, math.exp(explained))


def largest_hidden(waits: Mapping[str, float], noise: float) -> float:
    """Return the largest effect, a factor, that the usual wait of ranks may explain; 1 if they hardly wait.

    Args:
        waits: CORE_WAITS.
        noise: as in ``explaining_wait``.
    """
    usual = median(np.array(list(waits.values())))
    if not usual >= LEAST_WAIT or math.isnan(noise):
        return 1.0
    return math.exp(min(_slowdown(usual), UNEVEN * noise) / EXPLAINED)


def _slowdown(share: float) -> float:
    """Return the slowdown of transfers, as a logarithm, if their rank waits for a core in a share of their time.

    It is that of 1 / (1 - share), because the rank moves messages only in the rest of the time.
    """
    return -math.log1p(-min(share, 0.999))


def finding_of_load(waits: Collection[CoreWait], provenance: Mapping[str, Any]) -> Finding:
    """Return how long ranks waited at most, and the load of the hosts."""
    longest = max(waits, key=lambda wait: wait.share)
    waited = f"Ranks waited for a core for up to {format_per_cent(longest.share)} of the time of their transfers"
    load = describe_load(provenance)
    text = f"{waited}; {load}." if load else f"{waited}."
    return warning(
        "loaded",
        text,
        remedy="do: diagnose again while nothing else uses these hosts",
        share=longest.share,
    )
