"""Compile: the steps of one rank turned into calls and MPI messages on its buffers.

Arrivals that are to be folded, or that land on what their own step still needs, go to scratch; a part of several pieces
is sent and received through a derived datatype.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, chain, pairwise
from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.schedule import Copy, Part, Receive, Reduce, ScheduleError, Send, Step
from hpccoll.schedule.words import Range, live
from hpccoll.transports.operation import Array, Operation, aligned_empty

TAGS_PER_LANE = 32
"""The most messages from one rank to another in a step."""

LANES = 32768 // TAGS_PER_LANE
"""The most lanes of a plan: MPI promises tags up to 32767."""

Place: TypeAlias = tuple[str, int]
"""An element of a buffer."""

Piece: TypeAlias = tuple[Place, Place]

Call: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of this rank: which bytes, as mpi4py takes them, to or from whom."""

    sends: bool
    data: tuple[NDArray[np.uint8], int, MPI.Datatype]
    peer: int
    tag: int

    def persistent(self, comm: MPI.Intracomm) -> MPI.Prequest:
        return (comm.Send_init if self.sends else comm.Recv_init)(self.data, self.peer, self.tag)

    def transient(self, comm: MPI.Intracomm) -> Callable[[], MPI.Request]:
        return partial(comm.Isend if self.sends else comm.Irecv, self.data, self.peer, self.tag)


@dataclass(slots=True)
class CompiledStep:
    """What this rank does in a step: calls, then messages, then calls."""

    before: list[Call] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)
    requests: list[MPI.Prequest] = field(default_factory=list)
    starts: list[Callable[[], MPI.Request]] = field(default_factory=list)

    def prepare(self, comm: MPI.Intracomm, *, persistent: bool) -> None:
        """Make what ``start`` starts: requests that persist, or calls that make new ones."""
        if persistent:
            self.requests = [message.persistent(comm) for message in self.messages]
        else:
            self.starts = [message.transient(comm) for message in self.messages]

    def start(self) -> Sequence[MPI.Request]:
        for call, arguments in self.before:
            call(*arguments)
        if self.requests:
            MPI.Prequest.Startall(self.requests)
            return self.requests
        return [start() for start in self.starts]

    def finish(self) -> None:
        for call, arguments in self.after:
            call(*arguments)


class Compiler:
    """Turns the steps of this rank into calls and messages on its buffers."""

    def __init__(self, me: int, operation: Operation, src: Array, dst: Array) -> None:
        self.me, self.operation = me, operation
        self.slices = [[*map(live, operation.lane(number).steps(me))] for number in range(len(operation.schedules))]
        self.steps = [self.slices[lane % len(self.slices)] for lane in range(operation.lanes)]
        self.spans = cache(operation.cut.spans)
        self.buffers = {"src": src, "dst": dst, "tmp": self._tmp()}
        self.datatypes: list[MPI.Datatype] = []

    def sequences(self) -> list[list[CompiledStep]]:
        """Return the steps of each sequence, lane after lane; ``datatypes`` are then what is to be freed."""
        window = max(1, min(self.operation.window * len(self.slices), self.operation.lanes))
        return [self._sequence(range(first, self.operation.lanes, window)) for first in range(window)]

    def _sequence(self, lanes: range) -> list[CompiledStep]:
        room = max((self._landing(lane, step) for lane in lanes for step in self.steps[lane]), default=0)
        scratch = aligned_empty(room, self.operation.dtype)
        compiled = []
        for lane in lanes:
            compiled += [self._step(lane, step, scratch) for step in self.steps[lane]]
            compiled += self._scaling(lane)
        return compiled

    def _tmp(self) -> Array:
        """Return the algorithm's own buffer: like dst for free units, else as many blocks as it names."""
        parts = [part for steps in self.slices for step in steps for part in _parts(step) if part.buffer == "tmp"]
        if parts and self.operation.collective.units == "free":
            return aligned_empty(self.operation.count, self.operation.dtype)
        blocks = max((int(r.last) for part in parts for r in part.ranges), default=0)
        return aligned_empty(blocks * self.operation.count, self.operation.dtype)

    def _landing(self, lane: int, step: Step) -> int:
        """Return the elements that the arrivals and copies of a step could need of scratch."""
        arrivals = [action for action in step.actions if not isinstance(action, Send)]
        landing = [action.target if isinstance(action, Copy) else action.part for action in arrivals]
        return sum(b - a for part in landing for a, b in self.spans(lane, self.me, part))

    def _step(self, lane: int, step: Step, scratch: Array) -> CompiledStep:
        compiled = CompiledStep()
        ordinal: dict[tuple[bool, int], int] = defaultdict(int)
        used, touched = 0, self._touched(lane, step)
        for place, action in enumerate(step.actions):
            target = self._spans(lane, action.target if isinstance(action, Copy) else action.part)
            length = sum(len(view) for view in target)
            room = scratch[used : used + length]
            if isinstance(action, Copy):
                used += self._copy(compiled, lane, action, room, touched=place in touched)
                continue
            sends, peer = isinstance(action, Send), int(action.peer)
            tag = lane * TAGS_PER_LANE + ordinal[sends, peer]
            ordinal[sends, peer] += 1
            if ordinal[sends, peer] > TAGS_PER_LANE:
                raise ScheduleError(f"rank {self.me} has over {TAGS_PER_LANE} messages with rank {peer} in one step")
            if not length:
                continue
            if isinstance(action, Reduce):
                used += length
                data = [room]
                own, fold = self._spans(lane, action.own), self.operation.reduction.fold
                compiled.after += [(partial(fold, out=out), (a, b)) for a, b, out in _align(own, [room], target)]
            elif isinstance(action, Receive) and place in touched:
                used += length
                data = [room]
                compiled.after += [(np.copyto, views) for views in _align(target, [room])]
            else:
                data = target
            compiled.messages.append(Message(sends, self._data(data), peer, tag))
        return compiled

    def _copy(self, compiled: CompiledStep, lane: int, action: Copy, room: Array, *, touched: bool) -> int:
        """Compile a copy, through scratch where the step writes what it reads; return the scratch it takes."""
        source, target = self._spans(lane, action.source), self._spans(lane, action.target)
        pieces = self._pieces(lane, action.source)
        if not (touched or _meetings(pieces, *_ends(self._pieces(lane, action.target)))):
            compiled.after += [(np.copyto, views) for views in _align(target, source)]
            return 0
        compiled.before += [(np.copyto, views) for views in _align([room], source)]
        compiled.after += [(np.copyto, views) for views in _align(target, [room])]
        return len(room)

    def _touched(self, lane: int, step: Step) -> set[int]:
        """Return the places of actions whose buffers another action of the step touches, so that they are staged."""
        pieces = [self._pieces(lane, *_parts(Step(action))) for action in step.actions]
        everyone = _ends(chain.from_iterable(pieces))
        return {at for at, mine in enumerate(pieces) if _meetings(mine, *everyone) > _meetings(mine, *_ends(mine))}

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
        places = [view.ctypes.data - first.ctypes.data for view in views]
        datatype = MPI.BYTE.Create_hindexed([view.nbytes for view in views], places).Commit()
        self.datatypes.append(datatype)
        return first, 1, datatype

    def _scaling(self, lane: int) -> list[CompiledStep]:
        """Return the last step of an average: the lane's sum over p."""
        if not self.operation.reduction.averages or self.me >= self.operation.layout.workers:
            return []
        units = self.operation.promise.target(self.me, self.operation.cut.units)
        views = self._spans(lane, Part("dst", (Range(units.start, units.stop),)))
        scale = self.operation.reduction.scale
        return [CompiledStep(after=[(scale, (view, self.operation.layout.workers)) for view in views])]


def _parts(step: Step) -> Iterator[Part]:
    """Yield every part that a step reads or writes at this rank."""
    for action in step.actions:
        if isinstance(action, Copy):
            yield from (action.source, action.target)
        else:
            yield action.part
            if isinstance(action, Reduce):
                yield action.own


def _ends(pieces: Iterable[Piece]) -> tuple[list[Place], list[Place]]:
    """Return where pieces start, and where they stop, each in order."""
    both = [*pieces]
    return sorted(start for start, _ in both), sorted(stop for _, stop in both)


def _meetings(pieces: list[Piece], starts: list[Place], stops: list[Place]) -> int:
    """Return how often ``pieces`` overlap those that have the ``starts`` and ``stops``."""
    return sum(bisect_left(starts, stop) - bisect_right(stops, start) for start, stop in pieces)


def _align(*lists: list[Array]) -> Iterator[tuple[Array, ...]]:
    """Cut lists of views that describe equally many elements into pieces that are one view in each list."""
    ends = [list(accumulate(map(len, views))) for views in lists]
    for start, stop in pairwise(sorted({0, *chain.from_iterable(ends)})):
        yield tuple(_piece(views, of, start, stop) for views, of in zip(lists, ends, strict=True))


def _piece(views: list[Array], ends: list[int], start: int, stop: int) -> Array:
    """Return the elements [start, stop) of ``views`` joined, which lie in the one of them that ends behind start."""
    at = bisect_right(ends, start)
    begin = ends[at] - len(views[at])
    return views[at][start - begin : stop - begin]
