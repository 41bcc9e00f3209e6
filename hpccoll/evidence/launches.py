"""Which lines are of one launch: logs of several that are read together must not pass for one.

Processes are of one launch where NCCL says that they share a communicator: it names each by a hash of its unique id
(``commId 0x...``, of INIT), which no two launches have in common. A process is known by its host and number, in all
logs that it writes into. What belongs to no such process is of the one launch that its log is of, or is by itself: that
logs lie in one directory shows nothing.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from hpccoll.evidence.log_lines import LogMessage

Launch: TypeAlias = dict[str, list[LogMessage]]
"""The messages of one launch, by the log that they stand in."""

_Writer: TypeAlias = tuple[str, str]
"""A log and a process that writes into it; an empty one for lines that are no process's."""

_COMMUNICATOR = re.compile(r"\bcommId 0x0*([1-9a-f][0-9a-f]*)\b")
"""A split has the id 0, and its parent has another."""


class _Groups:
    """Things that belong together, as far as it is known."""

    def __init__(self) -> None:
        self._towards: dict[object, object] = {}

    def of(self, one: object) -> object:
        """Return what stands for the group of ``one``."""
        while (further := self._towards.setdefault(one, one)) != one:
            self._towards[one] = self._towards[further]  # the way is half as long next time
            one = further
        return one

    def join(self, one: object, other: object) -> None:
        self._towards[self.of(one)] = self.of(other)


def split_launches(logs: Mapping[str, Sequence[LogMessage]]) -> list[Launch]:
    """Return the launches that logs are of, in the order of their first lines.

    Args:
        logs: the messages of each, by its name. What has no message of a library is of no launch.
    """
    groups = _joined(logs)
    found: defaultdict[object, Launch] = defaultdict(dict)
    for name, lines in logs.items():
        for line in lines:
            found[groups.of((name, line.process))].setdefault(name, []).append(line)
    return [one for one in found.values() if any(line.origin for lines in one.values() for line in lines)]


def _joined(logs: Mapping[str, Sequence[LogMessage]]) -> _Groups:
    groups = _Groups()
    named: defaultdict[str, list[_Writer]] = defaultdict(list)  # by process: where it names a communicator
    for name, lines in logs.items():
        for line in lines:
            if "commId" in line.text and (found := _COMMUNICATOR.search(line.text)):
                groups.join((name, line.process), found[1])
                named[line.process].append((name, line.process))
    for name, lines in logs.items():
        theirs: set[object] = set()  # the launches that its processes are known to be of
        for process in {line.process for line in lines if line.process}:
            of = {groups.of(writer) for writer in _elsewhere(name, named[process])}
            if len(of) == 1:
                theirs |= of
                groups.join((name, process), of.pop())
            else:
                groups.join((name, process), (name, ""))
        if len(theirs) == 1:
            groups.join((name, ""), theirs.pop())
    return groups


def _elsewhere(name: str, writers: Sequence[_Writer]) -> Sequence[_Writer]:
    """Return where a process of the log ``name`` names communicators: there, beside it, or anywhere.

    Libsharp and NCCL may write into different logs; and in containers processes of all launches have the same numbers.
    """
    here = [writer for writer in writers if writer[0] == name]
    beside = [writer for writer in writers if Path(writer[0]).parent == Path(name).parent]
    return here or beside or writers
