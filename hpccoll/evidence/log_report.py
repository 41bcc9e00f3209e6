"""The report on a set of logs, for people and as JSON: each launch is a list of findings, rendered by TEMPLATES."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from hpccoll.cases.requested_algorithm import requested_by_environment
from hpccoll.common.records import to_builtins
from hpccoll.common.units import format_seconds, format_size
from hpccoll.evidence.log_record import CollectiveLine, LogRecord
from hpccoll.evidence.log_set import LaunchLogs, LogSet
from hpccoll.evidence.nccl import NVLS_REFUSED
from hpccoll.evidence.verdict import NETWORKS, Verdict, failures, judge_line, network_mismatch

_MAX_MODELLED = 3
"""The number of cells of NCCL's cost model that the report names: those with the highest bandwidth."""


_MAX_CHOICES = 3
"""The number of NCCL's choices for unknown collectives that the report names."""


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One finding in a set of logs.

    Args:
        kind: a key of TEMPLATES.
        values: the values that its template names; None and empty values drop their optional part of the template.
    """

    kind: str
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """The severity: ``critical``, ``warning`` or ``info``."""
        return TEMPLATES[self.kind][0]


_NETWORK = "network between nodes: {network} ({names}[: {ports}])"

TEMPLATES: Mapping[str, tuple[str, str]] = {
    "network_mismatch": ("critical", "RED: {sentence}"),
    "failure": ("critical", "RED: {sentence}"),
    "critical_in_launch": ("critical", "RED in launch {launch}: {sentence}"),
    "launch": ("info", "== launch {launch} of {launches}: {log}[ and {more}]"),
    "library": ("info", "{library}[ {version}][, {ranks}][ on {nodes}]"),
    "network": ("info", f"{_NETWORK}; --network rdma or --network tcp says which was expected"),
    "network_expected": ("info", f"{_NETWORK}, as expected"),
    "network_unexpected": ("warning", f"{_NETWORK}, which was not expected"),
    "network_unused": ("info", f"{_NETWORK}; unused, all ranks are on one node"),
    "network_unknown": (
        "warning",
        "network between nodes: no line names it; whether it was {network}, as expected, is unknown",
    ),
    "channels": ("info", "channels that were set up: {paths}[ ({legend})]"),
    "gpudirect": ("info", "GPUDirect RDMA: on {channels} of NET"),
    "plugins": ("info", "plugins: {values}"),
    "variables": ("info", "set by the environment or files: {values}"),
    "communicator": ("info", "communicators are created with: {values}"),
    "collective": (
        "info",
        (
            "ran: {collective}[ of {bytes}][ {counted}][ ({elements})]: {executed}[, in layer {layer}]"
            "[, protocol {protocol}][, {channels}][, {requested} was requested]"
        ),
    ),
    "unnamed_collectives": (
        "warning",
        "ran: {choices}; no line says which collectives: NCCL logs them with COLL in NCCL_DEBUG_SUBSYS",
    ),
    "no_collective_nccl": (
        "warning",
        (
            "ran: no line says what: NCCL logs it from 2.20 on, in the log of rank 0, with NCCL_DEBUG_SUBSYS=INIT,"
            "ENV,NET,GRAPH,TUNING,COLL; before 2.24 not for grouped calls, and before 2.22 not if a tuner plugin has "
            "chosen"
        ),
    ),
    "no_collective_rccl": (
        "warning",
        (
            "ran: no line says what: RCCL logs it from ROCm 6.2 on, in the log of rank 0, with NCCL_DEBUG_SUBSYS=INIT,"
            "ENV,NET,GRAPH,TUNING,COLL"
        ),
    ),
    "no_collective_ucc": ("warning", "ran: no line says what: UCC logs it with UCC_COLL_TRACE=info"),
    "no_collective_sharp": (
        "warning",
        (
            "ran: no line says what: HCOLL and MVAPICH never log it; of an all_reduce on more than two nodes, port "
            "counters can show it, which hpccoll run reads"
        ),
    ),
    "nvls": ("info", "NVLS is available: {line}"),
    "collnet": ("info", "CollNet is connected: {line}"),
    "sharp": ("info", "SHARP has a group: {line}"),
    "unavailable": ("warning", "without {feature}: {reason}[ ({line})]"),
    "sharp_score": ("info", "UCC may choose SHARP, by bytes:layer:score, for {score}"),
    "model": (
        "info",
        "NCCL's own model, no measurement: all_reduce by {algorithm} {protocol}: {bandwidth} GB/s after {latency_s}",
    ),
    "warning": ("warning", "warning: {line}"),
    "dump": ("info", "{file}: {sentence}"),
}
"""For each kind of finding, its severity and its template. ``[...]`` is left out if a value in it is empty."""


def _counted(noun: str) -> Callable[[Any], str]:
    return lambda number: f"{number} {noun}{'s' * (number > 1)}"


_VALUE_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "bytes": format_size,
    "nodes": _counted("node"),
    "ranks": _counted("rank"),
    "channels": lambda value: value if isinstance(value, str) else _counted("channel")(value),
    "latency_s": format_seconds,
    "bandwidth": lambda bytes_per_s: f"{bytes_per_s / 1e9:.1f}",
    "values": lambda values: ", ".join(f"{name}={value}" for name, value in values.items()),
    "paths": lambda paths: ", ".join(f"{count} {path}" for path, count in paths.items()),
}
"""The formats of values by their names in templates; of other values, tuples are joined by commas."""


def render(finding: LogFinding) -> str:
    """Return the text of a finding."""
    _, template = TEMPLATES[finding.kind]
    return "".join(
        _fill(part, finding.values) if number % 2 == 0 or _has_values(part, finding.values) else ""
        for number, part in enumerate(re.split(r"\[([^\]]*)\]", template))
    )


def _names(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def _has_values(template: str, values: Mapping[str, object]) -> bool:
    return all(values.get(name) not in (None, "", ()) for name in _names(template))


def _fill(template: str, values: Mapping[str, object]) -> str:
    return template.format(**{name: _format_value(name, values[name]) for name in _names(template)})


def _format_value(name: str, value: object) -> str:
    if name in _VALUE_FORMATS:
        return _VALUE_FORMATS[name](value)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


_LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "ucc": "UCC", "sharp": "libsharp alone, as under HCOLL and MVAPICH"}

_HOP_MEANINGS = {
    "NET": "between nodes", "GDRDMA": "directly from the memory of a GPU", "PXN": "through the NIC of another GPU",
    "P2P": "between GPUs of a node", "SHM": "through host memory", "COLLNET": "through switches between nodes",
}  # fmt: skip
"""The meaning of the words in the path of a channel."""

_FEATURES = {
    "sharp": "SHARP", "sharp-dtypes": "SHARP for some dtypes", "plugin": "a network plugin", "nvls": "NVLS",
    "algorithm": "the forced algorithm", "rdma": "RDMA", "gdr": "GPUDirect RDMA", "gpu": "a communicator", "ucc": "UCC",
}  # fmt: skip
"""The features that can be unavailable, for people."""


def executed_collectives(record: LogRecord) -> Iterator[tuple[CollectiveLine, str | None, Verdict]]:
    """Yield each collective that ran, the request of the settings that the log names, and the verdict."""
    for line in record.collectives:
        requested = requested_by_environment(record.settings, line.collective, record.communicator)
        yield line, requested, judge_line(line, requested, record, dtype=line.dtype)


def critical_findings(record: LogRecord, expected: str | None) -> Iterator[LogFinding]:
    """Yield the critical findings about one launch: another network than ``expected``, and failures of the library."""
    if mismatch := network_mismatch(record, expected):
        yield LogFinding("network_mismatch", {"sentence": mismatch})
    yield from (LogFinding("failure", {"sentence": sentence}) for sentence in failures(record))


def launch_findings(record: LogRecord, expected: str | None) -> Iterator[LogFinding]:
    """Yield the findings about one launch, critical findings first.

    Args:
        record: the record of the launch.
        expected: the expected network between nodes, ``rdma`` or ``tcp``; None for no expectation.
    """
    yield from critical_findings(record, expected)
    about = {"version": record.version, "ranks": record.ranks or None, "nodes": record.nodes or None}
    yield LogFinding("library", {"library": _LIBRARIES[str(record.library)], **about})
    yield from _network_findings(record, expected)
    for kind, values in (
        ("plugins", record.plugins), ("variables", record.settings), ("communicator", record.communicator)
    ):  # fmt: skip
        if values:
            yield LogFinding(kind, {"values": values})
    for collective, requested, verdict in executed_collectives(record):
        yield _collective_finding(record, collective, requested, verdict)
    if record.choices and not record.collectives:
        yield LogFinding("unnamed_collectives", {"choices": record.choices[:_MAX_CHOICES]})
    if not (record.collectives or record.choices or any(failures(record))):
        yield LogFinding(f"no_collective_{record.library}")
    nvls = () if any(one.reason in NVLS_REFUSED for one in record.unavailable) else record.nvls
    for kind, lines in (("nvls", nvls), ("collnet", record.collnet), ("sharp", record.sharp)):
        if lines:
            yield LogFinding(kind, {"line": lines[-1]})
    for one in record.unavailable:
        if one.feature == "ucc" and not record.collectives:
            continue  # it is a critical finding
        line = "" if one.line == one.reason else one.line
        feature = _FEATURES.get(one.feature, one.feature)
        reason = one.reason.replace("NCCL ", "RCCL ") if record.library == "rccl" else one.reason
        yield LogFinding("unavailable", {"feature": feature, "reason": reason, "line": line})
    yield from (LogFinding("sharp_score", {"score": score}) for score in record.scores)
    yield from _model_findings(record)
    yield from (LogFinding("warning", {"line": line}) for line in record.warnings if not _is_explained(line, record))


def _is_explained(warning: str, record: LogRecord) -> bool:
    """Return whether a warning is the cause of a failure, or the reason why a feature was not used."""
    reasons = tuple(one.line for one in record.unavailable)
    return warning.endswith(reasons) or any(warning in one.cause for one in record.failures)


def _network_findings(record: LogRecord, expected: str | None) -> Iterator[LogFinding]:
    used = record.network_type
    if used:
        kind = "network"
        if record.nodes == 1:
            kind = "network_unused"
        elif expected:
            kind = "network_expected" if used == expected else "network_unexpected"
        names = record.network or ("Socket",)
        yield LogFinding(kind, {"network": NETWORKS[used], "names": names, "ports": record.devices})
    elif expected and record.nodes != 1:
        yield LogFinding("network_unknown", {"network": NETWORKS[expected]})
    if record.paths:
        hops = {part for path in record.paths for part in path.split("/")}
        legend = tuple(f"{word} {meaning}" for word, meaning in _HOP_MEANINGS.items() if word in hops)
        yield LogFinding("channels", {"paths": record.paths, "legend": legend})
    if record.gdr is not None:
        some = any("GDRDMA" in path for path in record.paths if path.startswith("NET/"))
        channels = "all channels" if record.gdr else "some channels" if some else "no channel"
        yield LogFinding("gpudirect", {"channels": channels})


def _collective_finding(record: LogRecord, line: CollectiveLine, requested: str | None, verdict: Verdict) -> LogFinding:
    per_rank = line.bytes is not None and record.counts_per_rank(line.collective)
    protocol = line.protocol if line.protocol and line.protocol not in verdict.executed else None
    of_ucc = record.library == "ucc"
    values = {
        "collective": line.collective, "bytes": line.bytes, "counted": "a rank" if per_rank else None,
        "elements": " ".join(filter(None, (line.dtype, line.op))), "executed": verdict.executed,
        "layer": protocol if of_ucc else None, "protocol": None if of_ucc else protocol,
        "channels": line.channels or None, "requested": requested,
    }  # fmt: skip
    return LogFinding("collective", values)


def _model_findings(record: LogRecord) -> Iterator[LogFinding]:
    cells = [cell for cell in record.model if cell.collective == "all_reduce"]
    for cell in sorted(cells, key=lambda cell: -cell.bytes_per_s)[:_MAX_MODELLED]:
        values = {"algorithm": cell.algorithm, "protocol": cell.protocol}
        yield LogFinding("model", {**values, "bandwidth": cell.bytes_per_s, "latency_s": cell.latency_s})


def has_critical_findings(logs: LogSet, expected: str | None) -> bool:
    """Return whether a library failed, or the nodes of a launch used another network than expected."""
    return any(any(critical_findings(launch.record, expected)) for launch in logs.launches)


def report_lines(logs: LogSet, expected: str | None = None) -> Iterator[str]:
    """Yield the lines of the report, critical findings first.

    Args:
        logs: the logs.
        expected: the expected network between nodes, ``rdma`` or ``tcp``; None for no expectation.
    """
    several = len(logs.launches) > 1
    sentences = [
        (number, finding.values["sentence"])
        for number, launch in enumerate(logs.launches, 1)
        for finding in critical_findings(launch.record, expected)
        if several
    ]
    for number, sentence in sentences:
        yield render(LogFinding("critical_in_launch", {"launch": number, "sentence": sentence}))
    for number, launch in enumerate(logs.launches, 1):
        if several:
            heading = render(_launch_heading(launch, number, len(logs.launches)))
            yield f"\n{heading}" if sentences or number > 1 else heading
        yield from map(render, launch_findings(launch.record, expected))
    yield from (render(LogFinding("dump", {"file": file, "sentence": text})) for file, text in logs.dumps.items())


def _launch_heading(launch: LaunchLogs, number: int, launches: int) -> LogFinding:
    first, *others = launch.names
    more = f"{len(others)} more logs" if len(others) > 1 else "".join(others)
    return LogFinding("launch", {"launch": number, "launches": launches, "log": first, "more": more})


def to_json(logs: LogSet, expected: str | None = None) -> str:
    """Return the records of all launches with the verdicts on their collectives, and the dumps, as JSON."""
    launches = [_launch_as_json(launch, expected) for launch in logs.launches]
    return json.dumps({"launches": launches, "dumps": dict(logs.dumps)}, indent=1)


def _launch_as_json(launch: LaunchLogs, expected: str | None) -> dict[str, Any]:
    return {
        "logs": list(launch.names),
        "red": next((one.values["sentence"] for one in critical_findings(launch.record, expected)), None),
        "network": launch.record.network_type,
        "record": to_builtins(launch.record),
        "executed": [
            {
                "collective": line.collective, "bytes": line.bytes, "dtype": line.dtype, "op": line.op,
                "requested": requested, "executed": verdict.executed, "evidence": verdict.evidence,
            }
            for line, requested, verdict in executed_collectives(launch.record)
        ],
    }  # fmt: skip
