"""The rate of the network below which a compression pays, from predicted steps with and without it.

On a network x times as fast an operation takes a + b/x seconds: a is what latencies take, and what
stays inside nodes. Both follow from the times on two networks; in the end these are near the
break-even one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hpccoll.extensions.steps.analysis.paying_rate import NETWORKS, PayingRate, paying_factor
from hpccoll.extensions.steps.training.step_program import StepOperation, StepProgram
from hpccoll.extensions.steps.training.step_timeline import Cost, StepTimeline
from hpccoll.model.machine_sections import Bound

OTHER = 0.25
"""The rate of the second network that is tried, over that of the machine's own."""
MOST_NETWORKS = 4
"""The most networks that are tried besides the machine's own."""
FOUND = 0.02
"""The relative difference in rate up to which a network counts as the break-even one."""

BoundCost = Callable[[StepOperation, Bound], float]
"""Returns the seconds of an operation, with the numbers of the machine at their values or at one end of them."""

Timeline = Callable[[Sequence[StepProgram], Cost], StepTimeline]
"""Returns the timeline of the programs of all stages, from the duration of each operation."""

Networks = Mapping[float, BoundCost]
"""The costs of operations on two networks, by how many times as fast they are."""


def paying_rate(
    costs_on: Callable[[float], BoundCost],
    programs: Sequence[StepProgram],
    dense: Sequence[StepProgram],
    timeline: Timeline,
    link: float,
    ratios: tuple[float, float],
) -> PayingRate | None:
    """Return the rate of a link below which the steps of compressed programs take less than those of dense ones.

    At the lower end of the interval messages are as fast, and codecs as slow, as the intervals of
    the machine allow; at the upper end it is the reverse.

    Args:
        costs_on: returns the costs of all operations of both, by how many times as fast the network
            is.
        programs: the programs of all stages with compressed gradients.
        dense: the same without compression.
        timeline: returns the step of the programs of all stages.
        link: the rate of the link of the machine, in bytes a second: a fitted one has the rate of
            payload.
        ratios: measured over predicted time of messages, at the ends of its interval.

    Returns:
        None if no message crosses the network.
    """

    def factor_for(networks: Networks, wires: Bound, codecs: Bound, ratio: float) -> float:
        costs = _CostsOnNetworks(networks, wires, codecs, ratio)

        def longer_s(x: float) -> float:
            cost = partial(costs.seconds, x)
            return timeline(programs, cost).step_s - timeline(dense, cost).step_s

        return paying_factor(longer_s)

    tried = {x: costs_on(x) for x in (1.0, OTHER)}
    operations = set()
    for program in dense:
        operations.update(program.operations)
    if all(
        tried[1.0](operation, "value") == tried[OTHER](operation, "value")
        for operation in operations
    ):
        return None
    networks: Networks = tried
    factor = factor_for(networks, "value", "value", 1.0)
    for _ in range(MOST_NETWORKS):
        wanted = max(factor, NETWORKS[0])
        nearest = min(tried, key=lambda x: abs(math.log(x / wanted)))
        if math.isclose(nearest, wanted, rel_tol=FOUND):
            break
        tried[wanted] = costs_on(wanted)
        networks = {x: tried[x] for x in (wanted, nearest)}
        factor = factor_for(networks, "value", "value", 1.0)
    least = factor_for(networks, "low_cost", "high_cost", ratios[0])
    most = factor_for(networks, "high_cost", "low_cost", ratios[1])
    return PayingRate.of(link, factor, (least, most))


class _CostsOnNetworks:
    """The costs of operations on a network of any rate, from those on two networks.

    Args:
        networks: the costs on two networks.
        wires: the bound of the times of messages.
        codecs: the bound of the times of codecs.
        ratio: what the times of messages are multiplied by.
    """

    def __init__(self, networks: Networks, wires: Bound, codecs: Bound, ratio: float) -> None:
        (self.slow, self.cost_on_slow), (self.fast, self.cost_on_fast) = sorted(networks.items())
        self.wires = wires
        self.codecs = codecs
        self.ratio = ratio
        # the time on the slow network, and b of a + b/x
        self.lines: dict[StepOperation, tuple[float, float]] = {}

    def seconds(self, x: float, operation: StepOperation) -> float:
        """Return the seconds of an operation on a network x times as fast."""
        if operation.is_codec:
            return self.cost_on_slow(operation, self.codecs)
        if operation not in self.lines:
            on_slow = self.ratio * self.cost_on_slow(operation, self.wires)
            on_fast = self.ratio * self.cost_on_fast(operation, self.wires)
            self.lines[operation] = on_slow, (on_slow - on_fast) / (1 / self.slow - 1 / self.fast)
        on_slow, per_inverse_rate = self.lines[operation]
        return max(0.0, on_slow + per_inverse_rate * (1 / x - 1 / self.slow))
