"""The file of a machine: what ``hpccoll fit --out`` has fitted, or what a person has described.

Both have one format. Fitted files are JSON, which is YAML, too; described clusters are YAML, and
some of them come with hpccoll, in ``clusters/``. Every number of the model may have an interval.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import PrivateAttr, model_validator

from hpccoll.common.errors import BadInputError, UnusableError, file_error
from hpccoll.common.limits import AGGREGATORS, RANKS, RANKS_PER_NODE
from hpccoll.common.units import format_size
from hpccoll.common.yaml_model import check_keys, load_yaml, to_model
from hpccoll.model.contradictions import BETWEEN_NODES, contradictions
from hpccoll.model.machine import (
    TIER_LABELS,
    Cpus,
    Machine,
    MessageCosts,
    OwnMemory,
    PathCosts,
    Tier,
)
from hpccoll.model.machine_content import machine_path, read_content
from hpccoll.model.machine_sections import (
    SCHEMA,
    VERSION,
    Bound,
    CpusSection,
    DeclaredSections,
    MachineFields,
    MessageCostsSection,
    OwnMemorySection,
    Quantity,
    RateSection,
    UplinkSection,
)
from hpccoll.model.torus_links import Torus
from hpccoll.schedule import MAPPINGS, Layout, numbering
from hpccoll.store.durable_files import replacing_file


class MachineFile(MachineFields):
    """A machine, fitted or described. ``machine`` and ``layout`` return what simulations take."""

    _network_factor: float = PrivateAttr(1)
    _unscaled: "MachineFile | None" = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _of_this_schema(cls, content: dict[str, Any]) -> dict[str, Any]:
        """Report a file of another schema as such, and not by its keys."""
        for key, valid in (("schema", SCHEMA), ("schema_version", VERSION)):
            if content.get(key) != valid:
                raise BadInputError(key, content.get(key), f"{valid}, of a machine file")
        return content

    def check(self) -> Self:
        """Check that the sections do not contradict each other; BadInputError names the keys that do."""
        for contradiction in contradictions(self):
            raise contradiction
        return self

    _is_consistent = model_validator(mode="after")(check)

    @classmethod
    def of(cls, **sections: Any) -> "MachineFile":
        """Return a machine file of this version with ``sections``, by the names of its keys."""
        return cls.model_validate({"schema": SCHEMA, "schema_version": VERSION, **sections})

    def declaring(self, sections: DeclaredSections) -> "MachineFile":
        """Return the machine with these sections in the place of its own; of the CPUs, with the keys that they have.

        Raises:
            BadInputError: if they do not fit the others.
        """
        updates = {name: section for name, section in sections if section is not None}
        cpus = sections.cpus
        if self.cpus and cpus:
            declared = {name: getattr(cpus, name) for name in cpus.model_fields_set}
            updates["cpus"] = self.cpus.model_copy(update=declared)
        return self.model_copy(update=updates).check()

    def with_network(self, factor: float | None) -> "MachineFile":
        """Return the machine with a network whose tiers, ports and uplinks are ``factor`` times as fast.

        NCCL's channels follow, up to the rate between two ranks of a node; what was published of
        the machine does not apply. Without a factor it is the same machine.
        """
        if factor is None or factor == 1:
            return self
        if self._unscaled:
            return self._unscaled.with_network(factor * self._network_factor)
        tiers = _with_faster_network(self.tiers, factor)
        updates: dict[str, Any] = {
            "name": f"{self.name} with a network x{factor:g}",
            "published": [],
            "machine_class": None,
            "tiers": tiers,
            "port": self.port and self.port.scaled(factor),
            "uplink": self.uplink and self.uplink.scaled(factor),
        }
        if self.nccl:
            inside = tiers["node"][-1].bytes_per_s.value if "node" in tiers else math.inf
            updates["nccl"] = self.nccl.with_network(factor, inside)
        if self.critical_path:
            together = self.critical_path.ports_bytes_per_s
            updates["critical_path"] = self.critical_path.model_copy(
                update={"ports_bytes_per_s": together and together.times(factor)}
            )
        if self.torus:
            link = self.torus.link_bytes_per_s.times(factor)
            updates["torus"] = self.torus.model_copy(update={"link_bytes_per_s": link})
        if self.larger_jobs:
            larger = self.larger_jobs
            updates["larger_jobs"] = larger.model_copy(
                update={
                    "tiers": _with_faster_network(larger.tiers, factor),
                    "port": larger.port and larger.port.scaled(factor),
                }
            )
        scaled = self.model_copy(update=updates)
        scaled._network_factor, scaled._unscaled = factor, self  # noqa: SLF001  of its own class
        return scaled

    @property
    def network_factor(self) -> float:
        """How many times as fast as in the file the network is."""
        return self._network_factor

    @property
    def unscaled(self) -> "MachineFile":
        """The machine with the network of the file."""
        return self._unscaled or self

    @property
    def channels_follow(self) -> bool:
        """Whether NCCL's channels are as many times as fast as the network: not beyond the rate inside a node."""
        now, before = self.nccl, self.unscaled.nccl
        if now is None or before is None:
            return True
        return math.isclose(
            now.inter_bytes_per_s.value, self._network_factor * before.inter_bytes_per_s.value
        )

    def machine(self, bound: Bound = "value") -> Machine:
        """Return the costs of the machine, with all quantities at their values or at one end of their intervals."""
        fold_s = {dtype: _byte_s(rate, bound) for dtype, rate in self.reduction.items()}
        burst_bytes = 0.0
        if self.port:
            burst_bytes = self.port.burst_bytes.at(bound, is_rate=True)
        tiers: dict[str, Tier] = {
            name: _tier(sections, bound) for name, sections in self.tiers.items()
        }
        port_byte_s = _byte_s(self.port, bound)
        uplink_byte_s = self._uplink_byte_s(bound)
        memory_byte_s = _byte_s(self.memory, bound)
        cpus: Cpus | None = None
        if self.cpus:
            cpus = _cpus(self.cpus, bound)
        start_skew_s = self.start_skew_s.at(bound) if self.start_skew_s else 0.0
        machine = Machine(
            tiers=tiers,
            fold_s=fold_s,
            port_byte_s=port_byte_s,
            burst_bytes=burst_bytes,
            uplink_byte_s=uplink_byte_s,
            memory_byte_s=memory_byte_s,
            cpus=cpus,
            unmetered_aggregators=self.aggregators.kind == "unmetered",
            switches=self.aggregators.kind == "switches",
            start_skew_s=start_skew_s,
            own_memory=_own_memory(self.own_memory, bound),
            path=self._path(bound),
        )
        return self._with_larger_jobs(machine, bound)

    def _with_larger_jobs(self, machine: Machine, bound: Bound) -> Machine:
        """Return the costs with those of larger jobs, if these differ."""
        larger = self.larger_jobs
        if larger is None:
            return machine
        tiers = dict(machine.tiers)
        for name, sections in larger.tiers.items():
            tiers[name] = _tier(sections, bound)
        start_skew_s = machine.start_skew_s
        if larger.start_skew_s:
            start_skew_s = larger.start_skew_s.at(bound)
        in_larger_jobs = replace(
            machine,
            tiers=tiers,
            port_byte_s=_byte_s(larger.port or self.port, bound),
            start_skew_s=start_skew_s,
        )
        return replace(machine, larger_jobs=(larger.from_nodes, in_larger_jobs))

    def _path(self, bound: Bound) -> PathCosts | None:
        """Return the costs of critical paths, with those of the links of a torus; None if times are simulated."""
        section = self.critical_path
        if section is None:
            return None
        further_port_s: float | None = None
        if section.further_port_s:
            further_port_s = section.further_port_s.at(bound)
        costs = PathCosts(
            following_s=section.following_s.at(bound),
            further_port_s=further_port_s,
            ports_byte_s=_seconds_of_byte(section.ports_bytes_per_s, bound),
            segment_s=section.segment_s.at(bound) if section.segment_s else 0.0,
            address_s=section.address_s.at(bound) if section.address_s else 0.0,
        )
        if self.torus is None:
            return costs
        hop_s = self.torus.hop_s.at(bound)
        link_byte_s = _seconds_of_byte(self.torus.link_bytes_per_s, bound)
        return replace(costs, hop_s=hop_s, link_byte_s=link_byte_s)

    def torus_of(self, nodes: int, shape: str | None = None) -> Torus | None:
        """Return the torus of the nodes of a job; None if messages share no links.

        Args:
            nodes: the number of nodes.
            shape: the nodes along each dimension [as measured, or as equal as possible].

        Raises:
            BadInputError: if the shape has another number of nodes, or the machine has no torus.
        """
        if self.torus is None:
            if shape is not None:
                raise BadInputError("--torus", shape, f"no shape, as {self.name} has no torus")
            return None
        if shape is not None:
            torus = Torus.parse(shape, "--torus")
            if torus.nodes != nodes:
                raise BadInputError("--torus", shape, f"a torus of {nodes} nodes, as --nodes says")
            return torus
        return self._measured_torus(nodes) or Torus.most_even(nodes, self.torus.dimensions)

    def _measured_torus(self, nodes: int) -> Torus | None:
        """Return the torus of as many nodes that was measured; None if there was none, or several."""
        shapes = self.measured.tori if self.measured else []
        tori = [torus for torus in map(Torus.parse, shapes) if torus.nodes == nodes]
        return tori[0] if len(tori) == 1 else None

    def _uplink_byte_s(self, bound: Bound) -> float:
        if self.uplink is None or self.uplink.oversubscription is None:
            return _byte_s(self.uplink, bound)
        nodes_per_rack = (self.geometry and self.geometry.nodes_per_rack) or 1
        return _byte_s(self.port, bound) * self.uplink.oversubscription.at(bound) / nodes_per_rack

    @property
    def held_out_ratios(self) -> tuple[float, float]:
        """Measured over predicted time of held-out measurements, 5th percentile or 1, and 95th percentile or 1."""
        return min(1.0, self.validation.get("ratio_p5", 1.0)), max(
            1.0, self.validation.get("ratio_p95", 1.0)
        )

    @property
    def transport(self) -> str:
        """The transport whose costs it has, with the device if that is not the host: ``nccl on cuda``."""
        if self.measured:
            return self.measured.transport
        return "nccl on cuda" if self.nccl else "mpi"

    def layout(
        self,
        nodes: int,
        ranks_per_node: int | None = None,
        aggregators: int = 0,
        mapping: str | None = None,
        nodes_per_rack: int | None = None,
    ) -> Layout:
        """Return the layout of a job on the machine.

        Args:
            nodes: the nodes, in as few racks as hold them, as evenly as possible.
            ranks_per_node: the ranks on each node [those of the file, or the most that were
                measured].
            aggregators: the aggregators, each on a node of its own; if there are enough, the first
                ones are in one rack each, and the others above the racks.
            mapping: the order of ranks, a word of MAPPINGS [consecutive ranks on each node].
            nodes_per_rack: the most nodes of a rack [those of the file, or as measured, or all].

        Raises:
            BadInputError: if the file does not have such a node, or lacks the costs of a tier that
                messages can cross.
        """
        RANKS.check("--nodes", nodes)
        AGGREGATORS.check("--aggregators", aggregators)
        if mapping is not None and mapping not in MAPPINGS:
            raise BadInputError("--mapping", mapping, MAPPINGS)
        per_node = self._checked_ranks_per_node(ranks_per_node)
        rails = self.rails_of(per_node)
        if per_node % rails:
            raise BadInputError(
                "--ranks-per-node", per_node, f"a multiple of {rails}, the rails of {self.name}"
            )
        if nodes_per_rack is None:
            nodes_per_rack = self.nodes_per_rack or nodes
        RANKS.check("--nodes-per-rack", nodes_per_rack)
        racks = -(-nodes // nodes_per_rack)
        self._check_tiers(per_node, nodes + aggregators, racks)
        node = Layout.of(nodes * per_node, per_node).node
        rack = tuple(node_of_rank * racks // nodes for node_of_rank in node)
        rail = tuple(rank % per_node * rails // per_node for rank in range(len(node)))
        layout = Layout(node, rack, rail).with_aggregators(aggregators)
        return layout if mapping is None else layout.subset(numbering(layout, mapping))

    @property
    def nodes_per_rack(self) -> int | None:
        """The nodes of a rack, by the file or as measured; None if all nodes are in one."""
        if self.geometry:
            return self.geometry.nodes_per_rack
        return self.measured.nodes_per_rack if self.measured else None

    def _checked_ranks_per_node(self, requested: int | None) -> int:
        """Return the ranks on each node; by default those of the file, or else the most that were measured."""
        if self.geometry:
            usual: int | None = self.geometry.ranks_per_node
            most = self.geometry.ranks_per_node
        else:
            usual = max(self.measured.ranks_per_node) if self.measured else None
            most = RANKS_PER_NODE.maximum
        per_node = usual if requested is None else requested
        if per_node is None or not 1 <= per_node <= most:
            raise BadInputError(
                "--ranks-per-node", per_node, f"the ranks on a node of {self.name}, 1 to {most}"
            )
        return per_node

    def rails_of(self, ranks_per_node: int | None = None) -> int:
        """Return the rails that the ranks of a node use, by default all of a node: fewer ranks leave rails idle."""
        if self.geometry is None:
            return 1
        return min(self.geometry.rails, ranks_per_node or self.geometry.ranks_per_node)

    def distance(self, nodes: int, ranks_per_node: int, nbytes: int) -> str:
        """Return how far a case is from the nearest measurement of the machine, in words."""
        measured = self.measured
        if measured is None:
            return "described, not measured"
        extents = {
            "nodes": (nodes, min(measured.nodes), max(measured.nodes)),
            "ranks on a node": (
                ranks_per_node,
                min(measured.ranks_per_node),
                max(measured.ranks_per_node),
            ),
            "size": (nbytes, measured.smallest_bytes, measured.largest_bytes),
        }
        above, below = [], []
        for quantity, (value, least, most) in extents.items():
            if value > most:
                above.append(f"{value / most:.3g} times the measured {quantity}")
            elif value < least:
                below.append(f"{value / least:.2g} of the least measured {quantity}")
        network = [f"a network x{self._network_factor:g}"] if self._network_factor != 1 else []
        return " and ".join(above + below + network) or "within what was measured"

    def _check_tiers(self, ranks_per_node: int, nodes: int, racks: int) -> None:
        if not self.tiers:
            raise UnusableError(
                f"{self.name}: tiers",
                "the costs of its messages are not known: nothing is simulated",
            )
        needed = {"node": ranks_per_node > 1, "rack": nodes > racks, "fabric": racks > 1}
        for tier, label in TIER_LABELS.items():
            if needed[tier] and tier not in self.tiers:
                has = ", ".join(TIER_LABELS[described] for described in self.tiers)
                raise UnusableError(
                    f"{self.name}: tiers.{tier}",
                    f"no costs of messages {label}; it has those {has}",
                )


_Tiers: TypeAlias = dict[Literal["node", "rack", "fabric"], list[MessageCostsSection]]


def _with_faster_network(tiers: _Tiers, factor: float) -> _Tiers:
    """Return the costs of tiers with ``factor`` times the rates of those between nodes."""
    faster = dict(tiers)
    for tier in BETWEEN_NODES:
        if tier in faster:
            faster[tier] = [costs.scaled(factor) for costs in faster[tier]]
    return faster


def _tier(sections: Sequence[MessageCostsSection], bound: Bound) -> Tier:
    return Tier(tuple(_message_costs(section, bound) for section in sections))


def _message_costs(section: MessageCostsSection, bound: Bound) -> MessageCosts:
    latency_s = section.latency_s.at(bound)
    overhead_s = section.overhead_s.at(bound)
    gap_s = section.gap_s.at(bound)
    byte_s = 1 / section.bytes_per_s.at(bound, is_rate=True)
    return MessageCosts(
        section.from_bytes, latency_s, overhead_s, gap_s, byte_s, section.synchronous
    )


def _own_memory(section: OwnMemorySection | None, bound: Bound) -> OwnMemory | None:
    if section is None:
        return None
    return OwnMemory(
        copy_byte_s=_seconds_of_byte(section.copied_bytes_per_s, bound),
        new_byte_s=_seconds_of_byte(section.new_bytes_per_s, bound),
        sharing_byte_s=_seconds_of_byte(section.new_bytes_per_s_of_node, bound),
        kept_bytes=section.kept_bytes,
    )


def _seconds_of_byte(rate: Quantity | None, bound: Bound) -> float:
    """Return the seconds of a byte; 0 without a limit."""
    return 1 / rate.at(bound, is_rate=True) if rate else 0.0


def _cpus(section: CpusSection, bound: Bound) -> Cpus:
    return Cpus(section.cores, _byte_s(section, bound), section.of, section.contention.at(bound))


def _byte_s(section: RateSection | UplinkSection | CpusSection | None, bound: Bound) -> float:
    """Return the seconds of a byte; 0 without a limit."""
    return _seconds_of_byte(section.bytes_per_s, bound) if section else 0.0


def read_machine(name: str | Path, key: str) -> MachineFile:
    """Read the file of a machine.

    Raises:
        BadInputError: if the machine does not exist, or its file is invalid.
    """
    path = machine_path(name, key)
    content = read_content(
        path,
        key,
        check=lambda content, path: to_model(content, path, MachineFile),
        check_keys=lambda content, path: check_keys(content, path, MachineFile),
    )
    return to_model(content, path, MachineFile)


def write_machine(machine: MachineFile, path: Path) -> None:
    """Write the file of a machine as JSON; ``read_machine`` returns the same again.

    Raises:
        BadInputError: if ``path`` cannot be written, or holds anything else: it may be a raw file
            that was fitted.
    """
    if path.is_file() and path.stat().st_size:
        try:
            load_yaml(path, MachineFile, "--out")
        except BadInputError:
            expected = "a new file, or the file of a machine: it holds something else"
            raise BadInputError("--out", str(path), expected) from None
    content = machine.model_dump(mode="json", by_alias=True, exclude_none=True)
    try:
        with replacing_file(path.resolve()) as unfinished:
            unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise file_error("--out", path, error, "written") from None


CHANNELS_BOUND = (
    "NCCL's rings and trees pass nodes inside, too: on a faster network NVLink limits them"
)
"""What is said of a network that was scaled by more than NCCL's channels."""


def describe_machine(machine: MachineFile, *, simulated: bool) -> list[str]:
    """Return what a machine is, and where its numbers come from, sentence by sentence.

    Args:
        machine: the machine.
        simulated: whether simulated times follow: the sentences then say what their intervals are.
    """
    if machine.measured is None:
        return _describe_described(machine, simulated=simulated)
    measured = machine.measured
    errors = machine.validation
    sizes = f"{format_size(measured.smallest_bytes)} to {format_size(measured.largest_bytes)}"
    nodes = ", ".join(map(str, measured.nodes))
    ranks = ", ".join(map(str, measured.ranks_per_node))
    first = f"{machine.name}: fitted ({measured.kind}, {measured.transport}) on {nodes} nodes x {ranks}, {sizes}"
    if simulated:
        first += "; times are simulated"
    if "error_median" not in errors:
        return [
            first,
            "nothing was held out: the intervals are those of the fit, and may be too narrow",
        ]
    held_out = (
        f"held out: {errors.get('cases', 0):.0f} measurements, error {errors['error_median']:.0%} (median), "
        f"{errors.get('error_p90', math.nan):.0%} (90th percentile); intervals include measured over predicted, "
        f"{errors.get('ratio_p5', 1):.2f} to {errors.get('ratio_p95', 1):.2f}"
    )
    return [first, held_out]


def _describe_described(machine: MachineFile, *, simulated: bool) -> list[str]:
    """Return the sentences on a machine that was not measured: see ``describe_machine``."""
    sentences = [f"{machine.name}: {machine.kind}, not measured"]
    if simulated:
        sentences[0] += "; intervals of simulated times are those of its numbers"
    if machine.source:
        sentences.append(machine.source)
    if not machine.channels_follow:
        sentences.append(CHANNELS_BOUND)
    return sentences
