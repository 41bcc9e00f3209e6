"""NCCL's own ring and tree among the candidates for a collective: where the model has them, and what they take.

NCCL knows its own communicator and no other. It chooses by what it expects there, and takes longer
if other groups of ranks use the same ports at the same time.
"""

import math

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.text import join_words
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound, NcclSection, Quantity
from hpccoll.model.nccl_model import NETWORK_US, RING_STEPS, NcclEstimate, nccl_estimates
from hpccoll.schedule import Layout, itemsize

RATES = "intra_bytes_per_s", "inter_bytes_per_s"
"""The rates of a channel in the section ``nccl``."""

NAMES = {"ring": "nccl_ring", "tree": "nccl_tree"}
"""The names of NCCL's algorithms among ours, by NCCL's own."""


NO_PARAMETERS = "left out: NCCL's algorithms have no parameters"
"""What a parameter of them must be."""

FEWEST_IN_SWITCHES = 5
"""The fewest ranks of a node with which NCCL takes NVLS: of H200 (stas00/ml-engineering, network)."""


def library_names(machine: MachineFile, family: str) -> tuple[str, ...]:
    """Return the names of NCCL's algorithms of a collective; none without a section ``nccl``, or without a formula."""
    if machine.nccl is None or family not in RING_STEPS:
        return ()
    return tuple(name for own, name in NAMES.items() if own == "ring" or family == "all_reduce")


def unmodelled(
    machine: MachineFile, family: str, nodes: int, ranks_per_node: int
) -> tuple[str, ...]:
    """Return NCCL's algorithms of a collective that NCCL may take on as many nodes, and that have no formula here.

    NVLS and NVLSTree reduce in the switches of NVLink, from Hopper and from FEWEST_IN_SWITCHES
    ranks of a node on.
    """
    if machine.nccl is None or family not in RING_STEPS:
        return ()
    has_switches = machine.nccl.architecture != "ampere" and ranks_per_node >= FEWEST_IN_SWITCHES
    reduces_in_switches = has_switches and family == "all_reduce"
    if nodes == 1:
        return (
            ("NVLS", "the ring inside a node")
            if reduces_in_switches
            else ("the ring inside a node",)
        )
    return ("NVLSTree",) if reduces_in_switches else ()


def latency_beyond_formulas(machine: MachineFile) -> float | None:
    """Return the latency of messages between nodes, in seconds, if the formulas know none as long; else None.

    NCCL takes the same constants for sockets as for InfiniBand.
    """
    between = machine.tiers.get("rack") or machine.tiers.get("fabric")
    if machine.nccl is None or not between:
        return None
    latency = between[0].latency_s
    longest_s = 1e-6 * max(max(times_us) for times_us in NETWORK_US.values())
    return latency.value if latency.at("low_cost") > longest_s else None


def modelled_busbw(
    machine: MachineFile,
    family: str,
    nodes: int,
    ranks_per_node: int,
    nbytes: int,
    dtype: str,
    name: str,
) -> tuple[float, float, float] | None:
    """Return the bus bandwidth that NCCL's formulas give a call, in bytes a second: low, likely and high.

    The ends are those of the channels' rates in the section ``nccl``: on large sizes nothing else
    counts.

    Args:
        machine: the machine.
        family: the collective.
        nodes: the nodes.
        ranks_per_node: the ranks on each node.
        nbytes: the size S.
        dtype: the type of the elements.
        name: the algorithm, by NCCL's name.

    Returns:
        None without a section ``nccl``, costs of messages, or a formula.

    Raises:
        BadInputError: if the machine does not have such nodes.
    """
    section = machine.nccl
    if (
        section is None
        or not machine.tiers
        or NAMES.get(name) not in library_names(machine, family)
    ):
        return None
    layout = machine.layout(nodes, ranks_per_node)
    busbw: list[float] = []
    bounds: tuple[Bound, ...] = ("high_cost", "value", "low_cost")
    for bound in bounds:
        rates = {
            rate: Quantity(value=getattr(section, rate).at(bound, is_rate=True)) for rate in RATES
        }
        machine_at_bound = machine.model_copy(update={"nccl": section.model_copy(update=rates)})
        calls = LibraryCalls(machine_at_bound, family, layout, dtype)
        factor = calls.family.busbw
        if factor is None or calls.unpredicted_reason(nbytes):
            return None
        algbw = calls.moved(nbytes) / calls.estimate(nbytes, NAMES[name]).seconds
        busbw.append(algbw * factor(layout.workers))
    low, value, high = busbw
    return low, value, high


class LibraryCalls:
    """The calls of NCCL for a collective on a group of ranks.

    What NCCL's search finds for a group. Its topology has the GPUs of the communicator, and all
    network ports of their nodes; if a node has more ports than GPUs, it has the number of ports
    that ``MachineFile.layout`` gives them. From a GPU to the port of another one there is a path
    through that GPU, if it is in the communicator (PXN), and one through the CPUs, for which the
    search does not look once it has channels without (graph/search.cc, typeInter). The ranks of a
    group on a node thus use the ports next to them: k of the rails, with as many channels on each
    as the search finds for the whole node. The rate of a channel is that of its port, and stays.

    What other groups take. Groups whose ranks have the same ports, such as those of two GPUs beside
    one port, get an equal part of it each. So they do of the uplink of a rack, which the ring of a
    group crosses once on each rail that it uses. NCCL does not expect this: it chooses by the whole
    rate, and takes the time of the part.

    Args:
        machine: a machine with a section ``nccl``.
        family: the name of the collective, one of those with formulas.
        layout: the layout of the group.
        dtype: the type of the elements; blocks have whole elements.
        at_port: the groups that use the busiest port of this one at once.
        at_uplink: the groups that use its busiest uplink of a rack on a rail at once.
    """

    def __init__(
        self,
        machine: MachineFile,
        family: str,
        layout: Layout,
        dtype: str,
        at_port: float = 1.0,
        at_uplink: float = 1.0,
    ) -> None:
        if machine.nccl is None:
            raise ValueError(f"{machine.name} has no section nccl")
        self.family = collective(family)
        self.dtype = dtype
        self.workers, self.nodes = layout.workers, layout.nodes
        self.ranks_per_node = layout.ranks_per_node
        self.missing = unmodelled(machine, family, self.nodes, self.ranks_per_node or 1)
        rails_used = len(set(layout.rail))
        channels = max(1, machine.nccl.channels * rails_used // machine.rails_of())
        self.expected = machine.nccl.model_copy(update={"channels": channels})
        at_most = math.inf  # the rate of a channel at the uplinks
        uplink_byte_s = machine.machine().uplink_byte_s * at_uplink
        if layout.racks > 1 and uplink_byte_s:
            at_most = rails_used / channels / uplink_byte_s
        shared = {}
        for name in RATES:
            rate = getattr(self.expected, name).value / at_port
            shared[name] = Quantity(value=min(rate, at_most))
        self.taken = self.expected.model_copy(update=shared)

    def unpredicted_reason(self, nbytes: int) -> str | None:
        """Return why NCCL's formulas do not apply to a size on the group; None if they do."""
        unmoved = self.family.unmoved_reason(nbytes, self.dtype, self.workers)
        if unmoved:
            return unmoved
        if self.nodes == 1:
            return f"on one node NCCL takes {join_words(self.missing, 'or')}, for which there is no formula here"
        if self.ranks_per_node is None:
            return "the nodes do not have as many ranks each"
        return None

    def moved(self, nbytes: int) -> int:
        """Return the bytes that are moved for a requested size: whole elements, in equal blocks."""
        size = itemsize(self.dtype)
        return (
            self.family.elements(nbytes, size, self.workers)
            * self.family.blocks(self.workers)
            * size
        )

    def estimate(self, nbytes: int, name: str | None = None) -> NcclEstimate:
        """Return what an operation takes by the protocol that NCCL chooses.

        Args:
            nbytes: the requested size.
            name: the algorithm, one of ``library_names`` [the one that NCCL chooses].
        """
        expected = self._estimates(self.expected, nbytes, name)
        taken = self._estimates(self.taken, nbytes, name)
        chosen = min(range(len(expected)), key=lambda number: expected[number].seconds)
        return taken[chosen]

    def _estimates(self, section: NcclSection, nbytes: int, name: str | None) -> list[NcclEstimate]:
        """Return the estimates of an algorithm, or of all, with the channels of a section."""
        per_node = self.ranks_per_node or 1
        estimates = nccl_estimates(
            section, self.family.name, self.nodes, per_node, self.moved(nbytes)
        )
        return [estimate for estimate in estimates if name in (None, NAMES[estimate.algorithm])]
