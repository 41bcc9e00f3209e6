"""The rate of the network below which a compression pays, from predicted steps with and without it.

On a network x times as fast an operation takes a + b/x seconds: a is what latencies take, and what stays inside nodes.
Both follow from the times on two networks; in the end these are near the break-even one.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from hpccoll.analysis.paying_rate import NETWORKS, PayingRate, paying_factor
from hpccoll.model.machine_sections import Bound
from hpccoll.training.step_program import StepOperation, StepProgram
from hpccoll.training.step_timeline import Cost, StepTimeline

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
    costs_on: Callable[[float], BoundCost], programs: Sequence[StepProgram], dense: Sequence[StepProgram],
    timeline: Timeline, link: float, ratios: tuple[float, float],
) -> PayingRate | None:  # fmt: skip
    """Return the rate of a link below which the steps of compressed programs take less than those of dense ones.

    At the lower end of the interval messages are as fast, and codecs as slow, as the intervals of the machine allow; at
    the upper end it is the reverse.

    Args:
        costs_on: returns the costs of all operations of both on a network so many times as fast.
        programs: the programs of all stages with compressed gradients.
        dense: the same without compression.
        timeline: returns the step of the programs of all stages.
        link: the rate of the link of the machine, in bytes a second: a fitted one has the rate of payload.
        ratios: measured over predicted time of messages, at the ends of its interval.

    Returns:
        None if no message crosses the network.
    """

    def longer_s(networks: Networks, wires: Bound, codecs: Bound, ratio: float) -> Callable[[float], float]:
        (slow, near), (fast, far) = sorted(networks.items())
        known: dict[StepOperation, tuple[float, float]] = {}

        def cost(operation: StepOperation, x: float) -> float:
            if operation.is_codec:
                return near(operation, codecs)
            if operation not in known:
                first, second = ratio * near(operation, wires), ratio * far(operation, wires)
                known[operation] = first, (first - second) / (1 / slow - 1 / fast)
            at_slow, of_bytes = known[operation]
            return max(0.0, at_slow + of_bytes * (1 / x - 1 / slow))

        def longer(x: float) -> float:
            steps = (timeline(each, lambda one: cost(one, x)).step_s for each in (programs, dense))
            return next(steps) - next(steps)

        return longer

    tried = {x: costs_on(x) for x in (1.0, OTHER)}
    operations = {each for program in dense for each in program.operations}
    if all(tried[1.0](each, "value") == tried[OTHER](each, "value") for each in operations):
        return None
    networks: Networks = tried
    for _ in range(MOST_NETWORKS):
        found = paying_factor(longer_s(networks, "value", "value", 1.0))
        at = max(found, NETWORKS[0])
        nearest = min(tried, key=lambda x: abs(math.log(x / at)))
        if math.isclose(nearest, at, rel_tol=FOUND):
            break
        tried[at] = costs_on(at)
        networks = {x: tried[x] for x in (at, nearest)}
    ends = (
        paying_factor(longer_s(networks, "low_cost", "high_cost", ratios[0])),
        paying_factor(longer_s(networks, "high_cost", "low_cost", ratios[1])),
    )
    return PayingRate.of(link, found, ends)
