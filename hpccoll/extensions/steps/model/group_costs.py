"""The cost of a collective on the groups of a mesh, while all groups do the same: of one of them.

On a cluster of GPUs with a section ``nccl``, groups that span nodes run what NCCL has a formula of
by NCCL's own ring or tree, as NCCL chooses: see ``library_calls``. All else is simulated: other
collectives, and groups inside a node, where ours stand in for NCCL's.

Groups that use one port, one uplink or the CPUs of one node at once have a part of its rate each. A
few sizes are simulated; the time of a size between two of them is interpolated, which is exact
where it is linear. Large groups are simulated by part of their ranks where this changes nothing:

- a ring of p ranks takes p - 1 equal steps: a ring of fewer ranks is simulated with messages of the
  same size, and its time multiplied by the ratio of the steps. It has the first and the last ranks,
  so that it crosses the same tiers.
- a reduction in switches takes as long for a few ranks of each rack as for all of them, with
  switches of as many ports.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import collective
from hpccoll.common.errors import UnusableError
from hpccoll.extensions.steps.model.codec_costs import CodecCosts
from hpccoll.extensions.steps.training.parallelism import Mesh
from hpccoll.extensions.steps.training.step_program import StepOperation, StepProgram
from hpccoll.model.machine import Machine
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound, PublishedSection
from hpccoll.model.nccl_candidates import NAMES, LibraryCalls, library_names
from hpccoll.model.published_rates import DEFAULT, published_near
from hpccoll.model.simulation import BOUNDS, RADIX, AlgorithmSimulation
from hpccoll.schedule import Layout, Parameter, itemsize
from hpccoll.store.schema import MODELLED, SIMULATED

USUAL_IN_STEPS: Mapping[str, tuple[str, ...]] = {
    "all_reduce": ("ring", "recursive_doubling", "rabenseifner", "hierarchical"),
    "reduce_scatter": ("ring", "recursive_halving"),
    "all_gather": ("ring", "bruck", "recursive_doubling"),
    "all_to_all": ("pairwise", "bruck"),
    "all_to_all_v": ("pairwise",),
    "send_recv": ("ping_pong",),
}
"""The usual algorithms: the fastest runs a collective of a training step, unless one is requested."""

RING = "ring"
MOST_IN_A_RING = 64
"""The most ranks of a simulated ring: where its units differ in size, the time grows with their square."""

MOST_UNDER_SWITCHES = 256
"""The most ranks whose reduction in switches is simulated."""

MOST_SIZES = 4
"""The most sizes of a collective on a group that are simulated; they divide the range of its sizes evenly."""

ONE_WAY = 0.5
"""The part of a round trip that a message between two stages takes."""


class AlgorithmTime(NamedTuple):
    """The time of a collective."""

    algorithm: str  # the fastest algorithm
    seconds: Mapping[Bound, float]  # its time by bound
    kind: str = SIMULATED  # simulated; or modelled: by a formula of NCCL, without an interval


class UnmodelledWork(NamedTuple):
    """A collective for which NCCL may take algorithms that have no formula here."""

    work: str  # the collective and the axis of the mesh
    missing: Sequence[str]  # the algorithms
    # whether a schedule of ours stands in for NCCL's; otherwise NCCL's ring or tree runs
    stands_in: bool
    published: Sequence[PublishedSection]  # what was published near its sizes
    # the least and the most of its time here over that at the published bus bandwidth of what NCCL
    # takes without a setting; None if nothing was published near its sizes
    over_published: tuple[float, float] | None = None


class GroupUse(NamedTuple):
    """How many groups of an axis use what one of them uses."""

    port: float  # the groups at its busiest port
    uplink: float  # the groups at its busiest uplink of a rack
    node: float  # the ranks of all groups on a node over those of the group
    ranks: float  # all ranks over those of the group

    def shared(self, machine: Machine) -> Machine:
        """Return the costs of a machine for one group while the others do the same."""
        cpus = machine.cpus
        if cpus:
            divided = self.ranks if cpus.of == "machine" else self.node
            cpus = replace(cpus, cores=cpus.cores / divided)
        return replace(
            machine,
            port_byte_s=machine.port_byte_s * self.port,
            uplink_byte_s=machine.uplink_byte_s * self.uplink,
            memory_byte_s=machine.memory_byte_s * self.node,
            cpus=cpus,
        )


def group_use(layout: Layout, groups: Sequence[Sequence[int]]) -> GroupUse:
    """Return how groups of ranks share a machine, seen from the first of them."""
    groups_at_port: Counter[tuple[int, int]] = Counter()
    groups_at_uplink: Counter[tuple[int, int]] = Counter()
    for group in groups:
        groups_at_port.update(_ports(layout, group))
        groups_at_uplink.update(_uplinks(layout, group))
    first = groups[0]
    port = max(groups_at_port[layout.node[me], layout.rail[me]] for me in first) or 1
    uplink = max(groups_at_uplink[layout.rack[me], layout.rail[me]] for me in first) or 1
    ranks_on_node = Counter(layout.node[me] for group in groups for me in group)
    first_ranks_on_node = Counter(layout.node[me] for me in first)
    node = max(ranks_on_node[node] / ranks for node, ranks in first_ranks_on_node.items())
    ranks_of_all = sum(map(len, groups))
    return GroupUse(port, uplink, node, ranks=ranks_of_all / len(first))


def _ports(layout: Layout, group: Sequence[int]) -> set[tuple[int, int]]:
    """Return the ports that a group uses, by node and rail; none if it is on one node."""
    nodes = {layout.node[me] for me in group}
    if len(nodes) == 1:
        return set()
    return {(layout.node[me], layout.rail[me]) for me in group}


def _uplinks(layout: Layout, group: Sequence[int]) -> set[tuple[int, int]]:
    """Return the uplinks that a group uses, by rack and rail; none if it is in one rack."""
    racks = {layout.rack[me] for me in group}
    if len(racks) == 1:
        return set()
    return {(layout.rack[me], layout.rail[me]) for me in group}


@dataclass
class GroupCosts:
    """The costs of the operations of a step on a machine."""

    machine: MachineFile
    layout: Layout  # the layout of all ranks
    mesh: Mesh  # the mesh of the ranks
    # the requested algorithm, for the collectives that have it and can run it, or NCCL's own
    # [NCCL's, or the fastest]
    algorithm: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    # the aggregators of algorithms that have some [none; if they are switches, as many as needed]
    aggregators: int | None = None
    # the costs of the codecs of compressed gradients [no gradients are compressed]
    codecs: CodecCosts | None = None
    # what was simulated on the same layout and mesh, by the rate of the network, the operation and
    # its size
    simulated: dict[tuple[object, ...], "_Simulated"] = field(default_factory=dict)
    _times: dict[tuple[str, ...], Sequence[tuple[int, AlgorithmTime]]] = field(default_factory=dict)
    # the assumptions behind the costs, in order
    assumed: dict[str, None] = field(default_factory=dict)
    # what NCCL may run and has no formula here
    unmodelled: list[UnmodelledWork] = field(default_factory=list)

    def prepare(self, programs: Iterable[StepProgram]) -> None:
        """Simulate the collectives of programs; BadInputError if no algorithm can run one of them."""
        sizes: dict[tuple[str, ...], set[int]] = defaultdict(set)
        operations = dict.fromkeys(
            operation for program in programs for operation in program.operations
        )
        for operation in operations:
            if not operation.is_codec:
                sizes[self._key(operation)].add(self._padded(operation))
        for key, needed in sizes.items():
            if key not in self._times:
                group = self._group(key)
                times = self._by_library(group, sorted(needed)) or self._simulated(
                    group, simulated_sizes(needed)
                )
                self._times[key] = list(times)
                self._note_unmodelled(group, self._times[key], sorted(needed))

    def cost(self, operation: StepOperation, bound: Bound = "value") -> float:
        """Return the seconds of an operation that was prepared, or of a codec."""
        if operation.is_codec and self.codecs:
            return self.codecs.seconds(operation, bound)
        return interpolated(self._times[self._key(operation)], self._padded(operation), bound)

    def algorithms(self) -> dict[str, str]:
        """Return the algorithms of each collective and axis, from the smallest to the largest size."""
        algorithms = {}
        for key, times in self._times.items():
            names = dict.fromkeys(time.algorithm for _, time in times)
            algorithms[" ".join(key[:2])] = ", ".join(names)
        return algorithms

    @property
    def kinds(self) -> set[str]:
        """The kinds of the times of all collectives."""
        return {time.kind for times in self._times.values() for _, time in times}

    def _key(self, operation: StepOperation) -> tuple[str, ...]:
        """Return the collective, the axis, the type and, of a message, the stages between which it goes."""
        key = operation.collective, operation.axis, operation.dtype
        peer = operation.peer
        if peer is None:
            return key
        goes_forward = operation.phase == "forward"
        if goes_forward == operation.sends:
            earlier = peer - 1
        else:
            earlier = peer
        return *key, str(earlier), str(earlier + 1)

    def _padded(self, operation: StepOperation) -> int:
        """Return the size of an operation, padded to whole elements of all ranks, as frameworks do."""
        family = collective(operation.collective)
        ranks = 2
        if operation.peer is None:
            ranks = self.mesh.size(operation.axis)
        grain = itemsize(operation.dtype) * family.blocks(ranks)
        return -(-operation.nbytes // grain) * grain

    def _group(self, key: tuple[str, ...]) -> "_Group":
        """Return the first of the groups that run an operation."""
        family, axis, dtype, *stages = key
        if stages:
            groups = self.mesh.pairs(int(stages[0]), int(stages[1]))
        else:
            groups = self.mesh.groups(axis)
        layout = self.layout.subset(groups[0]).renumbered()
        return _Group(f"{family} {axis}", family, dtype, layout, group_use(self.layout, groups))

    def _by_library(self, group: "_Group", sizes: Sequence[int]) -> list[tuple[int, AlgorithmTime]]:
        """Return the times of NCCL's own algorithms for all sizes; none if no formula fits the request."""
        calls = self._library_calls(group)
        if calls is None or calls.unpredicted_reason(sizes[0]):
            return []
        names = library_names(self.machine, group.family)
        name = self.algorithm if self.algorithm in names else None
        times = []
        for nbytes in sizes:
            estimate = calls.estimate(nbytes, name)
            seconds = dict.fromkeys(BOUNDS, estimate.seconds)
            times.append((nbytes, AlgorithmTime(NAMES[estimate.algorithm], seconds, MODELLED)))
        return times

    def _library_calls(self, group: "_Group") -> LibraryCalls | None:
        """Return NCCL's calls for a group; None if another algorithm is requested or NCCL has none."""
        names = library_names(self.machine, group.family)
        if not names or self.algorithm in collective(group.family).components:
            return None
        return LibraryCalls(
            self.machine, group.family, group.layout, group.dtype, group.use.port, group.use.uplink
        )

    def _note_unmodelled(
        self, group: "_Group", times: Sequence[tuple[int, AlgorithmTime]], sizes: Sequence[int]
    ) -> None:
        """Add what NCCL may run and has no formula here to ``unmodelled``, with its times over published ones."""
        calls = self._library_calls(group)
        if calls is None or not calls.missing or calls.workers < 2:
            return
        busbw_factor = calls.family.busbw
        sections: list[PublishedSection] = []
        ratios: list[float] = []
        for nbytes in sizes:
            near = self._published(group, nbytes)
            sections += [section for section in near if section not in sections]
            if busbw_factor is None:
                continue
            busbw = nbytes * busbw_factor(calls.workers) / interpolated(times, nbytes, "value")
            for section in near:
                if section.algorithm.startswith(DEFAULT):
                    ratios.append(section.low_bytes_per_s / busbw)
                    ratios.append(section.high_bytes_per_s / busbw)
        over_published = (min(ratios), max(ratios)) if ratios else None
        self.unmodelled.append(
            UnmodelledWork(
                group.work, calls.missing, calls.nodes == 1, tuple(sections), over_published
            )
        )

    def _published(self, group: "_Group", nbytes: int) -> list[PublishedSection]:
        nodes = group.layout.nodes
        per_node = group.layout.ranks_per_node or 1
        return published_near(self.machine, group.family, nodes, per_node, nbytes)

    def _simulated(
        self, group: "_Group", sizes: Sequence[int]
    ) -> Iterator[tuple[int, AlgorithmTime]]:
        family = group.family
        names: Sequence[str]
        parameters: Mapping[str, Parameter]
        if self.algorithm is not None and self.algorithm in collective(family).components:
            names = [self.algorithm]
            parameters = self.parameters
        else:
            names = USUAL_IN_STEPS[family]
            parameters = {}
        simulations = {
            name: _GroupSimulation(
                self.machine,
                family,
                name,
                group.layout,
                group.use,
                group.dtype,
                parameters,
                self.aggregators,
            )
            for name in names
        }
        for nbytes in sizes:
            key = self.machine.network_factor, group, nbytes
            if key not in self.simulated:
                self.simulated[key] = self._fastest(simulations, group, nbytes)
            time, assumed = self.simulated[key]
            if assumed:
                self.assumed[f"{time.algorithm}: {assumed}"] = None
            yield nbytes, time

    def _fastest(
        self, simulations: Mapping[str, "_GroupSimulation"], group: "_Group", nbytes: int
    ) -> "_Simulated":
        """Return the time of the fastest algorithm that can run; UnusableError if none can."""
        reasons = {
            name: simulation.unpredicted_reason(nbytes) for name, simulation in simulations.items()
        }
        usable = [name for name, reason in reasons.items() if reason is None]
        if not usable:
            said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise UnusableError(f"{group.family} of {group.layout.workers} ranks", said)
        likely = {name: simulations[name].seconds(nbytes, ["value"]) for name in usable}
        fastest = min(usable, key=lambda name: likely[name]["value"])
        simulation = simulations[fastest]
        seconds = likely[fastest] | simulation.seconds(nbytes, ["low_cost", "high_cost"])
        return _Simulated(AlgorithmTime(fastest, seconds), simulation.assumed)


class _Simulated(NamedTuple):
    """What a simulation of a collective gives."""

    time: AlgorithmTime
    assumed: str | None  # what it assumes, in words; None if nothing


class _Group(NamedTuple):
    """A group of ranks that runs an operation."""

    work: str  # the collective and the axis of the mesh
    family: str  # the name of the collective
    dtype: str  # the type of the elements
    layout: Layout  # the layout of the group
    use: GroupUse  # how the groups of the axis share the machine


class _GroupSimulation(AlgorithmSimulation):
    """An algorithm on a group, simulated on all or on some of its ranks."""

    def __init__(
        self,
        machine: MachineFile,
        family: str,
        name: str,
        layout: Layout,
        use: GroupUse,
        dtype: str,
        parameters: Mapping[str, Parameter],
        aggregators: int | None,
    ) -> None:
        self.steps = 1.0
        self.ratio = 1.0
        arguments = dict(parameters)
        part = layout
        aggregates = collective(family).algorithm(name).aggregates
        if name == RING and layout.workers > MOST_IN_A_RING:
            part = _both_ends(layout)
            self.ratio = MOST_IN_A_RING / layout.workers
            self.steps = (layout.workers - 1) / (MOST_IN_A_RING - 1)
        elif (
            aggregates
            and machine.aggregators.kind == "switches"
            and layout.workers > MOST_UNDER_SWITCHES
        ):
            largest_rack = max(map(len, layout.groups("rack")))
            arguments.setdefault("radix", min(largest_rack, RADIX.maximum))
            part = _first_of_each_rack(layout)
        bare = part.renumbered()
        use = use._replace(ranks=use.ranks * layout.workers / part.workers)
        super().__init__(
            machine,
            family,
            name,
            arguments,
            bare.with_aggregators,
            dtype=dtype,
            aggregators=aggregators if aggregates else None,
            shared=use.shared,
        )
        self.one_way = ONE_WAY if family == "send_recv" else 1.0

    def unpredicted_reason(self, nbytes: int) -> str | None:
        return super().unpredicted_reason(self._part(nbytes))

    def seconds(self, nbytes: int, bounds: Sequence[Bound]) -> dict[Bound, float]:
        times = self.times(self._part(nbytes), bounds=bounds)
        return {
            bound: seconds * self.steps * self.one_way for bound, seconds in times.seconds.items()
        }

    def _part(self, nbytes: int) -> int:
        """Return the size with which the simulated ranks exchange messages as large as those of the group."""
        if self.ratio == 1.0:
            return nbytes
        grain = itemsize(self.dtype) * self.layout.workers
        return max(grain, round(nbytes * self.ratio / grain) * grain)


def _both_ends(layout: Layout) -> Layout:
    """Return the first and the last ranks of a layout, MOST_IN_A_RING of them."""
    half = MOST_IN_A_RING // 2
    first_of_last = layout.workers - half
    return layout.subset([*range(half), *range(first_of_last, layout.workers)])


def _first_of_each_rack(layout: Layout) -> Layout:
    """Return as many of the first ranks of each rack, about MOST_UNDER_SWITCHES of them together."""
    racks = layout.groups("rack")
    ranks_per_rack = max(1, MOST_UNDER_SWITCHES // len(racks))
    return layout.subset([me for rack in racks for me in rack[:ranks_per_rack]])


def simulated_sizes(needed: Iterable[int]) -> list[int]:
    """Return the sizes to simulate: all that are needed, or at most MOST_SIZES that divide their range evenly."""
    sizes = sorted(needed)
    if len(sizes) <= MOST_SIZES:
        return sizes
    low, high = log(sizes[0]), log(sizes[-1])
    nearest = set()
    for number in range(MOST_SIZES):
        wanted = exp(low + (high - low) * number / (MOST_SIZES - 1))
        nearest.add(min(sizes, key=lambda size: abs(log(size) - log(wanted))))
    return sorted(nearest)


def interpolated(times: Sequence[tuple[int, AlgorithmTime]], nbytes: int, bound: Bound) -> float:
    """Return the time of a size: that of a simulated one, on the straight line between two, or beyond in proportion."""
    number = min(
        bisect_left(times, nbytes, key=lambda size_and_time: size_and_time[0]), len(times) - 1
    )
    size, time = times[number]
    if size == nbytes or number == 0:
        return time.seconds[bound] * max(1.0, nbytes / size)
    smaller, time_of_smaller = times[number - 1]
    seconds = time.seconds[bound]
    slope = (seconds - time_of_smaller.seconds[bound]) / (size - smaller)
    return max(0.0, seconds + slope * (nbytes - size))
