"""PyTorch's execution traces (Chakra's form of 1.0.1 to 1.1.1): the collectives that a rank called, without times.

Source: et_replay/comm/commsTraceParser.py of facebookresearch/param. A collective is a node ``record_param_comms`` with
the inputs [tensors, number, group, rank or root, name, ...]; since 1.1.0 its elements and type are attributes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpccoll.common.limits import RANK, RANKS
from hpccoll.traces.job_file import check_members, decode_part, read_trace_json
from hpccoll.traces.records import Group, Rank, RecordedJob, RecordedOperation
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
    return head.lstrip().startswith(b"{") and b'"schema"' in head and (b'"nodes"' in head or b"chakra" in head)


def read(path: Path) -> RecordedJob:
    """Return the collectives of one rank, in the order of their calls.

    Raises:
        ValueError: if it cannot be read, or is no execution trace.
    """
    groups, ranks, calls = dict[str, Group](), Counter[int](), list[dict[str, Any]]()
    for node in read_trace_json(path, _Trace).nodes:
        if node.name == "## process_group:init ##":
            groups |= _read_groups(_values(node.inputs))
        elif node.name == "record_param_comms":
            inputs = _values(node.inputs)
            at = next((n for n, value in enumerate(inputs) if isinstance(value, str)), 0)
            if at < 3 or not all(isinstance(inputs[n], int) for n in (at - 3, at - 1)):
                continue
            name = collective_of_torch(inputs[at])
            if name not in _ROOTED and RANK.accepts(inputs[at - 1]):
                ranks[inputs[at - 1]] += 1
            if at > 3 and name not in ("wait", "init"):
                nbytes, dtype = _size(node, inputs[0])
                named = inputs[at - 2]  # before 1.1.0 it is a number of the process
                group = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
                calls.append({
                    "group": groups.get(group, Group(group, ())), "collective": name, "sequence": inputs[at - 3],
                    "bytes": nbytes if name != "barrier" else None, "dtype": dtype,
                })  # fmt: skip
    rank = ranks.most_common(1)[0][0] if ranks else 0
    missing = ("times of operations, and so waiting, transfer and late ranks",)
    operations = [RecordedOperation(rank, **call) for call in calls]
    return RecordedJob(SOURCE, (Rank(rank),), operations, cannot_say=missing)


def _values(raw: msgspec.Raw) -> Sequence[Any]:
    """Return the inputs of a node: since 1.1.0 they are ``values`` beside their shapes and types."""
    inputs = decode_part(raw)
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    return values if isinstance(values, list) else []


def _read_groups(values: Sequence[Any]) -> Mapping[str, Group]:
    configured = decode_part(values[0].encode()) if values and isinstance(values[0], str) else []
    found = [
        each
        for each in (configured if isinstance(configured, list) else ())
        if isinstance(each, dict) and RANKS.accepts(each.get("group_size"))
    ]
    check_members(each["group_size"] for each in found)
    groups = (  # without ranks it is a group of all
        Group(str(each.get("pg_name")), tuple(filter(RANK.accepts, each.get("ranks") or range(each["group_size"]))),
              str(each.get("pg_desc", "")))
        for each in found
    )  # fmt: skip
    return {group.name: group for group in groups}


def _size(node: _Node, tensors: Any) -> tuple[int | None, str | None]:
    """Return S and our name of the type of elements; a tensor is [id, storage, offset, elements, bytes of one, ...]."""
    attributes = {str(each.get("name")): each.get("value") for each in _values(node.attrs) if isinstance(each, dict)}
    if dtype := dtype_of_torch(str(attributes.get("dtype"))):
        elements = [attributes.get(key) for key in ("in_msg_nelems", "out_msg_nelems")]
        return max((count * dtype[1] for count in elements if isinstance(count, int)), default=None), dtype[0]
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
