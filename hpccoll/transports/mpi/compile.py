"""Compile: the steps of one rank turned into calls and MPI messages on its buffers.

Arrivals that are to be folded, or that land on what their own step still needs, go to scratch; a part of several pieces
is sent and received through a derived datatype.

Between ranks that see each other's memory two empty messages take the place of each: *ready*, on which the receiver
takes the part where it lies, and *done*, which ends the sender's step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import chain

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.schedule import Copy, Part, RecvReduce, ScheduleError, Send, Step
from hpccoll.schedule.step import Range, drop_null_peers
from hpccoll.transports.buffer_pieces import (
    Piece,
    accessed_parts,
    align_pieces,
    count_overlaps,
    overlapping_actions,
    sorted_bounds,
    workspace_elements,
    written_parts,
)
from hpccoll.transports.mpi.shared_windows import NodePeer, SendSpans, SharedMemory
from hpccoll.transports.mpi.step import CompiledStep, DeferredCall, MpiMessage, QueuedMemory, merge_steps
from hpccoll.transports.operation import Array, Operation, address, aligned_empty

MAX_MESSAGES = 32
"""The most messages from one rank to another in a step."""

TAGS_PER_LANE = 2 * MAX_MESSAGES
"""One for each message, and one for the word that it has been taken where it lies."""

MAX_LANES = 32768 // TAGS_PER_LANE
"""The most lanes of a plan: MPI promises tags up to 32767."""

NO_DATA = np.empty(1, np.uint8), 0, MPI.BYTE
"""The data of a message that is only a word: ready, or done."""


class MpiCompiler:
    """Turns the steps of this rank into calls and messages on its buffers; made on all ranks together where they share.

    Args:
        me: this rank.
        operation: what to do.
        src: this rank's source buffer, not used in place.
        dst: its destination buffer.
        shared: the memory of the node, src and dst among it; None where all parts are sent.
        memory: where src and dst lie, if not on the host: CuPy then folds and copies what NumPy is asked to.
    """

    def __init__(
        self,
        me: int,
        operation: Operation,
        src: Array,
        dst: Array,
        shared: SharedMemory | None = None,
        memory: QueuedMemory | None = None,
    ) -> None:
        self.me, self.operation, self.shared, self.memory = me, operation, shared, memory
        self.empty = memory.empty if memory else aligned_empty
        slices = map(operation.lane_schedule, range(len(operation.schedules)))
        self.slices = [[*map(drop_null_peers, schedule.steps(me))] for schedule in slices]
        self.steps = [self.slices[lane % len(self.slices)] for lane in range(operation.lanes)]
        self.spans = cache(operation.cut.spans)
        self.buffers = {"src": src, "dst": dst, "tmp": self._tmp(shared.empty if shared else self.empty)}
        self.datatypes: list[MPI.Datatype] = []
        self.near = self._neighbours(shared) if shared else {}

    def sequences(self) -> list[list[CompiledStep]]:
        """Return the steps of each sequence, lane after lane; ``datatypes`` are then what is to be freed."""
        window = max(1, min(self.operation.window * len(self.slices), self.operation.lanes))
        return [self._sequence(range(first, self.operation.lanes, window)) for first in range(window)]

    def _sequence(self, lanes: range) -> list[CompiledStep]:
        room = max((self._landing(lane, step) for lane in lanes for step in self.steps[lane]), default=0)
        scratch = self.empty(room, self.operation.dtype)
        compiled = []
        for lane in lanes:
            for step in self.steps[lane]:
                compiled += self._step(lane, step, scratch)
            compiled += self._scaling(lane)
        if self.memory:
            return _synchronized(compiled, self.memory.fences)
        return self._fenced(merge_steps(compiled)) if self.near else compiled

    def _fenced(self, steps: list[CompiledStep]) -> list[CompiledStep]:
        """Order memory before what is told to neighbours, and after what they tell."""
        fences = self.shared.fences if self.shared else []
        for step in steps:
            if any(message.empty for message in step.messages):
                step.before, step.after = [*step.before, *fences], [*fences, *step.after]
        return steps

    def _tmp(self, empty: Callable[[int, np.dtype[np.generic]], Array]) -> Array:
        """Return the algorithm's own buffer."""
        room = workspace_elements(chain.from_iterable(self.slices), self.operation.cut, self.operation.count)
        return empty(room, self.operation.dtype)

    def _neighbours(self, shared: SharedMemory) -> dict[int, NodePeer]:
        """Return the ranks whose memory this one sees, with where the parts lie that each sends it."""
        node = self.operation.layout.node
        near = [rank for rank in shared.ranks if rank != self.me and node[rank] == node[self.me]]
        views = {name: shared.views(buffer) for name, buffer in self.buffers.items()}
        theirs = shared.exchange(self._offers(near))
        return {
            peer: NodePeer(
                buffers={name: of[peer] for name, of in views.items()},
                offers={lane: iter(parts) for lane, parts in theirs[peer].items()},
            )
            for peer in near
        }

    def _offers(self, near: Iterable[int]) -> dict[int, SendSpans]:
        """Return where the parts lie that neighbours are sent, in the order in which they meet them."""
        offers: dict[int, SendSpans] = {peer: defaultdict(list) for peer in near}
        for lane, steps in enumerate(self.steps):
            for action in (action for step in steps for action in step.actions):
                if isinstance(action, Send) and (peer := int(action.peer)) in offers:
                    spans = self.spans(lane, self.me, action.part)
                    offers[peer][lane] += [[(action.part.buffer, *span) for span in spans]] if spans else []
        return offers

    def _landing(self, lane: int, step: Step) -> int:
        """Return the elements that the arrivals and copies of a step could need of scratch."""
        return sum(b - a for part in written_parts(step) for a, b in self.spans(lane, self.me, part))

    def _step(self, lane: int, step: Step, scratch: Array) -> list[CompiledStep]:
        """Compile a step; where parts are taken in place of being sent, its end is another."""
        start, end = CompiledStep(), CompiledStep()
        land = end if self._overwrites_what_is_taken(lane, step) else start
        ordinal: dict[tuple[bool, int], int] = defaultdict(int)
        used, common = 0, self._touched(lane, step)
        for place, action in enumerate(step.actions):
            target = self._spans(lane, action.target if isinstance(action, Copy) else action.part)
            length = sum(len(view) for view in target)
            room = scratch[used : used + length]
            if isinstance(action, Copy):
                used += self._copy(start, land, lane, action, room, touched=place in common)
                continue
            sends, peer = isinstance(action, Send), int(action.peer)
            tag = lane * TAGS_PER_LANE + ordinal[sends, peer]
            ordinal[sends, peer] += 1
            if ordinal[sends, peer] > MAX_MESSAGES:
                raise ScheduleError(f"rank {self.me} has over {MAX_MESSAGES} messages with rank {peer} in one step")
            if not length:
                continue
            near, nbytes = self.near.get(peer), length * self.operation.dtype.itemsize
            if near:
                start.messages.append(MpiMessage(sends, NO_DATA, peer, tag, nbytes))
                end.messages.append(MpiMessage(not sends, NO_DATA, peer, tag + MAX_MESSAGES, 0))
            if sends:
                start.messages += [] if near else [MpiMessage(sends, self._data(target), peer, tag, nbytes)]
                continue
            staged = land is end if near else isinstance(action, RecvReduce) or place in common
            arrival = [room] if staged else target
            used += length * staged
            if near:
                theirs = near.part(lane, room)
                start.after += [(np.copyto, views) for views in align_pieces(arrival, theirs)] if staged else []
                arrival = arrival if staged else theirs
            else:
                start.messages.append(MpiMessage(sends, self._data(arrival), peer, tag, nbytes))
            if isinstance(action, RecvReduce):
                own, fold = self._spans(lane, action.operand), self.operation.reduction.fold
                land.after += [(partial(fold, out=out), (a, b)) for a, b, out in align_pieces(own, arrival, target)]
            elif arrival is not target:
                land.after += [(np.copyto, views) for views in align_pieces(target, arrival)]
        return [start, end] if end.messages else [start]

    def _overwrites_what_is_taken(self, lane: int, step: Step) -> bool:
        """Return whether arrivals or copies of a step land on what neighbours take in the same step."""
        taken = (a.part for a in step.actions if isinstance(a, Send) and a.peer in self.near)
        return bool(
            count_overlaps(self._pieces(lane, *written_parts(step)), *sorted_bounds(self._pieces(lane, *taken)))
        )

    def _copy(
        self, start: CompiledStep, land: CompiledStep, lane: int, action: Copy, room: Array, *, touched: bool
    ) -> int:
        """Compile a copy, through scratch where the step writes what it reads; return the scratch it takes."""
        source, target = self._spans(lane, action.source), self._spans(lane, action.target)
        pieces = self._pieces(lane, action.source)
        if not (touched or count_overlaps(pieces, *sorted_bounds(self._pieces(lane, action.target)))):
            land.after += [(np.copyto, views) for views in align_pieces(target, source)]
            return 0
        start.before += [(np.copyto, views) for views in align_pieces([room], source)]
        land.after += [(np.copyto, views) for views in align_pieces(target, [room])]
        return len(room)

    def _touched(self, lane: int, step: Step) -> set[int]:
        """Return the places of actions whose buffers another action of the step touches, so that they are staged."""
        return overlapping_actions([self._pieces(lane, *accessed_parts(Step(action))) for action in step.actions])

    def _pieces(self, lane: int, *parts: Part) -> list[Piece]:
        """Return where parts lie in their buffers."""
        return [((part.buffer, a), (part.buffer, b)) for part in parts for a, b in self.spans(lane, self.me, part)]

    def _spans(self, lane: int, part: Part) -> list[Array]:
        return [self.buffers[part.buffer][a:b] for a, b in self.spans(lane, self.me, part)]

    def _data(self, views: list[Array]) -> tuple[NDArray[np.uint8], int, MPI.Datatype]:
        """Describe the bytes of ``views``: as they are where they are one piece, else by a derived datatype."""
        first = views[0].view(np.uint8)
        if len(views) == 1:
            return first, len(first), MPI.BYTE
        places = [address(view) - address(views[0]) for view in views]
        datatype = MPI.BYTE.Create_hindexed([view.nbytes for view in views], places).Commit()
        self.datatypes.append(datatype)
        return first, 1, datatype

    def _scaling(self, lane: int) -> list[CompiledStep]:
        """Return the last step of an average: the lane's sum over p."""
        if not self.operation.reduction.averages or self.me >= self.operation.layout.workers:
            return []
        units = self.operation.call.target(self.me, self.operation.cut.units)
        views = self._spans(lane, Part("dst", (Range(units.start, units.stop),)))
        scale = self.operation.reduction.scale
        return [CompiledStep(after=[(scale, (view, self.operation.layout.workers)) for view in views])]


def _synchronized(steps: list[CompiledStep], fences: Sequence[DeferredCall]) -> list[CompiledStep]:
    """Let what has been queued be done before messages start, and at the end: MPI does not know of streams."""
    for step in steps:
        step.before += fences if step.messages else []
    if steps:
        steps[-1].after += fences
    return steps
