"""The proof that every order in which the events of a plan of MSCCL++ can happen gives the right result.

The k-th wait of a channel or semaphore follows those signals without which k could not have come.
Two operations conflict if both use a chunk, at least one writes it, and nothing orders them. If no
operations conflict, and none waits forever, every order gives the same result, and one is returned.
The second run can begin when the first has ended everywhere, and then does the same.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_count
from hpccoll.extensions.plans.mscclpp_events import Cell, Counted, PlanEvent, PlanRun, fault_of

MAX_PAIRS = 1 << 20
"""The most pairs of a signal and a wait for it: a ring of 32 ranks has as many."""


def proven_moves(run: PlanRun) -> list[PlanEvent]:
    """Return the operations on data of the first run and all programs, in an order in which they can happen.

    Raises:
        UnusableError: if orders give different results, or none ends; names the rank and the unit
            or thread block.
    """
    _check_counts(run.events)
    order = _one_order(run)
    _check_races(run, order, *_follows(run, order))
    moves = []
    for number in order:
        event = run.events[number]
        if event.program >= 0 or (number < run.last and event.writes):
            moves.append(event)
    return moves


def _one_order(run: PlanRun) -> list[int]:
    """Return an order in which the events can happen.

    Raises:
        UnusableError: if some wait forever. No choice matters: a signal serves the waits of one
            thread alone, in order.
    """
    events = run.events
    left = [len(event.before) for event in events]
    after: defaultdict[int, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        for earlier in event.before:
            after[earlier].append(number)
    ready = deque(number for number, count in enumerate(left) if not count)
    order: list[int] = []
    signals = Counter(run.initial)
    waiting: defaultdict[Counted, list[int]] = defaultdict(list)
    while ready:
        number = ready.popleft()
        counter = events[number].counter
        step = events[number].step
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
        first = min(chain.from_iterable(waiting.values()), default=0)
        raise UnusableError(events[first].where, "it waits for a signal that never comes")
    return order


def _follows(run: PlanRun, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the events that each one follows in every order, and those whose writes it then sees, each as bits.

    Raises:
        UnusableError: if the waits of a channel or semaphore have no order.
    """
    events = run.events
    counters = _counters(run.events, order)
    while True:
        past = _closure(order, [event.before for event in events])
        new = [
            pair
            for counter, (signals, waits) in counters.items()
            for pair in _needed(past, signals, waits, run.initial.get(counter, 0))
        ]
        for wait, signal in new:
            events[wait].before.append(signal)
        if not new:
            break
    for signals, waits in counters.values():
        for wait in waits:
            events[wait].seen += {
                events[signal].begin for signal in signals if past[wait] >> signal & 1
            }
    for wait, next_wait in (pair for _, waits in counters.values() for pair in pairwise(waits)):
        if not past[next_wait] >> wait & 1:
            raise UnusableError(
                events[next_wait].where,
                f"it and {events[wait].where} wait on one channel or semaphore, and each can take a signal that is for "
                "the other one; do: order them by nop in one thread block, or by barrier",
            )
    return past, _closure(order, [event.seen for event in events])


def _counters(
    events: Sequence[PlanEvent], order: Sequence[int]
) -> dict[Counted, tuple[list[int], list[int]]]:
    """Return the signals and the waits of each channel or semaphore."""
    counters = defaultdict[Counted, tuple[list[int], list[int]]](lambda: ([], []))
    for number in order:
        if counter := events[number].counter:
            counters[counter][events[number].step < 0].append(number)
    if sum(len(signals) * len(waits) for signals, waits in counters.values()) > MAX_PAIRS:
        raise UnusableError("plan", "its channels have more signals than can be proven")
    return counters


def _check_counts(events: Sequence[PlanEvent]) -> None:
    """Check that each channel or semaphore has as many signals as waits: one left over ends one of the next run early.

    Raises:
        UnusableError: names the side that has too few, if it has any.
    """
    counts = Counter((event.counter, event.step) for event in events)
    for event in events:
        if not event.counter:
            continue
        signals = counts[event.counter, 1] // 2  # of two runs
        waits = counts[event.counter, -1] // 2
        names_signals = 0 < signals < waits or not waits
        if signals != waits and (event.step > 0) == names_signals:
            kind, me, number = event.counter
            counted = kind if kind == "semaphore" else f"{kind} channel"
            has = f"{format_count(signals, 'signal')} and {format_count(waits, 'wait')} in a run"
            missing = "signals" if signals < waits else "waits"
            raise UnusableError(
                event.where, f"too few {missing}: {counted} {number} of rank {me} has {has}"
            )


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
    after = [
        sum(1 << k for k, later in enumerate(signals) if past[later] >> signal & 1)
        for signal in signals
    ]
    for wait in waits:
        count = 1 + sum(past[wait] >> earlier & 1 for earlier in waits) - initial
        able = sum(1 << k for k, signal in enumerate(signals) if not past[signal] >> wait & 1)
        for k, signal in enumerate(signals):
            remaining = (able & ~after[k]).bit_count() - 1
            if able >> k & 1 and remaining < count and not past[wait] >> signal & 1:
                yield wait, signal


def _check_races(
    run: PlanRun, order: Sequence[int], past: Sequence[int], seen: Sequence[int]
) -> None:
    """Check that operations on one chunk have an order if one of them writes it.

    Raises:
        UnusableError: names the chunk and both operations.
    """
    events = run.events
    written: dict[Cell, int] = {}
    read: defaultdict[Cell, list[int]] = defaultdict(list)
    for number in order:
        event = events[number]
        new = {cell for cells in event.writes for cell in cells}
        for cell in sorted({cell for cells in event.reads for cell in cells} | new):
            earlier = (
                [written[cell]] if cell in written and not seen[number] >> written[cell] & 1 else []
            )
            earlier += [
                reader for reader in read[cell] if cell in new and not past[number] >> reader & 1
            ]
            if earlier:
                raise fault_of(cell, _race(run, cell, earlier[0], number))
            if cell in new:
                written[cell] = number
                read[cell] = []
            else:
                read[cell].append(number)


def _race(run: PlanRun, cell: Cell, first: int, second: int) -> str:
    """Return which events can use a chunk in either order, and what would order them, for the author of the plan."""
    for program, operation in ((first, second), (second, first)):
        if run.events[program].program >= 0:
            return _race_with_program(run, cell, program, operation)
    return (
        f"{run.events[first].where} and {run.events[second].where} can happen in either order, and one of them writes "
        "it; do: order them, by nop in one thread block, by barrier or semaphore in one rank, by signal and wait in two"
    )


def _race_with_program(run: PlanRun, cell: Cell, program: int, operation: int) -> str:
    event = run.events[operation]
    rank = run.events[program].program
    code = f"the program of rank {rank} (the code that runs the plan)"
    if run.number_of(program) > run.number_of(operation):
        return (
            f"{code} can {_verb(run.events[program], cell)} it after the run while {event.where} still uses it; do: "
            "let a nop and a signal follow the operation, and let that rank wait for it, neither relaxed; or use pwsf "
            "in place of pws"
        )
    return (
        f"{event.where} can {_verb(event, cell)} it before {code} has finished with its buffers; do: let rank {rank} "
        "signal when its run begins, and let the operation follow a wait for that signal and a nop"
    )


def _verb(event: PlanEvent, cell: Cell) -> str:
    return "write" if any(cell in cells for cells in event.writes) else "read"
