"""Programs of the peer kernel: the instructions of a block."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.shared_lowering import Span

Protocol: TypeAlias = Literal["ll", "simple"]
"""How messages move: written by their sender in words with flags, or read by their receiver where they lie."""

FlagKind: TypeAlias = Literal["ready", "read", "begun"]
FLAG_KINDS: tuple[FlagKind, ...] = ("ready", "read", "begun")

SentSpans: TypeAlias = list[list[list[Span]]]
"""What a rank sends to another one, by sequence and message: the spans of the part in its own buffers."""


class Flag(NamedTuple):
    """A count of messages between this rank and a peer in one sequence, as one of the two raises or awaits it."""

    kind: FlagKind
    peer: int
    # the messages from the first one on that are ready, or read; or the operations, from the one
    # before this one on, that have begun
    number: int
    step: int  # of this rank, counted over the lanes of the sequence


@dataclass(frozen=True, slots=True)
class Await:
    """Waits until all of the flags, which peers raise, have been raised."""

    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Raise:
    """Raises flags in the memory of peers, after everything before it is done."""

    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class FoldWave:
    """Folds that do not depend on each other; inputs may lie in the memory of peers."""

    folds: tuple[Fold, ...]


class PushedSpan(NamedTuple):
    """A part of a message that is written into words of its receiver."""

    peer: int
    source: Span
    start: int  # the first of the elements in the words for this rank


@dataclass(frozen=True, slots=True)
class Push:
    """Writes messages into words of their receivers."""

    spans: tuple[PushedSpan, ...]


Instruction: TypeAlias = Await | Raise | FoldWave | Push


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of a block."""

    instructions: list[Instruction]
    sent: Mapping[int, int]  # the number of messages to each peer
    received: Mapping[int, int]  # the number of messages from each peer
    # by peer and in ascending order, the first element of each message in words, and the message
    pushed: Mapping[int, Sequence[tuple[int, Flag]]] = field(default_factory=dict)

    def pushed_message(self, peer: int, element: int) -> Flag:
        """Return the message in words that has an element."""
        messages = self.pushed[peer]
        number = bisect_right(messages, element, key=itemgetter(0))
        return messages[number - 1][1]


def buffer_of_peer(peer: int, buffer: str) -> str:
    """Return the name of a peer's buffer."""
    return f"{buffer} of rank {peer}"


def words_from(peer: int) -> str:
    """Return the name of the words that a peer writes for this rank."""
    return f"words from rank {peer}"


def words_at(peer: int) -> str:
    """Return the name of the words that this rank writes for a peer."""
    return f"words at rank {peer}"
