"""NCCL's own ring and tree among the candidates for a collective: where the model has them, and what they take.

NCCL knows its own communicator and no other. It chooses by what it expects there, and takes longer if other groups of
ranks use the same ports at the same time.
"""

from hpccoll.cases.algorithm_registry import collective
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import NcclSection, Quantity
from hpccoll.model.nccl_model import RING_STEPS, NcclEstimate, nccl_estimates
from hpccoll.schedule import Layout, itemsize

NAMES = {"nccl_ring": "ring", "nccl_tree": "tree"}
"""The names of NCCL's algorithms among ours, with NCCL's own."""


def library_names(machine: MachineFile, family: str) -> tuple[str, ...]:
    """Return the names of NCCL's algorithms of a collective; none without a section ``nccl``, or without a formula."""
    if machine.nccl is None or family not in RING_STEPS:
        return ()
    return tuple(name for name, own in NAMES.items() if own == "ring" or family == "all_reduce")


def unmodelled(machine: MachineFile, family: str, nodes: int) -> tuple[str, ...]:
    """Return NCCL's algorithms of a collective that NCCL may take on as many nodes, and that have no formula here.

    NVLS and NVLSTree reduce in the switches of NVLink, from Hopper on. From more than two nodes on the ring is faster
    than NVLSTree: a forced one had 310 of 365 GB/s on four (stas00/ml-engineering, network).
    """
    if machine.nccl is None or family not in RING_STEPS:
        return ()
    in_switches = machine.nccl.architecture != "ampere" and family == "all_reduce"
    if nodes == 1:
        return ("NVLS", "the ring inside a node") if in_switches else ("the ring inside a node",)
    return ("NVLSTree",) if nodes == 2 and in_switches else ()


class LibraryCalls:
    """The calls of NCCL for a collective on a group of ranks.

    What NCCL's search finds for a group. NCCL removes the GPUs of a node that are not in the communicator, and keeps
    all network ports; but a path from a GPU to the port of another one is either through that GPU, which is gone, or
    through the CPUs, where the search stops as soon as it has a faster path (graph/search.cc, typeInter). The ranks of
    a group on a node thus use the ports next to them: k of the rails, and k rails' part of the channels that the search
    finds for the whole node. A channel's rate is that of its port, and stays.

    What other groups take. Groups whose ranks are at the same ports, as those of two GPUs that have one port, get an
    equal part of it each; so do they of the uplink of a rack, which a ring of a group crosses once on each rail it
    uses. NCCL does not expect this: it chooses by the whole rate, and takes the time of its part.

    Args:
        machine: a machine with a section ``nccl``.
        family: the name of the collective, one of those with formulas.
        layout: the layout of the group.
        dtype: the type of the elements, in whole ones of which blocks are cut.
        at_port: the groups that use the busiest port of this one at once.
        at_uplink: the groups that use its busiest uplink of a rack on a rail at once.
    """

    def __init__(
        self, machine: MachineFile, family: str, layout: Layout, dtype: str, at_port: float = 1.0,
        at_uplink: float = 1.0,
    ) -> None:  # fmt: skip
        self.machine, self.family, self.layout, self.dtype = machine, family, layout, dtype
        self.expected = self._found_by_search()
        self.shared = self._beside_others(at_port, at_uplink)

    def unpredicted_reason(self, nbytes: int) -> str | None:
        """Return why NCCL's formulas do not apply to a size on the group; None if they do."""
        if reason := collective(self.family).unmoved_reason(nbytes, self.dtype, self.layout.workers):
            return reason
        if self.layout.nodes == 1:
            return "on one node NCCL finds other channels, for which there are no formulas here"
        if self.layout.ranks_per_node is None:
            return "the nodes do not have as many ranks each"
        return None

    def moved(self, nbytes: int) -> int:
        """Return the bytes that are moved for a requested size: whole elements, in equal blocks."""
        family, size = collective(self.family), itemsize(self.dtype)
        return family.elements(nbytes, size, self.layout.workers) * family.blocks(self.layout.workers) * size

    def estimate(self, nbytes: int, name: str | None = None) -> NcclEstimate:
        """Return what an operation takes with the algorithm and protocol that NCCL chooses, or with its own ``name``d.

        Args:
            nbytes: the requested size.
            name: one of ``library_names`` [the one that NCCL chooses].
        """
        size, per_node = self.moved(nbytes), self.layout.ranks_per_node or 1
        expected, taken = (
            [each for each in nccl_estimates(section, self.family, self.layout.nodes, per_node, size)
             if name is None or each.algorithm == NAMES[name]]
            for section in (self.expected, self.shared)
        )  # fmt: skip
        chosen = min(range(len(expected)), key=lambda number: expected[number].seconds)
        return taken[chosen]

    @property
    def _section(self) -> NcclSection:
        if self.machine.nccl is None:
            raise ValueError(f"{self.machine.name} has no section nccl")
        return self.machine.nccl

    @property
    def _rails(self) -> tuple[int, int]:
        """The rails that the group uses, and those of a node."""
        return len(set(self.layout.rail)), self.machine.geometry.rails if self.machine.geometry else 1

    def _found_by_search(self) -> NcclSection:
        used, rails = self._rails
        return self._section.model_copy(update={"channels": max(1, self._section.channels * used // rails)})

    def _beside_others(self, at_port: float, at_uplink: float) -> NcclSection:
        section, costs = self.expected, self.machine.machine()
        rates = {name: getattr(section, name).value / at_port for name in ("intra_bytes_per_s", "inter_bytes_per_s")}
        if self.layout.racks > 1 and costs.uplink_byte_s:
            of_channel = self._rails[0] / section.channels / costs.uplink_byte_s / at_uplink
            rates = {name: min(rate, of_channel) for name, rate in rates.items()}
        return section.model_copy(update={name: Quantity(value=rate) for name, rate in rates.items()})
