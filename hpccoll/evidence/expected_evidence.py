"""The evidence that a variant must show before a row carries its name: as text, and as a predicate on a log record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpccoll.evidence.communicator_settings import OVERRIDING_VARIABLES
from hpccoll.evidence.log_record import CollectiveLine, LogRecord
from hpccoll.evidence.requested_algorithm import SWITCH_ALGORITHMS

STREAMING_TREE = "SAT"
"""The trees of switches that aggregate a stream of packets, as libsharp's log names their type; the other type is LLT,
the low-latency tree, for small messages."""

STREAMING_BYTES = 16384
"""Larger messages use a streaming-aggregation tree: the default of SHARP_COLL_SAT_THRESHOLD (SHARP 3.10, Using NVIDIA
SHARP with Open MPI)."""

STREAMING_COLLECTIVES = ("reduce_scatter", "all_gather")
"""Collectives that UCC gives to SHARP only with the feature SAT (src/components/tl/sharp/tl_sharp_coll.c, the checks of
SHARP_FEATURE_SAT)."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The lines that must be absent from the logs of a negative control.

    Args:
        feature: the feature that the control turns off, for people.
        lines: returns the lines of a record that show the feature.
    """

    feature: str
    lines: Callable[[LogRecord], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ExpectedEvidence:
    """The evidence that the logs of a launch must show; ``verdict`` judges the lines of single cases.

    Args:
        description: the evidence, for people.
        is_met: returns whether a record shows it; None if no log can, but only port counters.
        forbidden: the lines that must be absent; None for what is no negative control.
    """

    description: str
    is_met: Callable[[LogRecord], bool] | None
    forbidden: Forbidden | None = None


def names_switches(line: CollectiveLine) -> bool:
    """Return whether a line names an algorithm, or a layer among others, in which switches reduce."""
    return line.algorithm in SWITCH_ALGORITHMS or "sharp" in line.algorithm.split("+")


def has_needed_tree(line: CollectiveLine, record: LogRecord) -> bool:
    """Return whether a group of ranks has the kind of tree that SHARP needs for a call of UCC."""
    streaming = line.collective in STREAMING_COLLECTIVES or (line.bytes or 0) > STREAMING_BYTES
    return not streaming or STREAMING_TREE in record.trees


def _ucc_shows_sharp(record: LogRecord) -> bool:
    """Return whether lines show a call that UCC gave to SHARP, with a group and the tree that the call needs."""
    return bool(record.sharp) and any(
        names_switches(one) and has_needed_tree(one, record) for one in record.collectives
    )


def _switches_reduce(record: LogRecord) -> bool:
    """Return whether lines show that switches between nodes reduce: the algorithm or layer, and SHARP's own lines.

    NVLS over several nodes needs SHARP too; NVLS_TREE shows that the nodes do without it.
    """
    several = record.nodes is not None and record.nodes > 1
    return bool(record.sharp) and any(
        names_switches(one) or (several and one.algorithm == "nvls") for one in record.collectives
    )


def _window_lines(record: LogRecord) -> tuple[str, ...]:
    """Return the lines that show kernels on symmetric windows."""
    return tuple(one.line for one in record.collectives if one.algorithm == "symmetric")


def _switch_lines(record: LogRecord) -> tuple[str, ...]:
    """Return the lines that show SHARP, or that CollNet is connected."""
    return (*record.sharp, *record.collnet, *(one.line for one in record.collectives if names_switches(one)))


def _nvls_lines(record: LogRecord) -> tuple[str, ...]:
    """Return the lines that show that NVLink SHARP carried out a collective."""
    return tuple(one.line for one in record.collectives if one.algorithm.startswith("nvls"))


def _gpudirect_paths(record: LogRecord) -> tuple[str, ...]:
    """Return the paths of channels between nodes that use GPUDirect RDMA."""
    return tuple(path for path in record.paths if path.startswith("NET/") and "GDRDMA" in path)


def algorithm(name: str) -> ExpectedEvidence:
    """Return the expectation that NCCL logged the algorithm ``name`` for a collective."""
    description = f"a TUNING line with Algo {name.upper()} for each size"
    return ExpectedEvidence(description, lambda record: any(one.algorithm == name for one in record.collectives))


def protocol(name: str) -> ExpectedEvidence:
    """Return the expectation that NCCL logged the protocol ``name`` for a collective."""
    description = f"a TUNING line with proto {name} for each size"
    return ExpectedEvidence(description, lambda record: any(one.protocol == name for one in record.collectives))


def variable(name: str) -> ExpectedEvidence:
    """Return the expectation that NCCL logged that it has read the environment variable ``name``."""
    description = (
        f"a line '{name} set by environment to ...', printed when NCCL first reads it; none says what it changes"
    )
    return ExpectedEvidence(description, lambda record: name in record.settings)


def _is_set(record: LogRecord, setting: str) -> bool:
    return record.communicator.get(setting, "0") != "0" and OVERRIDING_VARIABLES.get(setting) not in record.settings


def setting(name: str) -> ExpectedEvidence:
    """Return the expectation that NCCL logged the communicator setting ``name`` with another value than 0."""
    description = f"a line 'Comm config ... set to ...' for {name}, and no variable that wins over it"
    return ExpectedEvidence(description, lambda record: _is_set(record, name))


def no_setting(name: str) -> ExpectedEvidence:
    """Return the expectation of the negative control of ``setting``."""
    description = f"no line 'Comm config ... set to ...' for {name}, or set to 0: the negative control"
    return ExpectedEvidence(description, lambda record: not _is_set(record, name))


_SWITCH_LINES = {
    "collnet_direct": "COLLNET_DIRECT",
    "collnet_chain": "COLLNET_CHAIN",
    "nvls": "NVLS over several nodes",
}
"""NCCL's algorithms in which switches between nodes reduce, and their names in log lines."""


def switches(*algorithms: str) -> ExpectedEvidence:
    """Return the expectation that switches between nodes reduced, by one of these algorithms of NCCL; none: any."""
    algorithms = algorithms or tuple(_SWITCH_LINES)
    names = " or ".join(_SWITCH_LINES[name] for name in algorithms)
    return ExpectedEvidence(
        f"a TUNING line with Algo {names}; a SHARP group; and one vector up per port instead of 2(n-1)/n",
        lambda record: _switches_reduce(record) and any(one.algorithm in algorithms for one in record.collectives),
    )


_FIXED: Mapping[str, ExpectedEvidence] = {
    "ucc_sharp": ExpectedEvidence(
        "TL_SHARP in the lines of UCC_COLL_TRACE; a SHARP group, above 16 KiB one with a streaming-aggregation tree "
        "(tree_type:SAT); and one vector up per port instead of 2(n-1)/n",
        _ucc_shows_sharp,
    ),
    "sharp_group": ExpectedEvidence(
        "a SHARP group in the lines of libsharp, and port counters that show one vector up per node instead of "
        "2(n-1)/n, for an all_reduce on more than two nodes: no line names a call; other calls, and vectors so small "
        "that headers dominate them, stay unknown",
        lambda record: bool(record.trees),
    ),
    "no_sharp": ExpectedEvidence(
        "no line of CollNet or SHARP: the negative control",
        lambda record: not _switch_lines(record),
        Forbidden("SHARP", _switch_lines),
    ),
    "nvls": ExpectedEvidence(
        "lines that say NVLS multicast is available and connected, and a TUNING line with Algo NVLS",
        lambda record: bool(record.nvls) and any(one.algorithm == "nvls" for one in record.collectives),
    ),
    "no_nvls": ExpectedEvidence(
        "no TUNING line with Algo NVLS: the negative control",
        lambda record: not _nvls_lines(record),
        Forbidden("NVLS", _nvls_lines),
    ),
    "gpudirect": ExpectedEvidence("channels via NET/.../GDRDMA, all of them", lambda record: record.gdr is True),
    "no_gpudirect": ExpectedEvidence(
        "channels via NET/... without GDRDMA",
        lambda record: record.gdr is False and not _gpudirect_paths(record),
        Forbidden("GPUDirect", _gpudirect_paths),
    ),
    "one_rail": ExpectedEvidence("NET/IB : Using names one port", lambda record: len(record.devices) == 1),
    "several_rails": ExpectedEvidence("NET/IB : Using names several ports", lambda record: len(record.devices) > 1),
    "port_bytes": ExpectedEvidence("bytes per port: the share of each rail in wire_bytes", None),
    "sockets": ExpectedEvidence("NCCL says that it uses Socket", lambda record: record.network == ("Socket",)),
    "symmetric": ExpectedEvidence(
        "a TUNING line '[Symmetric]: ... -> Kernel' for each size", lambda record: bool(_window_lines(record))
    ),
    "no_symmetric": ExpectedEvidence(
        "no TUNING line '[Symmetric]': the negative control",
        lambda record: not _window_lines(record),
        Forbidden("kernels on symmetric windows", _window_lines),
    ),
}
"""Expectations without arguments."""

_FOR_NAMES: Mapping[str, Callable[..., ExpectedEvidence]] = {
    "algorithm": algorithm,
    "protocol": protocol,
    "variable": variable,
    "setting": setting,
    "no_setting": no_setting,
    "switches": switches,
}
"""Expectations with arguments."""


def expected_evidence(kind: str, *names: str) -> ExpectedEvidence:
    """Return the expectation that ``variants.toml`` writes as a list of its kind and its arguments.

    Args:
        kind: a key of the two tables above.
        names: the arguments, such as the algorithm.

    Raises:
        KeyError: if there is no such kind.
    """
    return _FIXED[kind] if kind in _FIXED else _FOR_NAMES[kind](*names)
