"""The lowering of schedules for MPI: it turns the steps of one rank into calls and messages on its buffers.

Arrivals that are folded, or that would overwrite data which their step still reads, are received
into scratch. A part with more than one piece is sent and received through a derived datatype.

Ranks that share memory exchange two empty messages (signals) instead of each message: after *ready*
the receiver reads the part from the sender's memory, and *done* ends the sender's step.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.common.limits import MAX_MPI_LANES
from hpccoll.executor.lowered_step import (
    LocalCall,
    LocalCopy,
    LocalFold,
    LocalScale,
    LocalWork,
    LoweredStep,
    MpiMessage,
)
from hpccoll.schedule import Copy, CopyReduce, Part, Recv, RecvReduce, ScheduleError, Send, Step
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.mpi.shared_windows import NodePeer, SendSpans, SharedMemory
from hpccoll.transports.shared_lowering import Lowering, align_pieces, overlap
from hpccoll.transports.transport_interface import address, aligned_empty

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

TAGS_PER_LANE = 32768 // MAX_MPI_LANES
"""The number of tags of a lane: one for each message or ready signal, and one for its done signal."""

MAX_MESSAGES = TAGS_PER_LANE // 2
"""The maximum number of messages from one rank to another in a step."""

NO_DATA = np.empty(1, np.uint8), 0, MPI.BYTE
"""The buffer specification of a signal."""


class MpiLowering(Lowering):
    """Lowers the steps of this rank. With ``shared``, all ranks create it together.

    Args:
        shared: the shared memory of the node, which contains src and dst; None to send all parts.
        memory: the GPU that has src and dst; None if the host has them.
    """

    def __init__(
        self,
        me: int,
        operation: Operation,
        src: Array,
        dst: Array,
        shared: SharedMemory | None = None,
        memory: "Gpu | None" = None,
    ) -> None:
        super().__init__(me, operation)
        self.shared = shared
        self.memory = memory
        self.empty = memory.empty if memory else aligned_empty
        allocate = shared.empty if shared else self.empty
        tmp = allocate(self.tmp_length, operation.dtype)
        self.buffers = {"src": src, "dst": dst, "tmp": tmp}
        self.datatypes: list[MPI.Datatype] = []
        self.scratches: list[Array] = []
        self.node_peers = self._node_peers(shared) if shared else {}

    def sequences(self) -> list[list[LoweredStep]]:
        """Return the steps of each sequence, lane after lane; the caller later frees ``datatypes``."""
        return [self._sequence(lanes) for lanes in self.operation.sequences]

    def _sequence(self, lanes: range) -> list[LoweredStep]:
        steps = [(lane, step) for lane in lanes for step in self.steps(lane)]
        length = max((sum(map(len, self.written(lane, step))) for lane, step in steps), default=0)
        scratch = self.empty(length, self.operation.dtype)
        self.scratches.append(scratch)
        lowered = []
        for lane in lanes:
            for step in self.steps(lane):
                lowered += self._step(lane, step, scratch)
            lowered += self._scaling(lane)
        if self.memory:
            # only ranks with GPUs need it
            from hpccoll.transports.mpi.gpu_folds import launch_folds

            launch_folds(self.memory, self.operation, lowered)
            return _synchronized(lowered, [LocalCall(*call) for call in self.memory.sync_calls])
        return self._fenced(merge_steps(lowered)) if self.node_peers else lowered

    def _fenced(self, steps: list[LoweredStep]) -> list[LoweredStep]:
        fences = [LocalCall(*call) for call in self.shared.fences] if self.shared else []
        for step in steps:
            if any(message.is_signal for message in step.messages):
                step.before = [*step.before, *fences]
                step.after = [*fences, *step.after]
        return steps

    def _node_peers(self, shared: SharedMemory) -> dict[int, NodePeer]:
        """Return the ranks whose memory this rank reads, with the spans of the parts that each sends to it."""
        node = self.operation.layout.node
        peers = [rank for rank in shared.ranks if rank != self.me and node[rank] == node[self.me]]
        views = {name: shared.views(buffer) for name, buffer in self.buffers.items()}
        received = shared.exchange(self._send_spans(peers))
        node_peers = {}
        for peer in peers:
            buffers = {name: views_by_rank[peer] for name, views_by_rank in views.items()}
            sends = {lane: iter(parts) for lane, parts in received[peer].items()}
            node_peers[peer] = NodePeer(buffers, sends)
        return node_peers

    def _send_spans(self, peers: Iterable[int]) -> dict[int, SendSpans]:
        """Return, for each peer, the spans of the parts that this rank sends to it, in the order of the schedule."""
        sends: dict[int, SendSpans] = {peer: defaultdict(list) for peer in peers}
        for lane in range(self.operation.lanes):
            for action in chain.from_iterable(step.actions for step in self.steps(lane)):
                if not isinstance(action, Send) or int(action.peer) not in sends:
                    continue
                spans = self.spans(lane, action.part)
                if spans:
                    sends[int(action.peer)][lane].append(spans)
        return sends

    def _step(self, lane: int, step: Step, scratch: Array) -> list[LoweredStep]:
        """Lower a step; if peers read parts from shared memory, a second step waits until they are done."""
        start = LoweredStep()
        end = LoweredStep()
        write = end if self._overwrites_parts_being_read(lane, step) else start
        ordinal: dict[tuple[bool, int], int] = defaultdict(int)
        used = 0
        overlapping = self.overlapping(lane, step)
        for number, action in enumerate(step.actions):
            target = self._views(lane, action.target if isinstance(action, Copy) else action.part)
            length = sum(len(view) for view in target)
            staging = scratch[used : used + length]
            if isinstance(action, Copy):
                used += self._copy(
                    start, write, lane, action, staging, overlapping=number in overlapping
                )
                continue
            sends = isinstance(action, Send)
            peer = int(action.peer)
            tag = lane * TAGS_PER_LANE + ordinal[sends, peer]
            ordinal[sends, peer] += 1
            if ordinal[sends, peer] > MAX_MESSAGES:
                raise ScheduleError(
                    f"rank {self.me} has over {MAX_MESSAGES} messages with rank {peer} in one step"
                )
            if not length:
                continue
            node_peer = self.node_peers.get(peer)
            signal = MpiMessage(
                sends, NO_DATA, peer, tag, lane, nbytes=length * self.operation.dtype.itemsize
            )
            if node_peer:
                start.messages.append(signal)
                end.messages.append(
                    MpiMessage(not sends, NO_DATA, peer, tag + MAX_MESSAGES, lane, nbytes=0)
                )
                staged = write is end
            else:
                staged = isinstance(action, RecvReduce) or number in overlapping
            if isinstance(action, Send):
                if not node_peer:
                    start.messages.append(replace(signal, data=self._data(target)))
                continue
            if staged:
                used += length
            arrival = self._receive(start, signal, target, staging, staged=staged)
            write.after += self._arrival_work(lane, action, arrival, target)
        return [start, end] if end.messages else [start]

    def _receive(
        self,
        start: LoweredStep,
        signal: MpiMessage,
        target: list[Array],
        staging: Array,
        *,
        staged: bool,
    ) -> list[Array]:
        """Receive a part, or read it in the memory of its sender after ``signal``; return the views that have it."""
        arrival = [staging] if staged else target
        node_peer = self.node_peers.get(signal.peer)
        if not node_peer:
            start.messages.append(replace(signal, data=self._data(arrival)))
            return arrival
        source = node_peer.next_part(signal.lane, staging)
        if not staged:
            return source
        start.after += _copies(arrival, source)
        return arrival

    def _arrival_work(
        self, lane: int, action: Recv | RecvReduce, arrival: list[Array], target: list[Array]
    ) -> Sequence[LocalWork]:
        """Return the work that folds an arrival into its target, or copies it there if it is elsewhere."""
        if isinstance(action, RecvReduce):
            return self._folds(lane, action.operand, arrival, target)
        if arrival is target:
            return []
        return _copies(target, arrival)

    def _folds(
        self, lane: int, operand: Part, arrival: list[Array], target: list[Array]
    ) -> list[LocalFold]:
        fold = self.operation.reduction.fold
        operands = self._views(lane, operand)
        return [LocalFold(fold, *views) for views in align_pieces(operands, arrival, target)]

    def _overwrites_parts_being_read(self, lane: int, step: Step) -> bool:
        """Return whether a step writes parts that ranks of the node read in the same step."""
        sends = (action for action in step.actions if isinstance(action, Send))
        read = [send.part for send in sends if send.peer in self.node_peers]
        return overlap(self.written(lane, step), self.spans(lane, *read))

    def _copy(
        self,
        start: LoweredStep,
        write: LoweredStep,
        lane: int,
        action: Copy,
        staging: Array,
        *,
        overlapping: bool,
    ) -> int:
        """Lower a copy, through ``staging`` if the step writes what it reads; return the elements of scratch used."""
        source, target = self._views(lane, action.source), self._views(lane, action.target)
        if isinstance(action, CopyReduce):
            if not overlapping:
                write.after += self._folds(lane, action.operand, source, target)
                return 0
            start.before += _copies([staging], source)
            write.after += self._folds(lane, action.operand, [staging], target)
            return len(staging)
        if not (
            overlapping or overlap(self.spans(lane, action.source), self.spans(lane, action.target))
        ):
            write.after += _copies(target, source)
            return 0
        start.before += _copies([staging], source)
        write.after += _copies(target, [staging])
        return len(staging)

    def _views(self, lane: int, part: Part) -> list[Array]:
        return [
            self.buffers[span.buffer][span.start : span.stop] for span in self.spans(lane, part)
        ]

    def _data(self, views: list[Array]) -> tuple[NDArray[np.uint8], int, MPI.Datatype]:
        """Return the buffer specification of ``views``; more than one view needs a derived datatype."""
        first = views[0].view(np.uint8)
        if len(views) == 1:
            return first, len(first), MPI.BYTE
        offsets = [address(view) - address(views[0]) for view in views]
        datatype = MPI.BYTE.Create_hindexed([view.nbytes for view in views], offsets).Commit()
        self.datatypes.append(datatype)
        return first, 1, datatype

    def _scaling(self, lane: int) -> list[LoweredStep]:
        workers = self.operation.layout.workers
        scales: list[LocalWork] = []
        for span in self.averaged(lane):
            view = self.buffers[span.buffer][span.start : span.stop]
            scales.append(LocalScale(self.operation.reduction, view, workers))
        if not scales:
            return []
        return [LoweredStep(after=scales)]


def merge_steps(steps: Iterable[LoweredStep]) -> list[LoweredStep]:
    """Return fewer steps: consecutive steps that only exchange signals, without work between them, become one."""
    merged: list[LoweredStep] = []
    for step in steps:
        only_signals = all(
            message.is_signal for part in (*merged[-1:], step) for message in part.messages
        )
        if merged and only_signals and not (merged[-1].after or step.before):
            merged[-1].messages += step.messages
            merged[-1].after = step.after
        else:
            merged.append(step)
    return merged


def _copies(target: Sequence[Array], source: Sequence[Array]) -> list[LocalCopy]:
    return [LocalCopy(*views) for views in align_pieces(target, source)]


def _synchronized(steps: list[LoweredStep], sync_calls: Sequence[LocalCall]) -> list[LoweredStep]:
    """Wait for queued work before messages start and at the end, because MPI does not synchronise with streams.

    Only waits for work that these steps have queued are added: they are timed, and the stream is
    idle before a run.
    """
    queued = False
    for step in steps:
        queued = queued or bool(step.before)
        if step.messages and queued:
            step.before += sync_calls
            queued = False
        queued = queued or bool(step.after)
    if queued:
        steps[-1].after += sync_calls
    return steps
