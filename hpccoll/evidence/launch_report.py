"""The words in which a record is told to people, most alarming first."""

from collections.abc import Iterable, Iterator

from hpccoll.evidence.log_record import CollectiveLine, LogRecord, Unavailable
from hpccoll.evidence.verdict import NETWORKS, Verdict, network_mismatch
from hpccoll.units import format_seconds, format_size

_MOST_MODELLED = 3
"""Pairs of algorithm and protocol that are named of the cost model, the fastest for large messages."""

_LIBRARIES = {"nccl": "NCCL", "ucc": "UCC", "sharp": "libsharp alone, as under HCOLL and MVAPICH"}
"""By the word of a record."""

_SILENT = {
    "nccl": (
        "no line says what: NCCL says it from 2.20 on, in the log of rank 0, with NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,"
        "TUNING,COLL; before 2.24 not of calls in groups, nor before 2.22 where a tuner plugin has chosen"
    ),
    "ucc": "no line says what: UCC_COLL_TRACE=info has UCC say it",
    "sharp": "no line says what: HCOLL and MVAPICH never do; the bytes of ports tell, which hpccoll run counts",
}
"""What to do where a library does not say which collectives it carried out."""

_WAYS = {
    "NET": "between nodes", "GDRDMA": "straight from the memory of a GPU", "PXN": "by the NIC of another GPU",
    "P2P": "between GPUs of a node", "SHM": "by memory of the host", "COLLNET": "by switches between nodes",
}  # fmt: skip
"""What the words of a channel's way mean."""

_REFUSED = {
    "sharp": "SHARP", "sharp-dtypes": "SHARP for some dtypes", "plugin": "a network plugin", "nvls": "NVLS",
    "algorithm": "what was forced", "rdma": "RDMA", "gdr": "GPUDirect RDMA", "gpu": "a communicator",
}  # fmt: skip
"""What there was not, by the word of a refusal."""


def lines_of(
    record: LogRecord, judged: Iterable[tuple[CollectiveLine, str | None, Verdict]], expected: str | None
) -> Iterator[str]:
    """Yield what there is to say of one launch.

    Args:
        record: of it.
        judged: what ran, what was asked for, and what it comes to.
        expected: ``rdma`` or ``tcp`` between nodes, None for either.
    """
    if red := network_mismatch(record, expected):
        yield f"RED: {red}"
    yield _head(record)
    yield from _network(record, expected)
    for name, found in (
        ("plugins", record.plugins),
        ("set by the environment or files", record.settings),
        ("communicators are made with", record.communicator),
    ):
        if found:
            yield f"{name}: {', '.join(f'{key}={value}' for key, value in found.items())}"
    ran = [_ran(record, *one) for one in judged]
    yield from ran or [f"ran: {_SILENT[str(record.library)]}"]
    for name, shown in (
        ("NVLS is there", record.nvls),
        ("CollNet is connected", record.collnet),
        ("SHARP has a group", record.sharp),
    ):
        if shown:
            yield f"{name}: {shown[-1]}"
    yield from map(_refused, record.unavailable)
    yield from (f"UCC may choose SHARP, by bytes:layer:score, for {score}" for score in record.scores)
    yield from _model(record)
    told = {refusal.line for refusal in record.unavailable}
    yield from (f"warning: {warning}" for warning in record.warnings if warning not in told)


def _head(record: LogRecord) -> str:
    version = f" {record.version}" if record.version else ""
    ranks = f", {record.ranks} ranks" if record.ranks else ""
    nodes = f" on {record.nodes} node{'s' * (record.nodes > 1)}" if record.nodes else ""
    return f"{_LIBRARIES[str(record.library)]}{version}{ranks}{nodes}"


def _network(record: LogRecord, expected: str | None) -> Iterator[str]:
    """Yield which network was used, whether that is what was meant, and how channels go."""
    if used := record.network_type:
        names = ", ".join(record.network) or "Socket"
        ports = f": {', '.join(record.devices)}" if record.devices else ""
        yield f"network between nodes: {NETWORKS[used]} ({names}{ports}){_meant(record, used, expected)}"
    elif expected and record.nodes != 1:
        yield f"network between nodes: no line names it; whether it was {NETWORKS[expected]}, as expected, is unknown"
    if record.paths:
        ways = ", ".join(f"{count} {path}" for path, count in record.paths.items())
        said = {part for path in record.paths for part in path.split("/")}
        legend = ", ".join(f"{word} {words}" for word, words in _WAYS.items() if word in said)
        yield f"channels that were set up: {ways}{f' ({legend})' if legend else ''}"
    if record.gdr is not None:
        some = any("GDRDMA" in path for path in record.paths if path.startswith("NET/"))
        yield f"GPUDirect RDMA: on {'all channels' if record.gdr else 'some channels' if some else 'no channel'} of NET"


def _meant(record: LogRecord, used: str, expected: str | None) -> str:
    if record.nodes == 1:
        return "; unused, all ranks are on one node"
    if expected is None:
        return "; --network rdma or --network tcp says which was expected"
    return ", as expected" if used == expected else ", which was not expected"


def _ran(record: LogRecord, one: CollectiveLine, requested: str | None, made: Verdict) -> str:
    each = " a rank" * record.counts_per_rank(one.collective)
    size = "" if one.bytes is None else f" of {format_size(one.bytes)}{each}"
    what = " ".join(filter(None, (one.dtype, one.op)))
    told = one.protocol and one.protocol not in made.executed
    protocol = f"{'in layer' if record.library == 'ucc' else 'protocol'} {one.protocol}" if told else ""
    channels = f"{one.channels} channel{'s' * (one.channels > 1)}" if one.channels else ""
    asked = f"{requested} was asked for" if requested else ""
    said = ", ".join(filter(None, (made.executed, protocol, channels, asked)))
    return f"ran: {one.collective}{size}{f' ({what})' if what else ''}: {said}"


def _refused(refusal: Unavailable) -> str:
    line = "" if refusal.line == refusal.reason else f" ({refusal.line})"
    return f"without {_REFUSED.get(refusal.feature, refusal.feature)}: {refusal.reason}{line}"


def _model(record: LogRecord) -> Iterator[str]:
    of = [one for one in record.model if one.collective == "all_reduce"]
    for one in sorted(of, key=lambda one: -one.bytes_per_s)[:_MOST_MODELLED]:
        speed = f"{one.bytes_per_s / 1e9:.1f} GB/s after {format_seconds(one.latency_s)}"
        yield f"NCCL's own model, no measurement: all_reduce by {one.algorithm} {one.protocol}: {speed}"
