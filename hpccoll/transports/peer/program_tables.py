"""The programs of a rank as the tables that the peer kernel reads (peer.cu)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.transports.nccl.fold import SOURCE as FOLD_SOURCE
from hpccoll.transports.nccl.fold import Fold, fold_row
from hpccoll.transports.peer.program import (
    FLAG_KINDS,
    Await,
    Flag,
    FlagKind,
    FoldWave,
    Program,
    Push,
    Raise,
    words_at,
)
from hpccoll.transports.peer.words import WORD_BYTES, elements_of_word, words_of
from hpccoll.transports.shared_lowering import Span

SOURCE = Path(__file__).with_name("peer.cu")

AWAIT, RAISE, FOLD, SYNC, PUSH, GATHER = range(6)
"""The kinds of instructions."""

WORDS = 8
"""The words of an instruction."""

MOST = 32
"""The flags that one instruction awaits or raises at most."""

FLAG_BYTES = 8

INPUT_BITS = 32
"""The bits to which the number of the input is shifted in what a block says that it awaits."""


def kernel_source() -> str:
    """Return the text of the kernel, which follows that of the fold kernel."""
    return FOLD_SOURCE.read_text() + SOURCE.read_text()


class WordMemory(NamedTuple):
    """Where words lie whose elements are known."""

    address: int  # of the first word of even operations
    stride: int  # the bytes to those of odd operations
    peer: int


@dataclass(frozen=True, slots=True)
class FlagMemory:
    """Where the flags of all ranks lie: those that a rank awaits lie in its own memory, by block, peer and kind."""

    me: int
    addresses: Sequence[int]  # the first flag of each rank

    @staticmethod
    def count(blocks: int, ranks: int) -> int:
        """Return the number of flags that lie in the memory of a rank."""
        return blocks * ranks * len(FLAG_KINDS)

    def awaited(self, block: int, peer: int, kind: FlagKind) -> int:
        """Return the address of a flag that ``peer`` raises for this rank."""
        return self._address(self.me, block, peer, kind)

    def raised(self, block: int, peer: int, kind: FlagKind) -> int:
        """Return the address of a flag that this rank raises for ``peer``."""
        return self._address(peer, block, self.me, kind)

    def _address(self, owner: int, block: int, peer: int, kind: FlagKind) -> int:
        ranks = len(self.addresses)
        pair = block * ranks + peer
        number = pair * len(FLAG_KINDS) + FLAG_KINDS.index(kind)
        return self.addresses[owner] + number * FLAG_BYTES


class ProgramTables(NamedTuple):
    """The tables of all programs of a rank.

    ``flags`` has the flag of each instruction that awaits one, and the message of each input in
    words: its number is that of the instruction plus that of the input << INPUT_BITS.
    """

    programs: NDArray[np.int64]
    instructions: NDArray[np.int64]
    inputs: NDArray[np.int64]
    flags: Mapping[int, Flag]

    @property
    def blocks(self) -> int:
        return len(self.programs) - 1


def program_tables(
    programs: Sequence[Program],
    addresses: Mapping[str, int],
    flag_memory: FlagMemory,
    itemsize: int,
    words: Mapping[str, WordMemory] = MappingProxyType({}),
) -> ProgramTables:
    """Return the tables of programs whose buffers, and those of their peers, lie at ``addresses``."""
    writer = _TableWriter(addresses, flag_memory, itemsize, words)
    for block, program in enumerate(programs):
        writer.add(block, program)
    return writer.tables()


class _TableWriter:
    """Collects the rows of programs."""

    def __init__(
        self,
        addresses: Mapping[str, int],
        flag_memory: FlagMemory,
        itemsize: int,
        words: Mapping[str, WordMemory],
    ) -> None:
        self._words = words
        self._addresses = addresses
        self._flag_memory = flag_memory
        self._itemsize = itemsize
        self._firsts = [0]
        self._rows: list[tuple[int, ...]] = []
        self._inputs: list[int] = []
        self._awaited: dict[int, Flag] = {}

    def add(self, block: int, program: Program) -> None:
        """Append the rows of the program of a block."""
        follows_work = False
        for instruction in program.instructions:
            works = isinstance(instruction, FoldWave | Push)
            if works and follows_work:
                self._add_row(SYNC)
            if isinstance(instruction, FoldWave):
                self._add_folds(instruction, program)
            elif isinstance(instruction, Push):
                self._add_pushes(instruction)
            else:
                self._add_flags(instruction, block, program)
            follows_work = works
        self._firsts.append(len(self._rows))

    def _add_row(self, *numbers: int) -> None:
        self._rows.append((*numbers, *[0] * (WORDS - len(numbers))))

    def _add_folds(self, wave: FoldWave, program: Program) -> None:
        for fold in wave.folds:
            if any(span.buffer in self._words for span in fold.inputs):
                self._add_gather(fold, program)
                continue
            row, inputs = fold_row(fold, self._addresses, self._itemsize, len(self._inputs), 0)
            self._add_row(FOLD, *row)
            self._inputs += inputs

    def _add_gather(self, fold: Fold, program: Program) -> None:
        """Append the row of a fold of words."""
        together = elements_of_word(self._itemsize)
        places = set()
        inputs: list[int] = []
        for number, span in enumerate(fold.inputs):
            if span.buffer not in self._words:
                inputs += (self._address(span), -1, 0)
                continue
            memory = self._words[span.buffer]
            place = span.start % together
            places.add(place)
            inputs += (self._word_address(memory, span.start - place), place, memory.stride)
            message = program.pushed_message(memory.peer, span.start)
            self._awaited[len(self._rows) + (number << INPUT_BITS)] = message
        at_once = 1  # if their elements begin at different places of words
        before = 0
        if len(places) == 1:
            at_once = together
            before = places.pop()
        first_input = len(self._inputs)
        out = self._address(fold.out)
        count = len(fold.inputs)
        self._add_row(GATHER, out, first_input, count, len(fold.out), at_once, before)
        self._inputs += inputs

    def _add_pushes(self, push: Push) -> None:
        for span in push.spans:
            memory = self._words[words_at(span.peer)]
            words = self._word_address(memory, span.start)
            source = self._address(span.source)
            self._add_row(PUSH, words, source, len(span.source), memory.stride)

    def _address(self, span: Span) -> int:
        return self._addresses[span.buffer] + span.start * self._itemsize

    def _word_address(self, memory: WordMemory, element: int) -> int:
        return memory.address + words_of(element, self._itemsize) * WORD_BYTES

    def _add_flags(self, instruction: Await | Raise, block: int, program: Program) -> None:
        for start in range(0, len(instruction.flags), MOST):
            flags = instruction.flags[start : start + MOST]
            if isinstance(instruction, Await):
                self._awaited |= dict(enumerate(flags, len(self._rows)))
            self._rows += _flag_rows(instruction, flags, block, program, self._flag_memory)

    def tables(self) -> ProgramTables:
        """Return the tables of all programs that were added."""
        programs = np.array(self._firsts, np.int64)
        instructions = np.array(self._rows, np.int64).reshape(-1, WORDS)
        inputs = np.array(self._inputs, np.int64)
        return ProgramTables(programs, instructions, inputs, self._awaited)


def _flag_rows(
    instruction: Await | Raise,
    flags: Sequence[Flag],
    block: int,
    program: Program,
    memory: FlagMemory,
) -> list[tuple[int, ...]]:
    """Return the rows of flags that are awaited or raised at once."""
    awaits = isinstance(instruction, Await)
    kind = AWAIT if awaits else RAISE
    address_of = memory.awaited if awaits else memory.raised
    rows: list[tuple[int, ...]] = []
    for flag in flags:
        messages = _count_by_operation(flag, program, awaits=awaits)
        address = address_of(block, flag.peer, flag.kind)
        rows.append((kind, address, messages, flag.number, len(flags), 0, 0, 0))
    return rows


def _count_by_operation(flag: Flag, program: Program, *, awaits: bool) -> int:
    """Return by how much a flag counts up in an operation."""
    if flag.kind == "begun":
        return 1
    # the sender raises `ready` and awaits `read`
    sends = awaits == (flag.kind == "read")
    return (program.sent if sends else program.received)[flag.peer]
