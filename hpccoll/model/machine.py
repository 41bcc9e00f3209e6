"""The machine model: the costs of a message, by tier, and of a folded byte."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.schedule import Cost

TIER_LABELS = {"node": "inside a node", "rack": "between nodes", "fabric": "between racks"}
"""Labels of the tiers that messages cross: see ``hpccoll.schedule.layout.TIERS``."""


@dataclass(frozen=True, slots=True)
class Link:
    """A message of n bytes takes alpha + n beta.

    Args:
        alpha_s: seconds of a message.
        beta_s: seconds of a byte.
        sizes: the number of message sizes of the fit; 0 if the link was given.
        outside: the outliers left out of the fit, by size, as ratios of their time to the fitted time.
    """

    alpha_s: float
    beta_s: float
    sizes: int = 0
    outside: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineModel:
    """The costs of messages on each known tier, and of a folded byte.

    Args:
        links: the links by tier.
        gamma_s: seconds of a folded byte.
        folds: the number of pairs of measurements that gamma was fitted to; without any, gamma is 0.
    """

    links: Mapping[str, Link]
    gamma_s: float = 0.0
    folds: int = 0

    def seconds(self, cost: Cost, nbytes: float, tier: str) -> float:
        """Return the seconds of an algorithm for a vector of ``nbytes`` if all of its messages cross ``tier``."""
        link = self.links[tier]
        return cost.rounds * link.alpha_s + nbytes * (cost.sent * link.beta_s + cost.reduced * self.gamma_s)
