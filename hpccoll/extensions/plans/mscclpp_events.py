"""What happens in two runs of a plan of MSCCL++: its events, each with those that it follows.

The threads of a thread block are ordered by ``nop`` alone: operations between two of them run in
any order, but for those of one thread, such as a signal and a wait of the same place in their
lists. A relaxed signal or wait orders what was read before, and of what was written only what the
signalling rank had before its run: a kernel begins after all that earlier ones wrote, as MSCCL++'s
own plans take for granted, and relaxed operations wait for no write of their own. A put through a
port is read from its source later, and ended by the flush of its own ``pwsf``: MSCCL++'s ``flush``
does nothing.

A plan is run twice, as programs call it; before and after each run the program writes the input and
reads the output.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, product
from math import lcm
from typing import Any, cast

from hpccoll.common.errors import BadInputError, UnusableError, format_value
from hpccoll.common.limits import IntegerRange
from hpccoll.extensions.plans.mscclpp_plan import KINDS, MAX_OPERATIONS, MAX_REFERENCES
from hpccoll.schedule import CollectiveCall, Layout

MAX_EVENTS = 40_000
MAX_CHUNKS = 1 << 14
MAX_BITS = 1 << 31
"""The most events of two runs (a ring of 32 ranks takes 10 s and 420 MiB), chunks of a buffer, and
bits of all chunks, each a set of contributions."""
CHUNKS = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
"""The buffers, and the keys of their numbers of chunks."""
SHAPES = {
    **dict.fromkeys(("put", "pws", "pwsf"), "(memory|port):(i+|o+|s+)>r+"), "get": "memory:r+>[ios]+",
    "copy": r"\w*:[ios]>[ios]", "re": r"\w*:[ios]{2,}>[ios]", "res": "memory:[ios]{2,}>[ios]r+",
    "rre": "memory:[ios]r+>[ios]", "rres": "memory:[ios]r+>[ios]r+", "flush": ".*",
    **dict.fromkeys(("signal", "wait", "rlxsignal", "rlxwait"), "(memory|port):>"),
    **dict.fromkeys(("sem_acquire", "sem_release"), r"\w*:>"),
}  # fmt: skip
"""The operations, with the channel, sources and targets that the executor's kernel has for them: i,
o, s, or r of a peer. It copies to and from the first buffers alone where an operation has more, and
reads all of a put from one."""
FENCES = "nop", "barrier"
"""Operations that order others: in their own thread block, and in all thread blocks that they name."""
FOLDS = {"re", "res", "rre", "rres"}
LIMITS = {
    "ops": MAX_OPERATIONS,
    "channel_ids": 8,
    "src_buff": 10,
    "dst_buff": 10,
    "semaphore_ids": 16,
    **{
        f"{kind} {resource}": MAX_REFERENCES
        for kind in KINDS
        for resource in ("channels", "buffers")
    },
}
"""The lengths of the executor's arrays for a thread block and for an operation."""
BARRIERS, COUNT = range(16), IntegerRange(0, 2**31 - 1)
"""The barriers of a GPU, and the first values of a semaphore."""

Cell = tuple[int, str, int]
"""A chunk: its rank, its buffer (dst, src or s), and its number in the whole collective's buffer or in scratch."""
_Data = tuple[list[list[Cell]], list[list[Cell]]]  # what is read and written, buffer by buffer
Json = dict[str, Any]
Counted = tuple[str, int, int]
"""A channel (its kind, rank and number there), or a semaphore."""


@dataclass(slots=True)
class PlanEvent:
    """What happens at once: an operation or one thread's part of it, a copy by a port, a program between two runs."""

    where: str
    before: list[int]  # the events that it follows
    # those of them that it follows with all that they wrote; for all of them it is the same list
    seen: list[int]
    counter: Counted | None = None  # the channel or semaphore that it signals or waits for
    step: int = 0  # 1 signals, -1 waits
    begin: int = -1  # the start of the run of its rank, if it signals or waits
    reads: list[list[Cell]] = field(default_factory=list)
    writes: list[list[Cell]] = field(default_factory=list)
    folds: bool = False
    program: int = -1  # the rank whose program it is


@contextmanager
def reading(where: str, plan_part: str) -> Iterator[None]:
    """Turn the errors of what MSCCL++ does not write into an UnusableError that names the place."""
    try:
        yield
    except BadInputError:
        raise
    except KeyError as error:
        raise UnusableError(where, f"{error.args[0]} is missing") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise UnusableError(where, f"it is not a valid {plan_part} of MSCCL++") from None


def _item(where: str, key: str, listed: Sequence[Any], number: object) -> Any:
    """Return an item by its number, which in Python may be negative."""
    if not listed:
        raise UnusableError(where, f"{key} has {format_value(number)}, and there is none")
    IntegerRange(0, len(listed) - 1).check(f"{where}: {key}", number)
    return listed[cast("int", number)]


def _joined(entries: Iterable[Json], kind_key: str, kind: str, numbers: str) -> list[Any]:
    """Return what the entries of one kind list: the executor counts on from one to the next."""
    joined: list[Any] = []
    for entry in entries:
        if entry[kind_key] == kind:
            joined += entry[numbers]
    return joined


def _check_limits(where: str, lists: Mapping[str, Sized]) -> None:
    for key in LIMITS.keys() & lists.keys():
        if len(lists[key]) > LIMITS[key]:
            raise UnusableError(
                where, f"it has {len(lists[key])} {key}, and the executor room for {LIMITS[key]}"
            )


def _check_names(gpu: Json, me: int) -> None:
    """Check that the operations of a rank are read at all: what is not read also has other numbers of chunks."""
    for block in gpu["threadblocks"]:
        for number, operation in enumerate(block["ops"]):
            if operation["name"] not in (*SHAPES, *FENCES):
                where = f"rank {me}, thread block {block['id']}, operation {number} ({operation['name']})"
                raise UnusableError(
                    where, f"hpccoll cannot read it; valid: {', '.join(sorted(SHAPES))}"
                )


def _check_operation(operation: Json, where: str) -> None:
    """Check that the executor runs an operation as its text says."""
    if operation.get("reduce_op", "sum") != "sum":
        raise UnusableError(
            where, f"it folds by {format_value(operation['reduce_op'])}; valid: sum"
        )
    _check_limits(where, operation)
    name = operation["name"]
    kind = operation.get("channel_type", "")
    sources = operation.get("src_buff", ())
    targets = operation.get("dst_buff", ())
    shape = f"{kind}:{_buffer_letters(sources)}>{_buffer_letters(targets)}"
    runs = re.fullmatch(SHAPES[name], shape) and (name in FOLDS or len(sources) == len(targets))
    if name == "get":  # the kernel takes the offset of each side for the other one
        runs = runs and [chunk["index"] for chunk in sources] == [
            chunk["index"] for chunk in targets
        ]
    if kind == "port" and sources:
        runs = runs and len(operation["channel_ids"]) == len(sources)
    if not runs or len({chunk["size"] for chunk in (*sources, *targets)}) > 1:
        raise UnusableError(where, f"the executor does not run it so: {json.dumps(operation)}")


def _buffer_letters(chunks: Sequence[Json]) -> str:
    """Return the buffers of an operation, as in SHAPES."""
    return "".join("r" if "buffer_id" in chunk else str(chunk.get("type")) for chunk in chunks)


class PlanRun:
    """Two runs of a plan, as events."""

    def __init__(self, content: Json, call: CollectiveCall) -> None:
        self.call = call
        self.gpus = content["gpus"]
        self.in_place = content["inplace"]
        self.initial: dict[Counted, int] = {}
        self.channels: dict[tuple[str, int], range] = {}
        self.relaxed = False
        self.pieces = 1
        chunks: list[int] = []
        ends: defaultdict[Counted, list[int]] = defaultdict(list)
        for me, gpu in enumerate(self.gpus):
            with reading(f"rank {me}", "GPU"):
                chunks += self._read_gpu(me, gpu)
                self._read_channels(me, gpu, ends)
        if (
            {*map(type, chunks)} != {int}
            or min(chunks) < 0
            or not 0 < self.pieces * max(chunks) <= MAX_CHUNKS
        ):
            raise UnusableError("plan", f"a buffer has no chunk, or more than {MAX_CHUNKS}")
        self.units, self.lanes = self._divided()
        self.events: list[PlanEvent] = []
        self.other: dict[Counted, Counted] = {}
        for (kind, me, peer), mine in ends.items():
            theirs = ends.get((kind, peer, me), ())
            for number, there in zip(mine, theirs, strict=False):
                self.other[kind, me, number] = kind, peer, there
        self.queues: dict[Counted, int] = {}  # the last event of each port
        ends_of_run: list[list[int]] = [[] for _ in self.gpus]
        for _ in range(2):
            self.last = len(self.events)  # the first event of the last run
            ends_of_run = [
                [self._rank(me, self._program(me, ends_of_run[me]))] for me in range(call.p)
            ]
        for me in range(call.p):
            self._program(me, ends_of_run[me])

    def _read_gpu(self, me: int, gpu: Json) -> list[int]:
        """Read the operations and semaphores of a rank; return the numbers of chunks of its buffers."""
        if gpu["id"] != me:
            raise UnusableError(f"rank {me}", f"its id is not {me}, but {format_value(gpu['id'])}")
        _check_names(gpu, me)
        chunks = [gpu[key] for key in CHUNKS.values()]
        groups = []
        for operation in chain.from_iterable(block["ops"] for block in gpu["threadblocks"]):
            self.relaxed |= operation.get("name") == "rlxwait"
            if "tbg_info" in operation:
                groups.append(operation["tbg_info"]["tbg_size"])
        self.pieces = lcm(self.pieces, *groups)
        self.channels["semaphore", me] = range(len(gpu.get("semaphores", ())))
        for number in self.channels["semaphore", me]:
            value = gpu["semaphores"][number]["init_value"]
            self.initial["semaphore", me, number] = value
            COUNT.check(f"rank {me}, semaphore {number}: init_value", value)
        return chunks

    def _read_channels(self, me: int, gpu: Json, ends: Mapping[Counted, list[int]]) -> None:
        """Add the numbers of the channels of a rank to ``ends``, by kind, rank and peer."""
        for kind in KINDS:
            peers = _joined(gpu["channels"], "channel_type", kind, "connected_to")
            self.channels[kind, me] = range(len(peers))
            for number, peer in enumerate(peers):
                peer_rank = _item(f"rank {me}", "connected_to", range(self.call.p), peer)
                ends[kind, me, peer_rank].append(number)

    def _divided(self) -> tuple[int, int]:
        """Return the units and lanes of the chunks, which must be those of all ranks, as MSCCL++ cuts by each one's."""
        call = self.call
        name = call.collective.name
        divisible = call.collective.units == "divisible"
        parts = [
            1 if divisible or name == halved else call.p
            for halved in ("all_gather", "reduce_scatter")
        ]
        block = self.gpus[0]["input_chunks"] // parts[0]
        for me, gpu in enumerate(self.gpus):
            own = [gpu[CHUNKS[kind]] for kind in "io"]
            if not block or own != [part * block for part in parts]:
                why = f"its input and output chunks are not those of rank 0, or of {name}"
                raise UnusableError(f"rank {me}", f"{why}: {own[0]}, {own[1]}")
        pieces_of_block = block * self.pieces
        units = call.p
        lanes = pieces_of_block
        if divisible:
            units = pieces_of_block
            lanes = 1
        chunks = sum(gpu[key] for gpu in self.gpus for key in CHUNKS.values())
        cells = self.pieces * chunks
        if cells * call.p * units * lanes > MAX_BITS:
            raise UnusableError(
                "plan", f"its {cells} chunks of {call.p} ranks are too many to prove"
            )
        return units, lanes

    def _add(self, where: str, before: Iterable[int], **fields: Any) -> int:
        """Add an event, which sees what those that it follows wrote."""
        followed = [*before]
        self.events.append(PlanEvent(where, followed, fields.pop("seen", followed), **fields))
        if len(self.events) > MAX_EVENTS:
            raise UnusableError(
                "plan",
                f"it has more than {MAX_EVENTS} events to prove; a ring of 32 ranks has fewer",
            )
        return len(self.events) - 1

    def _program(self, me: int, before: Sequence[int]) -> int:
        """Add what a program does with the buffers between two runs."""
        contributed = [
            (me, "dst" if self.in_place else "src", n) for n in self.numbers(me, self.call.source)
        ]
        result = [(me, "dst", n) for n in self.numbers(me, self.call.target)]
        return self._add(
            f"the program of rank {me}", before, reads=[result], writes=[contributed], program=me
        )

    def number_of(self, event: int) -> int:
        """Return the number of the run that an operation belongs to, or that a program precedes."""
        if self.events[event].program >= 0 and event >= len(self.events) - self.call.p:
            return 2
        return int(event >= self.last)

    def numbers(self, me: int, selected: Callable[[int, int], range]) -> list[int]:
        """Return the chunks of the whole buffer that a rank contributes or ends with."""
        return [
            unit * self.lanes + lane
            for unit in selected(me, self.units)
            for lane in range(self.lanes)
        ]

    def layout(self) -> Layout:
        """Return the ranks, with those on one node between which there are memory channels."""
        node = list(range(self.call.p))
        for (kind, me, _), (_, peer, _) in self.other.items():
            if kind == "memory":
                joined = node[peer]
                node = [node[me] if number == joined else number for number in node]
        return Layout(tuple(node)).renumbered()

    def _rank(self, me: int, start: int) -> int:
        """Add one run of a rank; return its end."""
        barriers: dict[tuple[int, int, int], list[int]] = {}
        ended: list[int] = []
        for number, block in enumerate(self.gpus[me]["threadblocks"]):
            with reading(f"rank {me}, thread block {number}", "thread block"):
                if block["id"] != number:
                    raise UnusableError(
                        f"rank {me}, thread block {number}",
                        f"its id is {format_value(block['id'])}",
                    )
                ended += self._thread_block(me, block, start, barriers)
        for (barrier, _, needed), met in barriers.items():
            if len(met) != needed:
                raise UnusableError(
                    f"rank {me}, barrier {barrier}", f"{len(met)} thread blocks meet, not {needed}"
                )
        return self._add(f"the end of rank {me}", [start, *ended])

    def _thread_block(
        self, me: int, block: Json, start: int, barriers: dict[tuple[int, int, int], list[int]]
    ) -> list[int]:
        """Add a thread block; return its last events."""
        fence = start
        since: list[int] = []
        threads: dict[int, int] = {}
        passed: Counter[int] = Counter()
        at = f"rank {me}, thread block {block['id']}"
        references = block.get("remote_buffer_refs", ())
        block = block | {"semaphore channels": self.channels["semaphore", me]}
        for kind in KINDS:
            block[f"{kind} channels"] = _joined(
                block["channels"], "channel_type", kind, "channel_ids"
            )
            block[f"{kind} buffers"] = _joined(
                references, "access_channel_type", kind, "remote_buffer_ids"
            )
        _check_limits(at, block)
        for number, operation in enumerate(block["ops"]):
            name = operation["name"]
            where = f"{at}, operation {number} ({name})"
            with reading(where, "operation"):
                if name in FENCES:
                    ended = [fence, *since]
                    threads = {}
                    since = []
                    fence = self._add(where, ended)
                    if name == "barrier":
                        # each one there follows what those that met before it follow, and the first
                        # the last
                        barrier = _item(where, "barrier_id", BARRIERS, operation["barrier_id"])
                        met = barriers.setdefault(
                            (barrier, passed[barrier], operation["num_threadblocks"]), []
                        )
                        passed[barrier] += 1
                        met.append(fence)
                        fence = met[0]
                        if len(met) > 1:
                            self.events[fence].before += ended
                    continue
                _check_operation(operation, where)
                if name == "flush":
                    continue
                if "src_buff" in operation and operation.get("channel_type") != "port":
                    for reads, writes in self._data(me, block, operation, where):
                        since.append(
                            self._add(
                                where, [fence], reads=reads, writes=writes, folds=name in FOLDS
                            )
                        )
                else:
                    threads |= self._threads(
                        me, block, operation, where, start, {-1: fence, **threads}
                    )
                    since += threads.values()
        return [fence, *since]

    def _threads(
        self,
        me: int,
        block: Json,
        operation: Json,
        where: str,
        start: int,
        before: Mapping[int, int],
    ) -> dict[int, int]:
        """Add what single threads do, each after what is before it; return the last event of each thread."""
        name = operation["name"]
        last = dict[int, int]()
        kind = "semaphore"
        if not name.startswith("sem_"):
            kind = operation["channel_type"]
        data = self._data(me, block, operation, where) if "src_buff" in operation else []
        ids = "semaphore_ids" if kind == "semaphore" else "channel_ids"
        for thread, local in enumerate(operation[ids]):
            number = _item(where, ids, block[f"{kind} channels"], local)
            key = kind, me, _item(where, f"{ids} of the block", self.channels[kind, me], number)
            follows = [before[-1], before.get(thread, before[-1])]
            takes = name in ("wait", "rlxwait", "sem_acquire")
            counted = key if takes or kind == "semaphore" else self.other.get(key)
            counts = {"counter": counted, "step": -1 if takes else 1, "begin": start}
            if kind == "port" and not takes:
                issued = self._add(where, follows)
                last[thread] = self._port(
                    key, issued, name, where, data[thread : thread + 1], counts
                )
            else:
                seen = {"rlxsignal": {"seen": [start]}, "rlxwait": {"seen": follows}}.get(name, {})
                last[thread] = self._add(where, follows, **counts, **seen)
        return last

    def _port(
        self, port: Counted, issued: int, name: str, where: str, data: Sequence[_Data], signal: Json
    ) -> int:
        """Add what a port does later, in the order in which it was issued; return what the thread waits for."""
        later: list[dict[str, Any]] = [{"reads": reads, "writes": writes} for reads, writes in data]
        if name in ("signal", "rlxsignal", "pws", "pwsf"):
            later.append(signal)
        if name == "pwsf":
            later.append({})
        for event in later:
            self.queues[port] = self._add(where, [issued, self.queues.get(port, issued)], **event)
        return self.queues[port] if name == "pwsf" else issued

    def _data(self, me: int, block: Json, operation: Json, where: str) -> list[_Data]:
        """Return what an operation reads and writes: a fold all at once, a move buffer by buffer."""
        sides = [
            [self._cells(me, block, operation, chunk, where) for chunk in operation[side]]
            for side in ("src_buff", "dst_buff")
        ]
        for source, target in product(*sides):
            if source != target and (both := {*source} & {*target}):
                raise fault_of(min(both), f"{where} reads it for another unit, and writes it")
        if operation["name"] in FOLDS:
            return [(sides[0], sides[1])]
        return [([source], [target]) for source, target in zip(*sides, strict=True)]

    def _cells(self, me: int, block: Json, operation: Json, chunk: Json, where: str) -> list[Cell]:
        """Return the chunks of one buffer of an operation; of a thread block in a group, its part."""
        owner, kind = me, str(chunk.get("type"))
        if "buffer_id" in chunk:
            number = _item(
                where,
                "buffer_id",
                block[f"{operation['channel_type']} buffers"],
                chunk["buffer_id"],
            )
            remote = _item(where, "remote_buffer_ids", self.gpus[me]["remote_buffers"], number)
            owner, kind = remote["rank"], remote["type"]
            if kind not in CHUNKS:
                raise BadInputError(f"{where}: type of remote buffer {number}", kind, CHUNKS)
            if operation["channel_type"] not in remote["access_channel_types"]:
                raise UnusableError(
                    where,
                    f"its remote buffer {number} is not for {operation['channel_type']} channels",
                )
        count = _item(where, "rank", self.gpus, owner)[CHUNKS[kind]]
        first = chunk["index"]
        size = chunk["size"]
        if not (type(first) is type(size) is int and 0 <= first < first + size <= count):
            why = f"index {json.dumps(first)} and size {json.dumps(size)} are not of its {count} chunks"
            raise UnusableError(f"{where}, buffer {kind} of rank {owner}", why)
        first, length = first * self.pieces, size * self.pieces
        group = operation.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        if group["tb_id"] not in range(group["tbg_size"]):
            raise UnusableError(where, f"its place in a group is {json.dumps(group)}")
        length //= group["tbg_size"]
        first += group["tb_id"] * length
        scattered = self.call.collective.name == {"i": "all_gather", "o": "reduce_scatter"}.get(
            kind
        )
        buffer = "src" if kind == "i" and not self.in_place else "dst"
        if kind == "s":
            buffer = "s"
        first += owner * self.lanes * scattered
        return [(owner, buffer, number) for number in range(first, first + length)]


def fault_of(cell: Cell, why: str) -> UnusableError:
    rank, buffer, number = cell
    return UnusableError(
        f"rank {rank}, unit {number} of {'scratch' if buffer == 's' else buffer}", why
    )
