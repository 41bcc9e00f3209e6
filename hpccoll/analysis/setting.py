"""The setting of a choice: everything that it depends on, except the size."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpccoll.cases.case import SINGLE, Case, Parameter, Shape
from hpccoll.common.units import format_count
from hpccoll.schedule import Layout, collective

_ARITHMETIC = {"float16": "half", "bfloat16": "bfloat16"}
"""The kinds of arithmetic of element types that CPUs convert to fold them."""
FULL = "full"
ARITHMETIC = (*_ARITHMETIC.values(), FULL)
"""The kinds of arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A call and the placement of its ranks.

    Args:
        collective: the collective, by name.
        device: the device of the buffers.
        arithmetic: the kind of arithmetic: ``half`` for float16 and ``bfloat16``, which CPUs convert, ``full`` for
            all other types; None for a collective without a reduction.
        in_place: whether contribution and result share a buffer; None for both placements.
        arguments: the arguments of the call: ``traffic``, ``concurrent``, or ``root`` and ``peer`` of two ranks that
            exchange messages.
        ranks: the number of workers.
        nodes: the number of nodes of the workers.
        ranks_per_node: the number of workers on a node; None if nodes differ.
        racks: the number of racks of those nodes.
        mapping: the placement of ranks on nodes: block, cyclic or mixed.
        aggregators: the number of aggregator ranks.
        variant: the variant of the sweep's job; None without one.
        timing: how operations were timed.
    """

    collective: str
    device: str
    arithmetic: str | None
    in_place: bool | None
    arguments: tuple[tuple[str, Parameter], ...]
    ranks: int
    nodes: int
    ranks_per_node: int | None
    racks: int
    mapping: str
    aggregators: int = 0
    variant: str | None = None
    timing: str = SINGLE

    @classmethod
    def of(cls, case: Case, layout: Layout, variant: str | None = None) -> "Setting":
        """Return the setting of a case on the ranks as they were launched, in the environment ``variant``."""
        return cls(
            **call_fields(case.collective, case.op, case.dtype, case.root, case.params, layout.workers),
            device=case.device, in_place=case.in_place, ranks=layout.workers, nodes=layout.nodes,
            ranks_per_node=layout.ranks_per_node, racks=layout.racks, mapping=case.mapping or layout.mapping,
            aggregators=layout.aggregators, variant=variant, timing=case.timing,
        )  # fmt: skip

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "Setting":
        return cls(**{**read, "arguments": tuple(sorted(read["arguments"].items()))})

    def to_json(self) -> dict[str, Any]:
        read = {**asdict(self), "arguments": dict(self.arguments)}
        if self.timing == SINGLE:  # before version 1.4 there was no other
            del read["timing"]
        return read

    @property
    def call(self) -> tuple[object, ...]:
        """The call, without the layout of the ranks."""
        return self.collective, self.device, self.arithmetic, self.in_place, self.arguments

    @property
    def label(self) -> str:
        """The setting for people: ``all_reduce in place, 4 ranks on 2 nodes``."""
        placement = {None: "", True: " in place", False: " out of place"}[self.in_place]
        shape = Shape(self.nodes, self.ranks, self.aggregators).text
        return ", ".join((f"{self.collective}{placement}", shape, *self._details()))

    @property
    def shape_label(self) -> str:
        """The workers for people: ``4 ranks``, ``4 nodes`` with one rank each, ``8 ranks on 4 nodes``."""
        if self.nodes == 1:
            return format_count(self.ranks, "rank")
        nodes = f"{self.nodes} nodes"
        return nodes if self.ranks == self.nodes else f"{format_count(self.ranks, 'rank')} on {nodes}"

    @property
    def details(self) -> tuple[str, ...]:
        """What else describes the setting, each in words; a default is not named."""
        placement = {None: (), True: ("in place",), False: ("out of place",)}[self.in_place]
        aggregators = (format_count(self.aggregators, "aggregator"),) if self.aggregators else ()
        return (*placement, *aggregators, *self._details())

    def _details(self) -> list[str]:
        details: list[str] = []
        details += [f"{self.racks} racks"] if self.racks > 1 else []
        details += [f"mapping {self.mapping}"] if self.mapping != "block" else []
        details += ["unequal nodes"] if self.ranks_per_node is None else []
        details += [dtype for dtype, kind in _ARITHMETIC.items() if kind == self.arithmetic]
        details += [f"{name}={value}" for name, value in self.arguments]
        details += [f"{self.device} memory"] if self.device != "cpu" else []
        details += [f"variant {self.variant}"] if self.variant else []
        details += [f"{self.timing} timing"] if self.timing != SINGLE else []
        return details


def call_fields(
    name: str, op: str | None, dtype: str, root: int | None, params: Mapping[str, Parameter], p: int
) -> dict[str, Any]:
    """Return the fields of a ``Setting`` that describe the call; the root of a rooted collective is not among them."""
    values = {argument: params.get(argument, default) for argument, default in collective(name).arguments.items()}
    if "peer" in values:
        values = {"root": root or 0, "peer": int(values["peer"]) % p}
    if "concurrent" in values:
        values = {"concurrent": int(values["concurrent"]) or p // 2}
    return {
        "collective": name,
        "arithmetic": None if op is None else _ARITHMETIC.get(dtype, FULL),
        "arguments": tuple(sorted(values.items())),
    }
