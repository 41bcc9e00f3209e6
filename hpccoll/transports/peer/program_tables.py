"""The programs of a rank as the tables that the peer kernel reads (peer.cu)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.transports.nccl.fold import SOURCE as FOLD_SOURCE
from hpccoll.transports.nccl.fold import fold_row
from hpccoll.transports.peer.lowering import (
    FLAG_KINDS,
    Await,
    Flag,
    FlagKind,
    FoldWave,
    Program,
    Raise,
)

SOURCE = Path(__file__).with_name("peer.cu")

AWAIT, RAISE, FOLD, SYNC = range(4)
"""The kinds of instructions."""

WORDS = 8
"""The words of an instruction."""

MOST = 32
"""The flags that one instruction awaits or raises at most."""

FLAG_BYTES = 8


def kernel_source() -> str:
    """Return the text of the kernel, which follows that of the fold kernel."""
    return FOLD_SOURCE.read_text() + SOURCE.read_text()


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
    """The tables of all programs of a rank; ``flags`` has the flag of each instruction that awaits one."""

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
) -> ProgramTables:
    """Return the tables of programs whose buffers, and those of their peers, lie at ``addresses``."""
    writer = _TableWriter(addresses, flag_memory, itemsize)
    for block, program in enumerate(programs):
        writer.add(block, program)
    return writer.tables()


class _TableWriter:
    """Collects the rows of programs."""

    def __init__(
        self, addresses: Mapping[str, int], flag_memory: FlagMemory, itemsize: int
    ) -> None:
        self._addresses = addresses
        self._flag_memory = flag_memory
        self._itemsize = itemsize
        self._firsts = [0]
        self._rows: list[tuple[int, ...]] = []
        self._inputs: list[int] = []
        self._awaited: dict[int, Flag] = {}

    def add(self, block: int, program: Program) -> None:
        """Append the rows of the program of a block."""
        follows_wave = False
        for instruction in program.instructions:
            if isinstance(instruction, FoldWave):
                if follows_wave:
                    self._rows.append((SYNC, *[0] * (WORDS - 1)))
                self._add_folds(instruction)
            else:
                self._add_flags(instruction, block, program)
            follows_wave = isinstance(instruction, FoldWave)
        self._firsts.append(len(self._rows))

    def _add_folds(self, wave: FoldWave) -> None:
        for fold in wave.folds:
            row, inputs = fold_row(fold, self._addresses, self._itemsize, len(self._inputs), 0)
            self._rows.append((FOLD, *row))
            self._inputs += inputs

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
        # the sender raises `ready` and awaits `read`
        sends = awaits == (flag.kind == "read")
        messages = (program.sent if sends else program.received)[flag.peer]
        address = address_of(block, flag.peer, flag.kind)
        rows.append((kind, address, messages, flag.number, len(flags), 0, 0, 0))
    return rows
