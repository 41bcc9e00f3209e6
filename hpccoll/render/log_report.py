"""The report on a set of logs, for people and as JSON: each launch is a list of findings."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from hpccoll.cases.library_request import requested_by_environment
from hpccoll.common.json_schema import record_of_fields, typed_dict
from hpccoll.common.records import to_builtins
from hpccoll.common.text import Finding, critical, first_few, in_brackets, info, join_words, warning
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.evidence.creation_delays import (
    CreationDelay,
    CreationGrowth,
    creation_delays,
    creation_growth,
)
from hpccoll.evidence.creation_sentences import (
    creation_sentence,
    delay_sentences,
    growth_sentence,
    longest_creations,
)
from hpccoll.evidence.defects import FittingDefectJson, defect_sentences
from hpccoll.evidence.host_differences import PORTS
from hpccoll.evidence.log_record import CollectiveLine, HostDifference, LogRecord
from hpccoll.evidence.log_set import LaunchLogs, LogSet
from hpccoll.evidence.logged_defects import defects_of_log
from hpccoll.evidence.nccl import NVLS_REFUSED
from hpccoll.evidence.verdict import (
    MAX_HOSTS,
    NETWORKS,
    Verdict,
    failures,
    judge_line,
    network_mismatch,
)

_MAX_MODELLED = 3
"""The number of cells of NCCL's cost model that the report names: those with the highest bandwidth."""

_MAX_CHOICES = 3
"""The number of NCCL's choices for unknown collectives that the report names."""

_NO_COLLECTIVE = {
    "nccl": "NCCL logs it from 2.20 on, in the log of rank 0, with NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,COLL; "
    "before 2.24 not for grouped calls, and before 2.22 not if a tuner plugin has chosen",
    "rccl": "RCCL logs it from ROCm 6.2 on, in the log of rank 0, with NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,"
    "COLL",
    "ucc": "UCC logs it with UCC_COLL_TRACE=info",
    "sharp": "HCOLL and MVAPICH never log it; of an all_reduce on more than two nodes, port counters can show it, "
    "which hpccoll run reads",
}
"""How to have a library log what ran."""

_LIBRARIES = {
    "nccl": "NCCL",
    "rccl": "RCCL",
    "ucc": "UCC",
    "sharp": "libsharp alone, as under HCOLL and MVAPICH",
}

_IGNORE_MISMATCH = "NCCL_IGNORE_NET_MISMATCH"
"""The variable with which NCCL accepts hosts that differ in ports (2.30)."""

_NETWORK_TITLE = "network between nodes"

_HOP_MEANINGS = {
    "NET": "between nodes",
    "GDRDMA": "directly from the memory of a GPU",
    "PXN": "through the NIC of another GPU",
    "P2P": "between GPUs of a node",
    "SHM": "through host memory",
    "COLLNET": "through switches between nodes",
}
"""The meaning of the words in the path of a channel."""

_FEATURES = {
    "sharp": "SHARP",
    "sharp-dtypes": "SHARP for some dtypes",
    "plugin": "a network plugin",
    "nvls": "NVLS",
    "algorithm": "the forced algorithm",
    "rdma": "RDMA",
    "gdr": "GPUDirect RDMA",
    "gpu": "a communicator",
    "ucc": "UCC",
}
"""The features that can be unavailable, for people."""


def executed_collectives(record: LogRecord) -> Iterator[tuple[CollectiveLine, str | None, Verdict]]:
    """Yield each collective that ran, the request of the settings that the log names, and the verdict."""
    for line in record.collectives:
        requested = requested_by_environment(record.settings, line.collective, record.communicator)
        yield line, requested, judge_line(line, requested, record, dtype=line.dtype)


def critical_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    """Yield the critical findings about one launch: another network than ``expected``, and failures of the library."""
    mismatch = network_mismatch(record, expected)
    if mismatch:
        yield critical("network_mismatch", mismatch, "WRONG")
    for sentence in failures(record):
        yield critical("failure", sentence, "WRONG")


def launch_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    """Yield the findings about one launch, critical findings first.

    The ``expected`` network between nodes is ``rdma`` or ``tcp``; None for no expectation.
    """
    yield from critical_findings(record, expected)
    yield info("library", _library_text(record))
    yield from _network_findings(record, expected)
    for difference in record.host_differences:
        yield _difference_finding(record, difference)
    yield from _creation_findings(record)
    for kind, title, values in (
        ("plugins", "plugins", record.plugins),
        ("variables", "set by the environment or files", record.settings),
        ("communicator", "communicators are created with", record.communicator),
    ):
        if values:
            yield info(kind, ", ".join(f"{name}={value}" for name, value in values.items()), title)
    yield from _executed_findings(record)
    yield from _feature_findings(record)
    for score in record.scores:
        yield info("sharp_score", f"UCC may choose SHARP, by bytes:layer:score, for {score}")
    yield from _model_findings(record)
    for sentence in defect_sentences(defects_of_log(record)):
        yield warning("known_defect", sentence, "this")
    for line in record.warnings:
        if not _is_explained(line, record):
            hosts = record.warning_hosts.get(line, ())
            yield warning(
                "warning", f"{line}{in_brackets(_on_hosts(hosts).strip())}", "warning", hosts=hosts
            )


def _library_text(record: LogRecord) -> str:
    """Return the library and the size of the launch: ``NCCL 2.27.7, 16 ranks on 2 nodes``."""
    version = join_words(record.versions) or record.version
    text = " ".join(filter(None, (_LIBRARIES[str(record.library)], version)))
    if record.ranks:
        text += f", {format_count(record.ranks, 'rank')}"
    if record.nodes:
        text += f" on {format_count(record.nodes, 'node')}"
    return text


def _creation_findings(record: LogRecord) -> Iterator[Finding]:
    shown = longest_creations(record.creations)
    for creation in shown:
        yield info("creation", creation_sentence(creation), "communicator created")
    if len(shown) < len(record.creations):
        hidden = format_count(len(record.creations) - len(shown), "more communicator")
        yield info(
            "creations", f"{hidden}, which took no longer; --json has them", "communicators created"
        )
    for creation in shown:
        for sentence in delay_sentences(creation):
            yield warning("creation_delay", sentence, "creation delayed")


def _difference_finding(record: LogRecord, difference: HostDifference) -> Finding:
    parts = [f"{value}{_on_hosts(hosts)}" for value, hosts in difference.hosts.items()]
    text = "; ".join(first_few(parts, MAX_HOSTS, "value"))
    if difference.fact == PORTS and record.settings.get(_IGNORE_MISMATCH, "0") != "0":
        text += f"; {_IGNORE_MISMATCH} lets NCCL begin with that, and the job may hang"
    return warning(
        "hosts_differ",
        text,
        f"hosts differ in {difference.fact}",
        fact=difference.fact,
        hosts=difference.hosts,
    )


def _on_hosts(hosts: Sequence[str]) -> str:
    if not hosts:
        return ""
    return f" on {', '.join(first_few(hosts, MAX_HOSTS, 'host'))}"


def _executed_findings(record: LogRecord) -> Iterator[Finding]:
    for collective, requested, verdict in executed_collectives(record):
        yield _collective_finding(record, collective, requested, verdict)
    if record.choices and not record.collectives:
        choices = ", ".join(record.choices[:_MAX_CHOICES])
        remedy = "no line says which collectives: NCCL logs them with COLL in NCCL_DEBUG_SUBSYS"
        yield warning("unnamed_collectives", f"{choices}; {remedy}", "ran")
    if not (record.collectives or record.choices or any(failures(record))):
        how = _NO_COLLECTIVE[str(record.library)]
        yield warning("no_collective", f"no line says what: {how}", "ran")


def _feature_findings(record: LogRecord) -> Iterator[Finding]:
    nvls_is_refused = any(failure.reason in NVLS_REFUSED for failure in record.unavailable)
    if record.nvls and not nvls_is_refused:
        yield info("nvls", record.nvls[-1], "NVLS is available")
    if record.collnet:
        yield info("collnet", record.collnet[-1], "CollNet is connected")
    if record.sharp:
        yield info("sharp", record.sharp[-1], "SHARP has a group")
    for unavailable in record.unavailable:
        if unavailable.feature == "ucc" and not record.collectives:
            continue  # it is a critical finding
        feature = _FEATURES.get(unavailable.feature, unavailable.feature)
        reason = unavailable.reason
        line = "" if unavailable.line == reason else unavailable.line
        if record.library == "rccl":
            reason = reason.replace("NCCL ", "RCCL ")
        yield warning(
            "unavailable", f"{reason}{in_brackets(line)}", f"without {feature}", feature=feature
        )


def _is_explained(warning: str, record: LogRecord) -> bool:
    explained_lines = tuple(unavailable.line for unavailable in record.unavailable)
    return warning.endswith(explained_lines) or any(
        warning in failure.cause for failure in record.failures
    )


def _network_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    if record.network_type:
        yield _used_network_finding(record, record.network_type, expected)
    elif expected and record.nodes != 1:
        text = f"no line names it: whether it was {NETWORKS[expected]} is unknown"
        yield warning("network_unknown", text, _NETWORK_TITLE)
    if record.paths:
        hops = {hop for path in record.paths for hop in path.split("/")}
        legend = (f"{hop} {meaning}" for hop, meaning in _HOP_MEANINGS.items() if hop in hops)
        paths = ", ".join(f"{count} {path}" for path, count in record.paths.items())
        yield info("channels", f"{paths}{in_brackets(*legend)}", "channels that were set up")
    if record.gdr is not None:
        channels = _gpudirect_channels(record)
        yield info("gpudirect", f"on {channels} of NET", "GPUDirect RDMA", channels=channels)


def _used_network_finding(record: LogRecord, used: str, expected: str | None) -> Finding:
    """Return which network a launch used, and whether it is the expected one."""
    ports = f": {', '.join(record.devices)}" if record.devices else ""
    text = f"{NETWORKS[used]} ({', '.join(record.network or ('Socket',))}{ports})"
    if record.nodes == 1:
        return info("network_unused", f"{text}; unused, all ranks are on one node", _NETWORK_TITLE)
    if expected is None:
        how = "--network rdma or --network tcp says which was expected"
        return info("network", f"{text}; {how}", _NETWORK_TITLE)
    if used != expected:
        return warning("network_unexpected", f"{text}, which was not expected", _NETWORK_TITLE)
    silent = _silent_nodes(record)
    if silent:
        missing = f"the logs of {silent} of {format_count(record.nodes or 0, 'node')} are missing"
        partly = f"{text}, as expected{_on_hosts(record.network_hosts)}; {missing}"
        return warning("network_partly", partly, _NETWORK_TITLE)
    if (record.nodes or 0) > 1 and not record.network_hosts:
        unknown = f"no line names its host: whether all {record.nodes} nodes used it is unknown"
        return warning("network_partly", f"{text}; {unknown}", _NETWORK_TITLE)
    return info("network_expected", f"{text}, as expected", _NETWORK_TITLE)


def _gpudirect_channels(record: LogRecord) -> str:
    """Return which channels between nodes use GPUDirect RDMA."""
    if record.gdr:
        return "all channels"
    between_nodes = [path for path in record.paths if path.startswith("NET/")]
    return "some channels" if any("GDRDMA" in path for path in between_nodes) else "no channel"


def _silent_nodes(record: LogRecord) -> int:
    """Return the number of nodes whose logs do not name the network; 0 if that is not known."""
    if not record.network_hosts:
        return 0
    return max(0, (record.nodes or 0) - len(record.network_hosts))


def _collective_finding(
    record: LogRecord, line: CollectiveLine, requested: str | None, verdict: Verdict
) -> Finding:
    """Return what ran: ``all_reduce of 64 MiB (float32 sum): ring, protocol LL, 2 channels, tree was requested``."""
    call = line.collective
    if line.bytes is not None:
        call += f" of {format_size(line.bytes)}"
        if record.counts_per_rank(line.collective):
            call += " a rank"
    elements = " ".join(filter(None, (line.dtype, line.op)))
    parts = [verdict.executed]
    if line.protocol and line.protocol not in verdict.executed:
        noun = "in layer" if record.library == "ucc" else "protocol"
        parts.append(f"{noun} {line.protocol}")
    if line.channels:
        parts.append(format_count(line.channels, "channel"))
    if requested:
        parts.append(f"{requested} was requested")
    return info(
        "collective", f"{call}{in_brackets(elements)}: {', '.join(filter(None, parts))}", "ran"
    )


def _model_findings(record: LogRecord) -> Iterator[Finding]:
    cells = [cell for cell in record.model if cell.collective == "all_reduce"]
    cells.sort(key=lambda cell: -cell.bytes_per_s)
    for cell in cells[:_MAX_MODELLED]:
        speed = f"{cell.bytes_per_s / 1e9:.1f} GB/s after {format_seconds(cell.latency_s)}"
        text = f"all_reduce by {cell.algorithm} {cell.protocol}: {speed}"
        yield info("model", text, "NCCL's own model, no measurement")


def has_critical_findings(logs: LogSet, expected: str | None) -> bool:
    """Return whether a library failed, or the nodes of a launch used another network than expected."""
    return any(_first_critical_finding(launch.record, expected) for launch in logs.launches)


def _first_critical_finding(record: LogRecord, expected: str | None) -> Finding | None:
    return next(critical_findings(record, expected), None)


def log_lines(logs: LogSet, expected: str | None = None) -> Iterator[str]:
    """Yield the lines of the report, critical findings first."""
    several = len(logs.launches) > 1
    sentences: list[str] = []
    if several:
        for number, launch in enumerate(logs.launches, 1):
            findings = critical_findings(launch.record, expected)
            sentences += [f"WRONG in launch {number}: {finding.text}" for finding in findings]
    yield from sentences
    for number, launch in enumerate(logs.launches, 1):
        if several and (sentences or number > 1):
            yield ""
        if several:
            yield f"== launch {number} of {len(logs.launches)}: {_log_names(launch)}"
        yield from map(str, launch_findings(launch.record, expected))
    growth = creation_growth(launch.record.creations for launch in logs.launches)
    if growth is not None:
        yield f"creation of the largest communicator, shortest time over its ranks: {growth_sentence(growth)}"
    for file, text in logs.dumps.items():
        yield f"{file}: {text}"


def _log_names(launch: LaunchLogs) -> str:
    first, *further = launch.names
    if not further:
        return first
    return (
        f"{first} and {further[0]}"
        if len(further) == 1
        else f"{first} and {len(further)} more logs"
    )


class ExecutedJson(TypedDict):
    """A collective that a library executed, as JSON has it."""

    collective: str
    bytes: int | None
    dtype: str | None
    op: str | None
    requested: str | None
    executed: str
    evidence: str


class _DelayKeys(TypedDict):
    communicator: str
    size: int


class _LaunchKeys(TypedDict):
    logs: list[str]
    red: str | None
    network: str | None
    record: LogRecord
    executed: list[ExecutedJson]
    defects: list[FittingDefectJson]


class _LogsKeys(TypedDict):
    creation_growth: CreationGrowth | None
    dumps: dict[str, str]


def _launch_record() -> Any:
    """Return the type of the JSON of a launch."""
    delay = record_of_fields("CreationDelayJson", CreationDelay, changed=_DelayKeys)
    delays = {"creation_delays": list[delay]}  # type: ignore[valid-type]  # made of its keys
    return typed_dict("LaunchJson", delays, _LaunchKeys)


def logs_record() -> Any:
    """Return the type of the JSON of logs."""
    launch = _launch_record()
    launches = {"launches": list[launch]}  # type: ignore[valid-type]  # made of its keys
    return typed_dict("LogsJson", launches, _LogsKeys)


def logs_json(logs: LogSet, expected: str | None = None) -> dict[str, Any]:
    """Return the records of all launches with the verdicts on their collectives, and the dumps."""
    growth = creation_growth(launch.record.creations for launch in logs.launches)
    return {
        "launches": [_launch_json(launch, expected) for launch in logs.launches],
        "creation_growth": growth and to_builtins(growth),
        "dumps": dict(logs.dumps),
    }


def _launch_json(launch: LaunchLogs, expected: str | None) -> dict[str, Any]:
    record = launch.record
    finding = _first_critical_finding(record, expected)
    delays = []
    for creation in record.creations:
        communicator = {"communicator": creation.name, "size": creation.size}
        delays += [communicator | to_builtins(delay) for delay in creation_delays(creation)]
    executed: list[dict[str, Any]] = []
    for line, requested, verdict in executed_collectives(record):
        call: dict[str, Any] = {
            "collective": line.collective,
            "bytes": line.bytes,
            "dtype": line.dtype,
            "op": line.op,
        }
        ran = {"requested": requested, "executed": verdict.executed, "evidence": verdict.evidence}
        executed.append(call | ran)
    return {
        "logs": list(launch.names),
        "red": finding.text if finding else None,
        "network": record.network_type,
        "record": to_builtins(record),
        "creation_delays": delays,
        "executed": executed,
        "defects": [fit.to_json() for fit in defects_of_log(record)],
    }
