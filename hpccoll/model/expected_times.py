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
        by_bound.append([])
        for placed, reason in (_placed(one, machine) for one in measured):
            by_bound[-1] += [Validated(placed, None, reason)] if reason else validate([placed], costs)
            report()
    least, most = machine.held_out_ratios
    intervals = [
        (min(times) * least, max(times) * most) if len(times) == len(BOUNDS) else None
        for each in zip(*by_bound, strict=True)
        for times in [[one.seconds for one in each if one.seconds]]
    ]
    return list(zip(by_bound[0], intervals, strict=True))


def _placed(one: Observation, machine: MachineFile) -> tuple[Observation, str]:
    """Return an observation on the layout that a machine file describes, or as is with the reason why it has none."""
    layout = one.layout
    if machine.geometry is None or one.algorithm is None:
        return one, ""
    if layout.ranks_per_node is None or (layout.mapping not in MAPPINGS and layout.nodes > 1):
        return one, f"{machine.name} has as many ranks on each node, in block or cyclic order"
    try:
        mapping = layout.mapping if layout.nodes > 1 else None
        described = machine.layout(layout.nodes, layout.ranks_per_node, layout.aggregators, mapping)
    except BadInputError as error:
        return one, str(error)
    return replace(one, layout=described), ""
