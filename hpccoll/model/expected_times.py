"""Expected times: what a machine file promises of measurements of our algorithms, each with its interval."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.observations import Observation
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import Validated, times_or_reason, unpredicted_reason
from hpccoll.schedule import MAPPINGS


def expected_times(
    measured: Sequence[Observation], machine: MachineFile, report: Callable[[], object]
) -> list[tuple[Validated, tuple[float, float] | None]]:
    """Return measurements with the expected time, and the ends of its interval; None without one.

    ``report`` is called after each simulation: one for each measurement and bound.
    """
    machines = [machine.machine(bound) for bound in BOUNDS]
    least, most = machine.held_out_ratios
    expected: list[tuple[Validated, tuple[float, float] | None]] = []
    for observation in measured:
        placed, reason = _placed(observation, machine)
        reason = reason or unpredicted_reason(placed, machines[0])
        times: Sequence[float] = ()
        if not reason:
            times, reason = times_or_reason(placed, machines)
        if reason:
            expected.append((Validated(placed, None, reason), None))
        else:
            interval = min(times) * least, max(times) * most
            expected.append((Validated(placed, times[0]), interval))
        for _ in BOUNDS:
            report()
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
