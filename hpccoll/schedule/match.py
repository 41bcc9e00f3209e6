"""The matcher: pairs every send with its receive over all ranks, once; the other interpreters walk the result.

The k-th send from a to b in a step meets the k-th receive at b from a in a step, in listed order,
as MPI pairs messages of one tag. The two sides may have different numbers of steps: a rank's step
starts when its previous one has ended, and ends when all of its messages have partners that have
started. A step of a vectorised schedule describes all ranks and is paired at once; from the first
step whose messages have no partner in the same step, ranks are followed one by one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.memory import collector_paused
from hpccoll.common.units import format_count
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import (
    NONE,
    Action,
    Copy,
    CopyReduce,
    Index,
    Part,
    Range,
    Recv,
    RecvReduce,
    Send,
    Step,
    drop_null_peers,
)

Ranks: TypeAlias = NDArray[np.int64]

MOST_TMP_UNITS = (1 << 31) - 1
"""The most units of tmp, which has no size of its own."""


class ScheduleError(ValueError):
    """An invalid schedule; the message names the step (from 1), the rank and the fault."""


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages of one kind: message i goes from rank ``source[i]`` to rank ``target[i]``.

    The ends of the parts' ranges are arrays over the messages. ``operand`` is what a reduction
    folds the arrival with; it is None if the arrival replaces. A copy is a message from a rank to
    itself, and so is a fold on the same rank.
    """

    source: Ranks
    target: Ranks
    sent: Part
    landed: Part
    operand: Part | None


@dataclass(frozen=True, slots=True)
class MatchedStep:
    """One logical time: messages whose sender has started its step, and messages whose receiver ends its step.

    A message is read when it is sent and folded when it lands, which may be steps later;
    ``landed`` is in the order in which arrivals are folded. ``ended`` are the ranks whose step
    ends, those that only send among them.
    """

    sent: tuple[Messages, ...]
    landed: tuple[Messages, ...]
    ended: Ranks


def match(schedule: Schedule) -> Iterator[MatchedStep]:
    """Yield the steps of a schedule.

    Raises:
        ScheduleError: if a message has no partner or one of another length, units are outside the
            buffer, a rank sends to itself, an arrival is in src, or ranks deadlock.
    """
    everyone = np.arange(schedule.layout.ranks, dtype=np.int64)
    steps = schedule.steps(everyone) if schedule.vectorised else None
    aligned = 0
    while steps:
        try:
            step = next(steps)
        except StopIteration:
            return
        except NotVectorisedError:
            break
        with _naming(f"step {aligned + 1}"):
            messages = _pair_aligned(schedule, step, everyone)
        if messages is None:
            break
        yield MatchedStep(messages, messages, everyone)
        aligned += 1
    yield from _pair_one_by_one(schedule, aligned)


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Put the place in front of the message of a ScheduleError."""
    try:
        yield
    except ScheduleError as error:
        raise ScheduleError(f"{place}: {error}") from None


def _spread(index: Index, at: Ranks) -> Ranks:
    """Return ``index``, an int or an array over all ranks, at the ranks ``at``."""
    # ranks are followed one by one: np.full takes several times as long
    if len(at) == 1 and isinstance(index, int):
        return np.array([index], np.int64)
    if np.ndim(index) == 0:
        return np.full(len(at), index, np.int64)
    return np.asarray(index, np.int64)[at]


def _spread_part(part: Part, at: Ranks) -> Part:
    return Part(
        part.buffer, tuple(Range(_spread(r.first, at), _spread(r.last, at)) for r in part.ranges)
    )


def _at_all_ranks(part: Part, ranks: int) -> Part:
    def of_all_ranks(index: Index) -> Ranks:
        return np.broadcast_to(np.asarray(index, np.int64), (ranks,))

    return Part(
        part.buffer, tuple(Range(of_all_ranks(r.first), of_all_ranks(r.last)) for r in part.ranges)
    )


def _pair(
    schedule: Schedule,
    source: Ranks,
    target: Ranks,
    sent: Part,
    arrival: Recv | RecvReduce | Copy,
    *,
    all_send: bool = False,
) -> Messages:
    """Return the messages from each ``source[i]`` to ``target[i]``, after seeing that both ends fit."""
    landed = arrival.target if isinstance(arrival, Copy) else arrival.part
    landed_there = _spread_part(landed, target)
    operand_there = None
    if isinstance(arrival, RecvReduce | CopyReduce):
        operand_there = landed_there
        if arrival.operand is not landed:
            operand_there = _spread_part(arrival.operand, target)
    sent_there = _at_all_ranks(sent, len(source)) if all_send else _spread_part(sent, source)
    messages = Messages(source, target, sent_there, landed_there, operand_there)
    if landed.buffer == "src" and len(target):
        raise ScheduleError(f"rank {target[0]} writes src, which is only read")
    sends = _check(schedule, sent_there, source)
    _check_lengths(messages, sends, "expects", _check(schedule, landed_there, target))
    if operand_there is not None and operand_there is not landed_there:
        _check_lengths(messages, sends, "folds with", _check(schedule, operand_there, target))
    return messages


def _check_lengths(
    messages: Messages, sends: NDArray[np.int64], verb: str, length: NDArray[np.int64]
) -> None:
    """Check that every target has room for as many units as its source sends."""
    different = np.flatnonzero(length != sends)
    if len(different):
        i = different[0]
        source = messages.source[i]
        target = messages.target[i]
        raise ScheduleError(
            f"rank {source} sends {sends[i]} units where rank {target} {verb} {length[i]}"
        )


def _check(schedule: Schedule, part: Part, at: Ranks) -> NDArray[np.int64]:
    """Return the units of ``part`` at each of the ranks ``at``, after seeing that it has room for them."""
    size = MOST_TMP_UNITS if part.buffer == "tmp" else schedule.units
    length = np.zeros(len(at), np.int64)
    for r in part.ranges:
        first = np.asarray(r.first)
        last = np.asarray(r.last)
        some = last - first
        if len(at) == 1:  # three reductions of one element would take longer than all else
            outside = not 0 <= first[0] <= last[0] <= size
        else:
            outside = len(at) > 0 and (first.min() < 0 or last.max() > size or some.min() < 0)
        if outside:
            i = np.flatnonzero((first < 0) | (last > size) | (first > last))[0]
            raise ScheduleError(
                f"rank {at[i]} names {part.buffer}[{first[i]}:{last[i]}] of {schedule.units} units"
            )
        length += some
    return length


def _pair_aligned(schedule: Schedule, step: Step, everyone: Ranks) -> tuple[Messages, ...] | None:
    """Pair the messages of a step of all ranks; None where one has no partner in the same step."""
    permuted = _pair_permutation(schedule, step, everyone)
    if permuted is not None:
        return (permuted,)
    sent = _ends(step, everyone, sends=True)
    landed = _ends(step, everyone, sends=False)
    source, target = sent.source, sent.target
    strange = (target < 0) | (target >= len(everyone)) | (source == target)
    if strange.any() or not (
        np.array_equal(source, landed.source) and np.array_equal(target, landed.target)
    ):
        return None  # one by one finds the words for what is wrong
    paired = []
    # Sorted once: a step of p - 1 messages a rank would be gone through p - 1 times.
    order = np.argsort(landed.position, kind="stable")
    bounds = np.searchsorted(landed.position[order], range(len(step.actions) + 1))
    for number, action in enumerate(step.actions):
        if isinstance(action, Copy):
            paired.append(_pair(schedule, everyone, everyone, action.source, action))
        elif not isinstance(action, Send):
            received = order[bounds[number] : bounds[number + 1]]
            sent_in = sent.position[received]
            for sending in np.unique(sent_in):
                send = cast("Send", step.actions[sending])
                matching = received[sent_in == sending]
                paired.append(
                    _pair(schedule, source[matching], target[matching], send.part, action)
                )
    return tuple(paired)


def _pair_permutation(schedule: Schedule, step: Step, everyone: Ranks) -> Messages | None:
    """Return the messages of a step in which every rank sends one and receives one; None for any other step.

    It needs no sorting: a ring of 16,384 ranks has 32,766 such steps.
    """
    if len(step.actions) != 2:
        return None
    send, arrival = step.actions
    if not isinstance(send, Send) or not isinstance(arrival, Recv | RecvReduce):
        return None
    target = np.asarray(send.peer)
    source = np.asarray(arrival.peer)
    if not target.shape == source.shape == everyone.shape:
        return None
    if target.min() < 0 or target.max() >= len(everyone):
        return None
    if not np.array_equal(source[target], everyone) or (target == everyone).any():
        return None
    return _pair(schedule, everyone, target, send.part, arrival, all_send=True)


class _Ends(NamedTuple):
    """The sending, or the receiving, ends of the messages of a step."""

    source: Ranks
    target: Ranks
    position: Ranks  # of the action in the step


def _ends(step: Step, everyone: Ranks, *, sends: bool) -> _Ends:
    """Return the ends of all messages sent, or received, by source and target, and then in listed order of actions.

    The k-th of those sent is then the partner of the k-th of those received.
    """
    ranks = [everyone[:0]]
    peers = [everyone[:0]]
    positions = [everyone[:0]]
    for position, action in enumerate(step.actions):
        if isinstance(action, Copy) or isinstance(action, Send) != sends:
            continue
        peer = _spread(action.peer, everyone)
        acting = everyone[peer != NONE]
        ranks.append(acting)
        peers.append(peer[acting])
        positions.append(np.full(len(acting), position))
    source, target = np.concatenate(ranks), np.concatenate(peers)
    if not sends:
        source, target = target, source
    order = np.argsort(source * len(everyone) + target, kind="stable")
    return _Ends(source[order], target[order], np.concatenate(positions)[order])


@dataclass(slots=True)
class _RankStep:
    """A step of one rank: its messages, and the steps (rank, number) of others that have to start before it ends."""

    step: Step
    sent: list[Messages] = field(default_factory=list)
    landed: list[Messages] = field(default_factory=list)
    partners: list[tuple[int, int]] = field(default_factory=list)


def _pair_one_by_one(schedule: Schedule, skip: int) -> Iterator[MatchedStep]:
    ranks = range(schedule.layout.ranks)
    with collector_paused():  # looking for circles among all steps takes longer than pairing them
        programs = [
            [_RankStep(step) for step in islice(schedule.steps(me), skip, None)] for me in ranks
        ]
        _pair_all(schedule, programs, skip)
    at = [0 for _ in ranks]
    left = sum(map(len, programs))
    started = [me for me in ranks if programs[me]]
    while left:
        ended = _ending(programs, at, started)
        if not ended:
            raise ScheduleError(_deadlock(programs, at, skip))
        sent = [message for me in started for message in programs[me][at[me]].sent]
        landed = [message for me in ended for message in programs[me][at[me]].landed]
        yield MatchedStep(tuple(sent), tuple(landed), np.array(ended))
        for me in ended:
            at[me] += 1
        left -= len(ended)
        started = [me for me in ended if at[me] < len(programs[me])]


def _ending(programs: list[list[_RankStep]], at: list[int], started: list[int]) -> list[int]:
    """Return the ranks whose step ends after ``started`` have begun theirs, among these and their partners."""
    candidates = set(started)
    for me in started:
        for peer, number in programs[me][at[me]].partners:
            if at[peer] == number:
                candidates.add(peer)
    return [
        me
        for me in sorted(candidates)
        if all(at[peer] >= n for peer, n in programs[me][at[me]].partners)
    ]


_Pair: TypeAlias = tuple[int, int, int]
"""Source, target, and how many messages between the two precede this one in its step."""


class _Sent(NamedTuple):
    """A send without its receive."""

    step: int
    part: Part


class _Awaited(NamedTuple):
    """A receive without its send."""

    step: int
    position: int  # among the arrivals of the step
    action: Recv | RecvReduce


def _pair_all(schedule: Schedule, programs: list[list[_RankStep]], skip: int) -> None:
    """Pair the messages of all steps, and keep them in the steps."""
    sends, arrivals = _list_ends(schedule, programs, skip)
    unpaired = _unpaired(sends, arrivals)
    if unpaired:
        raise ScheduleError(_unpaired_text(schedule, unpaired[0], skip))
    for pair in sorted(sends):
        source, target, _ = pair
        ends = zip(sends[pair], arrivals[pair], strict=True)
        for (sent_in, part), (landed_in, position, arrival) in ends:
            with _naming(_steps_of_message(source, target, sent_in + skip, landed_in + skip)):
                messages = _pair(schedule, np.array([source]), np.array([target]), part, arrival)
            programs[source][sent_in].sent.append(messages)
            programs[target][landed_in].landed[position] = messages
            programs[source][sent_in].partners.append((target, landed_in))
            programs[target][landed_in].partners.append((source, sent_in))


def _list_ends(
    schedule: Schedule, programs: list[list[_RankStep]], skip: int
) -> tuple[dict[_Pair, list[_Sent]], dict[_Pair, list[_Awaited]]]:
    """Return the sends and the receives of all steps, in their order; copies, which need no partner, are paired."""
    sends: dict[_Pair, list[_Sent]] = defaultdict(list)
    arrivals: dict[_Pair, list[_Awaited]] = defaultdict(list)
    for me, program in enumerate(programs):
        for number, current in enumerate(program):
            for action, peer, k in _numbered(current.step, me):
                if isinstance(action, Copy):
                    itself = np.array([me])
                    with _naming(f"step {number + skip + 1}"):
                        current.sent.append(_pair(schedule, itself, itself, action.source, action))
                    current.landed.append(current.sent[-1])
                elif peer == me or not 0 <= peer < len(programs):
                    raise ScheduleError(
                        f"step {number + skip + 1}: rank {me} names rank {peer}, which is not a peer"
                    )
                elif isinstance(action, Send):
                    sends[me, peer, k].append(_Sent(number, action.part))
                else:
                    arrivals[peer, me, k].append(_Awaited(number, len(current.landed), action))
                    current.landed.append(_PENDING)
    return sends, arrivals


def _steps_of_message(source: int, target: int, sent_in: int, landed_in: int) -> str:
    if sent_in == landed_in:
        return f"step {sent_in + 1}"
    return f"step {sent_in + 1} of rank {source}, step {landed_in + 1} of rank {target}"


class _Unpaired(NamedTuple):
    """The first steps of two ranks in which one sends the other more or fewer messages than that one receives."""

    sent_in: int
    landed_in: int
    source: int
    target: int
    sent: int  # in the step of the source
    received: int  # in the step of the target


def _unpaired(
    sends: dict[_Pair, list[_Sent]], arrivals: dict[_Pair, list[_Awaited]]
) -> list[_Unpaired]:
    """Return where messages without a partner are, of each two ranks that have any; the earliest comes first."""
    unpaired: set[tuple[int, int]] = set()
    for pair in sends.keys() | arrivals.keys():
        if len(sends.get(pair, ())) != len(arrivals.get(pair, ())):
            unpaired.add(pair[:2])
    if not unpaired:
        return []
    sent: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    received: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for ends, counts in ((sends, sent), (arrivals, received)):
        for pair, listed in ends.items():
            if pair[:2] in unpaired:
                counts[pair[:2]].update(end.step for end in listed)
    differences = [_first_difference(*pair, sent[pair], received[pair]) for pair in unpaired]
    return sorted(differences, key=lambda first: (min(first.sent_in, first.landed_in), first))


def _first_difference(
    source: int, target: int, sent: Counter[int], received: Counter[int]
) -> _Unpaired:
    """Return the first steps with unequal numbers of messages, by step.

    The two ranks may count the same step differently. The distance between their numbers is chosen
    so that the fewest steps differ, and is 0 if no other distance is better.
    """
    distances = {0}
    for sent_in in _outermost(sent):
        distances.update(landed_in - sent_in for landed_in in _outermost(received))

    def unequal_steps(distance: int) -> list[int]:
        steps = sent.keys() | {landed_in - distance for landed_in in received}
        return sorted(step for step in steps if sent[step] != received[step + distance])

    distance = min(distances, key=lambda d: (len(unequal_steps(d)), abs(d), d))
    first = unequal_steps(distance)[0]
    landed_in = first + distance
    return _Unpaired(first, landed_in, source, target, sent[first], received[landed_in])


def _outermost(counts: Counter[int]) -> list[int]:
    """Return the first two and the last two steps that are counted."""
    steps = sorted(counts)
    return [*steps[:2], *steps[-2:]]


def _unpaired_text(schedule: Schedule, unpaired: _Unpaired, skip: int) -> str:
    """Return in which step the two ranks differ, with the numbers of messages there and in all steps."""
    sent = received = 0
    for step in schedule.steps(unpaired.source):
        for action, peer, _ in _numbered(step, unpaired.source):
            sent += isinstance(action, Send) and peer == unpaired.target
    for step in schedule.steps(unpaired.target):
        for action, peer, _ in _numbered(step, unpaired.target):
            received += isinstance(action, Recv | RecvReduce) and peer == unpaired.source
    steps = _steps_of_message(
        unpaired.source, unpaired.target, unpaired.sent_in + skip, unpaired.landed_in + skip
    )
    source = f"rank {unpaired.source}"
    target = f"rank {unpaired.target}"
    messages = format_count(unpaired.sent, "message") if unpaired.sent else "no message"
    arrivals = unpaired.received or "none"
    text = f"{steps}: {source} sends {messages} to {target}, {target} receives {arrivals} from {source}"
    if (sent, received) != (unpaired.sent, unpaired.received):
        text += f"; in all steps: {sent} and {received}"
    return text


def _numbered(step: Step, me: int) -> Iterator[tuple[Action, int, int]]:
    """Yield every action that has a peer, the peer, and how many of its kind with that peer precede it in the step."""
    before: dict[tuple[bool, int], int] = defaultdict(int)
    for action in drop_null_peers(step).actions:
        peer = me if isinstance(action, Copy) else int(action.peer)
        kind = isinstance(action, Send), peer
        yield action, peer, before[kind]
        before[kind] += 1


_PENDING = Messages(np.array([]), np.array([]), Part("dst", ()), Part("dst", ()), None)
"""Keeps the place of an arrival in the listed order until its sender is known."""


def _deadlock(programs: list[list[_RankStep]], at: list[int], skip: int) -> str:
    waits = []
    for me, program in enumerate(programs):
        partners = program[at[me]].partners if at[me] < len(program) else []
        for peer, number in sorted(set(partners)):
            if at[peer] < number:
                wait = f"rank {me} in step {at[me] + skip + 1} waits for rank {peer} to reach step {number + skip + 1}"
                waits.append(wait)
    return "deadlock: " + "; ".join(waits)
