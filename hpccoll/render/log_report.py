"""The report on a set of logs, for people and as JSON: each launch is a list of findings."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hpccoll.cases.library_request import requested_by_environment
from hpccoll.common.records import to_builtins
from hpccoll.common.text import Finding, critical, first_few, in_brackets, info, join_words, warning
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.evidence.creation_delays import creation_delays, creation_growth
from hpccoll.evidence.creation_sentences import (
    creation_sentence,
    delay_sentences,
    growth_sentence,
    longest_creations,
)
from hpccoll.evidence.host_differences import PORTS
from hpccoll.evidence.log_record import CollectiveLine, HostDifference, LogRecord
from hpccoll.evidence.log_set import LaunchLogs, LogSet
from hpccoll.evidence.nccl import NVLS_REFUSED
from hpccoll.evidence.verdict import MAX_HOSTS, NETWORKS, Verdict, failures, judge_line, network_mismatch

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

_LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "ucc": "UCC", "sharp": "libsharp alone, as under HCOLL and MVAPICH"}

_IGNORE_MISMATCH = "NCCL_IGNORE_NET_MISMATCH"
"""The variable with which NCCL accepts hosts that differ in ports (2.30)."""

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


def critical_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    """Yield the critical findings about one launch: another network than ``expected``, and failures of the library."""
    if mismatch := network_mismatch(record, expected):
        yield critical("network_mismatch", mismatch, "WRONG")
    yield from (critical("failure", sentence, "WRONG") for sentence in failures(record))


def launch_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    """Yield the findings about one launch, critical findings first.

    The ``expected`` network between nodes is ``rdma`` or ``tcp``; None for no expectation.
    """
    yield from critical_findings(record, expected)
    version = join_words(record.versions) or record.version
    name = " ".join(filter(None, (_LIBRARIES[str(record.library)], version)))
    ranks = f", {format_count(record.ranks, 'rank')}" if record.ranks else ""
    nodes = f" on {format_count(record.nodes, 'node')}" if record.nodes else ""
    yield info("library", f"{name}{ranks}{nodes}")
    yield from _network_findings(record, expected)
    yield from map(partial(_difference_finding, record), record.host_differences)
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
    for line in record.warnings:
        if not _is_explained(line, record):
            hosts = record.warning_hosts.get(line, ())
            yield warning("warning", f"{line}{in_brackets(_on_hosts(hosts).strip())}", "warning", hosts=hosts)


def _creation_findings(record: LogRecord) -> Iterator[Finding]:
    shown = longest_creations(record.creations)
    for creation in shown:
        yield info("creation", creation_sentence(creation), "communicator created")
    if len(shown) < len(record.creations):
        others = format_count(len(record.creations) - len(shown), "more communicator")
        yield info("creations", f"{others}, which took no longer; --json has them", "communicators created")
    for creation in shown:
        for sentence in delay_sentences(creation):
            yield warning("creation_delay", sentence, "creation delayed")


def _difference_finding(record: LogRecord, difference: HostDifference) -> Finding:
    parts = [f"{value}{_on_hosts(hosts)}" for value, hosts in difference.hosts.items()]
    text = "; ".join(first_few(parts, MAX_HOSTS, "value"))
    if difference.fact == PORTS and record.settings.get(_IGNORE_MISMATCH, "0") != "0":
        text += f"; {_IGNORE_MISMATCH} lets NCCL begin with that, and the job may hang"
    return warning(
        "hosts_differ", text, f"hosts differ in {difference.fact}", fact=difference.fact, hosts=difference.hosts
    )


def _on_hosts(hosts: Sequence[str]) -> str:
    return f" on {', '.join(first_few(hosts, MAX_HOSTS, 'host'))}" if hosts else ""


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
    nvls = () if any(one.reason in NVLS_REFUSED for one in record.unavailable) else record.nvls
    for kind, title, lines in (
        ("nvls", "NVLS is available", nvls),
        ("collnet", "CollNet is connected", record.collnet),
        ("sharp", "SHARP has a group", record.sharp),
    ):
        if lines:
            yield info(kind, lines[-1], title)
    for one in record.unavailable:
        if one.feature == "ucc" and not record.collectives:
            continue  # it is a critical finding
        feature = _FEATURES.get(one.feature, one.feature)
        reason = one.reason.replace("NCCL ", "RCCL ") if record.library == "rccl" else one.reason
        line = in_brackets("" if one.line == one.reason else one.line)
        yield warning("unavailable", f"{reason}{line}", f"without {feature}", feature=feature)


def _is_explained(warning: str, record: LogRecord) -> bool:
    reasons = tuple(one.line for one in record.unavailable)
    return warning.endswith(reasons) or any(warning in one.cause for one in record.failures)


def _network_findings(record: LogRecord, expected: str | None) -> Iterator[Finding]:
    used, title = record.network_type, "network between nodes"
    silent = _silent_nodes(record)
    if used:
        ports = f": {', '.join(record.devices)}" if record.devices else ""
        text = f"{NETWORKS[used]} ({', '.join(record.network or ('Socket',))}{ports})"
        if record.nodes == 1:
            yield info("network_unused", f"{text}; unused, all ranks are on one node", title)
        elif expected is None:
            yield info("network", f"{text}; --network rdma or --network tcp says which was expected", title)
        elif used == expected and silent:
            missing = f"the logs of {silent} of {format_count(record.nodes or 0, 'node')} are missing"
            partly = f"{text}, as expected{_on_hosts(record.network_hosts)}; {missing}"
            yield warning("network_partly", partly, title)
        elif used == expected and (record.nodes or 0) > 1 and not record.network_hosts:
            of_nodes = f"no line names its host: whether all {record.nodes} nodes used it is unknown"
            yield warning("network_partly", f"{text}; {of_nodes}", title)
        elif used == expected:
            yield info("network_expected", f"{text}, as expected", title)
        else:
            yield warning("network_unexpected", f"{text}, which was not expected", title)
    elif expected and record.nodes != 1:
        text = f"no line names it: whether it was {NETWORKS[expected]} is unknown"
        yield warning("network_unknown", text, title)
    if record.paths:
        hops = {part for path in record.paths for part in path.split("/")}
        legend = (f"{word} {meaning}" for word, meaning in _HOP_MEANINGS.items() if word in hops)
        paths = ", ".join(f"{count} {path}" for path, count in record.paths.items())
        yield info("channels", f"{paths}{in_brackets(*legend)}", "channels that were set up")
    if record.gdr is not None:
        some = any("GDRDMA" in path for path in record.paths if path.startswith("NET/"))
        channels = "all channels" if record.gdr else "some channels" if some else "no channel"
        yield info("gpudirect", f"on {channels} of NET", "GPUDirect RDMA", channels=channels)


def _silent_nodes(record: LogRecord) -> int:
    """Return of how many nodes no log names the network; 0 if that is not known."""
    return max(0, (record.nodes or 0) - len(record.network_hosts)) if record.network_hosts else 0


def _collective_finding(record: LogRecord, line: CollectiveLine, requested: str | None, verdict: Verdict) -> Finding:
    """Return what ran: ``all_reduce of 64 MiB (float32 sum): ring, protocol LL, 2 channels, tree was requested``."""
    protocol = line.protocol if line.protocol and line.protocol not in verdict.executed else ""
    per_rank = line.bytes is not None and record.counts_per_rank(line.collective)
    size = f" of {format_size(line.bytes)}{' a rank' if per_rank else ''}" if line.bytes is not None else ""
    parts = (
        verdict.executed,
        f"{'in layer' if record.library == 'ucc' else 'protocol'} {protocol}" if protocol else "",
        format_count(line.channels, "channel") if line.channels else "",
        f"{requested} was requested" if requested else "",
    )
    elements = " ".join(filter(None, (line.dtype, line.op)))
    text = f"{line.collective}{size}{in_brackets(elements)}: {', '.join(filter(None, parts))}"
    return info("collective", text, "ran")


def _model_findings(record: LogRecord) -> Iterator[Finding]:
    cells = [cell for cell in record.model if cell.collective == "all_reduce"]
    for cell in sorted(cells, key=lambda cell: -cell.bytes_per_s)[:_MAX_MODELLED]:
        speed = f"{cell.bytes_per_s / 1e9:.1f} GB/s after {format_seconds(cell.latency_s)}"
        text = f"all_reduce by {cell.algorithm} {cell.protocol}: {speed}"
        yield info("model", text, "NCCL's own model, no measurement")


def has_critical_findings(logs: LogSet, expected: str | None) -> bool:
    """Return whether a library failed, or the nodes of a launch used another network than expected."""
    return any(any(critical_findings(launch.record, expected)) for launch in logs.launches)


def log_lines(logs: LogSet, expected: str | None = None) -> Iterator[str]:
    """Yield the lines of the report, critical findings first."""
    several = len(logs.launches) > 1
    sentences = [
        f"WRONG in launch {number}: {finding.text}"
        for number, launch in enumerate(logs.launches, 1)
        for finding in critical_findings(launch.record, expected)
        if several
    ]
    yield from sentences
    for number, launch in enumerate(logs.launches, 1):
        if several:
            yield from [""] * bool(sentences or number > 1)
            yield f"== launch {number} of {len(logs.launches)}: {_log_names(launch)}"
        yield from map(str, launch_findings(launch.record, expected))
    growth = creation_growth(launch.record.creations for launch in logs.launches)
    if growth is not None:
        yield f"creation of the largest communicator, shortest time over its ranks: {growth_sentence(growth)}"
    yield from (f"{file}: {text}" for file, text in logs.dumps.items())


def _log_names(launch: LaunchLogs) -> str:
    first, *others = launch.names
    more = f"{len(others)} more logs" if len(others) > 1 else "".join(others)
    return f"{first} and {more}" if more else first


def logs_json(logs: LogSet, expected: str | None = None) -> dict[str, Any]:
    """Return the records of all launches with the verdicts on their collectives, and the dumps."""
    launches = [
        {
            "logs": list(launch.names),
            "red": next((one.text for one in critical_findings(launch.record, expected)), None),
            "network": launch.record.network_type,
            "record": to_builtins(launch.record),
            "creation_delays": [
                {"communicator": creation.name, "size": creation.size, **to_builtins(delay)}
                for creation in launch.record.creations
                for delay in creation_delays(creation)
            ],
            "executed": [
                {
                    "collective": line.collective, "bytes": line.bytes, "dtype": line.dtype, "op": line.op,
                    "requested": requested, "executed": verdict.executed, "evidence": verdict.evidence,
                }
                for line, requested, verdict in executed_collectives(launch.record)
            ],
        }
        for launch in logs.launches
    ]  # fmt: skip
    growth = creation_growth(launch.record.creations for launch in logs.launches)
    return {"launches": launches, "creation_growth": growth and to_builtins(growth), "dumps": dict(logs.dumps)}
