"""PyTorch's execution traces (Chakra's form of 1.0.1 to 1.1.1): the collectives that a rank called, without times.

Source: et_replay/comm/commsTraceParser.py of facebookresearch/param. A collective is a node
``record_param_comms`` with the inputs [tensors, number, group, rank or root, name, ...]; since
1.1.0 its elements and type are attributes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpccoll.common.limits import RANK, RANKS
from hpccoll.traces.job_file import check_members, decode_part, read_trace_json
from hpccoll.traces.recorded_job import Group, Rank, RecordedJob, RecordedOperation
from hpccoll.traces.torch_names import collective_of_torch, dtype_of_torch

SOURCE = "PyTorch execution trace"
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives whose node has the root where others have the rank."""


class _Node(msgspec.Struct, gc=False):
    name: str
    inputs: msgspec.Raw = msgspec.Raw()
    outputs: msgspec.Raw = msgspec.Raw()
    attrs: msgspec.Raw = msgspec.Raw()
    input_types: msgspec.Raw = msgspec.Raw()


class _Trace(msgspec.Struct):
    schema: str
    nodes: list[_Node]


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is an execution trace."""
    is_object = head.lstrip().startswith(b"{")
    has_schema = b'"schema"' in head
    has_nodes = b'"nodes"' in head or b"chakra" in head
    return is_object and has_schema and has_nodes


def read(path: Path) -> RecordedJob:
    """Return the collectives of one rank, in the order of their calls.

    Raises:
        ValueError: if it cannot be read, or is not an execution trace.
    """
    groups: dict[str, Group] = {}
    ranks: Counter[int] = Counter()
    calls: list[dict[str, Any]] = []
    for node in read_trace_json(path, _Trace).nodes:
        if node.name == "## process_group:init ##":
            groups |= _read_groups(_values(node.inputs))
        elif node.name == "record_param_comms":
            inputs = _values(node.inputs)
            at = _place_of_name(inputs)
            if at is None:
                continue
            name = collective_of_torch(inputs[at])
            rank_or_root = inputs[at - 1]
            if name not in _ROOTED and RANK.accepts(rank_or_root):
                ranks[rank_or_root] += 1
            if at > 3 and name not in ("wait", "init"):
                calls.append(_call(node, inputs, at, groups))
    rank = ranks.most_common(1)[0][0] if ranks else 0
    missing = ("times of operations, and so waiting, transfer and late ranks",)
    operations = [RecordedOperation(rank, **call) for call in calls]
    return RecordedJob(SOURCE, (Rank(rank),), operations, cannot_say=missing)


def _place_of_name(inputs: Sequence[Any]) -> int | None:
    """Return the index of the name of a collective, which follows its number, group and rank; None without these."""
    for at, value in enumerate(inputs):
        if isinstance(value, str):
            has_numbers = (
                at >= 3 and isinstance(inputs[at - 3], int) and isinstance(inputs[at - 1], int)
            )
            if not has_numbers:
                return None
            return at
    return None


def _call(
    node: _Node, inputs: Sequence[Any], at: int, groups: Mapping[str, Group]
) -> dict[str, Any]:
    """Return the fields of an operation but its rank; ``at`` is the index of its name."""
    name = collective_of_torch(inputs[at])
    nbytes, dtype = _size(node, inputs[0])
    group = inputs[at - 2]
    is_named = isinstance(group, list) and group and isinstance(group[0], str)
    group_name = group[0] if is_named else ""  # before 1.1.0 it is a number of the process
    return {
        "group": groups.get(group_name, Group(group_name, ())),
        "collective": name,
        "sequence": inputs[at - 3],
        "bytes": None if name == "barrier" else nbytes,
        "dtype": dtype,
    }


def _values(raw: msgspec.Raw) -> Sequence[Any]:
    """Return the inputs of a node: since 1.1.0 they are ``values`` beside their shapes and types."""
    inputs = decode_part(raw)
    if isinstance(inputs, dict):
        values = inputs.get("values")
    else:
        values = inputs
    return values if isinstance(values, list) else []


def _read_groups(values: Sequence[Any]) -> Mapping[str, Group]:
    if not values or not isinstance(values[0], str):
        return {}
    configured = decode_part(values[0].encode())
    if not isinstance(configured, list):
        return {}
    usable = [
        group
        for group in configured
        if isinstance(group, dict) and RANKS.accepts(group.get("group_size"))
    ]
    check_members(group["group_size"] for group in usable)
    groups = {}
    for group in usable:
        name = str(group.get("pg_name"))
        # without ranks it is a group of all
        ranks = group.get("ranks") or range(group["group_size"])
        groups[name] = Group(
            name, tuple(filter(RANK.accepts, ranks)), str(group.get("pg_desc", ""))
        )
    return groups


def _size(node: _Node, tensors: Any) -> tuple[int | None, str | None]:
    """Return S and our name of the type of elements; a tensor is [id, storage, offset, elements, bytes of one, ...]."""
    attributes: dict[str, Any] = {}
    for attribute in _values(node.attrs):
        if isinstance(attribute, dict):
            attributes[str(attribute.get("name"))] = attribute.get("value")
    dtype = dtype_of_torch(str(attributes.get("dtype")))
    if dtype is not None:
        name, itemsize = dtype
        elements = [attributes.get(key) for key in ("in_msg_nelems", "out_msg_nelems")]
        return max(
            (count * itemsize for count in elements if isinstance(count, int)), default=None
        ), name
    sizes = [_bytes_of(side) for side in (tensors, *_values(node.outputs)[:1])]
    match decode_part(node.input_types):
        case [str() as first, *_]:
            dtype = dtype_of_torch(first[first.rfind("(") + 1 :].rstrip(")]"))
    return max(sizes) or None, dtype[0] if dtype else None


def _bytes_of(side: Any) -> int:
    """Return the bytes of a tensor, or of a list of them."""
    match side:
        case [_, _, _, int(elements), int(size), *_] if 0 <= elements < 1 << 48 and 0 < size <= 16:
            return elements * size
        case [[*_], *_]:
            return sum(map(_bytes_of, side))
    return 0
