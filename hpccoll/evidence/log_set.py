"""Reading of logs of NCCL, libsharp and UCC: from any number of files, of one launch or of several.

Processes belong to one launch if NCCL logs that they share a communicator: it identifies each communicator by a hash of
its unique id (``commId 0x...``, subsystem INIT), which no two launches have in common. A process is identified by its
host and process id, in all logs that it writes. Messages of other processes belong to the launch of their log if that
log has exactly one launch, else to a launch of their own: that logs lie in one directory proves nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import read_lines, read_text, unpacking_hint
from hpccoll.common.limits import LOG_BYTES, LOG_HEAD_BYTES, XML_BYTES
from hpccoll.evidence import nccl, nic_gpu_affinity, sharp, torch_watchdog, ucc
from hpccoll.evidence.log_parser import (
    LogMessage,
    ParserState,
    Rule,
    apply_rules,
    has_header,
    split_messages,
    with_hosts_of_prefixes,
)
from hpccoll.evidence.log_record import LogRecord

RULES: Mapping[str | None, Sequence[Rule]] = {
    "nccl": nccl.RULES,
    "sharp": sharp.RULES,
    "ucc": ucc.RULES,
    None: (*nccl.BANNER_RULES, *torch_watchdog.RULES),
}
"""The rules for the messages of each library."""

CONFIG_SUFFIX = ".conf"
"""The suffix of NCCL's configuration files, such as /etc/nccl.conf, which NCCL reads without logging it."""

_LIBRARIES = ("nccl", "ucc", "sharp")
"""The order of libraries. If several of them log, the record names the first one here: the program called that one."""

_EXPECTED_LOG = (
    "a log of NCCL or RCCL (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,COLL), of UCC "
    "(UCC_COLL_TRACE=info UCC_LOG_LEVEL=info) or of libsharp (SHARP_COLL_LOG_LEVEL=3): no line of it begins as theirs "
    "do"
)
"""The valid input files, and the variables that make libraries write them."""

_COMMUNICATOR = re.compile(r"\bcommId 0x0*([1-9a-f][0-9a-f]*)\b")
"""The id of a communicator. A split has the id 0, and its parent another."""

LaunchMessages: TypeAlias = dict[str, list[LogMessage]]
"""The messages of one launch, by the name of their log."""

_Writer: TypeAlias = tuple[str, str]
"""A log and a process that writes it; the process is empty for lines without a header."""


@dataclass(frozen=True, slots=True)
class LaunchLogs:
    """The logs of one launch: the names of those that have messages of it, and their content."""

    names: tuple[str, ...]
    record: LogRecord


@dataclass(frozen=True, slots=True)
class LogSet:
    """The content of a set of files: its launches, and for each dump of NCCL (topology, graphs) a sentence."""

    launches: tuple[LaunchLogs, ...]
    dumps: Mapping[str, str]


def read_logs(texts: Mapping[str, str]) -> LogRecord:
    """Return the record of the logs of one launch, by file name; ``*.conf`` are NCCL's configuration files.

    Lines of other programs and truncated lines are ignored.
    """
    configs = {name: text for name, text in texts.items() if name.endswith(CONFIG_SUFFIX)}
    logs = (text for name, text in texts.items() if name not in configs)
    return _record((with_hosts_of_prefixes(split_messages(text.splitlines())) for text in logs), configs)


def _record(logs: Iterable[Iterable[LogMessage]], configs: Mapping[str, str]) -> LogRecord:
    """Return the record of the messages of one launch, by log.

    The texts of configuration files hold for variables that the logs do not name.
    """
    state, origins = ParserState(), set()
    for message in _without_repetitions(logs):
        origins.add(message.origin)
        apply_rules(RULES[message.origin], state, message)
    for name, text in configs.items():
        state.add("files", name)
        for line in text.splitlines():
            if setting := re.fullmatch(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*", line):
                state.settings.setdefault(setting[1], setting[2])
    nccl.add_conclusions(state)
    torch_watchdog.add_timeouts(state)
    origin = next((library for library in _LIBRARIES if library in origins), None)
    state.library = state.library if origin == "nccl" and state.library else origin
    return state.record()


def _without_repetitions(logs: Iterable[Iterable[LogMessage]]) -> Iterator[LogMessage]:
    """Yield the messages of the logs of a launch, each as often as the program logged it.

    Exports of logs repeat messages, and several logs may hold the same ones. A message of a thread repeats an earlier
    one with the same text if it follows it directly, if both have the same time, or if they are in different logs or
    copies of one, in which the same communicator begins again. Two communicators of a thread may have channels with the
    same text; but other messages are between them.
    """
    most: Counter[tuple[str, str]] = Counter()
    for messages in logs:
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by thread
        seen: set[tuple[str, str, str]] = set()
        last: dict[str, tuple[str, str]] = {}  # by thread: time and text
        for one in messages:
            at, key, of_thread = (one.time, one.text), (one.thread, one.text), counts[one.thread]
            repeated = last.get(one.thread) == at or (one.time and (one.time, *key) in seen)
            last[one.thread] = at
            if one.time:
                seen.add((one.time, *key))
            if of_thread[one.text] and one.text.endswith("Init START") and _COMMUNICATOR.search(one.text):
                of_thread.clear()
            of_thread[one.text] += not repeated
            if not one.origin or of_thread[one.text] > most[key]:
                most[key] = max(most[key], of_thread[one.text])
                yield one


class _Groups:
    """A partition of things into groups that are known to belong together (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}

    def representative(self, thing: object) -> object:
        while (parent := self._parents.setdefault(thing, thing)) != thing:
            self._parents[thing] = self._parents[parent]  # halves the path for the next look-up
            thing = parent
        return thing

    def join(self, one: object, other: object) -> None:
        self._parents[self.representative(one)] = self.representative(other)


def split_launches(logs: Mapping[str, Sequence[LogMessage]]) -> list[LaunchMessages]:
    """Return the messages of each launch, in the order of their first messages, from those of each log by its name.

    Messages without one of a library belong to no launch.
    """
    groups = _group_writers(logs)
    launches: defaultdict[object, LaunchMessages] = defaultdict(dict)
    for name, messages in logs.items():
        for message in messages:
            group = groups.representative((name, message.process))
            launches[group].setdefault(name, []).append(message)
    named = {name for name, messages in logs.items() if any(message.process for message in messages)}
    return [
        launch
        for launch in launches.values()
        if any(
            message.process or (message.origin and name not in named)  # else a header that was overwritten in part
            for name, messages in launch.items()
            for message in messages
        )
    ]


def _group_writers(logs: Mapping[str, Sequence[LogMessage]]) -> _Groups:
    groups = _Groups()
    writers: defaultdict[str, list[_Writer]] = defaultdict(list)  # by process: where it logs a communicator
    for name, messages in logs.items():
        for message in messages:
            if "commId" in message.text and (match := _COMMUNICATOR.search(message.text)):
                groups.join((name, message.process), match[1])
                writers[message.process].append((name, message.process))
    for name, messages in logs.items():
        launches_of_log: set[object] = set()
        for process in {message.process for message in messages if message.process}:
            launches = {groups.representative(writer) for writer in _nearest_writers(name, writers[process])}
            if len(launches) == 1:
                launches_of_log |= launches
                groups.join((name, process), launches.pop())
            else:
                groups.join((name, process), (name, ""))
        if len(launches_of_log) == 1:
            groups.join((name, ""), launches_of_log.pop())
    return groups


def _nearest_writers(name: str, writers: Sequence[_Writer]) -> Sequence[_Writer]:
    """Return where a process of the log ``name`` logs communicators: in that log, in its directory, or anywhere.

    libsharp and NCCL may write different logs; and in containers, processes of all launches have the same ids.
    """
    same_log = [writer for writer in writers if writer[0] == name]
    same_directory = [writer for writer in writers if Path(writer[0]).parent == Path(name).parent]
    return same_log or same_directory or writers


def read_log_files(paths: Iterable[Path]) -> LogSet:
    """Read logs, configuration files of NCCL, and dumps of its topology and graphs (``*.xml``): files or directories.

    Raises:
        BadInputError: if there is nothing to read, a file cannot be read, or a named file is of another kind.
    """
    named = [str(path) for path in paths]
    files = dict.fromkeys(str(file) for path in named for file in _files(Path(path)))
    if not files:
        raise BadInputError("log", ", ".join(named), "files of a log, or a directory that holds some")
    small = (name for name in files if name.endswith((".xml", CONFIG_SUFFIX)))
    texts = {name: read_text(Path(name), "log", XML_BYTES, "replace") for name in small}
    dumps = {name: sentence for name, text in texts.items() if name.endswith(".xml") for sentence in _describe(text)}
    configs = {name: text for name, text in texts.items() if name.endswith(CONFIG_SUFFIX)}
    logs = {name: with_hosts_of_prefixes(split_messages(_log_lines(name))) for name in files if name not in texts}
    launches = split_launches(logs)
    known = {*dumps, *configs, *(name for launch in launches for name in launch)}
    unknown = [name for name in named if name in files and name not in known]
    if unknown or not (launches or dumps):
        hint = unpacking_hint(Path(unknown[0]), "log") if unknown else ""
        raise BadInputError("log", ", ".join(unknown or named), _EXPECTED_LOG + hint)
    return LogSet(tuple(_launch_logs(launch, configs, logs) for launch in launches), dumps)


def _files(path: Path) -> list[Path]:
    return [file for file in sorted(path.iterdir()) if file.is_file()] if path.is_dir() else [path]


def _log_lines(name: str) -> Iterator[str]:
    """Yield the lines of a log; of another, possibly large file only the first LOG_HEAD_BYTES bytes."""
    nbytes, known = 0, False
    for line in read_lines(Path(name), "log", LOG_BYTES):
        nbytes += len(line)
        known = known or has_header(line)
        if not known and nbytes > LOG_HEAD_BYTES:
            return
        yield line


def _launch_logs(launch: LaunchMessages, configs: Mapping[str, str], logs: Iterable[str]) -> LaunchLogs:
    """Return the logs of a launch. A configuration file belongs to the logs of its directory; without any, to all."""
    own_directories, all_directories = ({Path(name).parent for name in names} for names in (launch, logs))
    other_directories = all_directories - own_directories
    own_configs = {name: text for name, text in configs.items() if Path(name).parent not in other_directories}
    return LaunchLogs(tuple(launch), _record(launch.values(), own_configs))


def _describe(dump: str) -> Iterator[str]:
    """Yield the sentence about a dump of NCCL; nothing for another file."""
    with suppress(ValueError):
        yield nic_gpu_affinity.describe_balance(nic_gpu_affinity.parse_topology_dump(dump))
    with suppress(ValueError):
        yield nic_gpu_affinity.describe_graphs(dump)
