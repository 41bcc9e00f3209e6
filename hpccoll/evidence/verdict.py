"""The verdict on what ran: a row is labelled SHARP only with evidence, and ``unknown`` without any."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpccoll.cases.library_request import NCCL_ALGORITHMS, SWITCH_ALGORITHMS, SWITCH_REQUESTS
from hpccoll.common.text import first_few, join_words
from hpccoll.common.units import format_count, format_cpu_list, format_size
from hpccoll.evidence.expected_evidence import has_needed_tree, names_switches
from hpccoll.evidence.fallback_reasons import reason_ranks
from hpccoll.evidence.host_differences import VERSION
from hpccoll.evidence.log_record import (
    NCCL_LIBRARIES,
    CollectiveLine,
    CollectiveTimeout,
    LogRecord,
    Unavailable,
    UnfinishedCommunicator,
)
from hpccoll.evidence.port_bytes import PortBytes

UNKNOWN = "unknown"
NETWORKS = {"rdma": "RDMA", "tcp": "TCP"}
"""The networks between nodes, and their names for people."""

OFFLOADED = ("sharp", "nvls", "nvls_tree", "symmetric_multicast", *SWITCH_ALGORITHMS)
"""First words of ``executed`` for which switches reduce: links carry less, and busbw is notional."""

_RELEVANT_FEATURES = {
    **dict.fromkeys(SWITCH_REQUESTS, ("sharp", "plugin", "algorithm")),
    **dict.fromkeys(("nvls", "nvls_tree"), ("nvls", "algorithm")),
}
"""For each request, the unavailable features that can explain why something else ran."""

_NEW_DTYPES = ("int8", "uint8", "bfloat16")
"""Element types that older switches cannot reduce."""

MISSING_STREAMING_TREE = (
    "no group of ranks has a streaming-aggregation tree (tree_type:SAT), which SHARP uses above 16 KiB, and for "
    "reduce_scatter and all_gather of any size"
)
STREAMING_REMEDY = "no line says why; SHARP_COLL_ENABLE_SAT=1 requests one"

MAX_HOSTS = 8
"""How many hosts a finding names."""

_MAX_SIZES = 8
"""How many of the logged sizes a message names."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ran in a case, and the evidence for it, such as the log line.

    ``executed`` has the reason of a fallback: ``ring``, ``sharp (collnet_direct)``,
    ``ring (fallback: <line>)``.
    """

    executed: str
    evidence: str


def judge_collective(
    requested: str | None,
    collective: str,
    nbytes: int,
    ranks: int,
    record: LogRecord,
    *,
    dtype: str | None = None,
    op: str | None = None,
    memory: str | None = None,
    nodes: int | None = None,
    port_bytes: float | None = None,
    port_packets: float | None = None,
) -> Verdict:
    """Return the verdict on one case of S = ``nbytes`` on ``ranks`` ranks, from the logs of a like launch.

    ``requested`` is the request to the library in one word; None if the library had the choice.
    Which lines are about the case follows from ``LogRecord.lines_of_case``. ``port_bytes`` and
    ``port_packets`` are what all ports of a node sent per operation; None if that was not counted.
    """
    nodes = nodes or record.nodes
    ports = PortBytes(
        nbytes, ranks, nodes, port_bytes if collective == "all_reduce" else None, port_packets
    )
    size = record.logged_bytes(collective, nbytes, ranks)
    ran = record.lines_of_case(collective, nbytes, ranks, dtype=dtype, op=op, memory=memory)
    kinds = {line.algorithm: line for line in ran}
    if len(kinds) > 1:
        case = collective
        if size is not None:
            case += f" of {format_size(nbytes)}"
        lines = "; ".join(line.line for line in ran)
        return Verdict(UNKNOWN, f"the log names {' and '.join(kinds)} for {case}: {lines}")
    if not kinds:
        reasons = unavailable_reasons(requested, record, dtype)
        return _judge_without_line(requested, collective, size, record, ports, reasons)
    return judge_line(next(iter(kinds.values())), requested, record, dtype=dtype, ports=ports)


def judge_line(
    line: CollectiveLine,
    requested: str | None,
    record: LogRecord,
    *,
    dtype: str | None = None,
    ports: PortBytes | None = None,
) -> Verdict:
    """Return the verdict on one line of ``record``, regardless of other lines about the same size.

    The arguments are those of ``judge_collective``; ``ports`` are the counted bytes.
    """
    name = line.algorithm
    if ports is None:
        ports = PortBytes(line.bytes or 0, record.ranks or 1, record.nodes, None)
    nodes = record.nodes or ports.nodes or 1  # NCCL counts hosts of one NVLink domain as one node
    if names_switches(line) or (name == "nvls" and nodes > 1):
        return _judge_switches(name, line, record, ports)
    is_named_by_algorithm = name in NCCL_ALGORITHMS.values()
    # registered windows: symmetric, copy_engine...
    if record.library in NCCL_LIBRARIES and not is_named_by_algorithm:
        kind = name
        # Kernels with MC in their names store or load by multicast: NVLink switches copy or reduce.
        if name == "symmetric" and "MC" in (line.protocol or ""):
            kind = f"{name}_multicast"
        return Verdict(f"{kind} ({line.protocol})", f"{line.line}; NCCL_ALGO does not apply to it")
    if requested in (None, name):
        return Verdict(name, line.line)
    reason = next(iter(unavailable_reasons(requested, record, dtype)), "no line says why")
    evidence = line.line
    if requested in SWITCH_REQUESTS and ports.is_significant:
        evidence += f"; {ports}"
    return Verdict(f"{name} (fallback: {reason})", evidence)


def _judge_switches(
    name: str, line: CollectiveLine, record: LogRecord, ports: PortBytes
) -> Verdict:
    """Judge a line whose algorithm needs SHARP: SHARP's own lines must confirm it, and ports must not contradict it."""
    if not record.sharp:
        return Verdict(
            f"{name} (not shown to be SHARP)", f"{line.line}; SHARP itself logged no line"
        )
    if record.library == "ucc" and not has_needed_tree(line, record):
        refused = _line_of_feature("sharp", record) or STREAMING_REMEDY
        return Verdict(UNKNOWN, f"{line.line}; {MISSING_STREAMING_TREE}; {refused}")
    if ports.contradicts_sharp:
        return Verdict(UNKNOWN, f"{line.line}; but {ports}")
    executed = "sharp" if name == "sharp" else f"sharp ({name})"
    return Verdict(executed, f"{line.line}; {record.sharp[-1]}; {ports}")


def _line_of_feature(feature: str, record: LogRecord) -> str | None:
    """Return the first line that says why a feature is unavailable; None without one."""
    for unavailable in record.unavailable:
        if unavailable.feature == feature:
            return unavailable.line
    return None


def _judge_without_line(
    requested: str | None,
    collective: str,
    size: int | None,
    record: LogRecord,
    ports: PortBytes,
    reasons: list[str],
) -> Verdict:
    """Judge a case without a line: HCOLL and MVAPICH log no single calls, so that port counters must show SHARP."""
    if requested == "sharp" and record.trees and not record.collectives:
        calls = "no line names the calls that it carried out"
        counted = f"port counters cannot distinguish SHARP for {collective}"
        if collective == "all_reduce":
            counted = str(ports)
        executed = "sharp" if ports.proves_sharp else UNKNOWN
        return Verdict(executed, f"{record.sharp[-1]}; {calls}; {counted}")
    evidence = f"no line names {collective}"
    if size is not None:
        evidence += f" of {size} bytes"
    evidence += _other_lines(collective, size, record)
    if requested and reasons:
        evidence += f"; {reasons[0]}"
    return Verdict(UNKNOWN, evidence)


def _other_lines(collective: str, size: int | None, record: LogRecord) -> str:
    """Return which calls of a collective lines name instead: others of this size, or of other sizes; may be empty."""
    lines = [line for line in record.collectives if line.collective == collective]
    sizes = sorted({line.bytes for line in lines if line.bytes is not None})
    if size in sizes:
        types = dict.fromkeys(f"{line.dtype} {line.op}" for line in lines if line.bytes == size)
        return f" with this dtype and op, only with {', '.join(types)}"
    if not sizes:
        return ""
    named = ", ".join(map(str, sizes[:_MAX_SIZES]))
    if len(sizes) > _MAX_SIZES:
        named += "..."
    return f", only of {named} bytes"


def unavailable_reasons(requested: str | None, record: LogRecord, dtype: str | None) -> list[str]:
    """Return the lines that explain why the requested algorithm did not run, the most specific one first."""
    features = _RELEVANT_FEATURES.get(requested or "", ("algorithm",))
    if "sharp" in features and dtype in _NEW_DTYPES:
        features = ("sharp-dtypes", *features)
    ranks = reason_ranks()

    def precedence(unavailable: Unavailable) -> tuple[int, int]:
        rank = ranks.get((unavailable.feature, unavailable.reason), len(ranks))
        return features.index(unavailable.feature), rank

    relevant = [
        unavailable for unavailable in record.unavailable if unavailable.feature in features
    ]
    return [unavailable.line for unavailable in sorted(relevant, key=precedence)]


def network_mismatch(record: LogRecord, expected: str | None) -> str | None:
    """Return a sentence if the nodes used another network than expected, ``rdma`` or ``tcp``, else None."""
    used = record.network_type
    if record.nodes == 1 or expected is None or used is None or used == expected:
        return None
    names = ", ".join(record.network) or "Socket"
    library = (record.library or "nccl").upper()
    sentence = f"{NETWORKS[expected]} was expected and {NETWORKS[used]} was used ({library}: using network {names})"
    reason = _line_of_feature("rdma", record)
    if used == "tcp" and reason is not None:
        sentence += f": {reason}"
    return sentence


def failures(record: LogRecord) -> Iterator[str]:
    """Yield a sentence for each failure of the library itself."""
    for failure in record.failures:
        event = "a call failed"
        if failure.kind == "communicator":
            event = "a communicator was not created"
        if failure.hosts:
            event += f" on {hosts_text(failure.hosts)}"
        if failure.processes > 1:
            event += f" (in {failure.processes} processes)"
        cause = failure.cause or "no warning says why"
        yield f"{event}: {cause} ({failure.callers})"
    yield from _version_sentences(record)
    yield from map(_unfinished_sentence, record.unfinished)
    for timeout in record.timeouts:
        yield _timeout_sentence(timeout, alone=len(record.timeouts) == 1)
    for unavailable in record.unavailable:
        if unavailable.feature == "ucc" and not record.collectives:
            yield f"UCC is not used: {unavailable.reason} ({unavailable.line})"


def _version_sentences(record: LogRecord) -> Iterator[str]:
    """Yield that hosts have several versions of the library, if a communicator was not created."""
    has_failed_creation = any(failure.kind == "communicator" for failure in record.failures)
    if len(record.versions) < 2 or not has_failed_creation:
        return
    named = []
    for difference in record.host_differences:
        if difference.fact == VERSION:
            for version, hosts in difference.hosts.items():
                named.append(f"{version} on {hosts_text(hosts)}")
    library = (record.library or "nccl").upper()
    versions = "; ".join(named) or f"{join_words(record.versions)}, and no line names their hosts"
    yield f"the processes have different versions of {library}: {versions}; do: give all hosts one version"


def _timeout_sentence(timeout: CollectiveTimeout, *, alone: bool) -> str:
    """Return a sentence about an operation in which PyTorch's watchdog timed out, and whom to look at.

    It is ``alone`` if no rank timed out in another operation.
    """
    operation = f"{timeout.operation} {timeout.number}"
    sentence = (
        f"{_ranks_text(timeout.ranks)} timed out in {operation} after "
        f"{timeout.timeout_s:g} s (PyTorch's watchdog)"
    )
    if timeout.silent is None:
        return f"{sentence}; look at the ranks of the group that did not report a timeout"
    if not timeout.silent:
        why = "they wait in different operations"
        if alone:
            why = "a GPU or the network is stuck, or a rank came too late"
        return f"{sentence}; all ranks of the job report a timeout: {why}"
    silent = _ranks_text(timeout.silent)
    if timeout.silent_hosts:
        silent += f" on {hosts_text(timeout.silent_hosts)}"
    return f"{sentence}; look at {silent}, which did not report a timeout"


def hosts_text(hosts: Sequence[str]) -> str:
    """Return the first names of hosts, and how many more there are."""
    return ", ".join(first_few(hosts, MAX_HOSTS, "host"))


def _unfinished_sentence(communicator: UnfinishedCommunicator) -> str:
    """Return a sentence about a communicator that was begun and not completed, as in a hang before the first call."""
    begun, incomplete = communicator.begun, communicator.incomplete
    sentences = [
        f"{_ranks_text(begun)} began the communicator {communicator.name} of {format_count(communicator.size, 'rank')}"
    ]
    if incomplete == begun:
        sentences.append("none of them completed it")
    else:
        sentences.append(f"{_ranks_text(incomplete)} did not complete it")
    silent = sorted({*range(communicator.size)} - {*begun})
    if silent:
        sentences.append(f"of {_ranks_text(silent)} no line says that it began")
    return f"{', '.join(sentences)}: the job hung, or its log ends too early"


def _ranks_text(ranks: Sequence[int]) -> str:
    noun = "ranks" if len(ranks) > 1 else "rank"
    return f"{noun} {format_cpu_list(ranks)}"
