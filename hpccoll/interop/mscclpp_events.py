"""What happens in two runs of a plan of MSCCL++: its events, each with those that it follows.

The threads of a thread block are ordered by ``nop`` alone: operations between two of them run in any order, but for
those of one thread, such as a signal and a wait of the same place in their lists. A relaxed signal or wait orders what
was read before, and of what was written only what the signalling rank had before its run: a kernel begins after all
that earlier ones wrote, as MSCCL++'s own plans take for granted, and relaxed operations wait for no write of their own.
A put through a port is read from its source later, and ended by a flush.

A plan is run twice, as programs call it; before and after each run the program writes the input and reads the output.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import lcm
from typing import Any

from hpccoll.common.errors import UnusableError
from hpccoll.schedule import CollectiveCall, Layout

MAX_EVENTS, MAX_CHUNKS, MAX_BITS = 20_000, 1 << 14, 1 << 31
"""The most events of two runs, chunks of a buffer, and bits of all chunks, each a set of contributions."""
MOVES, FOLDS = {"put", "pws", "pwsf", "get", "copy"}, {"re", "res", "rre", "rres"}
CHUNKS = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
CONTROLS = {"signal", "wait", "rlxsignal", "rlxwait", "flush", "sem_acquire", "sem_release"}
"""The operations that copy each chunk to another one, those that fold chunks, and those of one thread."""

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
    seen: list[int]  # those of them that it follows with all that they wrote
    counter: Counted | None = None  # the channel or semaphore that it signals or waits for
    step: int = 0  # 1 signals, -1 waits
    begin: int = -1  # the start of the run of its rank, if it signals or waits
    reads: list[list[Cell]] = field(default_factory=list)
    writes: list[list[Cell]] = field(default_factory=list)
    folds: bool = False
    program: int = -1  # the rank whose program it is


def _initial_values(me: int, gpu: Json) -> Iterator[int]:
    for k, each in enumerate(gpu.get("semaphores", ())):
        if type(each["init_value"]) is not int or each["init_value"] < 0:
            raise UnusableError(f"rank {me}, semaphore {k}", "its init_value is not an integer of 0 or more")
        yield each["init_value"]


class PlanRun:
    """Two runs of a plan, as events."""

    def __init__(self, content: Json, call: CollectiveCall) -> None:
        self.call, self.gpus, self.in_place = call, content["gpus"], content["inplace"]
        operations = [one for gpu in self.gpus for block in gpu["threadblocks"] for one in block["ops"]]
        self.relaxed = any(one["name"] == "rlxwait" for one in operations)
        self.pieces = lcm(*(one["tbg_info"]["tbg_size"] for one in operations if "tbg_info" in one))
        if not 0 < self.pieces * max(gpu[each] for gpu in self.gpus for each in CHUNKS.values()) <= MAX_CHUNKS:
            raise UnusableError("plan", f"a buffer has no chunk, or more than {MAX_CHUNKS}")
        self.units, self.lanes = self._divided()
        self.events: list[PlanEvent] = []
        self.initial: dict[Counted, int] = {}
        ends: defaultdict[Counted, list[int]] = defaultdict(list)
        for me, gpu in enumerate(self.gpus):
            self.initial |= {("semaphore", me, k): value for k, value in enumerate(_initial_values(me, gpu))}
            for each in gpu["channels"]:
                for number, peer in enumerate(each.get("connected_to", ())):
                    ends[each["channel_type"], me, peer].append(number)
        self.other = {
            (kind, me, number): (kind, peer, there)
            for (kind, me, peer), mine in ends.items()
            for number, there in zip(mine, ends.get((kind, peer, me), ()), strict=False)
        }
        self.queues: dict[Counted, int] = {}  # the last event of each port
        ends_of_run: list[list[int]] = [[] for _ in self.gpus]
        for _ in range(2):
            self.last = len(self.events)  # the first event of the last run
            ends_of_run = [[self._rank(me, self._program(me, ends_of_run[me]))] for me in range(call.p)]
        for me in range(call.p):
            self._program(me, ends_of_run[me])

    def _divided(self) -> tuple[int, int]:
        """Return the units and lanes of the chunks, which must be those of all ranks, as MSCCL++ cuts by each one's."""
        call = self.call
        name, divisible = call.collective.name, call.collective.units == "divisible"
        parts = [1 if divisible or name == other else call.p for other in ("all_gather", "reduce_scatter")]
        for me, gpu in enumerate(self.gpus):
            own, first = ([each[CHUNKS[kind]] for kind in "io"] for each in (gpu, self.gpus[0]))
            block = max(count // part for count, part in zip(own, parts, strict=True))
            fits = all(count in (0, part * block) for count, part in zip(own, parts, strict=True))  # 0: it is not used
            if gpu["id"] != me or not block or not fits or own != first:
                why = f"its id is not {me}, or its input and output chunks are not those of rank 0, or of {name}"
                raise UnusableError(f"rank {me}", f"{why}: {gpu['id']}, {own[0]}, {own[1]}")
        units, lanes = (block * self.pieces, 1) if divisible else (call.p, block * self.pieces)
        cells = self.pieces * sum(gpu[each] for gpu in self.gpus for each in CHUNKS.values())
        if cells * call.p * units * lanes > MAX_BITS:
            raise UnusableError("plan", f"its {cells} chunks of {call.p} ranks are too many to prove")
        return units, lanes

    def _add(self, where: str, before: Iterable[int], **more: Any) -> int:
        """Add an event, which sees what those that it follows wrote."""
        followed = [*before]
        self.events.append(PlanEvent(where, followed, more.pop("seen", followed), **more))
        if len(self.events) > MAX_EVENTS:
            raise UnusableError("plan", f"it has more than {MAX_EVENTS} events, which are too many to prove")
        return len(self.events) - 1

    def _program(self, me: int, before: Sequence[int]) -> int:
        """Add what a program does with the buffers between two runs."""
        contributed = [(me, "dst" if self.in_place else "src", n) for n in self.numbers(me, self.call.source)]
        result = [(me, "dst", n) for n in self.numbers(me, self.call.target)]
        return self._add(f"the program of rank {me}", before, reads=[result], writes=[contributed], program=me)

    def numbers(self, me: int, selected: Callable[[int, int], range]) -> list[int]:
        """Return the chunks of the whole buffer that a rank contributes or ends with."""
        return [unit * self.lanes + lane for unit in selected(me, self.units) for lane in range(self.lanes)]

    def layout(self) -> Layout:
        """Return the ranks, with those on one node between which there are memory channels."""
        node = [*range(self.call.p)]
        for kind, me, _ in self.other:
            near = {node[peer] for k, peer, _ in (self.other[c] for c in self.other if c[:2] == (kind, me))} | {
                node[me]
            }
            node = [min(near) if each in near and kind == "memory" else each for each in node]
        return Layout(tuple(node)).renumbered()

    def _rank(self, me: int, start: int) -> int:
        """Add one run of a rank; return its end."""
        barriers: dict[tuple[int, int, int], list[int]] = {}
        ended = [
            each for block in self.gpus[me]["threadblocks"] for each in self._thread_block(me, block, start, barriers)
        ]
        for (barrier, _, needed), found in barriers.items():
            if len(found) != needed:
                raise UnusableError(f"rank {me}, barrier {barrier}", f"{len(found)} thread blocks meet, not {needed}")
        return self._add(f"the end of rank {me}", [start, *ended])

    def _thread_block(
        self, me: int, block: Json, start: int, barriers: dict[tuple[int, int, int], list[int]]
    ) -> list[int]:
        """Add a thread block; return its last events."""
        fence, since, threads, passed = start, list[int](), dict[int, int](), Counter[int]()
        for number, one in enumerate(block["ops"], 1):
            name, moves = one["name"], one["name"] in MOVES | FOLDS
            where = f"rank {me}, thread block {block['id']}, operation {number} ({name})"
            if one.get("reduce_op", "sum") != "sum":
                raise UnusableError(where, f"it folds by {one['reduce_op']!r}; what is read is sum")
            if name in ("nop", "barrier"):
                ended, threads, since = [fence, *since], {}, []
                fence = self._add(where, ended)
                if name == "barrier":
                    # each one there follows what those that met before it follow, and the first the last
                    barrier = one["barrier_id"]
                    met = barriers.setdefault((barrier, passed[barrier], one["num_threadblocks"]), [])
                    passed[barrier] += 1
                    met.append(fence)
                    fence = met[0]
                    self.events[fence].before += ended * (len(met) > 1)
            elif not moves and name not in CONTROLS:
                raise UnusableError(where, f"it is not read; what is: {', '.join(sorted(MOVES | FOLDS | CONTROLS))}")
            elif moves and one.get("channel_type") != "port":
                data = self._data(me, block, one, where)
                since += [self._add(where, [fence], reads=r, writes=w, folds=name in FOLDS) for r, w in data]
            else:
                threads |= self._threads(me, block, one, where, start, {-1: fence, **threads})
                since += threads.values()
        return [fence, *since]

    def _threads(
        self, me: int, block: Json, one: Json, where: str, start: int, before: Mapping[int, int]
    ) -> dict[int, int]:
        """Add what single threads do, each after what is before it; return the last event of each thread."""
        kind, name, last = one.get("channel_type", ""), one["name"], dict[int, int]()
        data = self._data(me, block, one, where) if name in MOVES else []
        for thread, local in enumerate(one["semaphore_ids"] if "semaphore_ids" in one else one["channel_ids"]):
            key = "semaphore", me, local
            if kind:
                ids = next(each["channel_ids"] for each in block["channels"] if each["channel_type"] == kind)
                key = kind, me, ids[local]
            follows = [before[-1], before.get(thread, before[-1])]
            takes = name in ("wait", "rlxwait", "sem_acquire")
            counted = key if takes or not kind else self.other.get(key)
            counts = {"counter": counted, "step": -1 if takes else 1, "begin": start}
            if kind == "port" and not takes:
                last[thread] = self._port(
                    key, self._add(where, follows), name, where, data[thread : thread + 1], counts
                )
            else:
                seen = {"rlxsignal": {"seen": [start]}, "rlxwait": {"seen": follows}}.get(name, {})
                last[thread] = self._add(where, follows, **counts, **seen)
        return last

    def _port(self, port: Counted, issued: int, name: str, where: str, data: Sequence[_Data], signal: Json) -> int:
        """Add what a port does later, in the order in which it was issued; return what the thread waits for."""
        later: list[dict[str, Any]] = [{"reads": reads, "writes": writes} for reads, writes in data]
        later += [signal] * (name in ("signal", "rlxsignal", "pws", "pwsf"))
        for each in (*later, {}) if name in ("flush", "pwsf") else later:
            self.queues[port] = self._add(where, [issued, self.queues.get(port, issued)], **each)
        return self.queues[port] if name in ("flush", "pwsf") else issued

    def _data(self, me: int, block: Json, one: Json, where: str) -> list[_Data]:
        """Return what an operation reads and writes: a fold all at once, a move buffer by buffer."""
        sides = [[self._cells(me, block, one, each) for each in one[side]] for side in ("src_buff", "dst_buff")]
        for source, target in product(*sides):
            if source != target and (both := {*source} & {*target}):
                raise fault_of(min(both), f"{where} reads it for another unit, and writes it")
        if one["name"] in FOLDS:
            return [(sides[0], sides[1])]
        return [([source], [target]) for source, target in zip(*sides, strict=True)]

    def _cells(self, me: int, block: Json, one: Json, chunk: Json) -> list[Cell]:
        """Return the chunks of one buffer of an operation; of a thread block in a group, its part."""
        owner, kind = me, str(chunk.get("type"))
        if "buffer_id" in chunk:
            access = one["channel_type"]
            refs = next(each for each in block["remote_buffer_refs"] if each["access_channel_type"] == access)
            remote = self.gpus[me]["remote_buffers"][refs["remote_buffer_ids"][chunk["buffer_id"]]]
            owner, kind = remote["rank"], remote["type"]
        if not 0 <= chunk["index"] < chunk["index"] + chunk["size"] <= self.gpus[owner][CHUNKS[kind]]:
            raise UnusableError(
                f"rank {me}, thread block {block['id']}", f"{chunk} is outside of buffer {kind} of rank {owner}"
            )
        first, length = chunk["index"] * self.pieces, chunk["size"] * self.pieces
        group = one.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        if not 0 <= group["tb_id"] < group["tbg_size"]:
            raise UnusableError(f"rank {me}, thread block {block['id']}", f"its place in a group is {group}")
        length //= group["tbg_size"]
        first += group["tb_id"] * length
        scattered = self.call.collective.name == {"i": "all_gather", "o": "reduce_scatter"}.get(kind)
        buffer = "s" if kind == "s" else "src" if kind == "i" and not self.in_place else "dst"
        first += owner * self.lanes * scattered
        return [(owner, buffer, number) for number in range(first, first + length)]


def fault_of(cell: Cell, why: str) -> UnusableError:
    rank, buffer, number = cell
    return UnusableError(f"rank {rank}, unit {number} of {'scratch' if buffer == 's' else buffer}", why)
