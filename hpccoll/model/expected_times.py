"""Expected times: what a machine file promises of measurements of our algorithms, each with its interval."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.observations import Observation
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import Validated, validate
from hpccoll.schedule import MAPPINGS


def expected_times(
    measured: Sequence[Observation], machine: MachineFile, report: Callable[[], object]
) -> list[tuple[Validated, tuple[float, float] | None]]:
    """Return measurements with the expected time, and the ends of its interval; None without one.

    ``report`` is called after each simulation: one for each measurement and bound.
    """
    by_bound: list[list[Validated]] = []
    for costs in map(machine.machine, BOUNDS):
        at_bound: list[Validated] = []
        for observation in measured:
            placed, reason = _placed(observation, machine)
            at_bound += [Validated(placed, None, reason)] if reason else validate([placed], costs)
            report()
        by_bound.append(at_bound)
    least, most = machine.held_out_ratios
    expected: list[tuple[Validated, tuple[float, float] | None]] = []
    for cases in zip(*by_bound, strict=True):
        times = [case.seconds for case in cases if case.seconds]
        has_interval = len(times) == len(BOUNDS)
        interval = (min(times) * least, max(times) * most) if has_interval else None
        expected.append((cases[0], interval))
    return expected


def _placed(observation: Observation, machine: MachineFile) -> tuple[Observation, str]:
    """Return an observation on the layout that a machine file describes, or as is with the reason why it has none."""
    layout = observation.layout
    if machine.geometry is None or observation.algorithm is None:
        return observation, ""
    if layout.ranks_per_node is None or (layout.mapping not in MAPPINGS and layout.nodes > 1):
        return (
            observation,
            f"{machine.name} has as many ranks on each node, in block or cyclic order",
        )
    try:
        mapping = layout.mapping if layout.nodes > 1 else None
        described = machine.layout(layout.nodes, layout.ranks_per_node, layout.aggregators, mapping)
    except BadInputError as error:
        return observation, str(error)
    return replace(observation, layout=described), ""
