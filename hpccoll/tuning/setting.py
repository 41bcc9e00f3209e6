"""The setting of a choice: all that it depends on beside the size."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpccoll.schedule import Layout, collective
from hpccoll.spec.case import Case, Parameter, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a choice depends on beside the size: a call, and where its ranks are.

    Args:
        collective: by name.
        device: where buffers lie.
        arithmetic: how elements are folded: ``half`` for float16, which CPUs convert, ``full`` for all others; None
            where nothing is folded: bytes are bytes.
        in_place: whether contribution and result share a buffer.
        arguments: of the call: ``traffic``, or ``root`` and ``peer`` of two ranks that exchange messages.
        ranks: workers.
        nodes: that hold them.
        ranks_per_node: None where nodes differ.
        racks: that hold them.
        mapping: how ranks lie on nodes: block, cyclic or mixed.
        aggregators: ranks beside the workers.
        variant: the environment of a sweep's job.
    """

    collective: str
    device: str
    arithmetic: str | None
    in_place: bool
    arguments: tuple[tuple[str, Parameter], ...]
    ranks: int
    nodes: int
    ranks_per_node: int | None
    racks: int
    mapping: str
    aggregators: int = 0
    variant: str | None = None

    @classmethod
    def of(cls, case: Case, layout: Layout, variant: str | None = None) -> "Setting":
        """Return the setting of a case on the ranks as they were launched, in the environment ``variant``."""
        return cls(
            **call_of(case.collective, case.op, case.dtype, case.root, case.params, layout.workers),
            device=case.device, in_place=case.in_place, ranks=layout.workers, nodes=layout.nodes,
            ranks_per_node=layout.ranks_per_node, racks=layout.racks, mapping=case.mapping or layout.mapping,
            aggregators=layout.aggregators, variant=variant,
        )  # fmt: skip

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "Setting":
        return cls(**{**read, "arguments": tuple(sorted(read["arguments"].items()))})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "arguments": dict(self.arguments)}

    @property
    def call(self) -> tuple[object, ...]:
        """What is asked for, wherever the ranks are."""
        return self.collective, self.device, self.arithmetic, self.in_place, self.arguments

    @property
    def words(self) -> str:
        """The setting in words: ``all_reduce in place, 4 ranks on 2 nodes``."""
        more = [Shape(self.nodes, self.ranks, self.aggregators).words]
        more += [f"{self.racks} racks"] if self.racks > 1 else []
        more += [f"mapping {self.mapping}"] if self.mapping != "block" else []
        more += ["unequal nodes"] if self.ranks_per_node is None else []
        more += ["float16"] if self.arithmetic == "half" else []
        more += [f"{name}={value}" for name, value in self.arguments]
        more += [f"{self.device} memory"] if self.device != "cpu" else []
        more += [f"variant {self.variant}"] if self.variant else []
        return ", ".join((f"{self.collective} {'in' if self.in_place else 'out of'} place", *more))


def call_of(
    name: str, op: str | None, dtype: str, root: int | None, params: Mapping[str, Parameter], p: int
) -> dict[str, Any]:
    """Return those fields of a ``Setting`` that say what a call is; which rank is the root of all is none of them."""
    values = {argument: params.get(argument, default) for argument, default in collective(name).arguments.items()}
    if "peer" in values:
        values = {"root": root or 0, "peer": int(values["peer"]) % p}
    return {
        "collective": name,
        "arithmetic": None if op is None else "half" if dtype == "float16" else "full",
        "arguments": tuple(sorted(values.items())),
    }
