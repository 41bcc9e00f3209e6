"""What rank 0 prints about GPUs and NCCL: first what was found, last what ran, with the evidence for it.

All of it comes from the record of the attempt, which raw files keep.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from hpccoll.cases.case import Job
from hpccoll.common.text import join_ends
from hpccoll.common.units import format_size
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_settings import PROBE_REMEDY
from hpccoll.evidence.nic_gpu_affinity import NearestNics, describe_balance
from hpccoll.evidence.nvlink_racks import nvlink_sentence
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule import WORKLOADS, collective
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.raw_results import Attempt, CaseHistory, RawResults

MAX_NAMES = 8
"""The number of adapters of a node that are named."""

_NVLS_REASON = "NCCL logs nothing about it: fewer than 3 GPUs a node, no NVSwitch, or NCCL_NVLS_ENABLE=0"
_WITHOUT_LOG = f"no log of NCCL was read (train reads none, nor does run with NCCL_DEBUG set); do: {PROBE_REMEDY}"


def found_lines(attempt: Attempt) -> Iterator[str]:
    """Yield what the GPUs, their links and adapters, and NCCL are, and whether NVLS and SHARP are possible.

    Nothing is yielded if no case runs on a GPU. Hosts that have the same share a line.
    """
    found = cast("Sequence[Mapping[str, Any]]", attempt.provenance.get("gpus") or ())
    hosts = sum(len(group["hosts"]) for group in found)
    yield from _by_text("GPUs", hosts, ((_describe_gpus(group["gpus"]), group["hosts"]) for group in found))
    yield from _by_text("NICs", hosts, ((_describe_nics(group["gpus"]), group["hosts"]) for group in found))
    if nvlink := nvlink_sentence(_nvlink_domains(found), {place.host: place.rack for place in attempt.places}):
        yield f"NVLink: {nvlink}"
    floors = cast("Sequence[float | None]", attempt.provenance.get("event_floor_ns_of_rank") or ())
    if known := [floor for floor in floors if floor is not None]:
        yield f"events of GPUs: two in a row take up to {max(known) / 1e3:.2f} us, which every device_s contains"
    libraries = cast("Sequence[Mapping[str, Any]]", attempt.provenance.get("nccl") or ())
    if not libraries:
        return
    texts = ((f"{group['library']['version']} ({', '.join(group['library']['files'])})", group) for group in libraries)
    yield from _by_text("NCCL", hosts, ((text, group["hosts"]) for text, group in texts))
    probed = _probe_result(attempt)
    if probed.record is None:
        why = f"the probe {probed.failure}" if probed.failure else _WITHOUT_LOG
        yield f"network, NVLS and SHARP: unknown, {why}"
        return
    record = probed.record
    if record.network:
        yield f"network of NCCL: {', '.join((*record.network, *record.devices))}"
    yield f"NVLS: {_availability(record, 'nvls', record.nvls) or f'unknown, {_NVLS_REASON}'}"
    yield f"SHARP: {_sharp(record, attempt.nodes)}"


def _nvlink_domains(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the NVLink domain of each host whose GPUs all have the same one."""
    domains: dict[str, str] = {}
    for group in found:
        names = {gpu.get("nvlink_domain") for gpu in group["gpus"]}
        name = names.pop() if len(names) == 1 else None
        domains |= dict.fromkeys(group["hosts"], name or "")
    return domains


def _by_text(name: str, count: int, described: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield a line for each text, with the hosts that it is about unless it is about all ``count`` of them."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for text, members in described:
        hosts[text] += members
    for text, members in hosts.items():
        where = f" of {members[0]}" if len(members) == 1 else f" of {len(members)} nodes, among them {members[0]}"
        yield f"{name}{where if len(members) < count else ''}: {text}"


def _describe_gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    names = Counter(gpu.get("name") or "GPU (NVML does not name it)" for gpu in gpus)
    links = {gpu.get("nvlinks") for gpu in gpus} - {None}
    counts = " or ".join(sorted(map(str, links)))
    facts = [f"{' and '.join(f'{count} x {name}' for name, count in names.items())} a node"]
    facts += [f"{counts} NVLinks each" if links != {0} else "no NVLink"] if links else []
    for name, key in (("driver", "driver"), ("CUDA", "cuda")):
        facts += [f"{name} {gpus[0][key]}"] if gpus[0].get(key) else []
    return ", ".join(facts)


def _describe_nics(gpus: Sequence[Mapping[str, Any]]) -> str:
    near = [
        NearestNics(number, gpu["nics"]["distance"], tuple(gpu["nics"]["names"]), gpu.get("nvlinks"))
        for number, gpu in enumerate(gpus)
        if gpu.get("nics")
    ]
    if not near:
        return "no RDMA adapter in sysfs"
    names = sorted({nic for each in near for nic in each.nics})
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}; {describe_balance(near)}"


def _probe_result(attempt: Attempt) -> ProbeResult:
    return ProbeResult.from_json(attempt.evidence) if attempt.evidence else ProbeResult()


def _availability(record: LogRecord, feature: str, lines: Sequence[str]) -> str:
    """Return whether the log shows a feature, and why it is unavailable; empty if the log does not name it."""
    possible = f"possible ({lines[0]})" if lines else ""
    refused = next((each for each in record.unavailable if each.feature == feature), None)
    if refused is None:
        return possible
    return f"{f'{possible}, but' if possible else 'not possible,'} {refused.reason} ({refused.line})"


def _sharp(record: LogRecord, nodes: int) -> str:
    requested = {record.settings.get("NCCL_COLLNET_ENABLE"), record.communicator.get("collnet_enable")} - {None, "0"}
    if nodes == 1:
        return "not possible on one node, because the switches between nodes reduce"
    if named := _availability(record, "sharp", record.sharp):
        return named
    if requested:
        return "unknown, it was requested, and no line says what became of it"
    return "not requested; do: --variant nccl-sharp"


def executed_lines(raw: RawResults) -> Iterator[str]:
    """Yield for each call of NCCL what it ran as, by ranges of sizes, the largest sizes first.

    The algorithm and the protocol are those of NCCL's own lines about calls of these sizes (subsystem TUNING).
    """
    by_call: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    records = {attempt.number: _probe_result(attempt).record or LogRecord() for attempt, _ in raw.attempts}
    for history in raw.histories():
        case, outcome = history.outcome.case, history.outcome
        exchanges = history.attempt.ranks - history.attempt.aggregators > 1
        called = case.algorithm == NATIVE and case.collective not in WORKLOADS
        if called and case.transport == "nccl" and outcome.timed and exchanges:
            what_ran, why = _what_ran(history, records[history.attempt.number])
            by_call[_call_name(raw.job, history)][outcome.bytes or case.bytes].setdefault(what_ran, why)
    for name, by_size in by_call.items():
        labels = [(" or ".join(labels), size, labels) for size, labels in sorted(by_size.items(), reverse=True)]
        parts = []
        for label, of_label in groupby(labels, lambda entry: entry[0]):
            sizes, (reasons, *_) = zip(*((size, reasons.values()) for _, size, reasons in of_label), strict=True)
            ends = join_ends(map(format_size, reversed(sizes)))
            at = "" if collective(name.split()[0]).token else f" {'from' if ' to ' in ends else 'at'} {ends}"
            parts.append(f"{label}{at}{''.join(f' ({reason})' for reason in reasons if reason)}")
        yield f"{name}: {'; '.join(parts)}"


def _call_name(job: Job, history: CaseHistory) -> str:
    case = history.outcome.case
    several = {(each.dtype, each.op) for each in job.cases if each.collective == case.collective}
    words = (case.collective, *((case.dtype, case.op or "") if len(several) > 1 else ()), job.variant or "")
    return f"{' '.join(filter(None, words))} by NCCL"


def _what_ran(history: CaseHistory, record: LogRecord) -> tuple[str, str]:
    case, outcome, attempt = history.outcome.case, history.outcome, history.attempt
    if outcome.executed in (None, UNKNOWN):
        return UNKNOWN, outcome.evidence or _WITHOUT_LOG
    lines = record.lines_of_case(
        case.collective, outcome.bytes or 0, attempt.ranks - attempt.aggregators, dtype=case.dtype, op=case.op
    )
    return ", ".join(dict.fromkeys(filter(None, (outcome.executed, *(line.protocol for line in lines))))), ""
