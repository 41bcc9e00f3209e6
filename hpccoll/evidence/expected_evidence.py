"""Tests of a launch's logs for the evidence that its variant must show before a row carries its name.

``cases/variants.toml`` names the kinds of evidence and says in words what each is; ``verdict``
judges single cases.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.cases.library_request import SWITCH_ALGORITHMS
from hpccoll.cases.variants import Variant
from hpccoll.evidence.log_record import CollectiveLine, LogRecord

Lines: TypeAlias = Callable[[LogRecord], tuple[str, ...]]
"""Returns the lines of a record that show a feature."""

STREAMING_TREE = "SAT"
"""The trees of switches that aggregate a stream of packets, as libsharp's log names their type; the
other type is LLT, the low-latency tree, for small messages."""

STREAMING_BYTES = 16384
"""Larger messages use a streaming-aggregation tree: the default of SHARP_COLL_SAT_THRESHOLD (SHARP
3.10, Using NVIDIA SHARP with Open MPI)."""

STREAMING_COLLECTIVES = ("reduce_scatter", "all_gather")
"""Collectives that UCC gives to SHARP only with the feature SAT
(src/components/tl/sharp/tl_sharp_coll.c, the checks of SHARP_FEATURE_SAT)."""


def names_switches(line: CollectiveLine) -> bool:
    """Return whether a line names an algorithm, or a layer among others, in which switches reduce."""
    return line.algorithm in SWITCH_ALGORITHMS or "sharp" in line.algorithm.split("+")


def has_needed_tree(line: CollectiveLine, record: LogRecord) -> bool:
    """Return whether a group of ranks has the kind of tree that SHARP needs for a call of UCC."""
    streaming = line.collective in STREAMING_COLLECTIVES or (line.bytes or 0) > STREAMING_BYTES
    return not streaming or STREAMING_TREE in record.trees


def _ucc_shows_sharp(record: LogRecord) -> bool:
    """Return whether lines show a call that UCC gave to SHARP, with a group and the tree that the call needs."""
    if not record.sharp:
        return False
    return any(
        names_switches(line) and has_needed_tree(line, record) for line in record.collectives
    )


def _switches_reduce(record: LogRecord, *algorithms: str) -> bool:
    """Return whether switches between nodes reduced, by one of NCCL's ``algorithms``, with SHARP's own lines.

    NVLS over several nodes needs SHARP too; NVLS_TREE shows that the nodes do without it.
    """
    if not record.sharp:
        return False
    between_nodes = any(map(names_switches, record.collectives))
    if record.nodes is not None and record.nodes > 1:
        between_nodes = between_nodes or _ran(record, "nvls")
    return between_nodes and _ran(record, *algorithms)


def _ran(record: LogRecord, *algorithms: str) -> bool:
    return any(line.algorithm in algorithms for line in record.collectives)


def _is_set(record: LogRecord, setting: str) -> bool:
    overridden = COMMUNICATOR_SETTINGS[setting].variable in record.settings
    return record.communicator.get(setting, "0") != "0" and not overridden


def _switch_lines(record: LogRecord) -> tuple[str, ...]:
    """Return the lines that show SHARP, or that CollNet is connected."""
    calls = [line.line for line in record.collectives if names_switches(line)]
    return (*record.sharp, *record.collnet, *calls)


def _lines_of(algorithm: str) -> Lines:
    """Return the function that returns the lines in which an algorithm, or one that begins so, ran."""
    return lambda record: tuple(
        line.line for line in record.collectives if line.algorithm.startswith(algorithm)
    )


def _gpudirect_paths(record: LogRecord) -> tuple[str, ...]:
    """Return the paths of channels between nodes that use GPUDirect RDMA."""
    return tuple(path for path in record.paths if path.startswith("NET/") and "GDRDMA" in path)


_FORBIDDEN: Mapping[str, tuple[str, Lines]] = {
    "no_sharp": ("SHARP", _switch_lines),
    "no_nvls": ("NVLS", _lines_of("nvls")),
    "no_gpudirect": ("GPUDirect", _gpudirect_paths),
    "no_symmetric": ("kernels on symmetric windows", _lines_of("symmetric")),
}
"""For negative controls, the feature that they turn off, and the lines that must be absent."""

_SHOWN: Mapping[str, Callable[..., bool]] = {
    "algorithm": _ran,
    "protocol": lambda record, name: any(line.protocol == name for line in record.collectives),
    "algorithm_protocol": lambda record, *names: any(
        (c.algorithm, c.protocol) == names for c in record.collectives
    ),
    "variable": lambda record, name: name in record.settings,
    "setting": _is_set,
    "no_setting": lambda record, name: not _is_set(record, name),
    "switches": _switches_reduce,
    "ucc_sharp": _ucc_shows_sharp,
    "sharp_group": lambda record: bool(record.trees),
    "nvls": lambda record: bool(record.nvls) and _ran(record, "nvls"),
    "gpudirect": lambda record: record.gdr is True,
    "no_gpudirect": lambda record: record.gdr is False and not _gpudirect_paths(record),
    "one_rail": lambda record: len(record.devices) == 1,
    "several_rails": lambda record: len(record.devices) > 1,
    "sockets": lambda record: record.network == ("Socket",),
    "symmetric": lambda record: _ran(record, "symmetric"),
}
"""Whether a record shows evidence, by its kind; the arguments of the kind follow the record."""


def is_shown(variant: Variant, record: LogRecord) -> bool:
    """Return whether a launch's logs show the evidence of its variant; False where no log can."""
    kind, *names = variant.expected_evidence
    if kind in _SHOWN:
        return _SHOWN[kind](record, *names)
    return kind in _FORBIDDEN and control_violation(variant, record) is None


def control_violation(variant: Variant, record: LogRecord) -> str | None:
    """Return how the logs of a negative control show the very feature that it turns off, as a sentence.

    None if they do not, or if the variant is not a negative control.
    """
    feature, lines = _FORBIDDEN.get(variant.expected_evidence[0], ("", lambda _record: ()))
    return next((f"{feature} is off, and still: {line}" for line in lines(record)), None)
