"""Cases on machines of which one can say beforehand what their messages take."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from schedule_examples import Case, cases

from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import TIER_LABELS, Cpus, Machine, MessageCosts, Tier
from hpccoll.schedule import COLLECTIVES, Cut, Layout, Schedule

Simulation = Callable[..., float]


def uniform_machine(costs: MessageCosts, **others) -> Machine:
    """Return a machine whose messages cost the same in all tiers."""
    return Machine(dict.fromkeys(TIER_LABELS, Tier((costs,))), **others)


def synchronous(machine: Machine) -> Machine:
    """Return the machine with messages that wait for their receivers."""
    tiers = {
        name: Tier(tuple(replace(each, synchronous=True) for each in tier.costs))
        for name, tier in machine.tiers.items()
    }
    return replace(machine, tiers=tiers)


def first_case(collective: str, algorithm: str, layout: Layout, **parameters) -> Case:
    """Return the first call of an algorithm on a layout."""
    row = COLLECTIVES[collective]
    return next(cases(row, row.algorithm(algorithm), layout, **parameters))


def equal_cut(case: Case, channels: int = 1, grains: int = 1) -> Cut:
    """Return a cut into pieces of as many times 128 bytes, so that no piece is larger than another."""
    units, lanes = case.slices[0].units, len(case.slices) * channels
    pieces = lanes * (units if case.call.collective.units == "divisible" else 1)
    return Cut(
        case.call, 1 if case.call.collective.token else 128 * grains * pieces, units, lanes, 1
    )


def size_of(cut: Cut) -> int:
    """Return S, in bytes."""
    return cut.call.bytes(cut.count, cut.itemsize)


def simulated(
    case: Case,
    machine: Machine,
    channels: int = 1,
    window: int = 1,
    grains: int = 1,
    simulation: Simulation = simulate_events,
) -> float:
    """Return the seconds of a case that is cut into equal pieces."""
    return simulation(case.slices, equal_cut(case, channels, grains), machine, window)


def simulated_steps(
    layout: Layout, steps, machine: Machine, nbytes: int, simulation: Simulation = simulate_events
) -> float:
    """Return the seconds of a broadcast whose steps are a generator of the rank; a unit has ``nbytes`` bytes."""
    call, units = COLLECTIVES["broadcast"].call(layout.workers), layout.workers
    return simulation(
        [Schedule(layout, units, steps)], Cut(call, nbytes * units, units, 1, 1), machine
    )


def every_step(schedules: Sequence[Schedule]) -> tuple[Schedule, ...]:
    """Return schedules of which no regularity is known, so that every step of every rank is simulated."""
    return tuple(replace(schedule, regularity=None) for schedule in schedules)


def in_racks(nodes: int, ranks_per_node: int, nodes_per_rack: int, rails: int = 1) -> Layout:
    """Return a layout of racks that are filled one after another, the last one perhaps not to its end."""
    ranks = range(nodes * ranks_per_node)
    node = [me // ranks_per_node for me in ranks]
    rail = (me % ranks_per_node * rails // ranks_per_node for me in ranks)
    return Layout(tuple(node), tuple(each // nodes_per_rack for each in node), tuple(rail))


_SHORT = MessageCosts(latency_s=3e-6, overhead_s=7e-7, gap_s=2e-7, byte_s=1.1e-10)
_LONG = replace(_SHORT, from_bytes=4096, latency_s=6e-6, overhead_s=9e-7, synchronous=True)
_TIERS = {
    "node": Tier((MessageCosts(latency_s=5e-7, overhead_s=2e-7, byte_s=3e-11),)),
    "rack": Tier((_SHORT, _LONG)),
    "fabric": Tier((replace(_SHORT, latency_s=8e-6), replace(_LONG, latency_s=9e-6))),
}
_FOLD_S = {"float32": 4e-11}
MACHINES_THAT_SHARE = {
    "nothing": Machine(_TIERS, _FOLD_S),
    "ports": Machine(_TIERS, _FOLD_S, port_byte_s=8e-11, uplink_byte_s=1.2e-10),
    "memory": Machine(
        _TIERS, _FOLD_S, port_byte_s=8e-11, uplink_byte_s=1.2e-10, memory_byte_s=1e-11
    ),
    "cpus": Machine(_TIERS, _FOLD_S, port_byte_s=8e-11, cpus=Cpus(3, 1e-11)),
    "machine": Machine(_TIERS, _FOLD_S, cpus=Cpus(3, 1e-12, of="machine")),
}
"""Machines by what the messages of several ranks share."""
