"""What logs say, in words for people: any log of NCCL, UCC or libsharp, of this project's runs or of others."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccoll.errors import BadInputError
from hpccoll.evidence import topology
from hpccoll.evidence.launch_report import lines_of
from hpccoll.evidence.launches import Launch, split_launches
from hpccoll.evidence.log_lines import has_header, messages
from hpccoll.evidence.log_record import CollectiveLine, LogRecord
from hpccoll.evidence.log_set import SETTINGS, record_of
from hpccoll.evidence.requested import requested_by_environment
from hpccoll.evidence.verdict import Verdict, judge_line, network_mismatch
from hpccoll.files import read_lines, read_text
from hpccoll.limits import LOG_BYTES, LOG_HEAD_BYTES, XML_BYTES

A_LOG = (
    "a log of NCCL (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,COLL), of UCC (UCC_COLL_TRACE=info "
    "UCC_LOG_LEVEL=info) or of libsharp (SHARP_COLL_LOG_LEVEL=3): no line of it begins as theirs do"
)
"""What can be read, and the variables that have it written."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """One launch.

    Args:
        logs: the names of those that have lines of it.
        record: what they say.
    """

    logs: tuple[str, ...]
    record: LogRecord

    def judged(self) -> Iterator[tuple[CollectiveLine, str | None, Verdict]]:
        """Yield what ran, what the settings that the log names asked for, and what it comes to."""
        for one in self.record.collectives:
            requested = requested_by_environment(self.record.settings, one.collective, self.record.communicator)
            yield one, requested, judge_line(one, requested, self.record, dtype=one.dtype)


@dataclass(frozen=True, slots=True)
class LogSet:
    """What was read.

    Args:
        launches: that the logs are of.
        dumps: what NCCL's dumps say in words, by file: of GPUs and NICs, and of what its search found.
    """

    launches: tuple[LaunchReport, ...]
    dumps: Mapping[str, str]


def read_files(paths: Iterable[Path]) -> LogSet:
    """Read logs, and dumps of NCCL's topology and graphs (``*.xml``); of a directory all files in it that are such.

    Raises:
        BadInputError: where there is nothing to read, a file cannot be read, or one that is named is nothing of this.
    """
    named = [str(path) for path in paths]
    files = dict.fromkeys(str(file) for path in named for file in _files(Path(path)))
    if not files:
        raise BadInputError("log", ", ".join(named), "files of a log, or a directory that holds some")
    texts = {name: _text(name) for name in files if name.endswith((".xml", SETTINGS))}
    dumps = {name: words for name, text in texts.items() if name.endswith(".xml") for words in _dumped(text)}
    settings = {name: text for name, text in texts.items() if name.endswith(SETTINGS)}
    logs = {name: [*messages(_log(name))] for name in files if name not in texts}
    found = split_launches(logs)
    known = {*dumps, *settings, *(name for launch in found for name in launch)}
    strange = [name for name in named if name in files and name not in known]
    if strange or not (found or dumps):
        raise BadInputError("log", ", ".join(strange or named), A_LOG)
    return LogSet(tuple(_told(launch, settings, logs) for launch in found), dumps)


def _files(path: Path) -> list[Path]:
    """Return a file, or those of a directory."""
    return [file for file in sorted(path.iterdir()) if file.is_file()] if path.is_dir() else [path]


def _text(name: str) -> str:
    return read_text(Path(name), "log", XML_BYTES, errors="replace")


def _log(name: str) -> Iterator[str]:
    """Yield the lines of a log; of a file of something else, which may be large, no more than its head."""
    read, known = 0, False
    for line in read_lines(Path(name), "log", LOG_BYTES):
        read += len(line)
        known = known or has_header(line)
        if not known and read > LOG_HEAD_BYTES:
            return
        yield line


def _told(launch: Launch, settings: Mapping[str, str], logs: Iterable[str]) -> LaunchReport:
    """Return what a launch says. Files of settings are of the logs beside them; those that lie elsewhere of all."""
    mine, any_logs = ({Path(name).parent for name in names} for names in (launch, logs))
    of_others = any_logs - mine
    own = {name: text for name, text in settings.items() if Path(name).parent not in of_others}
    return LaunchReport(tuple(launch), record_of((line for lines in launch.values() for line in lines), own))


def _dumped(text: str) -> Iterator[str]:
    """Yield what a dump says; nothing, where it is a file of somebody else."""
    with suppress(ValueError):
        yield topology.describe_balance(topology.parse_topology_dump(text))
    with suppress(ValueError):
        yield topology.describe_graphs(topology.parse_graph_dump(text))


def network_mismatches(read: LogSet, expected: str | None) -> list[str]:
    """Return a sentence for each launch whose nodes did not talk by what was expected."""
    return [said for told in read.launches if (said := network_mismatch(told.record, expected))]


def lines(read: LogSet, expected: str | None = None) -> Iterator[str]:
    """Yield what there is to say, what is alarming first.

    Args:
        read: what was read.
        expected: ``rdma`` or ``tcp`` between nodes, None for either.
    """
    several = len(read.launches) > 1
    red = [
        (number, said)
        for number, told in enumerate(read.launches, 1)
        if (said := network_mismatch(told.record, expected))
    ]
    yield from (f"RED in launch {number}: {said}" for number, said in red if several)
    for number, told in enumerate(read.launches, 1):
        if several:
            first, *others = told.logs
            more = f" and {len(others)} more logs" if len(others) > 1 else f" and {others[0]}" if others else ""
            blank = "\n" if red or number > 1 else ""
            yield f"{blank}== launch {number} of {len(read.launches)}: {first}{more}"
        yield from lines_of(told.record, told.judged(), expected)
    yield from (f"{name}: {words}" for name, words in read.dumps.items())


def to_json(read: LogSet, expected: str | None = None) -> str:
    """Return each launch with its record and what it comes to for each collective that ran, and the dumps, as JSON."""
    return json.dumps(
        {"launches": [_as_json(told, expected) for told in read.launches], "dumps": dict(read.dumps)}, indent=1
    )


def _as_json(told: LaunchReport, expected: str | None) -> dict[str, Any]:
    return {
        "logs": list(told.logs),
        "red": network_mismatch(told.record, expected),
        "network": told.record.network_type,
        "record": json.loads(told.record.to_json()),
        "executed": [
            {
                "collective": one.collective, "bytes": one.bytes, "dtype": one.dtype, "op": one.op,
                "requested": requested, "executed": made.executed, "evidence": made.evidence,
            }
            for one, requested, made in told.judged()
        ],
    }  # fmt: skip
