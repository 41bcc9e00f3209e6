"""Reading of logs of NCCL, libsharp and UCC: from any number of files, of one or more launches.

Processes belong to one launch if NCCL logs that they share a communicator: it identifies each
communicator by a hash of its unique id (``commId 0x...``, subsystem INIT), which no two launches
have in common. A process is identified by its host and process id, in all logs that it writes.
Messages of other processes belong to the launch of their log if that log has exactly one launch,
else to a launch of their own: that logs lie in one directory proves nothing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import read_lines, read_text, unpacking_hint
from hpccoll.common.limits import LOG_HEAD_BYTES, LONG_LOG_BYTES, XML_BYTES
from hpccoll.evidence import nccl, nic_gpu_affinity, sharp, torch_watchdog, ucc
from hpccoll.evidence.log_message import LogMessage, MessageReader, has_header, split_messages
from hpccoll.evidence.log_parser import PROGRAM_RULES, AddFacts, ParserState, Rule
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_survey import LaunchProcesses, LogSurvey, copied_threads, split_launches
from hpccoll.evidence.repeated_messages import RepeatedMessages

RULES: Mapping[str | None, Sequence[Rule]] = {
    "nccl": nccl.RULES,
    "sharp": sharp.RULES,
    "ucc": ucc.RULES,
    None: (*nccl.BANNER_RULES, *torch_watchdog.RULES, *PROGRAM_RULES),
}
"""The rules for the messages of each library."""

_LIBRARIES = ("nccl", "ucc", "sharp")
"""The order of libraries. If several of them log, the record names the first one here: the program called that one."""

_REMEMBERED_TEXTS = 1 << 11
"""Ranks log the same texts, which are tried with all rules once."""

CONFIG_SUFFIX = ".conf"
"""The suffix of NCCL's configuration files, such as /etc/nccl.conf, which NCCL reads without logging it."""

_EXPECTED_LOG = (
    "a log of NCCL or RCCL (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING,COLL), of UCC "
    "(UCC_COLL_TRACE=info UCC_LOG_LEVEL=info) or of libsharp (SHARP_COLL_LOG_LEVEL=3): no line of it begins as theirs "
    "do"
)
"""The valid input files, and the variables that make libraries write them."""

Lines: TypeAlias = Callable[[], Iterable[str]]
"""Reads the lines of a log from its beginning. They are read twice, so that memory need not hold them."""


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


class LaunchReader:
    """Reads the messages of a launch, log by log; ``copied`` are the threads that several logs may hold."""

    def __init__(self, copied: Collection[str]) -> None:
        self._state = ParserState()
        self._origins: set[str | None] = set()
        self._repeated = RepeatedMessages(copied)
        self._hosts_of_prefixes: Mapping[str, str] = {}

    def begin_log(self, hosts_of_prefixes: Mapping[str, str]) -> None:
        """Begin with the next log, in which prefixes name the hosts of lines that have no header."""
        self._repeated.begin_log()
        self._hosts_of_prefixes = hosts_of_prefixes

    def add(self, message: LogMessage) -> None:
        """Add the facts of the next message of the log."""
        if not self._repeated.is_new(message):
            return
        self._origins.add(message.origin)
        if message.form:
            self._add_frequent(message)
            return
        if message.origin is None:
            host = self._hosts_of_prefixes.get(message.prefix)
            message = message._replace(host_of_prefix=host)
        for match, add_facts in _matches(message.origin, message.text):
            add_facts(self._state, match, message)

    def _add_frequent(self, message: LogMessage) -> None:
        """Add the facts of a message that only the rule of its form can match."""
        self._state.add_host(message)
        self._state.errors.go_on(message.thread)
        if message.form == "call":
            nccl.add_call_of_form(self._state, message)
            return
        rule = nccl.RULES_OF_FORMS.get(message.form)
        if rule is None:
            return
        pattern, add_facts = rule
        match = pattern.match(message.text)
        if match is not None:
            add_facts(self._state, match, message)

    def record(self, configs: Mapping[str, str]) -> LogRecord:
        """Return what all messages say.

        The texts of configuration files, by name, hold for variables that the logs do not name.
        """
        state = self._state
        for name, text in configs.items():
            state.add("files", name)
            for line in text.splitlines():
                setting = re.fullmatch(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*", line)
                if setting:
                    state.settings.setdefault(setting[1], setting[2])
        nccl.add_conclusions(state)
        torch_watchdog.add_timeouts(state)
        origin = next((library for library in _LIBRARIES if library in self._origins), None)
        state.library = state.library if origin == "nccl" and state.library else origin
        return state.record()


@lru_cache(_REMEMBERED_TEXTS)
def _matches(origin: str | None, text: str) -> Sequence[tuple[re.Match[str], AddFacts]]:
    """Return the matches of the rules for a message, with what adds their facts."""
    matches = []
    for pattern, add_facts in RULES[origin]:
        match = pattern.match(text)
        if match is not None:
            matches.append((match, add_facts))
    return matches


def read_logs(texts: Mapping[str, str]) -> LogRecord:
    """Return the record of the logs of one launch, by file name; ``*.conf`` are NCCL's configuration files.

    Lines of other programs and truncated lines are ignored.
    """
    configs = {name: text for name, text in texts.items() if name.endswith(CONFIG_SUFFIX)}
    logs = {name: text.splitlines for name, text in texts.items() if name not in configs}
    surveys = {name: _survey(lines) for name, lines in logs.items()}
    launch = {name: {*survey.processes} for name, survey in surveys.items()}
    (reader,) = _read_launches(logs, surveys, [launch])
    return reader.record(configs)


def _survey(lines: Lines) -> LogSurvey:
    return LogSurvey(MessageReader().first_messages(lines()))


def _read_launches(
    logs: Mapping[str, Lines], surveys: Mapping[str, LogSurvey], launches: Iterable[LaunchProcesses]
) -> list[LaunchReader]:
    """Return readers of the messages of launches, which have read them."""
    copied = copied_threads(surveys.values())
    readers = []
    readers_of_logs: dict[str, dict[str, LaunchReader]] = {name: {} for name in logs}  # by process
    for launch in launches:
        reader = LaunchReader(copied)
        readers.append(reader)
        for name, processes in launch.items():
            readers_of_logs[name].update(dict.fromkeys(processes, reader))
    for name, by_process in readers_of_logs.items():
        if by_process:
            _read_log(logs[name], surveys[name], by_process)
    return readers


def _read_log(lines: Lines, survey: LogSurvey, readers: Mapping[str, LaunchReader]) -> None:
    """Read a log with the readers of the launches of its processes."""
    hosts_of_prefixes = survey.hosts_of_prefixes()
    for reader in readers.values():
        reader.begin_log(hosts_of_prefixes)
    for message in split_messages(lines()):
        # None of another launch, or where a program still writes
        reader_of_process = readers.get(message.process)
        if reader_of_process is not None:
            reader_of_process.add(message)


def read_log_files(paths: Iterable[Path]) -> LogSet:
    """Read logs, configuration files of NCCL, and dumps of its topology and graphs (``*.xml``): files or directories.

    Raises:
        BadInputError: if there is nothing to read, a file cannot be read, or a named file is of
            another kind.
    """
    named = [str(path) for path in paths]
    files: dict[str, None] = {}
    for path in named:
        files |= dict.fromkeys(map(str, _files(Path(path))))
    if not files:
        raise BadInputError(
            "log", ", ".join(named), "files of a log, or a directory that holds some"
        )
    dumps: dict[str, str] = {}
    configs: dict[str, str] = {}
    logs: dict[str, Lines] = {}
    for name in files:
        if name.endswith(".xml"):
            for sentence in _describe(_small_text(name)):
                dumps[name] = sentence
        elif name.endswith(CONFIG_SUFFIX):
            configs[name] = _small_text(name)
        else:
            logs[name] = partial(_log_lines, name)
    surveys = {name: _survey(lines) for name, lines in logs.items()}
    launches = split_launches(surveys)
    recognised = {*dumps, *configs, *chain.from_iterable(launches)}
    unknown = [name for name in named if name in files and name not in recognised]
    if unknown or not (launches or dumps):
        hint = unpacking_hint(Path(unknown[0]), "log") if unknown else ""
        raise BadInputError("log", ", ".join(unknown or named), _EXPECTED_LOG + hint)
    launch_logs = []
    for launch, reader in zip(launches, _read_launches(logs, surveys, launches), strict=True):
        record = reader.record(_own_configs(launch, configs, logs))
        launch_logs.append(LaunchLogs(tuple(launch), record))
    return LogSet(tuple(launch_logs), dumps)


def _small_text(name: str) -> str:
    return read_text(Path(name), "log", XML_BYTES, "replace")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in sorted(path.iterdir()) if file.is_file()]


def _log_lines(name: str) -> Iterator[str]:
    """Yield the lines of a log; of another, possibly large file only the first LOG_HEAD_BYTES bytes."""
    lines = read_lines(Path(name), "log", LONG_LOG_BYTES)
    length = 0
    for line in lines:
        yield line
        length += len(line)
        if has_header(line):
            yield from lines
        if length > LOG_HEAD_BYTES:
            return


def _own_configs(
    launch: Iterable[str], configs: Mapping[str, str], logs: Iterable[str]
) -> dict[str, str]:
    """Return the configuration files of a launch: those of the directories of its logs, and of those without logs."""
    own_directories = {Path(name).parent for name in launch}
    other_directories = {Path(name).parent for name in logs} - own_directories
    return {
        name: text for name, text in configs.items() if Path(name).parent not in other_directories
    }


def _describe(dump: str) -> Iterator[str]:
    """Yield the sentence about a dump of NCCL; nothing for another file."""
    with suppress(ValueError):
        yield nic_gpu_affinity.describe_balance(nic_gpu_affinity.parse_topology_dump(dump))
    with suppress(ValueError):
        yield nic_gpu_affinity.describe_graphs(dump)
