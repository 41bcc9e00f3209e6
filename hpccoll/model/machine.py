"""A machine as the model sees it: what a message and a folded byte cost, by how far the message goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.schedule import Cost

PLACES = {"node": "inside a node", "rack": "between nodes", "fabric": "between racks"}
"""The tiers that messages cross, in words: see ``hpccoll.schedule.layout.TIERS``."""


@dataclass(frozen=True, slots=True)
class Link:
    """A message of n bytes takes alpha + n beta.

    Args:
        alpha_s: seconds of a message.
        beta_s: seconds of a byte.
        sizes: how many sizes of messages this was fitted to; 0 where it is given.
        outside: the sizes that are off the line and were left out, and how many times as long as it says they took.
    """

    alpha_s: float
    beta_s: float
    sizes: int = 0
    outside: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    """What messages cost on each tier where that is known, and what a folded byte costs.

    Args:
        links: by tier.
        gamma_s: seconds of a folded byte.
        folds: how many pairs of measurements gamma was fitted to; with none it is taken as 0.
    """

    links: Mapping[str, Link]
    gamma_s: float = 0.0
    folds: int = 0

    def seconds(self, cost: Cost, nbytes: float, tier: str) -> float:
        """Return what an algorithm takes for a vector of ``nbytes``, all of whose messages go as far as ``tier``."""
        link = self.links[tier]
        return cost.rounds * link.alpha_s + nbytes * (cost.sent * link.beta_s + cost.reduced * self.gamma_s)
