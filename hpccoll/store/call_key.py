"""The identity of a call: what results must share to be compared, joined or drawn as one curve.

Algorithm, transport and the parameters of the algorithm are a choice among the ways to do the call,
and no part of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.case import LOAD, PYTHON, Case, Parameter
from hpccoll.common.units import format_count, format_size
from hpccoll.store.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """A call, where and how it was measured; a field is None if the call has none, or ``without`` left it out."""

    collective: str | None = None  # the collective, or the workload of a training step
    # its arguments but root and peer, or the keys of the workload, sorted by name, with defaults
    arguments: tuple[tuple[str, Parameter], ...] | None = None
    dtype: str | None = None  # the type of the elements
    op: str | None = None  # the reduction
    root: int | None = None  # the root of a rooted collective
    pair: tuple[int, int] | None = None  # the two ranks that exchange messages
    requested_bytes: int | None = None  # the requested size S in bytes
    in_place: bool | None = None  # whether contribution and result share a buffer
    ranks: int | None = None  # the number of workers
    nodes: int | None = None  # the number of their nodes
    ranks_per_node: int | None = None  # the workers of a node; None if nodes differ
    racks: int | None = None  # the number of racks of those nodes
    aggregators: int | None = None  # the number of ranks that only aggregate
    mapping: str | None = None  # the placement of ranks on nodes
    device: str | None = None  # the memory of the buffers
    machine: str | None = None  # the machine of the run
    variant: str | None = None  # the variant of the sweep's job
    executor: str | None = None
    timing: str | None = None  # how operations were timed: single or aggregated
    # the rule for the time of an operation; None if another program measured it
    rule: str | None = None
    kind: str | None = None  # the kind of the result: measured, simulated and so on
    source: str | None = None  # the program that measured it; None for hpccoll

    @classmethod
    def of(cls, row: Row, machine: str = "") -> "CallKey":
        """Return the key of a row of a run on ``machine``."""
        return cls(
            collective=row.collective,
            **_call_fields(row.collective, row.root, row.params, row.ranks),
            dtype=row.dtype,
            op=row.op,
            requested_bytes=row.requested_bytes,
            in_place=row.in_place,
            ranks=row.ranks,
            nodes=row.nodes,
            ranks_per_node=row.ranks_per_node,
            racks=row.racks,
            aggregators=row.aggregators,
            mapping=row.mapping,
            device=row.device,
            machine=machine,
            variant=row.variant,
            executor=row.executor or PYTHON,
            timing=row.timing,
            rule=row.rule,
            kind=row.kind,
            source=row.source,
        )

    @classmethod
    def of_case(cls, case: Case) -> "CallKey":
        """Return the key of a case: the fields that it requests, with all ranks of its job where it names none."""
        return cls(
            collective=case.collective,
            **_call_fields(case.collective, case.root, case.params, case.ranks),
            dtype=case.dtype,
            op=case.op,
            requested_bytes=case.bytes,
            in_place=case.in_place,
            ranks=case.ranks,
            nodes=case.nodes,
            mapping=case.mapping,
            device=case.device,
            timing=case.timing,
        )

    def without(self, *names: str) -> "CallKey":
        """Return the key without some of its fields; TypeError for a name that is not a field."""
        return replace(self, **dict.fromkeys(names))

    def without_arguments(self, *names: str) -> "CallKey":
        """Return the key without some of its arguments, and without the size, which follows from those of a step."""
        kept = tuple(argument for argument in self.arguments or () if argument[0] not in names)
        return replace(self, arguments=kept, requested_bytes=None)

    @property
    def uncompressed(self) -> "CallKey":
        """The key of a training step without how its gradients are compressed."""
        return self.without_arguments("compress", "feedback")

    def only(self, *names: str) -> "CallKey":
        """Return the key with some of its fields only; AttributeError for a name that is not a field."""
        return CallKey(**{name: getattr(self, name) for name in names})

    def label(self, among: Iterable["CallKey"]) -> str:
        """Return what distinguishes the key from others, in words; empty if nothing does."""
        keys = list(among)
        differing = [name for name in _FIELDS if len({getattr(key, name) for key in keys}) > 1]
        return ", ".join(filter(None, self.words(*differing)))

    def words(self, *names: str) -> tuple[str, ...]:
        """Return the values of some fields in words; empty texts for absent ones and for single operations."""
        values = ((name, getattr(self, name)) for name in names)
        return tuple(
            "" if value is None else _WORDS.get(name, str)(value) for name, value in values
        )


_FIELDS = tuple(field.name for field in fields(CallKey))
_WORDS: Mapping[str, Callable[[Any], str]] = {
    "arguments": lambda values: " ".join(f"{name}={value}" for name, value in values),
    "root": lambda root: f"root {root}",
    "pair": lambda pair: f"ranks {pair[0]} and {pair[1]}",
    "requested_bytes": format_size,
    "in_place": lambda in_place: "in place" if in_place else "out of place",
    "ranks": lambda ranks: format_count(ranks, "rank"),
    "nodes": lambda nodes: format_count(nodes, "node"),
    "ranks_per_node": lambda ranks: f"{format_count(ranks, 'rank')} per node",
    "racks": lambda racks: format_count(racks, "rack"),
    "aggregators": lambda count: format_count(count, "aggregator") if count else "no aggregators",
    "mapping": lambda mapping: f"mapping {mapping}",
    "device": lambda device: f"{device} memory",
    "executor": lambda executor: f"{executor} executor",
    "timing": lambda timing: f"{timing} timing",
    "rule": lambda rule: f"rule {rule}",
    "source": lambda source: f"by {source}",
}
"""The words for the value of a field; other values speak for themselves."""


def _call_fields(
    name: str, root: int | None, params: Mapping[str, Parameter], ranks: int | None
) -> Mapping[str, Any]:
    """Return the fields of root, pair and arguments; without ``ranks``, a peer and a number of pairs are as requested.

    A peer of -1 is the last rank, and 0 concurrent pairs are all of them.
    """
    return _fields_of_call(name, root, tuple(params.items()), ranks)


@lru_cache(4096)  # rows of all sizes have the same
def _fields_of_call(
    name: str, root: int | None, params: tuple[tuple[str, Parameter], ...], ranks: int | None
) -> Mapping[str, Any]:
    values = _with_defaults(name, dict(params))
    peer = values.pop("peer", None)
    if ranks and "concurrent" in values:
        values["concurrent"] = int(values["concurrent"]) or ranks // 2
    rooted = peer is None and ((name in COLLECTIVES and COLLECTIVES[name].rooted) or bool(root))
    pair = None
    if peer is not None:
        second = int(peer) % ranks if ranks else int(peer)
        pair = (root or 0, second)
    fields_of_call = {
        "root": root or 0 if rooted else None,
        "pair": pair,
        "arguments": tuple(sorted(values.items())),
    }
    return MappingProxyType(fields_of_call)


def _with_defaults(name: str, params: Mapping[str, Parameter]) -> dict[str, Any]:
    declared = COLLECTIVES.get(name) or WORKLOADS.get(name)
    defaults = declared.arguments if declared else {}
    # keys of idle calls have no such argument
    load = {LOAD: params[LOAD]} if LOAD in params else {}
    return {
        argument: params.get(argument, default) for argument, default in defaults.items()
    } | load


def call_arguments(row: Row) -> dict[str, Any]:
    """Return the arguments of the call of a row other than the root, or its workload, with defaults."""
    return _with_defaults(row.collective, row.params)


def rank_pair(row: Row) -> tuple[int, int] | None:
    """Return the two ranks that exchange messages; None if all ranks take part."""
    pair: tuple[int, int] | None = _call_fields(row.collective, row.root, row.params, row.ranks)[
        "pair"
    ]
    return pair


def root_rank(row: Row) -> int | None:
    """Return the root; None if the collective has none."""
    root: int | None = _call_fields(row.collective, row.root, row.params, row.ranks)["root"]
    return root
