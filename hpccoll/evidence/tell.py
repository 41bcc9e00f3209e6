"""What logs say, in words for people: any log of NCCL, UCC or libsharp, of this project's runs or of others."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.evidence import topology
from hpccoll.evidence.asked import requested_of
from hpccoll.evidence.read import read_logs
from hpccoll.evidence.records import Ran, Record
from hpccoll.evidence.verdict import Verdict, counted, red_line, verdict
from hpccoll.units import format_seconds, format_size

_MOST_MODELLED = 3
"""Pairs of algorithm and protocol that are named of the cost model, the fastest for large messages."""


@dataclass(frozen=True, slots=True)
class Told:
    """Logs and dumps of one launch.

    Args:
        record: of the logs.
        dumps: what NCCL's dumps say in words, by file: of GPUs and NICs, and of what its search found.
    """

    record: Record
    dumps: Mapping[str, str]


def read_files(paths: Iterable[Path]) -> Told:
    """Read logs, and dumps of NCCL's topology and graphs (``*.xml``) beside them; of a directory all files in it.

    Raises:
        BadInputError: where there is nothing to read, or a file cannot be.
    """
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    texts: dict[str, str] = {}
    for file in files:
        if not file.is_dir():
            try:
                texts[str(file)] = file.read_text(errors="replace")
            except OSError as error:
                raise BadInputError("log", str(file), f"a file that can be read ({error.strerror})") from None
    if not texts:
        raise BadInputError("log", ", ".join(map(str, paths)), "files of a log, or a directory that holds some")
    dumps = {name: text for name, text in texts.items() if name.endswith(".xml")}
    logs = {name: text for name, text in texts.items() if name not in dumps}
    return Told(read_logs(logs), {name: words for name, text in dumps.items() for words in _dumped(text)})


def _dumped(text: str) -> Iterator[str]:
    """Yield what a dump says; nothing, where it is a file of somebody else."""
    with suppress(ValueError):
        yield topology.balance(topology.of_dump(text))
    with suppress(ValueError):
        yield topology.search(topology.graphs(text))


def judged(record: Record) -> Iterator[tuple[Ran, str | None, Verdict]]:
    """Yield what ran, what the settings that the log names asked for, and what it comes to."""
    ranks = record.ranks or 1
    for one in record.ran:
        requested = requested_of(record.settings, one.collective)
        # The size of a case, from what the library counts of it.
        nbytes = (one.bytes or 0) * ranks // counted(record.library, one.collective, ranks, ranks)
        yield one, requested, verdict(requested, one.collective, nbytes, ranks, record, dtype=one.dtype, op=one.op)


def lines(told: Told, expected: str | None = None) -> Iterator[str]:
    """Yield what there is to say, the most alarming first.

    Args:
        told: what was read.
        expected: ``rdma`` or ``tcp`` between nodes, None for either.
    """
    record = told.record
    if red := red_line(record, expected):
        yield f"RED: {red}"
    if record.library is None:
        yield "no line of NCCL, UCC or libsharp: NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,COLL"
        return
    yield _head(record)
    yield from _network(record)
    for name, found in (("plugins", record.plugins), ("settings", record.settings)):
        if found:
            yield f"{name}: {', '.join(f'{key}={value}' for key, value in found.items())}"
    yield from _ran(record)
    for name, shown in (("NVLS", record.nvls), ("CollNet", record.collnet), ("SHARP", record.sharp)):
        if shown:
            yield f"{name}: {shown[-1]}"
    for refusal in record.refusals:
        yield f"not done: {': '.join(dict.fromkeys((refusal.of, refusal.reason, refusal.line)))}"
    yield from (f"may be chosen: {score}" for score in record.scores)
    yield from _model(record)
    yield from (f"{name}: {words}" for name, words in told.dumps.items())
    yield from (f"warning: {warning}" for warning in record.warnings)


def to_json(told: Told, expected: str | None = None) -> str:
    """Return the record, what it comes to for each collective that ran, and what dumps say, as JSON."""
    executed = [
        {
            "collective": one.collective, "bytes": one.bytes, "dtype": one.dtype, "op": one.op, "requested": requested,
            "executed": made.executed, "evidence": made.words,
        }
        for one, requested, made in judged(told.record)
    ]  # fmt: skip
    whole = {"record": json.loads(told.record.to_json()), "executed": executed, "dumps": dict(told.dumps)}
    return json.dumps({"red": red_line(told.record, expected), **whole}, indent=1)


def _head(record: Record) -> str:
    version = f" {record.version}" if record.version else ""
    ranks = f", {record.ranks} ranks" if record.ranks else ""
    nodes = f" on {record.nodes} node{'s' * (record.nodes > 1)}" if record.nodes else ""
    return f"{record.library}{version}{ranks}{nodes}"


def _network(record: Record) -> Iterator[str]:
    if record.network:
        ports = f" with {', '.join(record.devices)}" if record.devices else ""
        yield f"network: {', '.join(record.network)}{ports}"
    if record.paths:
        yield f"channels: {', '.join(f'{count} via {path}' for path, count in record.paths.items())}"
    if record.gdr is not None:
        yield f"GPUDirect RDMA: {'on all channels' if record.gdr else 'not on all channels'}"


def _ran(record: Record) -> Iterator[str]:
    for one, requested, made in judged(record):
        size = "" if one.bytes is None else f" of {format_size(one.bytes)}"
        what = " ".join(filter(None, (one.dtype, one.op)))
        channels = f"in {one.channels} channel{'s' * (one.channels > 1)}" if one.channels else ""
        how = " ".join(filter(None, (one.protocol, channels)))
        words = [made.executed, *([how] if how else []), *([f"asked for {requested}"] if requested else [])]
        because = f": {made.words}" if made.executed == "unknown" else ""
        yield f"{one.collective}{size}{f' ({what})' if what else ''}: {', '.join(words)}{because}"


def _model(record: Record) -> Iterator[str]:
    of = [one for one in record.model if one.collective == "all_reduce"]
    for one in sorted(of, key=lambda one: -one.bytes_per_s)[:_MOST_MODELLED]:
        speed = f"{one.bytes_per_s / 1e9:.1f} GB/s after {format_seconds(one.latency_s)}"
        yield f"NCCL reckons with: {one.collective} {one.algorithm} {one.protocol}: {speed}"
