"""What rank 0 prints about GPUs and NCCL: first what was found, last what ran, with the evidence for it.

All of it comes from the record of the attempt, which raw files keep.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from hpccoll.cases.case import Job
from hpccoll.common.units import format_size
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_settings import PROBE_REMEDY
from hpccoll.evidence.nic_gpu_affinity import NearestNics, describe_balance
from hpccoll.evidence.nvlink_racks import nvlink_sentence
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule import collective, is_workload
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.raw_results import Attempt, CaseHistory, RawResults

MAX_NAMES = 8
"""The number of adapters of a node that are named."""

_NVLS_REASON = (
    "NCCL logs nothing about it: fewer than 3 GPUs a node, no NVSwitch, or NCCL_NVLS_ENABLE=0"
)
_WITHOUT_LOG = f"no log of NCCL was read (train reads none, nor does run with NCCL_DEBUG set); do: {PROBE_REMEDY}"


def found_lines(attempt: Attempt) -> Iterator[str]:
    """Yield what the GPUs, their links and adapters, and NCCL are, and whether NVLS and SHARP are possible.

    Nothing is yielded if no case runs on a GPU. Hosts that have the same share a line.
    """
    groups = cast("Sequence[Mapping[str, Any]]", attempt.provenance.get("gpus") or ())
    hosts = sum(len(group["hosts"]) for group in groups)
    gpus = [(_describe_gpus(group["gpus"]), group["hosts"]) for group in groups]
    yield from _by_text("GPUs", hosts, gpus)
    nics = [(_describe_nics(group["gpus"]), group["hosts"]) for group in groups]
    yield from _by_text("NICs", hosts, nics)
    nvlink = nvlink_sentence(
        _nvlink_domains(groups), {place.host: place.rack for place in attempt.places}
    )
    if nvlink:
        yield f"NVLink: {nvlink}"
    floors = cast("Sequence[float | None]", attempt.provenance.get("event_floor_ns_of_rank") or ())
    measured_floors = [floor for floor in floors if floor is not None]
    if measured_floors:
        floor_us = max(measured_floors) / 1e3
        yield f"events of GPUs: two in a row take up to {floor_us:.2f} us, which every device_s contains"
    libraries = cast("Sequence[Mapping[str, Any]]", attempt.provenance.get("nccl") or ())
    if libraries:
        builds = [(_describe_nccl(group["library"]), group["hosts"]) for group in libraries]
        yield from _by_text("NCCL", hosts, builds)
        yield from _probe_lines(attempt)


def _describe_nccl(library: Mapping[str, Any]) -> str:
    files = ", ".join(library["files"])
    return f"{library['version']} ({files})"


def _probe_lines(attempt: Attempt) -> Iterator[str]:
    """Yield the network of NCCL, and whether NVLS and SHARP are possible, by the log of the probe."""
    probed = _probe_result(attempt)
    record = probed.record
    if record is None:
        why = f"the probe {probed.failure}" if probed.failure else _WITHOUT_LOG
        yield f"network, NVLS and SHARP: unknown, {why}"
        return
    if record.network:
        yield f"network of NCCL: {', '.join((*record.network, *record.devices))}"
    nvls = _availability(record, "nvls", record.nvls) or f"unknown, {_NVLS_REASON}"
    yield f"NVLS: {nvls}"
    yield f"SHARP: {_sharp(record, attempt.nodes)}"


def _nvlink_domains(groups: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the NVLink domain of each host whose GPUs all have the same one."""
    domains: dict[str, str] = {}
    for group in groups:
        names = {gpu.get("nvlink_domain") for gpu in group["gpus"]}
        domain = ""
        if len(names) == 1:
            domain = names.pop() or ""
        domains |= dict.fromkeys(group["hosts"], domain)
    return domains


def _by_text(
    name: str, count: int, described: Iterable[tuple[str, Sequence[str]]]
) -> Iterator[str]:
    """Yield a line for each text, with the hosts that it is about unless it is about all ``count`` of them."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for text, members in described:
        hosts[text] += members
    for text, members in hosts.items():
        where = ""
        if len(members) < count:
            where = f" of {members[0]}"
            if len(members) > 1:
                where = f" of {len(members)} nodes, among them {members[0]}"
        yield f"{name}{where}: {text}"


def _describe_gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(gpu.get("name") or "GPU (NVML does not name it)" for gpu in gpus)
    names = " and ".join(f"{count} x {name}" for name, count in counts.items())
    facts = [f"{names} a node"]
    links = {gpu.get("nvlinks") for gpu in gpus} - {None}
    if links == {0}:
        facts.append("no NVLink")
    elif links:
        facts.append(f"{' or '.join(sorted(map(str, links)))} NVLinks each")
    for name, key in (("driver", "driver"), ("CUDA", "cuda")):
        version = gpus[0].get(key)
        if version:
            facts.append(f"{name} {version}")
    return ", ".join(facts)


def _describe_nics(gpus: Sequence[Mapping[str, Any]]) -> str:
    nearest = []
    for number, gpu in enumerate(gpus):
        nics = gpu.get("nics")
        if nics:
            nearest.append(
                NearestNics(number, nics["distance"], tuple(nics["names"]), gpu.get("nvlinks"))
            )
    if not nearest:
        return "no RDMA adapter in sysfs"
    names = sorted({nic for nics in nearest for nic in nics.nics})
    adapters = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        adapters += f" and {len(names) - MAX_NAMES} more"
    return f"{adapters}; {describe_balance(nearest)}"


def _probe_result(attempt: Attempt) -> ProbeResult:
    if not attempt.evidence:
        return ProbeResult()
    return ProbeResult.from_json(attempt.evidence)


def _availability(record: LogRecord, feature: str, lines: Sequence[str]) -> str:
    """Return whether the log shows a feature, and why it is unavailable; empty if the log does not name it."""
    possible = f"possible ({lines[0]})" if lines else ""
    for unavailable in record.unavailable:
        if unavailable.feature == feature:
            begin = f"{possible}, but" if possible else "not possible,"
            return f"{begin} {unavailable.reason} ({unavailable.line})"
    return possible


def _sharp(record: LogRecord, nodes: int) -> str:
    if nodes == 1:
        return "not possible on one node, because the switches between nodes reduce"
    available = _availability(record, "sharp", record.sharp)
    if available:
        return available
    by_variable = record.settings.get("NCCL_COLLNET_ENABLE")
    by_communicator = record.communicator.get("collnet_enable")
    if {by_variable, by_communicator} - {None, "0"}:
        return "unknown, it was requested, and no line says what became of it"
    return "not requested; do: --variant nccl-sharp"


def executed_lines(raw: RawResults) -> Iterator[str]:
    """Yield for each call of NCCL what it ran as, by ranges of sizes, the largest sizes first.

    The algorithm and the protocol are those that NCCL's own lines name for calls of that size
    (subsystem TUNING).
    """
    by_call: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    records = {
        attempt.number: _probe_result(attempt).record or LogRecord() for attempt, _ in raw.attempts
    }
    for history in raw.histories():
        if _is_call_of_nccl(history):
            outcome = history.outcome
            what_ran, why = _what_ran(history, records[history.attempt.number])
            size = outcome.bytes or outcome.case.bytes
            by_call[_call_name(raw.job, history)][size].setdefault(what_ran, why)
    for name, by_size in by_call.items():
        has_size = not collective(name.split()[0]).token
        descending = sorted(by_size.items(), reverse=True)
        parts = []
        for label, group in groupby(descending, lambda entry: " or ".join(entry[1])):
            entries = list(group)
            part = label
            if has_size:
                part += _size_words([size for size, _ in entries])
            for reason in entries[0][1].values():
                if reason:
                    part += f" ({reason})"
            parts.append(part)
        yield f"{name}: {'; '.join(parts)}"


def _is_call_of_nccl(history: CaseHistory) -> bool:
    """Return whether a case is a call of NCCL that was timed, and exchanges data."""
    case = history.outcome.case
    is_call = (
        case.algorithm == NATIVE and case.transport == "nccl" and not is_workload(case.collective)
    )
    return is_call and history.outcome.timed and _members(history.attempt) > 1


def _members(attempt: Attempt) -> int:
    """Return the number of ranks that take part in collectives."""
    return attempt.ranks - attempt.aggregators


def _size_words(descending: Sequence[int]) -> str:
    """Return the ends of a range of sizes: `` from 1 KiB to 1 MiB``, `` at 8 B``."""
    smallest = format_size(descending[-1])
    largest = format_size(descending[0])
    if smallest == largest:
        return f" at {smallest}"
    return f" from {smallest} to {largest}"


def _call_name(job: Job, history: CaseHistory) -> str:
    case = history.outcome.case
    same_collective = [planned for planned in job.cases if planned.collective == case.collective]
    types = {(planned.dtype, planned.op) for planned in same_collective}
    words = [case.collective]
    if len(types) > 1:
        words += [case.dtype, case.op or ""]
    words.append(job.variant or "")
    return f"{' '.join(filter(None, words))} by NCCL"


def _what_ran(history: CaseHistory, record: LogRecord) -> tuple[str, str]:
    """Return the algorithm and the protocol of a call, and why they are unknown."""
    outcome = history.outcome
    if outcome.executed in (None, UNKNOWN):
        return UNKNOWN, outcome.evidence or _WITHOUT_LOG
    case = outcome.case
    nbytes = outcome.bytes or 0
    members = _members(history.attempt)
    lines = record.lines_of_case(case.collective, nbytes, members, dtype=case.dtype, op=case.op)
    protocols = [line.protocol for line in lines]
    words = dict.fromkeys(filter(None, (outcome.executed, *protocols)))
    return ", ".join(words), ""
