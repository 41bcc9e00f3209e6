"""An execution plan of MSCCL++: what each thread block of each GPU puts, signals, waits for and reduces, as JSON.

A step of a rank becomes: a signal to each sender that its message may come, a wait for each receiver's signal,
one-sided puts, a signal to each receiver, a wait for each sender's signal, and then the folds and copies. What is
folded is put into scratch, and so is what lands where the step reads or writes otherwise. Memory channels lie between
ranks of one node, port channels between nodes; the messages from one rank to another have a channel of their own, which
carries their signals forth, and back those that say that the buffers are free.

The lanes of a sequence follow one another. A sequence is a row of thread blocks, each with as many operations as one
holds; a semaphore starts the next one. ``nop``, which is __syncthreads, orders what needs an order in a thread block.

The format is that of mscclpp src/core/executor/execution_plan.cc, 1f5f065d. Its ``flush`` does nothing there (the
kernel counts the outputs, of which a flush has none), so the last put of a message through a port flushes by itself.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.schedule import Copy, Cut, Part, RecvReduce, Schedule, Send, out_of_place
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.step import Action, drop_null_peers, parts_of

PLAN_NAMES = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter", "all_to_all": "alltoall",
}  # fmt: skip
"""The collectives of plans, by our names: a plan has no root."""
IN_PLACE = {"all_reduce", "all_gather"}
"""The collectives whose plans are in place, as PyTorch reduces; the others keep their input."""
ALIGNMENT = 16
"""The bytes of which the size of each chunk is a multiple."""
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
    family, chunks = cut.call.collective.name, cut.units * cut.lanes
    if family not in PLAN_NAMES or schedules[0].layout.aggregators:
        what = "aggregators" if family in PLAN_NAMES else family
        raise UnusableError("--format mscclpp", f"a plan has no {what}; its collectives: {', '.join(PLAN_NAMES)}")
    nbytes, least = cut.call.bytes(cut.count, cut.itemsize), ALIGNMENT * chunks
    if nbytes % least:
        raise BadInputError("--bytes", nbytes, f"a multiple of {least}: {ALIGNMENT} bytes for each of {chunks} chunks")
    _check_size(schedules, cut)
    placed = schedules if family in IN_PLACE else [out_of_place(cut.call, each) for each in schedules]
    writer = _Writer(placed, cut, window)
    gpus = [writer.gpu(me) for me in range(placed[0].layout.ranks)]
    content = {
        "name": name, "collective": PLAN_NAMES[family], "protocol": "Simple", "inplace": family in IN_PLACE,
        "reuse_resources": False, "gpus": gpus,
        "num_threads_per_block": 1024, "use_double_scratch_buffer": False, "buffer_alignment": ALIGNMENT,
        "min_message_size": 0, "max_message_size": largest_message(chunks, gpus),
    }  # fmt: skip
    return json.dumps(content, separators=(",", ":")).replace('{"id":', '\n{"id":') + "\n"


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
                chunks += sum(int(r.last) - int(r.first) for a in step.actions for r in parts_of(a)[0].ranges)
    for what, count, most in (("operations", actions, MAX_ACTIONS), ("chunks in operations", chunks, MAX_CHUNKS)):
        if count * share > most:
            expected = f"at most {most:,} {what}, not about {int(count * share):,}; do: fewer workers or channels"
            raise UnusableError("--format mscclpp", expected)


def largest_message(chunks: int, gpus: Iterable[Operation]) -> int:
    """Return the largest S in ``chunks`` chunks with which the executor's offsets in all buffers fit into 32 bits."""
    largest: int = max(gpu[f"{each}_chunks"] for gpu in gpus for each in ("input", "output", "scratch"))
    return 2**32 * chunks // largest - 1


class _Writer:
    """The places of all messages, and from them the operations of each rank."""

    def __init__(self, schedules: Sequence[Schedule], cut: Cut, window: int) -> None:
        self.cut, self.node = cut, schedules[0].layout.node
        self.family, self.divisible = cut.call.collective.name, cut.call.collective.units == "divisible"
        self.sequences = lane_sequences(len(schedules), cut.lanes, window)
        self.steps = {
            (me, lane): [*_numbered(schedules[lane % len(schedules)], me, lane)]
            for me in range(len(self.node))
            for lane in range(cut.lanes)
        }
        self.work = cut.units * cut.lanes * (self.family == "reduce_scatter")
        steps = [(*at, step) for at, each in self.steps.items() for step in each]
        parts = ((me, lane, part) for me, lane, step in steps for _, a in step for part in parts_of(a))
        places = (place for part in parts for place in self._places(*part))
        self.slots = max((number for kind, number in places if kind == "s"), default=-1) + 1  # behind the workspace
        landed = (sum(len(_landed(a).units) for _, a in step if not isinstance(a, Send)) for *_, step in steps)
        self.width = max(landed, default=0)
        self.landing = {key: place for at in steps for key, place in self._landings(*at)}
        self.channels = self._channels_of_ranks()  # by rank and kind, in one order on all ranks

    def _channels_of_ranks(self) -> defaultdict[tuple[int, str], list[_Channel]]:
        channels = {self._channel(key) for key in self.landing if key.source != key.target}
        of_ranks = defaultdict[tuple[int, str], list[_Channel]](list)
        for channel in sorted(channels):
            for rank in channel[:2]:
                of_ranks[rank, self._kind(channel)].append(channel)
        return of_ranks

    def _channel(self, key: _Key) -> _Channel:
        return key.source, key.target, key.lane % len(self.sequences)

    def _kind(self, channel: _Channel) -> str:
        return KINDS[self.node[channel[0]] != self.node[channel[1]]]

    def _places(self, me: int, lane: int, part: Part) -> list[Place]:
        """Return where the units of a part are; of a reduce-scatter, other blocks of the result are scratch."""
        places = []
        for unit in part.units:
            number = lane * self.cut.units + unit if self.divisible else unit * self.cut.lanes + lane
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
        used = Counter(place for _, a in step for part in parts_of(a) for place in {*self._places(me, lane, part)})
        slot = self.slots + lane % len(self.sequences) * self.width
        for key, action in step:
            if not isinstance(action, Send):
                target = self._places(me, lane, _landed(action))
                once = all(used[place] == 1 for part in parts_of(action) for place in self._places(me, lane, part))
                if isinstance(action, RecvReduce) or not once:
                    target = [("s", slot + k) for k in range(len(target))]
                    slot += len(target)
                yield key, target

    def _operations(self, me: int, sequence: int) -> Iterator[Operation]:
        """Yield the operations of a sequence of a rank."""
        for step in (step for lane in self.sequences[sequence] for step in self.steps[me, lane]):
            going = [self._channel(key) for key, action in step if isinstance(action, Send)]
            coming = [self._channel(key) for key, action in step if not isinstance(action, Send | Copy)]
            yield from (self._signal("signal", each) for each in coming)
            yield from (self._signal("wait", each) for each in going)
            yield NOP
            yield from self._puts(me, step)
            yield NOP
            yield from (self._signal("signal", each) for each in going if self._kind(each) == "memory")
            yield from (self._signal("wait", each) for each in coming)
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
            channel, landing = self._channel(key), self.landing[key]
            kind = self._kind(channel)
            if isinstance(action, Copy) and landing == self._places(me, key.lane, action.target):
                continue  # it is copied at the end of the step
            runs = [*_runs(self._places(me, key.lane, parts_of(action)[0]), landing)]
            for number, (source, target) in enumerate(runs, 1):
                if isinstance(action, Copy):
                    yield {"name": "copy", "src_buff": [source], "dst_buff": [target]}
                    continue
                remote = {"buffer_id": (key.target, target.pop("type")), **target}
                flushes = kind == "port" and number == len(runs)
                put = {"name": "pwsf" if flushes else "put", "src_buff": [source], "dst_buff": [remote]}
                yield put | ({"channel_ids": [channel]} if kind == "port" else {}) | {"channel_type": kind}

    def _folds(self, me: int, step: _Step) -> Iterator[Operation]:
        """Yield the folds and copies of a step in listed order, those of one place one after another."""
        busy: set[Place] = set()
        for key, action in step:
            if isinstance(action, Send):
                continue
            target, landing = self._places(me, key.lane, _landed(action)), self.landing[key]
            if isinstance(action, Copy) and landing == target:
                landing = self._places(me, key.lane, action.source)
            operand = [self._places(me, key.lane, action.operand)] if isinstance(action, RecvReduce) else []
            if landing == target:
                continue
            if busy & (touched := {place for places in (target, *operand) for place in places}):
                yield NOP
            busy |= touched
            for *sources, last in _runs(*operand, landing, target):
                kind: Operation = {"name": "re", "reduce_op": "sum"} if operand else {"name": "copy"}
                yield kind | {"src_buff": sources, "dst_buff": [last]}

    def gpu(self, me: int) -> Operation:
        """Return the part of a plan that one rank runs."""
        numbers = {kind: self.channels[me, kind] for kind in KINDS}
        rows = [[*_rows(self._operations(me, sequence))] for sequence in range(len(self.sequences))]
        buffers = [*dict.fromkeys(name for each in rows for row in each for one in row for name in _remote(one))]
        blocks: list[Operation] = []
        semaphores = 0
        for each in rows:
            for number, row in enumerate(each, semaphores):
                before = [{"name": "sem_acquire", "semaphore_ids": [number - 1]}, NOP] if row is not each[0] else []
                after = [NOP, {"name": "sem_release", "semaphore_ids": [number]}] if row is not each[-1] else []
                block = self._block(me, [*before, *row, *after], numbers, buffers)
                blocks.append({"id": len(blocks), **block})
            semaphores += max(0, len(each) - 1)
        chunks, lanes = self.cut.units * self.cut.lanes, self.cut.lanes
        return {
            "id": me,
            "input_chunks": lanes if self.family == "all_gather" else chunks,
            "output_chunks": lanes if self.family == "reduce_scatter" else chunks,
            "scratch_chunks": self.slots + len(self.sequences) * self.width,
            "threadblocks": blocks,
            "channels": [
                {"channel_type": kind, "connected_to": [a + b - me for a, b, _ in some]}
                for kind, some in numbers.items()
                if some
            ],
            "remote_buffers": [
                {"rank": peer, "type": kind, "access_channel_types": [self._kind((me, peer, 0))]}
                for peer, kind in buffers
            ],
            "semaphores": [{"init_value": 0}] * semaphores,
        }

    def _block(
        self, me: int, row: Sequence[Operation], numbers: dict[str, list[_Channel]], buffers: list[tuple[int, str]]
    ) -> Operation:
        """Return a thread block, in which channels and remote buffers have numbers."""
        channels = {key for one in row for key in _channels(one)}
        remote = {key for one in row for key in _remote(one)}
        ids = {kind: [key for key in some if key in channels] for kind, some in numbers.items()}
        there = {
            kind: [key for key in buffers if key in remote and self._kind((me, key[0], 0)) == kind] for kind in KINDS
        }
        made = []
        for one in row:
            kind, new = one.get("channel_type", ""), dict(one)
            if _channels(one):
                new["channel_ids"] = [ids[kind].index(key) for key in _channels(one)]
            if _remote(one):
                new["dst_buff"] = [end | {"buffer_id": there[kind].index(end["buffer_id"])} for end in one["dst_buff"]]
            made.append(new)
        return {
            "ops": made,
            "channels": [
                {"channel_type": kind, "channel_ids": [*map(numbers[kind].index, some)]}
                for kind, some in ids.items()
                if some
            ],
            "remote_buffer_refs": [
                {"access_channel_type": kind, "remote_buffer_ids": [*map(buffers.index, some)]}
                for kind, some in there.items()
                if some
            ],
        }


def _numbered(schedule: Schedule, me: int, lane: int) -> Iterator[_Step]:
    """Yield the actions of each step that have units, with the keys of their messages, as ``match`` pairs them."""
    earlier: Counter[tuple[int, int, int]] = Counter()
    for step in map(drop_null_peers, schedule.steps(me)):
        listed: Counter[tuple[int, int]] = Counter()
        keyed = []
        for action in step.actions:
            peer = me if isinstance(action, Copy) else int(action.peer)
            ends = (me, peer) if isinstance(action, Send) else (peer, me)
            k = listed[ends]
            key = _Key(*ends, lane, k, earlier[*ends, k])
            listed[ends], earlier[*ends, k] = k + 1, key.n + 1
            if parts_of(action)[0].units:
                keyed.append((key, action))
        if keyed:
            yield keyed


def _landed(action: Action) -> Part:
    return action.target if isinstance(action, Copy) else action.part


def _runs(*columns: list[Place]) -> Iterator[list[Operation]]:
    """Yield each stretch in which the places of all columns are consecutive, as a chunk of each."""
    rows, begin = [*zip(*columns, strict=True)], 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end] != tuple((kind, number + 1) for kind, number in rows[end - 1]):
            yield [{"type": kind, "index": number, "size": end - begin} for kind, number in rows[begin]]
            begin = end


def _channels(operation: Operation) -> list[_Channel]:
    return [*operation.get("channel_ids", ())]


def _remote(operation: Operation) -> list[tuple[int, str]]:
    return [each["buffer_id"] for each in operation.get("dst_buff", ()) if "buffer_id" in each]


def _rows(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations of each thread block: as many as one holds beside its semaphores."""
    row: list[Operation] = []
    for operation in operations:
        if operation is NOP and (not row or row[-1] is NOP):
            continue
        channels, buffers = ({key for one in (*row, operation) for key in keys(one)} for keys in (_channels, _remote))
        if len(row) == MAX_OPERATIONS - 4 or max(len(channels), len(buffers)) > MAX_REFERENCES:
            yield row
            row = []
        row.append(operation)
    if row:
        yield row
