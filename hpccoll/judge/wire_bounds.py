"""What the wires of a class of machines carry at most, as bus bandwidth.

``wire_bound`` is that of the algorithm that runs; ``highest_possible`` that of any algorithm, so
that what is above it cannot be.
"""

from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import usual_algorithm, word_of

RING = "ring"
TREES = "tree", "nvls_tree"
"""NCCL's algorithms that pass the ports less often than a ring: N fabrics have N-1 edges between them."""

APART = 1.05
"""The ratio from which on a bound is another one than that of a ring: a tree on many nodes is as good as a ring."""

PORTS, FABRIC = "the ports", "the links between the GPUs"
"""The wires that bound a collective; both are plural, because sentences say that they carry a rate."""


class WireBound(NamedTuple):
    """The highest bus bandwidth that wires admit."""

    rate: float  # in bytes a second
    wires: str  # PORTS or FABRIC


class _Wires(NamedTuple):
    """The wires that a collective uses, with rates in bytes a second, each way."""

    ranks: int
    fabrics: int  # the number of fabrics that the ranks are on
    on_fabric: int  # the ranks on each fabric
    inside: float | None  # from a GPU into its fabric; None if unknown
    ports: float | None  # the ports that the ranks of a fabric use together; None if unknown

    @classmethod
    def of(
        cls, machine: MachineFile, nodes: int, ranks_per_node: int, *, every_port: bool = False
    ) -> "_Wires | None":
        """Return the wires of a place; None if the machine has no class.

        With ``every_port``, ranks on a part of the GPUs of a node use all of its ports.
        """
        like = machine.machine_class
        if like is None:
            return None
        ranks = nodes * ranks_per_node
        fabrics = -(-nodes // like.fabric_nodes)
        inside = _highest(like, "fabric_bytes_per_s")
        sharing = machine.geometry.ranks_per_node if machine.geometry else ranks_per_node
        ranks_with_ports = max(sharing, ranks_per_node) if every_port else ranks_per_node
        ports_of_node = _ports_of_node(machine, like, ranks_with_ports)
        ports = None
        if ports_of_node is not None:
            ports = ports_of_node * nodes / fabrics
        return cls(ranks, fabrics, ranks // fabrics, inside, ports)

    @property
    def in_switches(self) -> float:
        """What a reduction in the switches of the fabric has of its rate; of few ranks a ring, with 1, has more."""
        return max(1.0, 2 * self.over_ranks * self.on_fabric / (self.on_fabric + 1))

    @property
    def over_ranks(self) -> float:
        """(n-1)/n of n ranks."""
        return (self.ranks - 1) / self.ranks

    @property
    def shared_by_others(self) -> float:
        """(n-1)/n N/(N-1): bus bandwidth counts the (n-1)/n that others have, ports carry (N-1)/N."""
        return self.over_ranks * self.fabrics / max(1, self.fabrics - 1)


def _highest(like: ClassSection, name: str) -> float | None:
    rate = getattr(like, name)
    return rate.at("low_cost", is_rate=True) if rate else None


def _ports_of_node(machine: MachineFile, like: ClassSection, ranks_per_node: int) -> float | None:
    """Return the rate of the ports that ranks of a node use: each GPU its nearest, as NCCL does; None if unknown."""
    geometry = machine.geometry
    rate_of_gpu = _highest(like, "network_bytes_per_s")
    if rate_of_gpu is None:
        rate_of_port = _rate_of_described_port(machine)
        ports = geometry.rails if geometry else 1
        return rate_of_port and rate_of_port * min(ranks_per_node, ports)
    if geometry is None:
        return rate_of_gpu * ranks_per_node
    rate_of_rail = rate_of_gpu * geometry.ranks_per_node / geometry.rails
    return rate_of_rail * min(ranks_per_node, geometry.rails)


def _rate_of_described_port(machine: MachineFile) -> float | None:
    """Return the rate of a port of a node; None if it is unknown.

    With ``tiers``, ``port`` is a number of simulations: what messages get, which may be less than
    the wire has.
    """
    if machine.port is None or machine.tiers:
        return None
    return machine.port.bytes_per_s.at("low_cost", is_rate=True)


def wire_bound(
    machine: MachineFile,
    collective: str,
    nodes: int,
    ranks_per_node: int,
    algorithm: str | None = None,
) -> WireBound | None:
    """Return the highest bus bandwidth that the wires admit; None if their rates are not known.

    With L the rate of a GPU into the fabric, B that of the ports of a fabric, n ranks, and N
    fabrics of m ranks: a ring has at most L and B, a reduction in the switches of the fabric
    2 (n-1)/n m/(m+1) L, balanced trees (n-1)/n N/(N-1) B. The ranks of an all-to-all send (N-1)/N
    of their blocks through the ports; all blocks count.

    Args:
        machine: the machine, of a class.
        collective: the collective; rooted ones have no bound here.
        nodes: the nodes.
        ranks_per_node: the ranks on each node.
        algorithm: the algorithm, by the project's name [what NCCL takes without a setting; if
            unknown, a tree for an all-reduce].
    """
    like = machine.machine_class
    wires = _Wires.of(machine, nodes, ranks_per_node)
    if like is None or wires is None or not _has_bound(collective):
        return None
    if not algorithm:
        usual = usual_algorithm(like, nodes) if collective == "all_reduce" else None
        algorithm = word_of(usual) if usual else None
    is_in_switches = bool(algorithm and algorithm.startswith("nvls"))
    inside = _inside(wires, wires.in_switches if is_in_switches else 1.0)
    is_tree = collective == "all_reduce" and algorithm in (None, *TREES)
    passes_ports_once = is_tree or collective == "all_to_all"
    factor = wires.shared_by_others if passes_ports_once else 1.0
    return _with_ports(wires, inside, factor, collective)


def ring_below(
    machine: MachineFile, bound: float, collective: str, nodes: int, ranks_per_node: int
) -> WireBound | None:
    """Return what a ring gets out of the wires, where it is the likeliest algorithm and another might get more.

    If the class names no default algorithm, only rings and trees are known there, and ``bound`` is
    that of a tree. None if a ring is as good as the bound.
    """
    like = machine.machine_class
    if collective != "all_reduce" or like is None or usual_algorithm(like, nodes):
        return None
    ring = wire_bound(machine, collective, nodes, ranks_per_node, RING)
    if ring is None or APART * ring.rate >= bound:
        return None
    return ring


def highest_possible(
    machine: MachineFile, collective: str, nodes: int, ranks_per_node: int
) -> WireBound | None:
    """Return the highest bus bandwidth of any algorithm; None if the rates of the wires are not known.

    The ports of each fabric must carry the share of the result that others contribute: (N-1)/N of
    it for an all-gather, and for a reduction in the switches of the network all of it. The switches
    of the fabric may reduce as well. What a GPU gets from its port does not pass the fabric. Some GPUs of
    a node may use all of its ports.
    """
    wires = _Wires.of(machine, nodes, ranks_per_node, every_port=True)
    if wires is None or not _has_bound(collective):
        return None
    if collective == "all_reduce":
        in_switches, factor = wires.in_switches, 2 * wires.over_ranks
    else:
        in_switches, factor = 1.0, wires.shared_by_others
    inside = _inside(wires, in_switches)
    if inside and wires.fabrics > 1 and wires.ports is not None:
        beside = in_switches * wires.ports / wires.on_fabric
        inside = WireBound(inside.rate + beside, FABRIC)
    return _with_ports(wires, inside, factor, collective)


def _has_bound(collective: str) -> bool:
    family = COLLECTIVES[collective]
    return not family.rooted and family.busbw is not None


def _inside(wires: _Wires, factor: float) -> WireBound | None:
    """Return the bound of the fabric, where several ranks share one; None if its rate is not known."""
    if wires.inside is None or wires.on_fabric == 1:
        return None
    return WireBound(factor * wires.inside, FABRIC)


def _with_ports(
    wires: _Wires, inside: WireBound | None, factor: float, collective: str
) -> WireBound | None:
    """Return the bound of the fabric and of the ports; None if one that counts is not known."""
    if wires.fabrics == 1:
        return inside
    is_fabric_unknown = inside is None and wires.on_fabric > 1
    if wires.ports is None or is_fabric_unknown:
        return None
    carried = factor * wires.ports
    if collective == "all_to_all":  # each rank of a fabric has a result of its own
        carried /= wires.on_fabric
    if inside is not None and inside.rate < carried:
        return inside
    return WireBound(carried, PORTS)
