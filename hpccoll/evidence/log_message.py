"""Lines of logs as messages with their origin.

Processes that share a file overwrite each other: a header in the middle of a line begins a new
message, and the text before it is a truncated message, which the rules then do not match. Truncated
lines are never completed by guessing.

Most lines of a long log differ from an earlier one of the same thread only in what follows
``NCCL INFO``. How such a line begins is taken apart once, and remembered. Times in it are
remembered as zeros, because they differ in each line.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from hpccoll.common.line_prefixes import PrefixReader, exported_text, time_of_day_s


class LogMessage(NamedTuple):
    """A message of a library.

    ``origin`` is ``nccl``, ``sharp`` (libsharp) or ``ucc``, None for a line without a known header;
    ``process`` the host and process id of the writer, empty if no header names them; ``place`` file
    and line of the source, for warnings and errors; ``thread`` the header without time, level and
    place, which names the thread, without a process also with the prefix; ``time`` the time in the
    line, if it is finer than a second; ``clock_s`` the time of day in seconds before the header of
    a line about the creation of a communicator. ``prefix`` is what a launcher put before the line,
    and ``host_of_prefix`` the only host whose lines begin with it. ``form`` is one of FORMS, empty
    for other messages.
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
    form: str = ""

    @property
    def host(self) -> str | None:
        """The host of the writer; None if neither header nor prefix names one, or if its name was replaced."""
        host = self.process.rpartition(":")[0]
        return host if host[:1].isalnum() else self.host_of_prefix

    @property
    def writer(self) -> str:
        """The process that wrote the message; the thread, if the process is not known."""
        return self.process or self.thread

    @property
    def placed_text(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


_TIMESTAMP = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?)?"
_HEADERS = {
    # host:pid:tid [device] NCCL INFO ...; WARN also names the place in the source, since 2.30 time
    # and function too, and TRACE a time in ms. In logs that people show, the host may be replaced
    # by a word in brackets, and the header may be cut down to the device, or to nothing at the
    # beginning of the line or behind a prefix.
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


_MARK = "NCCL INFO "
"""The end of the header of most lines."""

_COLLECTIVE = (
    r"(?:All(?:Reduce|Gather|[Tt]o[Aa]ll)|ReduceScatter|Broadcast|Reduce|Gather|Scatter|Send|Recv)"
)
_BUFFER = r"(?:0x[0-9a-f]+|\(nil\))"
_BEGIN_OF_CALL = re.compile(
    rf"{_COLLECTIVE}: opCount [0-9a-f]+ sendbuff {_BUFFER} recvbuff {_BUFFER}"
)
_ARGUMENTS = re.compile(
    rf"\d+ datatype \d+ op \d+ root \d+ comm 0x[0-9a-f]+ \[nranks=\d+\] stream {_BUFFER}"
)
_REMEMBERED_ARGUMENTS, MAX_REMEMBERED_LENGTH = 1 << 10, 256
"""How many ends of calls are remembered, and the most characters of one."""

FORMS = {
    # What says nothing that a rule looks for: trees, rings, connections, the graph of the machine,
    # thread counts.
    "idle": (
        r"Trees(?: \[\d+\] [\d/>-]+)+|(?:Channel|Ring) \d+(?:/\d+)? : *\d+(?:(?: ->)? +\d+)+"
        r"|Connected all (?:rings|trees)(?:, use ring PXN \d GDR \d)?"
        r"|\d+ coll channels, (?:\d+ (?:collnet|nvls) channels, )*\d+ p2p channels, \d+ p2p channels per peer"
        r"|threadThresholds [\d/| ]+|\+ [A-Z]{2,6}\[\d+\.\d\] - [A-Z0-9]{2,5}/[0-9A-F-]+(?: \([0-9A-F/-]+\))?"
        r"|Setting affinity for GPU \d+ to [\da-f,-]+"
    ),
    "channel": (
        r"Channel \d+(?:/\d+)? : \d+\[[0-9a-f]+\] -> \d+\[[0-9a-f]+\] (?:\[(?:send|receive)\] )?"
        r"via (?:P2P|SHM|NET)/[\w/()-]+(?: comm 0x[0-9a-f]+ nRanks \d+)?"
    ),
    "call": f"{_BEGIN_OF_CALL.pattern} count {_ARGUMENTS.pattern}",
    "collective": (
        rf"{_COLLECTIVE}: \d+ Bytes -> Algo (?:RING|TREE|NVLS|NVLS_TREE|PAT|COLLNET_DIRECT|COLLNET_CHAIN) "
        r"proto (?:LL|LL128|SIMPLE) channel\{Lo\.\.Hi\}=\{\d+\.\.\d+\}"
    ),
}
"""The forms of the lines that make logs long, complete from end to end, so that no other fact can hide in them."""

_FORM = re.compile("|".join(f"(?P<{name}>{form})" for name, form in FORMS.items()))

_UNUSUAL = "NCCL ", "commId", "- Init ", '"', "&gt;", "\x1b", "\ufeff"
"""What a text may hold that takes more than cutting it off behind its header."""

_HEADER_IN_BRACKETS = re.compile(r"\[(?:[\w.-]+:\d+:|\d+\.\d+\] \[)")
"""How headers of libsharp and UCC begin."""

_STAMP = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|(?<!\d)1\d{9}\.\d{2,9}"
)
"""Times that differ in each line."""

_AS_ZEROS = str.maketrans("123456789", "000000000")

_LAYOUT = re.compile(r"(?:\d{4}-\d\d-\d\d[T ])?(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{2,9})?)")
"""The stamps that need no other look than at the form of the line: which digits they have makes no difference."""

_NOTABLE = re.compile(rf'CCL|commId|[\x1b\ufeff]|&gt;|^\s*[{{"]|{_HEADER_IN_BRACKETS.pattern}')
"""What a line has that begins a message, or names a communicator; other lines are those of a program."""

MAX_HEADS = 1 << 16
"""The maximum number of beginnings of lines that are remembered."""


class _Head(NamedTuple):
    """How the lines of a thread begin, up to their texts."""

    process: str
    thread: str
    prefix: str
    time: str  # of lines without a stamp


class _Layout(NamedTuple):
    """Where the only stamp of a beginning is, and in it the time that is finer than a second."""

    stamp: slice
    time: slice


class MessageReader:
    """A reader of the lines of one log."""

    def __init__(self) -> None:
        self._prefixes = PrefixReader(_ANCHOR)
        self._heads: dict[str, _Head] = {}  # by the beginning of the line, if that has no stamp
        # by the beginning of the line, with zeros in its stamps
        self._stamped: dict[str, _Head] = {}
        # by the beginning of the line, with zeros for all digits
        self._layouts: dict[str, _Layout] = {}

    def messages(self, lines: Iterable[str]) -> Iterator[LogMessage]:
        """Yield the messages of lines, without the prefixes of launchers and collectors of logs."""
        for line in lines:
            head, time, text = self._begin(line)
            if head is None:
                yield from self._split(line)
                continue
            text = text.strip(_SEPARATORS)
            form = _form_of(text)
            if form:
                yield LogMessage(
                    "nccl",
                    head.process,
                    "INFO",
                    text,
                    "",
                    head.thread,
                    time,
                    None,
                    head.prefix,
                    None,
                    form,
                )
            elif _is_unusual(text):
                yield from self._split(line)
            else:
                time = time or _fine_time(text)
                yield LogMessage(
                    "nccl", head.process, "INFO", text, "", head.thread, time, None, head.prefix
                )

    def first_messages(self, lines: Iterable[str]) -> Iterator[LogMessage]:
        """Yield the first message of each thread, all that name a communicator, and some others."""
        threads = set[str]()
        has_plain = False
        for line in lines:
            head, _, text = self._begin(line)
            if head is not None and head.thread in threads and not _is_unusual(text):
                continue
            if has_plain and not _NOTABLE.search(line):
                continue
            for message in self._split(line):
                has_plain = has_plain or message.origin is None
                threads.add(message.thread)
                yield message

    def _begin(self, line: str) -> tuple[_Head | None, str, str]:
        """Return how a line begins, None if that is not known, the time in its beginning, and what follows."""
        begin, mark, text = line.partition(_MARK)
        if not mark:
            return None, "", line
        head = self._heads.get(begin)
        if head is not None:
            return head, head.time, text
        key, time = self._without_stamps(begin)
        return self._stamped.get(key), time, text

    def _without_stamps(self, begin: str) -> tuple[str, str]:
        """Return the beginning of a line with zeros in its stamps, and its first time that is finer than a second."""
        shape = begin.translate(_AS_ZEROS)
        layout = self._layouts.get(shape)
        if layout is not None:
            stamp = layout.stamp
            return begin[: stamp.start] + shape[stamp] + begin[stamp.stop :], begin[layout.time]
        stamps = list(_STAMP.finditer(begin))
        if len(stamps) == 1 and len(self._layouts) < MAX_HEADS:
            self._add_layout(shape, stamps[0])
        return _STAMP.sub(_zeros, begin), _fine_time(begin)

    def _add_layout(self, shape: str, stamp: re.Match[str]) -> None:
        layout = _LAYOUT.fullmatch(stamp[0])
        if layout is None:
            return
        time = slice(0, 0)
        if _FINE_TIME.fullmatch(layout["time"]):
            time = slice(stamp.start() + layout.start("time"), stamp.end())
        self._layouts[shape] = _Layout(slice(*stamp.span()), time)

    def _split(self, whole: str) -> Iterator[LogMessage]:
        """Take a line apart."""
        time = _fine_time(whole)
        exported = exported_text(whole)
        prefix, line = self._prefixes.split(exported)
        headers: list[re.Match[str]] = []
        before = line
        if _LEVEL.search(line):
            headers += _HEADER.finditer(line)
        if headers:
            before = line[: headers[0].start()]
        if before.strip():
            yield LogMessage(None, "", None, before.strip(), thread=prefix, prefix=prefix)
        for header, following in zip_longest(headers, headers[1:]):
            origin = next(name for name in _HEADERS if header[name] is not None)
            end = following.start() if following else len(line)
            body = line[header.end() : end].strip(_SEPARATORS)
            if body.endswith('"') and body.count('"') % 2:  # the end of a quoted column
                body = body[:-1]
            pid = header[f"{origin}_pid"]
            thread = header[f"{origin}_thread"]
            if pid is None:
                process = ""
                thread = f"{prefix or ''} {thread}"
            else:
                process = f"{header[f'{origin}_host']}:{pid}"
            level = header[f"{origin}_level"]
            place = ""
            if level in _WITH_PLACE:
                place = re.sub(r".*/src/", "", header[f"{origin}_place"] or "")
            message = LogMessage(
                origin, process, level, body, place, thread.strip(), time, _clock_s(whole), prefix
            )
            if exported is whole and len(headers) == 1 and not before:
                self._remember(whole, line[header.end() :], message)
            yield message

    def _remember(self, line: str, text: str, message: LogMessage) -> None:
        """Remember how a line begins, if every line that begins so and goes on in another way is read alike."""
        begin, mark, rest = line.partition(_MARK)
        is_whole = bool(mark) and rest == text and message.origin == "nccl"
        if not is_whole or not message.process or _NOTABLE.search(begin):
            return
        if _STAMP.search(message.thread) or _STAMP.search(message.prefix):
            return
        if len(self._heads) + len(self._stamped) >= MAX_HEADS:
            return
        head = _Head(message.process, message.thread, message.prefix, _fine_time(begin))
        if _STAMP.search(begin):
            self._stamped[_STAMP.sub(_zeros, begin)] = head
        else:
            self._heads[begin] = head


def _form_of(text: str) -> str:
    """Return the form of a text; empty without one."""
    begin, mark, arguments = text.partition(" count ")
    may_be_call = mark and len(arguments) <= MAX_REMEMBERED_LENGTH
    if may_be_call and _are_arguments(arguments) and _BEGIN_OF_CALL.fullmatch(begin):
        return "call"
    form = _FORM.fullmatch(text)
    if form is None or form.lastgroup is None:
        return ""
    return form.lastgroup


@lru_cache(_REMEMBERED_ARGUMENTS)
def _are_arguments(text: str) -> bool:
    """Return whether a text is what follows the number of elements in a call; programs make the same calls again."""
    return _ARGUMENTS.fullmatch(text) is not None


def _is_unusual(text: str) -> bool:
    for part in _UNUSUAL:
        if part in text:
            return True
    return _HEADER_IN_BRACKETS.search(text) is not None


_COMMUNICATOR = re.compile(r"\bcommId 0x0*([1-9a-f][0-9a-f]*)\b")
"""The id of a communicator. A split has the id 0, and its parent another."""


def communicator_id(text: str) -> str | None:
    """Return the id of the communicator that a message names; None without one."""
    if "commId" not in text:
        return None
    match = _COMMUNICATOR.search(text)
    return match[1] if match else None


def _fine_time(text: str) -> str:
    """Return the first time in a text that is finer than a second; empty without one."""
    fine = _FINE_TIME.search(text)
    return fine[0] if fine else ""


def _zeros(stamp: re.Match[str]) -> str:
    return stamp[0].translate(_AS_ZEROS)


def split_messages(lines: Iterable[str]) -> Iterator[LogMessage]:
    """Yield the messages of a log, without the prefixes of launchers and collectors of logs."""
    return MessageReader().messages(lines)


def _clock_s(line: str) -> float | None:
    """Return the time of day before the only message in a line about a communicator, in s; None for other lines."""
    if "- Init " not in line or line.count("NCCL INFO") != 1:
        return None
    return time_of_day_s(line.partition("NCCL INFO")[0])
