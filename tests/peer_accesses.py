"""What programs of the peer kernel read and write, and whether flags order all of it, whatever the timing.

A vector clock of a block has, for every block of every rank, the number of its instructions that have
certainly ended. An instruction that awaits a flag joins the clock of the one that raises it. Two
accesses to the same element, at least one of which writes, must be ordered by the clocks.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from hpccoll.transports.peer.program import Await, Raise, buffer_of_peer


@dataclass(frozen=True)
class Access:
    """The elements that an instruction reads or writes, of a buffer of a rank."""

    block: tuple[int, int]  # the rank and its block
    position: int
    writes: bool
    start: int
    stop: int


class Ordered:
    """The accesses of all programs of an operation, with the clock of each instruction.

    ``dropped`` is a flag that is awaited without acquiring anything, ``unreleased`` one that is raised
    without releasing anything: (rank, block, position, flag).
    """

    def __init__(self, programs, dropped=None, unreleased=None):
        self.ranks = len(programs)
        self.programs = {
            (me, block): program.instructions
            for me, of_rank in enumerate(programs)
            for block, program in enumerate(of_rank)
        }
        self.numbers = {block: number for number, block in enumerate(self.programs)}
        self.owners = {
            buffer_of_peer(peer, name): (peer, name)
            for peer in range(self.ranks)
            for name in ("src", "dst", "tmp")
        }
        self.dropped = dropped
        self.unreleased = unreleased
        self.released = {}  # the last clock that was released with each flag
        self.clocks = {block: [] for block in self.programs}
        self.accesses = defaultdict(list)
        self._run()
        self._add_writes_of_the_host()

    def _run(self):
        raised = {}
        clock = {block: np.zeros(len(self.programs), np.int64) for block in self.programs}
        for block in self.programs:
            self._end_instruction(block, clock[block])  # the host has written the buffers
        waiting = list(self.programs)
        while waiting:
            done = self._instructions_done
            waiting = [block for block in waiting if not self._advance(block, clock[block], raised)]
            assert not waiting or self._instructions_done > done, "a deadlock"
        for block in self.programs:
            self._end_instruction(block, clock[block])  # the host writes the buffers again

    @property
    def _instructions_done(self):
        return sum(map(len, self.clocks.values()))

    def _advance(self, block, clock, raised):
        """Run a block up to the next flag that is not raised; return whether it has ended."""
        me, number = block
        instructions = self.programs[block]
        while len(self.clocks[block]) <= len(instructions):
            position = len(self.clocks[block])
            instruction = instructions[position - 1]
            if isinstance(instruction, Await):
                keys = [
                    (flag.peer, number, me, flag.kind, flag.number) for flag in instruction.flags
                ]
                if any(key not in raised for key in keys):
                    return False
                for flag, key in zip(instruction.flags, keys, strict=True):
                    if (me, number, position - 1, flag) != self.dropped:
                        np.maximum(clock, raised[key], out=clock)
            self._end_instruction(block, clock)
            if isinstance(instruction, Raise):
                for flag in instruction.flags:
                    self._raise(raised, (me, number, position - 1, flag), clock.copy())
            elif not isinstance(instruction, Await):
                self._access(block, position, instruction)
        return True

    def _end_instruction(self, block, clock):
        clock[self.numbers[block]] = len(self.clocks[block]) + 1
        self.clocks[block].append(clock.copy())

    def _raise(self, raised, place, clock):
        """A flag that counts further than the next message raises all of those before it."""
        me, number, _, flag = place
        counted = me, number, flag.peer, flag.kind
        if place == self.unreleased:
            clock = self.released.get(counted, np.zeros_like(clock))
        self.released[counted] = clock
        for earlier in range(flag.number, 0, -1):
            key = me, number, flag.peer, flag.kind, earlier
            if key in raised:
                break
            raised[key] = clock

    def _access(self, block, position, wave):
        for fold in wave.folds:
            self._add(block, position, fold.out, writes=True)
            for span in fold.inputs:
                self._add(block, position, span, writes=False)

    def _add(self, block, position, span, *, writes):
        owner = self.owners.get(span.buffer, (block[0], span.buffer))
        self.accesses[owner].append(Access(block, position, writes, span.start, span.stop))

    def _add_writes_of_the_host(self):
        """A rank writes its buffers before the first instruction of a block and after the last one."""
        for (owner, name), accesses in self.accesses.items():
            if name.startswith("scratch"):
                continue
            for block, start, stop in {(a.block[1], a.start, a.stop) for a in accesses}:
                own = owner, block
                for position in (0, len(self.clocks[own]) - 1):
                    accesses.append(Access(own, position, True, start, stop))

    def races(self):
        """Return the pairs of accesses that no flag orders."""
        found = []
        for accesses in self.accesses.values():
            writes = [access for access in accesses if access.writes]
            for write in writes:
                for access in accesses:
                    overlap = access.start < write.stop and write.start < access.stop
                    if overlap and not self._are_ordered(write, access):
                        found.append((write, access))
        return found

    def _are_ordered(self, a, b):
        if a.block == b.block:
            return True
        return self._precedes(a, b) or self._precedes(b, a)

    def _precedes(self, a, b):
        return self.clocks[b.block][b.position][self.numbers[a.block]] > a.position
