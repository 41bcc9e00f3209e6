"""A choice, and what it depends on besides the size: its setting, and the conditions of its measurement."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hpccoll.cases.case import IDLE, LOAD, SINGLE, Case, Shape
from hpccoll.cases.catalogue import choice_parameters
from hpccoll.common.limits import Aggregators, Name, Ranks, Value
from hpccoll.common.units import format_count
from hpccoll.schedule import Layout
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

_ARITHMETIC = {"float16": "half", "bfloat16": "bfloat16"}
"""The kinds of arithmetic of element types that CPUs convert to fold them."""
_PAIR = "root", "peer"
"""The arguments that name two ranks which exchange messages."""
FULL = "full"
ARITHMETIC = (*_ARITHMETIC.values(), FULL)
"""The kinds of arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A call and the placement of its ranks."""

    collective: Name  # the collective, by name
    device: Name  # the device of the buffers
    # the kind of arithmetic: ``half`` for float16 and ``bfloat16``, which CPUs convert, ``full``
    # for all other types; None for a collective without a reduction
    arithmetic: Name | None
    # whether contribution and result share a buffer; None for both placements
    in_place: bool | None
    # the arguments of the call: ``traffic``, ``concurrent``, or ``root`` and ``peer`` of two ranks
    # that exchange messages, and ``load`` unless the ranks were idle
    arguments: tuple[tuple[Name, Value], ...]
    ranks: Ranks  # the number of workers
    nodes: Ranks  # the number of nodes of the workers
    ranks_per_node: Ranks | None  # the number of workers on a node; None if nodes differ
    racks: Ranks  # the number of racks of those nodes
    mapping: Name  # the placement of ranks on nodes: block, cyclic or mixed
    aggregators: Aggregators = 0  # the number of aggregator ranks
    variant: Name | None = None  # the variant of the sweep's job; None without one
    timing: Name = SINGLE  # how operations were timed

    @classmethod
    def of(cls, row: Row) -> "Setting":
        """Return the setting of a row."""
        return cls.of_key(CallKey.of(row))

    @classmethod
    def of_key(cls, key: CallKey) -> "Setting":
        """Return the setting of a call: it joins element types of one arithmetic, reductions, roots and sizes."""
        values = {name: getattr(key, name) for name in _SHARED_FIELDS}
        arguments = dict(key.arguments or ())
        if key.pair:
            arguments |= zip(_PAIR, key.pair, strict=True)
        arithmetic = None
        if key.op is not None:
            arithmetic = _ARITHMETIC.get(key.dtype or "", FULL)
        return cls(**values, arithmetic=arithmetic, arguments=tuple(sorted(arguments.items())))

    @classmethod
    def of_case(cls, case: Case, layout: Layout, variant: str | None = None) -> "Setting":
        """Return the setting of a case on the ranks as they were launched, in the environment ``variant``."""
        key = CallKey.of_case(replace(case, ranks=layout.workers, nodes=layout.nodes))
        mapping = case.mapping or layout.mapping
        placed = replace(
            key, ranks_per_node=layout.ranks_per_node, racks=layout.racks, mapping=mapping
        )
        return cls.of_key(replace(placed, aggregators=layout.aggregators, variant=variant))

    @property
    def of_any_pair(self) -> "Setting":
        """The setting without the two ranks that exchange messages."""
        return self._without_arguments(*_PAIR)

    def _without_arguments(self, *names: str) -> "Setting":
        arguments = tuple((name, value) for name, value in self.arguments if name not in names)
        return replace(self, arguments=arguments)

    @property
    def load(self) -> str:
        """What each rank computed meanwhile: one of LOADS."""
        arguments = dict(self.arguments)
        return str(arguments.get(LOAD, IDLE))

    @property
    def idle(self) -> "Setting":
        """The setting without load."""
        return self._without_arguments(LOAD)

    @property
    def call(self) -> tuple[object, ...]:
        """The call, without the layout of the ranks."""
        return self.collective, self.device, self.arithmetic, self.in_place, self.arguments

    @property
    def label(self) -> str:
        """The setting for people: ``all_reduce in place, 4 ranks on 2 nodes``."""
        call = " ".join((self.collective, *self._placement_words()))
        shape = Shape(self.nodes, self.ranks, self.aggregators).text
        return ", ".join((call, shape, *self._details()))

    def _placement_words(self) -> tuple[str, ...]:
        """Return the placement of the buffers in words; none if the setting is for both placements."""
        if self.in_place is None:
            return ()
        return ("in place",) if self.in_place else ("out of place",)

    @property
    def shape_label(self) -> str:
        """The workers for people: ``4 ranks``, ``4 nodes`` with one rank each, ``8 ranks on 4 nodes``."""
        if self.nodes == 1:
            return format_count(self.ranks, "rank")
        nodes = f"{self.nodes} nodes"
        if self.ranks == self.nodes:
            return nodes
        return f"{format_count(self.ranks, 'rank')} on {nodes}"

    @property
    def details(self) -> tuple[str, ...]:
        """What else describes the setting, each in words; a default is not named."""
        words = list(self._placement_words())
        if self.aggregators:
            words.append(format_count(self.aggregators, "aggregator"))
        return (*words, *self._details())

    def _details(self) -> list[str]:
        details: list[str] = []
        if self.racks > 1:
            details.append(f"{self.racks} racks")
        if self.mapping != "block":
            details.append(f"mapping {self.mapping}")
        if self.ranks_per_node is None:
            details.append("unequal nodes")
        details += (dtype for dtype, kind in _ARITHMETIC.items() if kind == self.arithmetic)
        details += (f"{name}={value}" for name, value in self.arguments)
        if self.device != "cpu":
            details.append(f"{self.device} memory")
        if self.variant:
            details.append(f"variant {self.variant}")
        if self.timing != SINGLE:
            details.append(f"{self.timing} timing")
        return details


_SHARED_FIELDS = tuple(
    field.name for field in fields(Setting) if field.name not in ("arithmetic", "arguments")
)


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """A choice for a case."""

    algorithm: Name
    transport: Name
    # the parameters that the measured case set, sorted by name
    params: tuple[tuple[Name, Value], ...] = ()

    @classmethod
    def of(cls, row: Row) -> "Choice":
        """Return the choice of a row, with the parameters that distinguish choices."""
        params = choice_parameters(row.collective, row.params)
        return cls(row.algorithm, row.transport, tuple(sorted(params.items())))

    @property
    def is_native(self) -> bool:
        """Whether it is the library's own collective at its default settings."""
        return self.algorithm == NATIVE and not self.params

    @property
    def name(self) -> str:
        """The algorithm with its parameters: ``ring channels=4``."""
        params = [f"{name}={value}" for name, value in self.params]
        return " ".join((self.algorithm, *params))

    @property
    def label(self) -> str:
        """Its name, with the transport unless that is ``mpi``."""
        if self.transport == "mpi":
            return self.name
        return f"{self.name} over {self.transport}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions for which choices hold."""

    machine: str  # the machine, in a line; empty if unknown
    mpi: str  # the version text of the MPI library; empty if unknown
    executor: str
    # the kind of the measurements; None of a choice that was not measured yet
    kind: str | None = None
    rule: str | None = None  # the rule for the time of an operation, likewise

    @property
    def label(self) -> str:
        """The conditions under which a table is used, for people."""
        machine = self.machine or "an unknown machine"
        mpi = self.mpi or "an unknown MPI"
        return f"{machine} with {mpi} and the {self.executor} executor"

    @property
    def words(self) -> tuple[str, ...]:
        executor = f"{self.executor} executor"
        return self.machine, self.mpi, executor, self.kind or "", f"rule {self.rule}"


def machine_name(machine: str, provenance: Mapping[str, Any]) -> str:
    """Return the machine of a run, as the run recorded it, in a line; on a testbed with the rates of its wires."""
    testbed = provenance.get("testbed") or {}
    words = [machine]
    for name, key in (("wires", "rate"), ("uplinks", "uplink")):
        if testbed.get(key):
            words.append(f"{name} {testbed[key]}")
    return ", ".join(words)


def recorded_mpi_version(provenance: Mapping[str, object]) -> str:
    """Return the version text of a run's MPI library; empty if unknown."""
    mpi = provenance.get("mpi")
    return str(mpi.get("version", "")) if isinstance(mpi, Mapping) else ""
