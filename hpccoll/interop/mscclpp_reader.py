"""A plan of MSCCL++, right in every order of execution.

It is read and proven, and becomes a schedule of ours.

The threads of a thread block are ordered by ``nop`` alone: operations between two of them run in any order, but for
those of one thread, such as a signal and a wait of the same place in their lists. The k-th wait of a channel or
semaphore follows those signals without which k could not have come. A relaxed signal or wait orders what was read
before, and nothing that was written. A put through a port is read from its source later, and ended by a flush.

A plan is run twice, as programs call it; before and after each run the program writes the input and reads the output.
If no two operations use a chunk of which one writes it without an order, and none waits forever, then every order gives
the same result, and one is run on sets of contributions. Packets, pipelines and the multicast of a switch are not read.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
from hpccoll.common.errors import UnusableError
from hpccoll.common.files import read_json, with_digest
from hpccoll.interop.mscclpp_plan import PLAN_NAMES
from hpccoll.schedule import (
    CollectiveCall,
    Copy,
    Index,
    Layout,
    Part,
    Recv,
    RecvReduce,
    Requirement,
    Schedule,
    ScheduleError,
    Send,
    Step,
    prove,
)
from hpccoll.schedule.step import Action, Range

PLAN_BYTES, MAX_EVENTS, MAX_CHUNKS = 1 << 25, 20_000, 1 << 14
"""The maximum size of a file, the most events of its two runs, and the most chunks of a buffer."""
MAX_BITS, MAX_PAIRS = 1 << 31, 1 << 19
"""The most bits of all chunks, each a set of contributions; and the most pairs of a signal and a wait for it."""
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
class _Event:
    """What happens at once: an operation or one thread's part of it, a copy by a port, a program between two runs."""

    where: str
    before: list[int]  # the events that it follows
    seen: list[int]  # those of them that it follows with all that they wrote
    counter: Counted | None = None  # the channel or semaphore that it signals or waits for
    step: int = 0  # 1 signals, -1 waits
    reads: list[list[Cell]] = field(default_factory=list)
    writes: list[list[Cell]] = field(default_factory=list)
    folds: bool = False
    program: int = -1  # the rank whose program it is


_Held = tuple[Cell, int]  # a chunk of ours, as an action left it; -1 as it was at the start


class ProvenPlan(NamedTuple):
    """A plan that is proven: the collective that it runs, as schedules of ours."""

    name: str
    call: CollectiveCall
    slices: tuple[Schedule, ...]


def read_plan(path: Path) -> ProvenPlan:
    """Read a plan, and prove it; raises as ``proven``."""
    return proven(str(path), read_json(path, "FILE", PLAN_BYTES))


def proven(where: str, content: Json) -> ProvenPlan:
    """Return the plan in a JSON text, proven.

    Raises:
        UnusableError: if the text is no plan, has what is not read (packets, multicast), is wrong in some order of
            execution, or is right and no schedule of ours; names rank, thread block and unit.
    """
    try:
        return plan_of(content)
    except UnusableError as error:
        raise error.with_key(f"{where}: {error.key}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration) as error:
        raise UnusableError(where, f"it is no plan of MSCCL++ ({type(error).__name__}: {error})") from None


def plan_of(content: Json) -> ProvenPlan:
    """Return the plan in a JSON text, proven; raises as ``proven``, and others if it is no plan."""
    names = {theirs: ours for ours, theirs in PLAN_NAMES.items()}
    if content["collective"] not in names:
        raise UnusableError("collective", f"{content['collective']!r} is not read, but {', '.join(names)}")
    run = _Run(content, COLLECTIVES[names[content["collective"]]].call(len(content["gpus"])))
    order = _one_order(run)
    _check_races(run.events, order, *_follows(run, order))
    return ProvenPlan(content["name"], run.call, _lifted(run, run.prove(order)))


def _initial_values(me: int, gpu: Json) -> Iterator[int]:
    for k, each in enumerate(gpu.get("semaphores", ())):
        if type(each["init_value"]) is not int or each["init_value"] < 0:
            raise UnusableError(f"rank {me}, semaphore {k}", "its init_value is not an integer of 0 or more")
        yield each["init_value"]


class _Run:
    """Two runs of a plan, as events."""

    def __init__(self, content: Json, call: CollectiveCall) -> None:
        self.call, self.gpus, self.in_place = call, content["gpus"], content["inplace"]
        operations = (one for gpu in self.gpus for block in gpu["threadblocks"] for one in block["ops"])
        self.pieces = lcm(*(one["tbg_info"]["tbg_size"] for one in operations if "tbg_info" in one))
        if not 0 < self.pieces * max(gpu[each] for gpu in self.gpus for each in CHUNKS.values()) <= MAX_CHUNKS:
            raise UnusableError("plan", f"a buffer has no chunk, or more than {MAX_CHUNKS}")
        self.units, self.lanes = self._divided()
        self.events: list[_Event] = []
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
        self.events.append(_Event(where, followed, more.pop("seen", followed), **more))
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
            if kind == "port" and not takes:
                last[thread] = self._port(
                    key, self._add(where, follows), name, where, data[thread : thread + 1], counted
                )
            else:
                seen = {"rlxsignal": {"seen": [start]}, "rlxwait": {"seen": follows}}.get(name, {})
                last[thread] = self._add(where, follows, counter=counted, step=-1 if takes else 1, **seen)
        return last

    def _port(
        self, port: Counted, issued: int, name: str, where: str, data: Sequence[_Data], counted: Counted | None
    ) -> int:
        """Add what a port does later, in the order in which it was issued; return what the thread waits for."""
        later: list[dict[str, Any]] = [{"reads": reads, "writes": writes} for reads, writes in data]
        later += [{"counter": counted, "step": 1}] * (name in ("signal", "rlxsignal", "pws", "pwsf"))
        for each in (*later, {}) if name in ("flush", "pwsf") else later:
            self.queues[port] = self._add(where, [issued, self.queues.get(port, issued)], **each)
        return self.queues[port] if name in ("flush", "pwsf") else issued

    def _data(self, me: int, block: Json, one: Json, where: str) -> list[_Data]:
        """Return what an operation reads and writes: a fold all at once, a move buffer by buffer."""
        sides = [[self._cells(me, block, one, each) for each in one[side]] for side in ("src_buff", "dst_buff")]
        for source, target in product(*sides):
            if source != target and (both := {*source} & {*target}):
                raise _fault(min(both), f"{where} reads it for another unit, and writes it")
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

    def prove(self, order: Sequence[int]) -> list[_Event]:
        """Run one order on sets of contributions, and return the operations on data of the first run.

        Raises:
            UnusableError: if something undefined is read, a contribution is counted twice, or a result is wrong.
        """
        held, moves, ran = dict[Cell, int](), list[_Event](), set[int]()
        for number in order:
            event = self.events[number]
            if event.program >= 0:
                for cell in event.reads[0] if event.program in ran else ():
                    self._check_result(cell, held.get(cell, 0))
                held |= {cell: self._bit(cell[0], cell[2]) for cell in event.writes[0]}
                ran.add(event.program)
                continue
            columns = [[held.get(cell, 0) for cell in cells] for cells in event.reads]
            for cells, values in zip(event.reads, columns, strict=True):
                if 0 in values:
                    raise _fault(cells[values.index(0)], f"{event.where} reads it, and nothing has defined it")
            if event.folds:
                columns = [self._folded(event, columns)] * len(event.writes)
            for cells, values in zip(event.writes, columns, strict=True):
                held |= zip(cells, values, strict=True)
            if event.writes and number < self.last:
                moves.append(event)
        return moves

    def _bit(self, origin: int, number: int) -> int:
        return 1 << origin * self.units * self.lanes + number

    def _names(self, bits: int) -> str:
        found = (divmod(bit, self.units * self.lanes) for bit in range(bits.bit_length()) if bits >> bit & 1)
        return ", ".join(f"rank {origin}'s unit {unit}" for origin, unit in found)

    def _folded(self, event: _Event, columns: Sequence[Sequence[int]]) -> list[int]:
        total = [0] * len(event.writes[0])
        for values in columns:
            for cell, a, b in zip(event.writes[0], total, values, strict=True):
                if a & b:
                    raise _fault(cell, f"{event.where} counts twice {self._names(a & b)}")
            total = [a | b for a, b in zip(total, values, strict=True)]
        return total

    def _check_result(self, cell: Cell, found: int) -> None:
        unit, lane = divmod(cell[2], self.lanes)
        wanted = sum(self._bit(o, u * self.lanes + lane) for o, u in self.call.result(cell[0], unit))
        if missing := wanted & ~found:
            raise _fault(cell, f"it ends without {self._names(missing)}")
        if found != wanted:
            raise _fault(cell, f"it ends with {self._names(found & ~wanted)}")


def _fault(cell: Cell, why: str) -> UnusableError:
    rank, buffer, number = cell
    return UnusableError(f"rank {rank}, unit {number} of {'scratch' if buffer == 's' else buffer}", why)


def _one_order(run: _Run) -> list[int]:
    """Return an order in which the events can happen.

    Raises:
        UnusableError: if some wait forever. No choice matters: a signal serves the waits of one thread alone, in order.
    """
    events, left, after = run.events, [len(each.before) for each in run.events], defaultdict[int, list[int]](list)
    for number, each in enumerate(events):
        for earlier in each.before:
            after[earlier].append(number)
    ready, order, signals = deque(k for k, count in enumerate(left) if not count), list[int](), Counter(run.initial)
    waiting: defaultdict[Counted, list[int]] = defaultdict(list)
    while ready:
        number = ready.popleft()
        counter, step = events[number].counter, events[number].step
        if counter and step < 0 and not signals[counter]:
            waiting[counter].append(number)
            continue
        order.append(number)
        if counter:
            signals[counter] += step
            if step > 0 and waiting[counter]:
                ready.append(waiting[counter].pop(0))
        for later in after[number]:
            left[later] -= 1
            if not left[later]:
                ready.append(later)
    if len(order) < len(events):
        first = min((number for each in waiting.values() for number in each), default=0)
        raise UnusableError(events[first].where, "it waits for a signal that never comes")
    return order


def _check_pairs(counters: Iterable[tuple[list[int], list[int]]]) -> None:
    if sum(len(signals) * len(waits) for signals, waits in counters) > MAX_PAIRS:
        raise UnusableError("plan", "its channels have more signals than can be proven")


def _follows(run: _Run, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the events that each one follows in every order, and those whose writes it then sees, each as bits.

    Raises:
        UnusableError: if a channel or semaphore has more signals than waits, or its waits have no order.
    """
    events, counters = run.events, defaultdict[Counted, tuple[list[int], list[int]]](lambda: ([], []))
    for number in order:
        if counter := events[number].counter:
            counters[counter][events[number].step < 0].append(number)
    _check_pairs(counters.values())
    for signals, waits in counters.values():
        if len(signals) != len(waits):  # the one left over ends a wait of the next run too early
            raise UnusableError(
                events[signals[0]].where, f"{len(signals)} such signals meet {len(waits)} waits in two runs"
            )
    while True:
        past = _closure(order, [each.before for each in events])
        new = [
            pair
            for counter, (signals, waits) in counters.items()
            for pair in _needed(past, signals, waits, run.initial.get(counter, 0))
        ]
        for wait, signal in new:
            events[wait].before.append(signal)
        if not new:
            break
    for one, other in (pair for _, waits in counters.values() for pair in pairwise(waits)):
        if not past[other] >> one & 1:
            raise UnusableError(events[other].where, f"it and {events[one].where} wait for one signal in no order")
    return past, _closure(order, [each.seen for each in events])


def _closure(order: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    past = [0] * len(before)
    for number in order:
        for earlier in before[number]:
            past[number] |= past[earlier] | 1 << earlier
    return past


def _needed(
    past: Sequence[int], signals: Sequence[int], waits: Sequence[int], initial: int
) -> Iterator[tuple[int, int]]:
    """Yield waits with signals, not known to precede them, without which those that can precede them are too few."""
    after = [sum(1 << k for k, other in enumerate(signals) if past[other] >> each & 1) for each in signals]
    for wait in waits:
        count = 1 + sum(past[wait] >> other & 1 for other in waits) - initial
        able = sum(1 << k for k, each in enumerate(signals) if not past[each] >> wait & 1)
        for k, signal in enumerate(signals):
            others = (able & ~after[k]).bit_count() - 1
            if able >> k & 1 and others < count and not past[wait] >> signal & 1:
                yield wait, signal


def _check_races(events: Sequence[_Event], order: Sequence[int], past: Sequence[int], seen: Sequence[int]) -> None:
    """Check that operations on one chunk, of which one writes it, have an order.

    Raises:
        UnusableError: names the chunk and both operations.
    """
    written: dict[Cell, int] = {}
    read: defaultdict[Cell, list[int]] = defaultdict(list)
    for number in order:
        event = events[number]
        new = {cell for cells in event.writes for cell in cells}
        for cell in sorted({cell for cells in event.reads for cell in cells} | new):
            earlier = [written[cell]] if cell in written and not seen[number] >> written[cell] & 1 else []
            earlier += [each for each in read[cell] if cell in new and not past[number] >> each & 1]
            if earlier:
                raise _fault(cell, f"{events[earlier[0]].where} and {event.where} use it in no order")
            if cell in new:
                written[cell] = number
                read[cell] = []
            else:
                read[cell].append(number)


class _Lift:
    """The actions of a schedule of ours that move what the first run of a plan moves.

    What a plan puts into scratch is in flight until it is folded, copied or sent on; what is sent on lies in tmp.
    """

    def __init__(self) -> None:
        self.actions: list[tuple[Cell, Cell, Cell | None]] = []  # from, to, and what it is folded with
        self.orders: list[tuple[int, int, int]] = []  # of two actions, and the steps between them at least
        self.version: dict[Cell, int] = {}  # the action that wrote a chunk of dst or tmp last
        self.readers: defaultdict[_Held, list[int]] = defaultdict(list)
        self.overwritten: dict[_Held, int] = {}
        self.held: dict[Cell, _Held] = {}  # what a chunk of the plan has

    def _where(self, cell: Cell) -> _Held:
        return self.held.get(cell, ((cell[0], "dst", cell[2]), -1))

    def _read(self, number: int, what: _Held, steps: int) -> None:
        """An action reads a chunk, some steps after what wrote it at least: a fold reads at the end of its step."""
        self.orders.append((what[1], number, steps))
        self.readers[what].append(number)
        if what in self.overwritten:
            self.orders.append((number, self.overwritten[what], 1 - steps))

    def _act(self, source: _Held, target: Cell, operand: _Held | None = None) -> _Held:
        number = len(self.actions)
        self.actions.append((source[0], target, operand and operand[0]))
        self._read(number, source, 1)
        if operand:
            self._read(number, operand, 0)
        last = target, self.version.get(target, -1)
        self.orders += [(each, number, 0) for each in (last[1], *self.readers[last]) if each != number]
        self.overwritten[last] = self.version[target] = number
        return target, number

    def _at_its_rank(self, cell: Cell) -> _Held:
        if self._where(cell)[0][0] != cell[0]:
            self.held[cell] = self._act(self._where(cell), (cell[0], "tmp", self._where(cell)[0][2]))
        return self._where(cell)

    def add(self, event: _Event) -> None:
        """Add an operation of a plan."""
        for sources, targets in zip(zip(*event.reads, strict=True), zip(*event.writes, strict=True), strict=True):
            rank = targets[0][0]
            what = [self._where(one) if one[0] == rank else self._at_its_rank(one) for one in sources]
            mine = [one for one in what if one[0][0] == rank]
            if len(mine) > 1:
                raise UnusableError(
                    event.where, "it is right, but folds two chunks of one rank: no schedule of ours does"
                )
            others = [one for one in what if one not in mine]
            now = (mine or others[:1])[0]
            if event.folds:
                home = targets[0] if targets[0][1] == "dst" else (rank, "tmp", now[0][2])
                now = now if mine else self._act(others.pop(0), home)
                for one in others:
                    now = self._act(one, home, now)
            for target in targets:
                self.held[target] = self._act(now, target) if target[1] == "dst" and target != now[0] else now

    def levels(self) -> list[int]:
        """Return the step of each action: the earliest one that what it reads and overwrites allows."""
        level = [0] * len(self.actions)
        for _ in range(len(level) + 1):
            grown = False
            for earlier, later, steps in self.orders:
                if earlier >= 0 and level[later] < level[earlier] + steps:
                    level[later], grown = level[earlier] + steps, True
            if not grown:
                return level
        raise UnusableError("plan", "it is right, but keeps more copies of a unit than a schedule of ours has room for")


def _lifted(run: _Run, moves: Iterable[_Event]) -> tuple[Schedule, ...]:
    """Return the schedules of ours, one for each chunk of a unit, of a plan.

    Raises:
        UnusableError: if no schedule of ours can say it.
    """
    lift, lanes = _Lift(), run.lanes
    for event in moves:
        lift.add(event)
    messages: dict[tuple[Any, ...], list[tuple[Cell, ...]]] = {}
    for level, (source, target, operand) in zip(lift.levels(), lift.actions, strict=True):
        ends = [(cell[:2], cell[2] % lanes) for cell in (source, target, operand or target)]
        messages.setdefault((level, *ends, operand is None), []).append((source, target, operand or target))
    programs: dict[tuple[int, int], dict[int, list[Action]]] = defaultdict(lambda: defaultdict(list))
    for (level, ((a, _), lane), ((b, _), _), _, replaces), cells in messages.items():
        sent, landed, folded = (_part(each, lanes) for each in zip(*cells, strict=True))
        if a == b:
            programs[lane, a][level].append(Copy(sent, landed))
            continue
        programs[lane, a][level].append(Send(b, sent))
        programs[lane, b][level].append(Recv(a, landed) if replaces else RecvReduce(a, landed, folded))

    def steps(lane: int, me: Index) -> Iterator[Step]:
        return (Step(*actions) for _, actions in sorted(programs[lane, int(me)].items()))

    slices = tuple(Schedule(run.layout(), run.units, partial(steps, lane)) for lane in range(lanes))
    try:
        prove(run.call, slices)
    except ScheduleError as error:
        raise UnusableError("plan", f"it is right, but a schedule of ours with its steps is not: {error}") from None
    return slices


def _part(cells: Iterable[Cell], lanes: int) -> Part:
    ranges: list[Range] = []
    for unit in (number // lanes for *_, number in cells):
        ranges[-1:] = (
            [Range(ranges[-1].first, unit + 1)]
            if ranges and ranges[-1].last == unit
            else [*ranges[-1:], Range(unit, unit + 1)]
        )
    return Part(next(iter(cells))[1], tuple(ranges))


def read_plans(names: Iterable[str]) -> dict[str, Json]:
    """Return the contents of the plans among ``names`` of algorithms, by file:PLAN with a digest of the content.

    Raises:
        BadInputError: if a file cannot be read, or its name has the digest of something else.
    """
    paths = (name.removeprefix(PLAN) for name in dict.fromkeys(names) if name.startswith(PLAN))
    named = [with_digest(path, "algorithm", PLAN_BYTES) for path in paths]
    return {PLAN + name: read_json(Path(name.partition("#")[0]), "algorithm", PLAN_BYTES) for name in named}


def with_plans(names: Sequence[str]) -> list[str]:
    """Register the plans among ``names`` of algorithms, and return these, those of plans with their digests.

    Raises:
        BadInputError: if ``read_plans`` or ``register_plans`` raises it.
    """
    plans = read_plans(names)
    register_plans(plans)
    named = {name.partition("#")[0]: name for name in plans}
    return [named.get(name.partition("#")[0], name) for name in names]


def register_plans(contents: Mapping[str, Json]) -> None:
    """Register plans as algorithms of their collectives, by name; those that are registered stay.

    Raises:
        UnusableError: if ``proven`` raises it.
    """
    known = {name for family in COLLECTIVES.values() for name in family.algorithms}
    for name, content in contents.items():
        if name not in known:
            _register(name, proven(name, content))


def _register(name: str, plan: ProvenPlan) -> None:
    p = plan.call.p

    @plan.call.collective(
        name, needs=[Requirement(f"{p} workers, as its plan has", lambda layout, _: layout.workers == p)]
    )
    def _(layout: Layout) -> tuple[Schedule, ...]:
        return tuple(replace(each, layout=layout) for each in plan.slices)
