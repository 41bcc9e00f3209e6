"""An execution plan of MSCCL++: what each thread block of each GPU puts, signals, waits for and reduces, as JSON.

A step of a rank becomes: a signal to each sender that its message may come, a wait for each
receiver's signal, one-sided puts, a signal to each receiver, a wait for each sender's signal, and
then the folds and copies. What is folded is put into scratch, and so is what lands where the step
reads or writes otherwise. Memory channels lie between ranks of one node, port channels between
nodes; the messages from one rank to another have a channel of their own, which carries their
signals forth, and back those that say that the buffers are free.

The lanes of a sequence follow one another. A sequence is a row of thread blocks, each with as many
operations as one holds; a semaphore starts the next one. ``nop``, which is __syncthreads, orders
what needs an order in a thread block.

The format is that of mscclpp src/core/executor/execution_plan.cc, 1f5f065d. Its ``flush`` does
nothing there (the kernel counts the outputs, and a flush has none), so the last put of a message
through a port flushes by itself.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.schedule import Copy, CopyReduce, Cut, Part, RecvReduce, Schedule, Send, out_of_place
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.step import Action, drop_null_peers, parts_of

PLAN_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall",
}
"""The collectives of plans, by our names: a plan has no root."""
IN_PLACE = {"all_reduce", "all_gather"}
"""The collectives whose plans are in place, as PyTorch reduces; the others keep their input."""
ALIGNMENT = 16
"""The size of each chunk is a multiple of this number of bytes."""
MAX_OPERATIONS, MAX_REFERENCES = 64, 16
"""The most operations of a thread block, and channels or remote buffers of it."""
MAX_ACTIONS, MAX_CHUNKS = 1 << 20, 1 << 24
"""The most sends, receives and copies of a plan, about 300 MB of text, and the most chunks that they name."""
SAMPLED_RANKS = 4
"""The ranks whose steps stand for those of all, to estimate the size of a plan."""
KINDS = "memory", "port"
"""The channels between ranks of one node, and between nodes."""

Operation = dict[str, Any]
"""An operation in JSON. While it is made, its channel and its remote buffer have keys instead of numbers."""
Place = tuple[str, int]
"""A chunk of a rank: i (input), o (output) or s (scratch), and its number."""
NOP: Operation = {"name": "nop"}


class _Key(NamedTuple):
    """A message: its ends, its lane, and that it is the k-th between them in the n-th step that has a k-th one."""

    source: int
    target: int
    lane: int
    k: int
    n: int


_Step = list[tuple[_Key, Action]]
_Channel = tuple[int, int, int]  # from a rank to a rank, in a sequence of lanes
_RemoteBuffer = tuple[int, str]  # a rank, and its buffer


def plan_text(schedules: Sequence[Schedule], cut: Cut, *, window: int, name: str) -> str:
    """Return the plan of one operation, for the sizes that its chunks divide into multiples of 16 bytes.

    Args:
        schedules: the schedules of the slices, in place, which the lanes of ``cut`` take in turn.
        cut: the units and lanes; its size is checked.
        window: the number of channels in flight at once, each with a lane for every slice.
        name: the name of the plan.

    Raises:
        UnusableError: if a plan cannot say it: another collective, aggregators.
        BadInputError: if the chunks do not divide the size.
    """
    family = cut.call.collective.name
    if family not in PLAN_NAMES or schedules[0].layout.aggregators:
        unsupported = "aggregators" if family in PLAN_NAMES else family
        raise UnusableError(
            "--format mscclpp",
            f"a plan has no {unsupported}; its collectives: {', '.join(PLAN_NAMES)}",
        )
    chunks = cut.units * cut.lanes
    least = ALIGNMENT * chunks
    nbytes = cut.call.bytes(cut.count, cut.itemsize)
    if nbytes % least:
        raise BadInputError(
            "--bytes",
            nbytes,
            f"a multiple of {least}: {ALIGNMENT} bytes for each of {chunks} chunks",
        )
    _check_size(schedules, cut)
    in_place = family in IN_PLACE
    if in_place:
        placed = schedules
    else:
        placed = [out_of_place(cut.call, schedule) for schedule in schedules]
    writer = _Writer(placed, cut, window)
    gpus = [writer.gpu(me) for me in range(placed[0].layout.ranks)]
    content = {
        "name": name,
        "collective": PLAN_NAMES[family],
        "protocol": "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": ALIGNMENT,
        "min_message_size": 0,
        "max_message_size": largest_message(chunks, gpus),
    }
    text = json.dumps(content, separators=(",", ":"))
    return text.replace('{"id":', '\n{"id":') + "\n"


def _check_size(schedules: Sequence[Schedule], cut: Cut) -> None:
    """Check that a plan is not too large to be made in memory, from the steps of some ranks."""
    ranks = schedules[0].layout.ranks
    sampled = range(0, ranks, -(-ranks // SAMPLED_RANKS))
    share = ranks / len(sampled) * cut.lanes / len(schedules)
    actions = chunks = 0
    for schedule in schedules:
        for me in sampled:
            for step in map(drop_null_peers, schedule.steps(me)):
                actions += len(step.actions)
                chunks += sum(map(_chunk_count, step.actions))
    for counted, count, most in (
        ("operations", actions, MAX_ACTIONS),
        ("chunks in operations", chunks, MAX_CHUNKS),
    ):
        if count * share > most:
            expected = f"at most {most:,} {counted}, not about {int(count * share):,}; do: fewer workers or channels"
            raise UnusableError("--format mscclpp", expected)


def _chunk_count(action: Action) -> int:
    """Return how many chunks an action names."""
    part = parts_of(action)[0]
    return sum(int(units.last) - int(units.first) for units in part.ranges)


def largest_message(chunks: int, gpus: Iterable[Operation]) -> int:
    """Return the largest S in ``chunks`` chunks with which the executor's offsets in all buffers fit into 32 bits."""
    largest: int = max(
        gpu[f"{buffer}_chunks"] for gpu in gpus for buffer in ("input", "output", "scratch")
    )
    return 2**32 * chunks // largest - 1


class _Writer:
    """The places of all messages, and from them the operations of each rank."""

    def __init__(self, schedules: Sequence[Schedule], cut: Cut, window: int) -> None:
        self.cut = cut
        self.node = schedules[0].layout.node
        self.family = cut.call.collective.name
        self.divisible = cut.call.collective.units == "divisible"
        self.sequences = lane_sequences(len(schedules), cut.lanes, window)
        self.steps: dict[tuple[int, int], list[_Step]] = {}  # by rank and lane
        for me in range(len(self.node)):
            for lane in range(cut.lanes):
                schedule = schedules[lane % len(schedules)]
                self.steps[me, lane] = list(_numbered(schedule, me, lane))
        if self.family == "reduce_scatter":
            self.work = cut.units * cut.lanes
        else:
            self.work = 0
        self.slots = self._named_scratch()  # what lands in scratch is behind these chunks
        self.width = max((_landing_chunks(step) for _, _, step in self._all_steps()), default=0)
        self.landing: dict[_Key, list[Place]] = {}
        for me, lane, step in self._all_steps():
            self.landing.update(self._landings(me, lane, step))
        self.channels = self._channels_of_ranks()  # by rank and kind, in one order on all ranks

    def _all_steps(self) -> Iterator[tuple[int, int, _Step]]:
        """Yield each step with its rank and its lane."""
        for (me, lane), steps in self.steps.items():
            for step in steps:
                yield me, lane, step

    def _named_scratch(self) -> int:
        """Return the chunks of scratch up to the last one that a step names."""
        last = -1
        for me, lane, step in self._all_steps():
            for _, action in step:
                for part in parts_of(action):
                    numbers = (
                        number for kind, number in self._places(me, lane, part) if kind == "s"
                    )
                    last = max(last, max(numbers, default=-1))
        return last + 1

    def _channels_of_ranks(self) -> defaultdict[tuple[int, str], list[_Channel]]:
        channels = set()
        for key in self.landing:
            if key.source != key.target:
                channels.add(self._channel(key))
        channels_of_rank = defaultdict[tuple[int, str], list[_Channel]](list)
        for channel in sorted(channels):
            for rank in channel[:2]:
                channels_of_rank[rank, self._kind(channel)].append(channel)
        return channels_of_rank

    def _channel(self, key: _Key) -> _Channel:
        return key.source, key.target, key.lane % len(self.sequences)

    def _kind(self, channel: _Channel) -> str:
        return KINDS[self.node[channel[0]] != self.node[channel[1]]]

    def _places(self, me: int, lane: int, part: Part) -> list[Place]:
        """Return where the units of a part are; of a reduce-scatter, other blocks of the result are scratch."""
        places = []
        for unit in part.units:
            if self.divisible:
                number = lane * self.cut.units + unit
            else:
                number = unit * self.cut.lanes + lane
            if part.buffer == "tmp":
                places.append(("s", self.work + number))
            elif part.buffer == "src" or self.family == "all_reduce":
                places.append(("i", number))
            elif self.family != "reduce_scatter":
                places.append(("o", number))
            else:
                places.append(("o", lane) if unit == me else ("s", number))
        return places

    def _landings(self, me: int, lane: int, step: _Step) -> Iterator[tuple[_Key, list[Place]]]:
        """Yield where what lands in a step is put: at its target, or in scratch if that is used otherwise."""
        uses: Counter[Place] = Counter()
        for _, action in step:
            for part in parts_of(action):
                uses.update(set(self._places(me, lane, part)))
        slot = self.slots + lane % len(self.sequences) * self.width
        for key, action in step:
            if isinstance(action, Send):
                continue
            target = self._places(me, lane, _landed(action))
            touched = chain.from_iterable(self._places(me, lane, part) for part in parts_of(action))
            is_free = all(uses[place] == 1 for place in touched)
            if isinstance(action, RecvReduce) or not is_free:
                target = [("s", slot + k) for k in range(len(target))]
                slot += len(target)
            yield key, target

    def _operations(self, me: int, sequence: int) -> Iterator[Operation]:
        """Yield the operations of a sequence of a rank."""
        for lane in self.sequences[sequence]:
            for step in self.steps[me, lane]:
                yield from self._step_operations(me, step)

    def _step_operations(self, me: int, step: _Step) -> Iterator[Operation]:
        going = []
        for key, action in step:
            if isinstance(action, Send):
                going.append(self._channel(key))
        coming = []
        for key, action in step:
            if not isinstance(action, Send | Copy):
                coming.append(self._channel(key))
        for channel in coming:
            yield self._signal("signal", channel)
        for channel in going:
            yield self._signal("wait", channel)
        yield NOP
        yield from self._puts(me, step)
        yield NOP
        for channel in going:
            if self._kind(channel) == "memory":
                yield self._signal("signal", channel)
        for channel in coming:
            yield self._signal("wait", channel)
        yield NOP
        yield from self._folds(me, step)
        yield NOP

    def _signal(self, name: str, channel: _Channel) -> Operation:
        return {"name": name, "channel_ids": [channel], "channel_type": self._kind(channel)}

    def _puts(self, me: int, step: _Step) -> Iterator[Operation]:
        """Yield what a rank puts in a step, and its copies to scratch of what the step overwrites."""
        for key, action in step:
            if not isinstance(action, Send | Copy):
                continue
            landing = self.landing[key]
            if isinstance(action, Copy) and landing == self._places(me, key.lane, action.target):
                continue  # it is copied at the end of the step
            own_places = self._places(me, key.lane, parts_of(action)[0])
            runs = list(_runs(own_places, landing))
            for number, (source, target) in enumerate(runs, 1):
                if isinstance(action, Copy):
                    yield {"name": "copy", "src_buff": [source], "dst_buff": [target]}
                else:
                    yield self._put(key, source, target, is_last=number == len(runs))

    def _put(self, key: _Key, source: Operation, target: Operation, *, is_last: bool) -> Operation:
        """Return the put of a part of a message; through a port, the last one flushes."""
        channel = self._channel(key)
        kind = self._kind(channel)
        buffer = key.target, target.pop("type")
        flushes = kind == "port" and is_last
        put: Operation = {
            "name": "pwsf" if flushes else "put",
            "src_buff": [source],
            "dst_buff": [{"buffer_id": buffer, **target}],
        }
        if kind == "port":
            put["channel_ids"] = [channel]
        put["channel_type"] = kind
        return put

    def _folds(self, me: int, step: _Step) -> Iterator[Operation]:
        """Yield the folds and copies of a step in listed order, those of one place one after another."""
        busy: set[Place] = set()
        for key, action in step:
            if isinstance(action, Send):
                continue
            target = self._places(me, key.lane, _landed(action))
            landing = self.landing[key]
            if isinstance(action, Copy) and landing == target:
                landing = self._places(me, key.lane, action.source)
            folds = isinstance(action, RecvReduce | CopyReduce)
            if landing == target and not folds:
                continue
            columns = [landing, target]
            kind: Operation = {"name": "copy"}
            touched = set(target)
            if isinstance(action, RecvReduce | CopyReduce):
                operand = self._places(me, key.lane, action.operand)
                columns = [operand, landing, target]
                kind = {"name": "re", "reduce_op": "sum"}
                touched.update(operand)
            if busy & touched:
                yield NOP
            busy |= touched
            for *sources, last in _runs(*columns):
                yield kind | {"src_buff": sources, "dst_buff": [last]}

    def gpu(self, me: int) -> Operation:
        """Return the part of a plan that one rank runs."""
        channels = {kind: self.channels[me, kind] for kind in KINDS}
        rows_of_sequences = [
            list(_rows(self._operations(me, number))) for number in range(len(self.sequences))
        ]
        buffers = _remote_buffers(chain.from_iterable(rows_of_sequences))
        blocks: list[Operation] = []
        semaphores = 0
        for rows in rows_of_sequences:
            last = len(rows) - 1
            for place, row in enumerate(rows):
                operations = list(row)
                semaphore = semaphores + place
                if place > 0:
                    operations = [
                        {"name": "sem_acquire", "semaphore_ids": [semaphore - 1]},
                        NOP,
                        *operations,
                    ]
                if place < last:
                    operations += [NOP, {"name": "sem_release", "semaphore_ids": [semaphore]}]
                block = self._block(me, operations, channels, buffers)
                blocks.append({"id": len(blocks), **block})
            semaphores += max(0, last)
        lanes = self.cut.lanes
        chunks = self.cut.units * lanes
        input_chunks = output_chunks = chunks
        if self.family == "all_gather":
            input_chunks = lanes
        if self.family == "reduce_scatter":
            output_chunks = lanes
        return {
            "id": me,
            "input_chunks": input_chunks,
            "output_chunks": output_chunks,
            "scratch_chunks": self.slots + len(self.sequences) * self.width,
            "threadblocks": blocks,
            "channels": list(_connections(me, channels)),
            "remote_buffers": [
                {"rank": peer, "type": kind, "access_channel_types": [self._kind((me, peer, 0))]}
                for peer, kind in buffers
            ],
            "semaphores": [{"init_value": 0}] * semaphores,
        }

    def _block(
        self,
        me: int,
        row: Sequence[Operation],
        numbers: dict[str, list[_Channel]],
        buffers: list[_RemoteBuffer],
    ) -> Operation:
        """Return a thread block, in which channels and remote buffers have numbers."""
        used_channels = set(chain.from_iterable(map(_channels, row)))
        used_buffers = set(chain.from_iterable(map(_remote, row)))
        channels_of_kind: dict[str, list[_Channel]] = {}
        for kind, channels in numbers.items():
            channels_of_kind[kind] = [channel for channel in channels if channel in used_channels]
        buffers_of_kind: dict[str, list[_RemoteBuffer]] = {kind: [] for kind in KINDS}
        for buffer in buffers:
            if buffer in used_buffers:
                buffers_of_kind[self._kind((me, buffer[0], 0))].append(buffer)
        operations = [
            _with_numbers(operation, channels_of_kind, buffers_of_kind) for operation in row
        ]
        channel_lists = []
        for kind, channels in channels_of_kind.items():
            if channels:
                ids = list(map(numbers[kind].index, channels))
                channel_lists.append({"channel_type": kind, "channel_ids": ids})
        buffer_lists = []
        for kind, buffers_here in buffers_of_kind.items():
            if buffers_here:
                ids = list(map(buffers.index, buffers_here))
                buffer_lists.append({"access_channel_type": kind, "remote_buffer_ids": ids})
        return {"ops": operations, "channels": channel_lists, "remote_buffer_refs": buffer_lists}


def _with_numbers(
    operation: Operation,
    channels_of_kind: dict[str, list[_Channel]],
    buffers_of_kind: dict[str, list[_RemoteBuffer]],
) -> Operation:
    """Return an operation whose channels and remote buffers have their numbers in the thread block."""
    kind = operation.get("channel_type", "")
    numbered = dict(operation)
    if _channels(operation):
        numbered["channel_ids"] = list(map(channels_of_kind[kind].index, _channels(operation)))
    if _remote(operation):
        numbers = buffers_of_kind[kind]
        numbered["dst_buff"] = [
            target | {"buffer_id": numbers.index(target["buffer_id"])}
            for target in operation["dst_buff"]
        ]
    return numbered


def _remote_buffers(rows: Iterable[Sequence[Operation]]) -> list[_RemoteBuffer]:
    """Return the remote buffers of operations, each once, in the order of their first use."""
    names: dict[_RemoteBuffer, None] = {}
    for operation in chain.from_iterable(rows):
        names |= dict.fromkeys(_remote(operation))
    return list(names)


def _connections(me: int, channels_of_kind: dict[str, list[_Channel]]) -> Iterator[Operation]:
    """Yield the peers of the channels of a rank, for each kind that it has."""
    for kind, channels in channels_of_kind.items():
        if channels:
            yield {
                "channel_type": kind,
                "connected_to": [source + target - me for source, target, _ in channels],
            }


def _numbered(schedule: Schedule, me: int, lane: int) -> Iterator[_Step]:
    """Yield the actions of each step that have units, with the keys of their messages, as ``match`` pairs them."""
    earlier: Counter[tuple[int, int, int]] = Counter()
    for step in map(drop_null_peers, schedule.steps(me)):
        listed: Counter[tuple[int, int]] = Counter()
        keyed = []
        for action in step.actions:
            peer = me if isinstance(action, Copy) else int(action.peer)
            if isinstance(action, Send):
                ends = (me, peer)
            else:
                ends = (peer, me)
            k = listed[ends]
            key = _Key(*ends, lane, k, earlier[*ends, k])
            listed[ends] += 1
            earlier[*ends, k] += 1
            if parts_of(action)[0].units:
                keyed.append((key, action))
        if keyed:
            yield keyed


def _landed(action: Action) -> Part:
    if isinstance(action, Copy):
        return action.target
    return action.part


def _landing_chunks(step: _Step) -> int:
    """Return how many chunks land in a step."""
    landing = (action for _, action in step if not isinstance(action, Send))
    return sum(len(_landed(action).units) for action in landing)


def _runs(*columns: list[Place]) -> Iterator[list[Operation]]:
    """Yield each stretch in which the places of all columns are consecutive, as a chunk of each."""
    rows = list(zip(*columns, strict=True))
    begin = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end] != tuple(
            (kind, number + 1) for kind, number in rows[end - 1]
        ):
            yield [
                {"type": kind, "index": number, "size": end - begin} for kind, number in rows[begin]
            ]
            begin = end


def _channels(operation: Operation) -> list[_Channel]:
    return list(operation.get("channel_ids", ()))


def _remote(operation: Operation) -> list[_RemoteBuffer]:
    targets = operation.get("dst_buff", ())
    return [target["buffer_id"] for target in targets if "buffer_id" in target]


def _rows(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations of each thread block: as many as one holds beside its semaphores."""
    row: list[Operation] = []
    channels: set[_Channel] = set()
    buffers: set[_RemoteBuffer] = set()
    for operation in operations:
        if operation is NOP and (not row or row[-1] is NOP):
            continue
        own_channels = _channels(operation)
        own_buffers = _remote(operation)
        references = max(len(channels.union(own_channels)), len(buffers.union(own_buffers)))
        if len(row) == MAX_OPERATIONS - 4 or references > MAX_REFERENCES:
            yield row
            row = []
            channels = set()
            buffers = set()
        row.append(operation)
        channels.update(own_channels)
        buffers.update(own_buffers)
    if row:
        yield row
