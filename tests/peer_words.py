"""Whether words of the peer kernel are overwritten before they are read, whatever the timing, over several operations.

A vector clock of a block has, for every block of every rank, the number of its events that have
certainly happened. A flag that is awaited joins the clock of the block that raises it. Words order
less, because they are stored and loaded without a fence: what a rank has done before a launch has
happened for those that read its words once their own launch has ended.
"""

from collections import defaultdict

import numpy as np

from hpccoll.transports.peer.program import Await, FoldWave, Push, words_from

OPERATIONS = 5
ENDED = "ended"


class OverwrittenWords:
    """The words of all programs of an operation that are overwritten unread, when it runs several times.

    ``dropped`` is a rank and a peer: the rank does not await that the peer has begun. With
    ``words_order`` a word that is taken orders all that its writer has done, as it does where it is
    stored with release and loaded with acquire semantics.
    """

    def __init__(self, programs, dropped=None, *, words_order=False):
        self.programs = programs
        self.dropped = dropped
        self.words_order = words_order
        self.blocks = [
            (me, number) for me, of_rank in enumerate(programs) for number in range(len(of_rank))
        ]
        self.peers = {words_from(peer): peer for peer in range(len(programs))}
        self.numbers = {block: number for number, block in enumerate(self.blocks)}
        self.events = np.zeros(len(self.blocks), np.int64)
        self.clocks = {block: np.zeros(len(self.blocks), np.int64) for block in self.blocks}
        self.begun = {}  # by rank and operation: the clock of the launch
        # by receiver, sender, block and operation: the elements, and the clock of the sender, or
        # the event of the receiver
        self.pushed = defaultdict(list)
        self.read = defaultdict(list)
        self._run()

    def _run(self):
        running = [self._rank(me) for me in range(len(self.programs))]
        while running:
            states = [next(rank, ENDED) for rank in running]
            assert any(states), "a deadlock"
            running = [
                rank for rank, state in zip(running, states, strict=True) if state is not ENDED
            ]

    def _rank(self, me):
        """Run the launches of a rank; yield whether a block has advanced."""
        own = [block for block in self.blocks if block[0] == me]
        for operation in range(OPERATIONS):
            joined = np.maximum.reduce([self.clocks[block] for block in own])
            self.begun[me, operation] = joined
            blocks = {}
            for block in own:
                self.clocks[block] = joined.copy()
                blocks[block] = self._block(block, operation)
            seen = {block: [] for block in own}
            while blocks:
                advanced = False
                for block, instructions in list(blocks.items()):
                    state = next(instructions, ENDED)
                    if state is ENDED:
                        del blocks[block]
                    elif state is not None:
                        seen[block].append(state)
                    advanced = advanced or state is not None
                yield advanced
            for block in own:  # the end of a launch is a fence
                for clock in seen[block]:
                    np.maximum(self.clocks[block], clock, out=self.clocks[block])

    def _block(self, block, operation):
        """Run a block of a launch; yield None while it waits, and else the clock that its words bring."""
        me, number = block
        nothing = np.zeros(len(self.blocks), np.int64)
        for instruction in self.programs[me][number].instructions:
            if isinstance(instruction, Await):
                for flag in instruction.flags:
                    yield from self._await(block, flag.peer, operation)
            elif isinstance(instruction, Push):
                for span in instruction.spans:
                    self._push(block, span, operation)
            elif isinstance(instruction, FoldWave):
                for span in [span for fold in instruction.folds for span in fold.inputs]:
                    if span.buffer in self.peers:
                        yield from self._read(block, span, operation)
            yield nothing

    def _await(self, block, peer, operation):
        if operation == 0 or (block[0], peer) == self.dropped:
            return
        while (peer, operation - 1) not in self.begun:
            yield None
        clock = self.clocks[block]
        np.maximum(clock, self.begun[peer, operation - 1], out=clock)

    def _push(self, block, span, operation):
        me, number = block
        elements = range(span.start, span.start + len(span.source))
        clock = self.clocks[block].copy()
        self.pushed[span.peer, me, number, operation].append((elements, clock))

    def _read(self, block, span, operation):
        me, number = block
        peer = self.peers[span.buffer]
        words = me, peer, number, operation
        clocks = self._clocks_of_pushes(words, span)
        while not clocks:
            yield None
            clocks = self._clocks_of_pushes(words, span)
        if self.words_order:
            np.maximum(self.clocks[block], clocks[0], out=self.clocks[block])
        own = self.numbers[block]
        self.events[own] += 1
        self.clocks[block][own] = self.events[own]
        self.read[words].append((range(span.start, span.stop), self.events[own]))
        yield self.begun[peer, operation]

    def _clocks_of_pushes(self, words, span):
        return [clock for elements, clock in self.pushed[words] if span.start in elements]

    def overwritten_unread(self):
        """Return the words that may be overwritten before they are read: receiver, sender, block and operation."""
        found = []
        for words, reads in self.read.items():
            receiver, sender, number, operation = words
            reader = self.numbers[receiver, number]
            for elements, clock in self.pushed[receiver, sender, number, operation + 2]:
                for read, event in reads:
                    overlap = read.start < elements.stop and elements.start < read.stop
                    if overlap and clock[reader] < event:
                        found.append(words)
        return found
