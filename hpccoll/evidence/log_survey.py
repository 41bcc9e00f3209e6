"""Which processes and threads wrote the lines of logs, and which of them belong to one launch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from hpccoll.evidence.log_message import LogMessage, communicator_id
from hpccoll.evidence.repeated_messages import begins_communicator

LaunchProcesses: TypeAlias = dict[str, set[str]]
"""The processes of a launch, by the names of the logs that they write; empty for lines without a header."""

_Writer: TypeAlias = tuple[str, str]
"""A log and a process that writes it; the process is empty for lines without a header."""


class LogSurvey:
    """Who writes a log: what is known of its messages before their facts are read."""

    def __init__(self, messages: Iterable[LogMessage]) -> None:
        # in the order of their first messages; empty for lines without a header
        self.processes: dict[str, None] = {}
        self.communicators = defaultdict[str, dict[str, None]](dict)  # by process
        self.threads: dict[str, None] = {}
        self.has_unnamed = False  # whether a library's message names no process
        # of communicators, by thread and text
        self._beginnings: Counter[tuple[str, str]] = Counter()
        self._hosts = defaultdict[str, set[str]](set)  # by prefix
        for message in messages:
            self._add(message)

    def _add(self, message: LogMessage) -> None:
        self.processes[message.process] = None
        self.threads[message.thread] = None
        if message.origin and not message.process:
            self.has_unnamed = True
        if message.host:
            self._hosts[message.prefix].add(message.host)
        communicator = communicator_id(message.text)
        if communicator is None:
            return
        self.communicators[message.process][communicator] = None
        if begins_communicator(message):
            self._beginnings[message.thread, message.text] += 1

    @property
    def has_processes(self) -> bool:
        """Whether a message names its process."""
        return any(self.processes)

    def hosts_of_prefixes(self) -> dict[str, str]:
        """Return the hosts by the prefixes with which only their lines begin."""
        hosts = {}
        for prefix, names in self._hosts.items():
            if len(names) == 1:
                (hosts[prefix],) = names
        return hosts

    def repeated_threads(self) -> set[str]:
        """Return the threads that begin the same communicator again, as in a copy of a log."""
        return {thread for (thread, _), count in self._beginnings.items() if count > 1}


def copied_threads(surveys: Iterable[LogSurvey]) -> set[str]:
    """Return the threads whose messages may be in several logs, or in several copies in one."""
    logs: Counter[str] = Counter()
    copied = set[str]()
    for survey in surveys:
        logs.update(survey.threads.keys())
        copied |= survey.repeated_threads()
    return copied | {thread for thread, count in logs.items() if count > 1}


class _Groups:
    """A partition of things into groups that are known to belong together (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}

    def representative(self, thing: object) -> object:
        while (parent := self._parents.setdefault(thing, thing)) != thing:
            self._parents[thing] = self._parents[parent]  # halves the path for the next look-up
            thing = parent
        return thing

    def join(self, first: object, second: object) -> None:
        self._parents[self.representative(first)] = self.representative(second)


def split_launches(surveys: Mapping[str, LogSurvey]) -> list[LaunchProcesses]:
    """Return the processes of each launch, in the order of their first messages, from the surveys of logs by name.

    Messages without one of a library belong to no launch.
    """
    groups = _group_writers(surveys)
    launches = defaultdict[object, LaunchProcesses](dict)
    for name, survey in surveys.items():
        for process in survey.processes:
            group = groups.representative((name, process))
            launches[group].setdefault(name, set()).add(process)
    return [launch for launch in launches.values() if _has_library(launch, surveys)]


def _has_library(launch: LaunchProcesses, surveys: Mapping[str, LogSurvey]) -> bool:
    """Return whether a library wrote to the logs of a launch."""
    for name, processes in launch.items():
        if any(processes):
            return True
        survey = surveys[name]
        # else a header that was overwritten in part
        if survey.has_unnamed and not survey.has_processes:
            return True
    return False


def _group_writers(surveys: Mapping[str, LogSurvey]) -> _Groups:
    groups = _Groups()
    writers = defaultdict[str, list[_Writer]](list)  # by process: where it logs a communicator
    for name, survey in surveys.items():
        for process, communicators in survey.communicators.items():
            writers[process].append((name, process))
            for communicator in communicators:
                groups.join((name, process), communicator)
    for name, survey in surveys.items():
        launches_of_log: set[object] = set()
        for process in filter(None, survey.processes):
            launches = {
                groups.representative(writer) for writer in _nearest_writers(name, writers[process])
            }
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

    libsharp and NCCL may write different logs; and in containers, processes of all launches have
    the same ids.
    """
    same_log = [writer for writer in writers if writer[0] == name]
    same_directory = [writer for writer in writers if Path(writer[0]).parent == Path(name).parent]
    return same_log or same_directory or writers
