"""Parsing of log lines: messages with their origin, the rules that match them, and the facts collected so far.

Processes that share a file overwrite each other: a header in the middle of a line begins a new message, and the text
before it is a truncated message, which the rules then do not match. Truncated lines are never completed by guessing.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

from hpccoll.common.line_prefixes import PrefixReader, exported_text, time_of_day_s
from hpccoll.evidence.creation_times import CommunicatorRank, CreationTimes
from hpccoll.evidence.fallback_reasons import unavailable_reason
from hpccoll.evidence.host_differences import NETWORK, HostFacts
from hpccoll.evidence.log_record import TCP_NETWORK, LogRecord, Unavailable
from hpccoll.evidence.nccl_failures import ErrorTraces


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message of a library.

    ``origin`` is ``nccl``, ``sharp`` (libsharp) or ``ucc``, None for a line without a known header; ``process`` the
    host and process id of the writer, empty if no header names them; ``place`` file and line of the source, for
    warnings and errors; ``thread`` the header without time, level and place, which names the thread, without a process
    also with the prefix; ``time`` the time in the line, if it is finer than a second; ``clock_s`` the time of day in
    seconds before the header of a line about the creation of a communicator. ``prefix`` is what a launcher put before
    the line, and ``host_of_prefix`` the only host whose lines begin with it.
    """

    origin: str | None
    process: str
    level: str | None
    text: str
    place: str = ""
    thread: str = ""
    time: str = ""
    clock_s: float | None = None
    prefix: str = ""
    host_of_prefix: str | None = None

    @property
    def host(self) -> str | None:
        """The host of the writer; None if neither header nor prefix names one, or if its name was replaced."""
        host = self.process.rpartition(":")[0]
        return host if host[:1].isalnum() else self.host_of_prefix

    @property
    def writer(self) -> str:
        """The process that wrote the message, as far as it is known: without a process, the thread."""
        return self.process or self.thread

    @property
    def placed_text(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


_TIMESTAMP = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?)?"
_HEADERS = {
    # host:pid:tid [device] NCCL INFO ...; WARN also names the place in the source, since 2.30 time and function too,
    # and TRACE a time in ms. In logs that people show, the host may be replaced by a word in brackets, and the header
    # may be cut down to the device, or to nothing at the beginning of the line or behind a prefix.
    "nccl": (
        _TIMESTAMP + r"(?P<nccl_thread>(?<![\w.-])(?!\d\d:\d\d:\d\d )"
        r"(?P<nccl_host>[\w.-]{1,255}|<[^<>]{0,99}>|\[[^][:]{1,99}\]|\*{1,99}|):(?P<nccl_pid>\d{1,18}):\d+ "
        r"(?:\[-?\d+\] )?|\[-?\d+\] |(?:^|(?<=[]:)>|]))\s*)"
        r"(?:\d+\.\d+ )?(?:(?P<nccl_place>[\w./+-]+:\d+) (?:\([^)]*\) )?)?"
        r"NCCL (?P<nccl_level>VERSION|WARN|ATTN|INFO|ABORT|TRACE|CALL) "
    ),
    # [host:rank:pid - file.c:line][time] INFO ..., or with the job's id instead of the file.
    "sharp": (
        r"(?P<sharp_thread>\[(?P<sharp_host>[\w.-]{1,255}):\d+:(?P<sharp_pid>\d{1,18}) )"
        r"(?:- (?P<sharp_place>[\w./]+:\d+)|unique id \d+)\](?:\[[^]]*\])? ?(?P<sharp_level>[A-Z]+) "
    ),
    # [seconds] [host:pid:tid] file.c:line COMPONENT INFO ...
    "ucc": (
        r"\[\d+\.\d+\] (?P<ucc_thread>\[(?P<ucc_host>[\w.-]{1,255}):(?P<ucc_pid>\d{1,18})\s*:\d+\])\s+"
        r"(?P<ucc_place>[\w./]+:\d+)\s+(?:UCC|UCC_COLL|[CT]L_\w+|\w+ [em]c)\s+(?P<ucc_level>[A-Z]+)\s+"
    ),
}
_WITH_PLACE = ("WARN", "ERROR", "FATAL")
"""The levels of messages whose place in the source people need."""

_FINE_TIME = re.compile(r"\d\d:\d\d:\d\d[.,]\d{2,9}|\b\d{10}\.\d{2,9}")
"""A time that is finer than a second."""

_SEPARATORS = " \t\r\n|"
"""The characters between several messages in one line of an exported log."""

_HEADER = re.compile("|".join(f"(?P<{origin}>{header})" for origin, header in _HEADERS.items()))

_LEVEL = re.compile("[A-Z]{3}")
"""What each header has: it is found several times as fast as that a line has no header."""

_ANCHOR = re.compile(
    rf"{_HEADER.pattern}|(?<![\w.])(?<![\w.] )[NR]CCL version(?: *:)? +\d+(?:\.\d+)+\S*(?: [\w./-]+:\S+)?\s*$"
)
"""What lines of a library begin with: the banner with its version comes without a header too, on a line of its own."""


def has_header(line: str) -> bool:
    """Return whether a line has a header of a known library."""
    return _HEADER.search(line) is not None


def split_messages(lines: Iterable[str]) -> Iterator[LogMessage]:
    """Yield the messages of a log, without the prefixes of launchers and collectors of logs."""
    prefixes = PrefixReader(_ANCHOR)
    for whole in lines:
        time = match[0] if (match := _FINE_TIME.search(whole)) else ""
        prefix, line = prefixes.split(exported_text(whole))
        headers = list(_HEADER.finditer(line)) if _LEVEL.search(line) else []
        before = line[: headers[0].start()] if headers else line
        if before.strip():
            yield LogMessage(None, "", None, before.strip(), thread=prefix, prefix=prefix)
        for header, following in zip_longest(headers, headers[1:]):
            origin = next(name for name in _HEADERS if header[name] is not None)
            body = line[header.end() : following.start() if following else None].strip(_SEPARATORS)
            body = body[:-1] if body.endswith('"') and body.count('"') % 2 else body  # the end of a quoted column
            host, pid, level, place, thread = (
                header[f"{origin}_{part}"] for part in ("host", "pid", "level", "place", "thread")
            )
            yield LogMessage(
                origin, "" if pid is None else f"{host}:{pid}", level, body,
                re.sub(r".*/src/", "", place) if place and level in _WITH_PLACE else "",
                thread.strip() if pid else f"{prefix or ''} {thread}".strip(), time, _clock_s(whole), prefix,
            )  # fmt: skip


def with_hosts_of_prefixes(messages: Iterable[LogMessage]) -> list[LogMessage]:
    """Return the messages of a log, those without a header with the host whose lines have the same prefix."""
    every = [*messages]
    hosts = defaultdict[str, set[str]](set)
    for message in every:
        if message.host:
            hosts[message.prefix].add(message.host)
    only = {prefix: names.pop() for prefix, names in hosts.items() if len(names) == 1}
    for place, message in enumerate(every):
        if message.origin is None and message.prefix in only:
            every[place] = replace(message, host_of_prefix=only[message.prefix])
    return every


def _clock_s(line: str) -> float | None:
    """Return the time of day before the only message in a line about a communicator, in s; None for other lines."""
    if "- Init " not in line or line.count("NCCL INFO") != 1:
        return None
    return time_of_day_s(line.partition("NCCL INFO")[0])


class LoggedCall(NamedTuple):
    """A call of a collective, as NCCL logs it, in the project's names.

    ``bytes`` is the size of the rank's own block, if every rank has one; ``ranks`` is None if that part of the line is
    missing.
    """

    collective: str
    bytes: int
    dtype: str
    op: str | None
    ranks: int | None


HostMembers = defaultdict[str | None, set[tuple[int, str]]]
"""The members of a communicator by host: their ranks, and what names their GPUs."""


class ParserState:
    """The facts collected from the messages of one launch, in order of their first occurrence."""

    def __init__(self) -> None:
        self.library: str | None = None
        self.version: str | None = None
        self.build = ""
        self.nodes: int | None = None
        self.ranks: int | None = None
        self.found: defaultdict[str, dict[Any, None]] = defaultdict(dict)  # by the field of the record
        self.paths: Counter[str] = Counter()
        self.plugins: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.communicator: dict[str, str] = {}
        self.calls: defaultdict[str, deque[LoggedCall]] = defaultdict(lambda: deque(maxlen=256))
        self.tables: dict[str, Any] = {}
        self.team_sizes: dict[str, int] = {}  # of UCC's teams, by their ids
        self.collnet_devices: dict[int | None, int] = {}  # by rank; None: the most of all ranks
        self.collnet_line = ""  # the first line that counts them
        self.started_networks: dict[str, bool] = {}  # by name: whether NCCL could start it
        self.errors = ErrorTraces()
        self.host_facts = HostFacts()
        self.hosts: set[str] = set()
        self.warning_hosts: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by the text of the warning
        self.communicators: set[tuple[int, int]] = set()  # ranks and nodes
        self.members: dict[tuple[str, int], HostMembers] = {}  # by id and size of the communicator
        # by operation, number and timeout in s: the ranks, and whether the timeout is of the group of all ranks
        self.timeouts: dict[tuple[str, int, float], dict[int, bool]] = {}
        self.begun: dict[tuple[str, str], CommunicatorRank] = {}  # by process and address of the communicator
        self.incomplete: set[tuple[str, str]] = set()  # those of them without a sign of their completion
        self.creation_times = CreationTimes()

    def add(self, field: str, fact: object) -> None:
        """Add a line, or another fact, to a field of the record, each once."""
        self.found[field][fact] = None

    @property
    def unavailable(self) -> Iterable[Unavailable]:
        return self.found["unavailable"]

    def add_unavailable(self, feature: str, reason: str, line: str) -> None:
        """Add that a feature was not used, and the reason; each reason once."""
        if not any((known.feature, known.reason) == (feature, reason) for known in self.unavailable):
            self.add("unavailable", Unavailable(feature=feature, reason=reason, line=line))

    def record(self) -> LogRecord:
        """Return what all messages say together."""
        facts: dict[str, Any] = {field: tuple(lines) for field, lines in self.found.items()}
        if len(facts.get("versions", ())) < 2:
            facts.pop("versions", None)
        facts.setdefault("network", self._networks_of_paths())  # versions up to 2.5 have no other line
        return LogRecord(
            library=self.library,
            version=self.version,
            build=self.build,
            nodes=self.nodes,
            ranks=self.ranks,
            plugins=self.plugins,
            failures=tuple(self.errors.failures()),
            gdr=self._uses_gpudirect(),
            paths=dict(sorted(self.paths.items())),
            settings=dict(sorted(self.settings.items())),
            communicator=dict(sorted(self.communicator.items())),
            creations=tuple(self.creation_times.communicators()),
            host_differences=tuple(self.host_facts.differences()),
            network_hosts=self.host_facts.hosts(NETWORK),
            warning_hosts=self._hosts_of_rare_warnings(),
            **facts,
        )

    def _networks_of_paths(self) -> tuple[str, ...]:
        """Return the networks that paths of channels name, such as ``IB`` in ``NET/IB/0``."""
        networks = dict.fromkeys(path.split("/")[1] for path in self.paths if path.startswith("NET/"))
        return tuple(filter(None, networks))

    def _uses_gpudirect(self) -> bool | None:
        """Return whether all channels over RDMA use GPUDirect; None without such a channel."""
        is_used = None
        for path in self.paths:
            if path.startswith("NET/") and not TCP_NETWORK.search(path):
                is_used = is_used is not False and "GDRDMA" in path
        return is_used

    def _hosts_of_rare_warnings(self) -> dict[str, tuple[str, ...]]:
        """Return the hosts of warnings that some hosts did not log."""
        rare = {}
        for text, hosts in self.warning_hosts.items():
            if len(hosts) < len(self.hosts):
                rare[text] = tuple(hosts)
        return rare


AddFacts: TypeAlias = Callable[[ParserState, re.Match[str], LogMessage], None]
"""Adds the facts of a message that matches the pattern of a rule."""

Rule: TypeAlias = tuple[re.Pattern[str], AddFacts]
"""A pattern for the beginning of a message, and what it adds."""


def rule(pattern: str, add_facts: AddFacts) -> Rule:
    return re.compile(pattern), add_facts


def line_rules(field: str, *patterns: str) -> list[Rule]:
    """Return rules that add every message that matches one of ``patterns`` to a field of the record.

    The group ``name`` of a pattern is added, if it has one, else the whole message.
    """

    def add(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
        state.add(field, match["name"] if "name" in match.re.groupindex else message.text)

    return [rule(pattern, add) for pattern in patterns]


def _add_warning_and_known_reason(state: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    if known := unavailable_reason(message.text):
        state.add_unavailable(*known, message.text)
    if message.host:
        state.hosts.add(message.host)
    if message.level == "WARN":
        state.add("warnings", message.placed_text)
        if message.host:
            state.warning_hosts[message.placed_text][message.host] = None


COMMON_RULES = (rule("", _add_warning_and_known_reason),)
"""The rules for the messages of every library: known reasons why a feature was not used, and warnings."""


def apply_rules(rules: Sequence[Rule], state: ParserState, message: LogMessage) -> None:
    for pattern, add_facts in rules:
        if match := pattern.match(message.text):
            add_facts(state, match, message)
