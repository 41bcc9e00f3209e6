"""Lines of logs cut into messages: who wrote each, at which level, and what it says without its header.

Processes that share a file write over each other: a header in the middle of a line begins a message of its own, and
what stood before it is cut short, which the rules then do not match. Nothing is guessed from half a line.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of a library.

    Args:
        origin: ``nccl``, ``sharp`` (its library), ``ucc``, or None for what has no known header.
        process: that wrote it, by its host and number; empty for what has no known header.
        level: such as ``INFO``, None where there is none.
        text: without the header.
    """

    origin: str | None
    process: str
    level: str | None
    text: str


_STAMP = r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ?)?"
_HEADS = {
    # host:pid:tid [device] NCCL INFO ..., and for WARN the place in the source, since 2.30 with a stamp and a function.
    "nccl": (
        _STAMP + r"(?<![\w.-])(?P<nccl_host>[\w.-]{1,255}):(?P<nccl_pid>\d{1,18}):\d+ \[-?\d+\] "
        r"(?:[\w./+-]+:\d+ (?:\([^)]*\) )?)?NCCL (?P<nccl_level>VERSION|WARN|ATTN|INFO|ABORT|TRACE) "
    ),
    # [host:rank:pid - file.c:line][stamp] INFO ..., or with the job's id in place of the file.
    "sharp": (
        r"\[(?P<sharp_host>[\w.-]{1,255}):\d+:(?P<sharp_pid>\d{1,18}) (?:- [\w./]+:\d+|unique id \d+)\]"
        r"(?:\[[^]]*\])? ?(?P<sharp_level>[A-Z]+) "
    ),
    # [seconds] [host:pid:tid] file.c:line COMPONENT INFO ...
    "ucc": (
        r"\[\d+\.\d+\] \[(?P<ucc_host>[\w.-]{1,255}):(?P<ucc_pid>\d{1,18})\s*:\d+\]\s+[\w./]+:\d+\s+"
        r"(?:UCC|UCC_COLL|[CT]L_\w+)\s+(?P<ucc_level>[A-Z]+)\s+"
    ),
}
_HEAD = re.compile("|".join(f"(?P<{origin}>{head})" for origin, head in _HEADS.items()))


def has_header(line: str) -> bool:
    """Return whether a line has a header of a library."""
    return _HEAD.search(line) is not None


def messages(lines: Iterable[str]) -> Iterator[LogMessage]:
    """Yield the messages of a log, given by its lines."""
    for line in lines:
        heads = list(_HEAD.finditer(line))
        before = line[: heads[0].start()] if heads else line
        if before.strip():
            yield LogMessage(None, "", None, before.strip())
        for head, following in zip_longest(heads, heads[1:]):
            origin = next(own for own in _HEADS if head[own] is not None)
            body = line[head.end() : following.start() if following else None]
            process = f"{head[f'{origin}_host']}:{head[f'{origin}_pid']}"
            yield LogMessage(origin, process, head[f"{origin}_level"], body.strip())
