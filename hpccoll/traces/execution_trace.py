"""PyTorch's execution traces (Chakra's form of 1.0.1 to 1.1.1): the collectives that a rank called, without times.

Source: et_replay/comm/commsTraceParser.py of facebookresearch/param. A collective is a node ``record_param_comms`` with
the inputs [tensors, number, group, rank or root, name, ...]; since 1.1.0 its elements and type are attributes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpccoll.common.limits import RANKS
from hpccoll.traces.job_file import check_members, content_of, damaged, decode_json, decode_part
from hpccoll.traces.records import Group, Rank, RecordedJob, RecordedOperation
from hpccoll.traces.torch_names import collective_of_torch, dtype_of_torch

SOURCE = "PyTorch execution trace"

_GROUPS = "## process_group:init ##"
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives whose node has the root where others have the rank."""


class _Node(msgspec.Struct, gc=False):
    name: str
    inputs: msgspec.Raw = msgspec.Raw()
    outputs: msgspec.Raw = msgspec.Raw()
    attrs: msgspec.Raw = msgspec.Raw()
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="input_types")


class _Trace(msgspec.Struct):
    schema: str
    nodes: list[_Node]


def recognises(head: bytes, _name: str) -> bool:
    """Return whether a file that begins with ``head`` is an execution trace."""
    return head.lstrip().startswith(b"{") and b'"schema"' in head and (b'"nodes"' in head or b"chakra" in head)


def read(path: Path) -> RecordedJob:
    """Return the collectives of one rank, in the order of their calls.

    Raises:
        UnusableError: if it cannot be read, or is no execution trace.
    """
    trace = decode_json(path, content_of(path), _Trace, "execution trace of PyTorch")
    groups, calls, ranks = dict[str, Group](), list[tuple[int, Group, str, int | None, str | None]](), Counter[int]()
    try:
        for node in trace.nodes:
            if node.name == _GROUPS:
                groups |= _read_groups(path, _values(node.inputs))
            elif node.name == "record_param_comms":
                inputs = _values(node.inputs)
                at = next((n for n, value in enumerate(inputs) if isinstance(value, str)), None)
                if at is None or at < 3 or not all(isinstance(inputs[n], int) for n in (at - 3, at - 1)):
                    continue
                name, number = collective_of_torch(inputs[at]), inputs[at - 3]
                if name not in _ROOTED and 0 <= inputs[at - 1] < RANKS.maximum:
                    ranks[inputs[at - 1]] += 1
                if name not in ("wait", "init") and at > 3:
                    nbytes, dtype = _size(node, inputs[0], name)
                    calls.append((number, _group_of(inputs[at - 2], groups), name, nbytes, dtype))
    except (ValueError, RecursionError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(path, f"is damaged: a collective is not as execution traces have them: {error}") from None
    rank = ranks.most_common(1)[0][0] if ranks else 0
    operations = [
        RecordedOperation(rank, group, name, number, bytes=nbytes, dtype=dtype)
        for number, group, name, nbytes, dtype in calls
    ]
    return RecordedJob(SOURCE, (Rank(rank),), operations, cannot_say=(
        "times of operations, and so waiting, transfer and late ranks",
    ))  # fmt: skip


def _values(raw: msgspec.Raw) -> Sequence[Any]:
    """Return the inputs of a node: since 1.1.0 they are ``values`` beside their shapes and types."""
    inputs = decode_part(raw)
    values = inputs.get("values", []) if isinstance(inputs, dict) else inputs
    return values if isinstance(values, list) else []


def _read_groups(path: Path, values: Sequence[Any]) -> Mapping[str, Group]:
    configured = decode_part(values[0].encode()) if values and isinstance(values[0], str) else []
    sizes = [each["group_size"] for each in configured if isinstance(each.get("group_size"), int)]
    check_members(path, sizes)
    # Without ranks it is a group of all.
    return {
        str(each.get("pg_name")): Group(
            str(each.get("pg_name")), tuple(map(int, each.get("ranks") or range(size))), str(each.get("pg_desc", ""))
        )
        for each, size in zip(configured, sizes, strict=True)
    }


def _group_of(value: object, groups: Mapping[str, Group]) -> Group:
    """Return the group of a call, which names it since 1.1.0; before, it is a number of the process."""
    name = str(value[0]) if isinstance(value, list) and value else ""
    return groups.get(name, Group(name, ()))


def _size(node: _Node, tensors: Any, name: str) -> tuple[int | None, str | None]:
    """Return S and our name of the type of elements; a tensor is [id, storage, offset, elements, bytes of one, ...]."""
    attributes = {str(each.get("name")): each.get("value") for each in _values(node.attrs)}
    if dtype := dtype_of_torch(str(attributes.get("dtype", ""))):
        elements = [attributes.get(key) for key in ("in_msg_nelems", "out_msg_nelems")]
        known = [count for count in elements if isinstance(count, int)]
        return (max(known) * dtype[1] if known and name != "barrier" else None), dtype[0]
    sides = (tensors, (_values(node.outputs) or [None])[0])
    sizes = [sum(_tensor_bytes(each) for each in _listed(side)) for side in sides]
    types = decode_part(node.types)
    first = str(types[0]) if isinstance(types, list) and types else ""
    found = dtype_of_torch(first[first.rfind("(") + 1 :].rstrip(")]"))
    return (max(sizes) or None) if name != "barrier" else None, found[0] if found else None


def _listed(side: Any) -> Sequence[Any]:
    return side if isinstance(side, list) and side and isinstance(side[0], list) else [side]


def _tensor_bytes(tensor: object) -> int:
    match tensor:
        case [_, _, _, int(elements), int(size), *_] if 0 <= elements < 1 << 48 and 0 < size <= 16:
            return elements * size
    return 0
